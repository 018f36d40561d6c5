"""With 64-bit values off, the dtype of every function's result for NumPy's numbers, lists and 0-d values is JAX's."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy
import jax.scipy.special
import numpy as np
import pytest

import rlx

F, N, C = np.float64(0.5), np.int64(2), np.complex128(0.5 + 0.5j)
U, B, H = np.uint64(3), np.bool_(True), np.float16(0.5)
ARRAY, MATRIX, PLACES = np.array([0.5, 0.25]), np.eye(2) + 1.0, np.array([0, 1])
ARGUMENTS: tuple[tuple[Any, ...], ...] = (
    *((value,) for value in (F, N, C, U, B, H, 0.5, 2, np.array(0.5), np.array(2), ARRAY, PLACES, MATRIX)),
    *(([value],) for value in (F, N, C, 0.5, 2)),
    ([F, 1],),
    ([[F], [N]],),
    ([np.array(0.5), 1.0],),
    ([ARRAY, ARRAY],),
    ([F, F],),
    (list(ARRAY),),
    (F, F),
    (N, N),
    (F, N),
    (F, 2),
    (0.5, N),
    (N, 0.5),
    (H, F),
    (B, N),
    (ARRAY, F),
    (ARRAY, N),
    (PLACES, N),
    (PLACES, F),
    (ARRAY.astype("f2"), F),
    (F, ARRAY.astype("f2")),
    (ARRAY.astype("f4"), F),
    (PLACES.astype("i1"), N),
    (PLACES.astype("i1"), F),
    (MATRIX, ARRAY),
    (MATRIX, MATRIX),
    (2, F),
    ((2,), F),
    ((2,),),
    (N, (2,)),
    (F, F, F),
    (N, N, N),
    (0, F, 3),
    (F, 1.0, N),
    (B, F, F),
    (ARRAY, ARRAY, F),
    (F, ARRAY, ARRAY),
    (ARRAY, PLACES, F),
    (F, "f8"),
    ("f8", F),
    ([True], [F]),
)
MODULES = {"numpy": jax.numpy, "numpy.linalg": jax.numpy.linalg, "numpy.fft": jax.numpy.fft, "lax": jax.lax}
MODULES |= {"nn": jax.nn, "scipy.special": jax.scipy.special}
# files and settings; collectives; functions that take functions; results without values; settings of the process;
# integers that stop_gradient returns as they are, in jax too (eval_shape narrows them)
LEFT_OUT = {"save", "savez", "load", "fromfile", "fromstring", "from_dlpack", "frombuffer", "set_printoptions"} | {
    *("get_printoptions", "printoptions", "empty", "empty_like", "fromfunction", "frompyfunc", "vectorize", "bool_"),
    *("rng_bit_generator", "rng_uniform", "create_token", "after_all", "infeed", "outfeed", "while_loop"),
    *("DotDimensionNumbers", "stop_gradient"),
}


# arguments for which the dtype differs: float16 beside a float64 number, and functions that promote a parameter
DIFFERENT = {"angle": (H,), "gradient": (F,), "norm": (F,), "histogram": (C,), "unravel_index": (N,)}


def _ours(module: str) -> Any:
    found: Any = rlx
    for part in module.split("."):
        found = getattr(found, part)
    return found


def _functions() -> Iterator[tuple[str, str]]:
    for module, theirs in MODULES.items():
        for name in dir(theirs):
            function = getattr(theirs, name)
            if name.startswith("_") or name in LEFT_OUT or isinstance(function, type) or not callable(function):
                continue
            if callable(getattr(_ours(module), name, None)):
                yield module, name


def _dtypes(result: Any) -> list[str]:
    """The dtypes of a result's arrays."""
    return [str(x.dtype) for x in jax.tree.leaves(result) if hasattr(x, "dtype")]


def _results(function: Callable[..., Any]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    for arguments in ARGUMENTS:
        try:
            found = _dtypes(jax.eval_shape(lambda: function(*arguments)))  # noqa: B023  called at once
        except Exception:  # not its arguments
            continue
        if found:
            yield arguments, found


@pytest.fixture(autouse=True)
def _off() -> Iterator[None]:
    before = rlx.config.jax_enable_x64
    rlx.config.update("jax_enable_x64", False)
    with jax.enable_x64(False), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    rlx.config.update("jax_enable_x64", before)
    rlx.config.update("narrow", False)


@pytest.mark.selected(40)
@pytest.mark.parametrize(("module", "name"), list(_functions()), ids="-".join)
def test_dtypes(module: str, name: str) -> None:
    ours = getattr(_ours(module), name)
    wrong = []
    for arguments, expected in _results(getattr(MODULES[module], name)):
        try:
            found = _dtypes(ours(*arguments))
        except (TypeError, ValueError, IndexError):  # refusals have tests of their own
            continue
        known = any(a is b for a in arguments for b in DIFFERENT.get(name, ()))
        if found and found != expected and not known:  # where jax has Python's numbers, a shape of results shows arrays
            wrong.append(f"{name}{arguments}: {found} instead of {expected}")
    assert not wrong, "\n".join(wrong)
