"""rlx.export_numba: a function as a Python module that needs only NumPy and Numba."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlx.backends import backend_named
from rlx.backends.claims import Claims
from rlx.backends.numba.dialect import PythonDialect
from rlx.backends.numba.module import module_source
from rlx.call.jit import jit
from rlx.ir.splats import SPLAT_BLOCKS, takes_splats
from rlx.passes.pipeline import Context, lower_to_plan
from rlx.standalone.leaves import free_name, places

__all__ = ["export_numba"]


def export_numba(
    f: Callable[..., Any], *types: Any, path: str | Path | None = None, name: str | None = None
) -> str:
    """The source of a Python module with `f` as a function that Numba compiles, without rlx.

    The module needs only NumPy and Numba. Its function can be called from Python, and from your own functions compiled
    with @numba.njit. It takes the argument leaves one by one, in the order of `rlx.tree.leaves(types)`: arrays of
    exactly these shapes and dtypes, and numbers for shape (). It returns the result's leaves in order: one, or a tuple
    of several. Values captured by f are part of the source.

    Args:
      f: a function of arrays, as for jit; also its derivatives.
      types: an array, a number or a rlx.ShapeDtypeStruct for each argument, or a tree of those.
      path: the file to write the source to.
      name: the function's name; by default the name of f.

    Linear systems, Cholesky, LU, QR, eigh, svd and Fourier transforms become loops and products.

    Raises: UnsupportedError, by name, for operations that only the host or SciPy can run (general eigenvalues, Schur
      forms, callbacks, hyp1f1, hyp2f1, jv, gammaincinv, complex wofz), and for dtypes that Numba's arrays lack.

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
    claims = Claims(routines=frozenset(), blocks=SPLAT_BLOCKS, fits=takes_splats)
    alone = Context(backend_named("numba").lowering, claims, "numba")
    plan = lower_to_plan(traced.closed(), context=alone)
    name = free_name(name or traced.fun_name, set(PythonDialect.reserved))
    arguments, results = places(f, types, traced, {name, *PythonDialect.reserved})
    source = module_source(plan, name, arguments, results)
    if path is not None:
        Path(path).write_text(source, encoding="utf-8")
    return source
