"""rlx.export_numba: a function as a Python module that needs NumPy and Numba alone."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rlx.backends import backend_named
from rlx.backends.loops.program import identifier
from rlx.backends.numba.helpers import HELPER_NAMES
from rlx.backends.numba.module import Place, module_source
from rlx.call.jit import jit
from rlx.ir.types import TensorType
from rlx.passes.pipeline import lower_to_plan
from rlx.trees import tree

__all__ = ["export_numba"]


def export_numba(f: Callable[..., Any], *types: Any, path: str | Path | None = None) -> str:
    """The source of a Python module with `f` as a function that Numba compiles, without rlx.

    The module needs NumPy and Numba only. Its function has the name of `f`; Python calls it, and so do functions of
    yours that @numba.njit compiles. It takes the leaves of the arguments one by one, in the order of
    `rlx.tree.leaves(types)`: arrays of exactly these shapes and dtypes, and numbers where there are no axes. It
    returns the result's leaves in order: one, or a tuple of several. What f closes over is part of the text.

    Args:
      f: a function of arrays, as jit takes it; its derivatives are such functions, too.
      types: an array, a number or a rlx.ShapeDtypeStruct for each argument, or a tree of those.
      path: a file that the source is written to.

    Raises: UnsupportedError, by name, for what only the host or SciPy can run (factorisations, callbacks, most special
      functions), and for dtypes that Numba has no arrays of.

    >>> import numpy as np, rlx, rlx.numpy as jnp
    >>> def loss(w, x):
    ...     return jnp.mean(jnp.tanh(x @ w) ** 2)
    >>> source = rlx.export_numba(rlx.grad(loss), np.ones(3), rlx.ShapeDtypeStruct((8, 3), "float64"))
    >>> module = {}
    >>> exec(source, module)
    >>> module["loss"](np.ones(3), np.ones((8, 3))).shape
    (3,)
    """
    traced = jit(f).trace(*types)
    program = traced.closed()
    plan = lower_to_plan(program, options=backend_named("numba").lowering)
    taken = {"np", "njit", "arena"}
    leaves = list(_arguments(f, types))
    arguments = [
        Place(_name(meaning, taken), meaning, kind) for meaning, kind in zip(leaves, program.input_types, strict=True)
    ]
    results = tree.leaves_with_path(tree.unflatten(traced.out_tree, program.output_types))
    meanings = [f"result{tree.path_text(route)}" for route, _ in results]
    places = [Place(_name("out", taken), m, kind) for m, kind in zip(meanings, program.output_types, strict=True)]
    name = _name(traced.fun_name, set(HELPER_NAMES))
    source = module_source(plan, name, arguments, places)
    if path is not None:
        Path(path).write_text(source, encoding="utf-8")
    return source


def _arguments(f: Callable[..., Any], types: Iterable[Any]) -> Iterable[str]:
    """Python that says what each leaf of the arguments is: `w['bias']`."""
    try:
        names = list(inspect.signature(f).bind(*types).arguments)
    except (TypeError, ValueError):
        names = []
    for number, argument in enumerate(types):
        own = names[number] if number < len(names) else f"x{number}"
        yield from (own + tree.path_text(route) for route, _ in tree.leaves_with_path(argument, _is_type))


def _is_type(value: Any) -> bool:
    return isinstance(value, TensorType)


def _name(meaning: str, taken: set[str]) -> str:
    """A name in the module's text."""
    base = name = identifier(re.sub(r"\W+", "_", meaning), "x")
    while name in taken:
        name = f"{base}_{sum(n.startswith(base) for n in taken) + 1}"
    taken.add(name)
    return name
