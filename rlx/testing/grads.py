"""Checks of derivatives against finite differences, in both modes and to any order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.ir.types import is_complex, is_inexact
from rlx.testing.compare import assert_close, gradient_tolerance
from rlx.trace.primitive import to_numpy, type_of
from rlx.transforms.forward import jvp
from rlx.transforms.reverse import vjp
from rlx.trees import tree

__all__ = ["check_grads"]

Flat = Callable[..., tuple[Any, ...]]
Tolerance = float | Mapping[Any, float] | None

# bytes of a real number -> step of the central difference
_STEPS = {1: 0.25, 2: 5e-2, 4: 5e-3, 8: 1e-4}


class _Check:
    """The modes and tolerances of one check."""

    def __init__(
        self, modes: Sequence[str], atol: Tolerance, rtol: Tolerance, eps: float | None
    ) -> None:
        self.modes, self.eps = modes, eps
        self.atol, self.rtol = by_dtype(atol), by_dtype(rtol)
        self.generator = np.random.default_rng(0)

    def run(self, f: Flat, args: Sequence[np.ndarray], order: int, path: str) -> None:
        """Check the first derivative of a flat function, then its higher derivatives."""
        if "fwd" in self.modes:
            self.forward(f, args, path + "jvp")
            if order > 1:
                direction = self.random_like(args)
                self.run(_pushed(f, direction), args, order - 1, path + "jvp of ")
        if "rev" in self.modes:
            self.reverse(f, args, path + "vjp")
            if order > 1:
                self.run(_pulled(f), args, order - 1, path + "vjp of ")

    def forward(self, f: Flat, args: Sequence[np.ndarray], what: str) -> None:
        """Check that the jvp along a random direction equals the central difference."""
        direction = self.random_like(args)
        values, tangents = jvp(f, tuple(args), tuple(direction))
        plain = f(*args)
        self.close(values, plain, f"value under {what}")
        self.close(tangents, self.difference(f, args, direction), what)

    def reverse(self, f: Flat, args: Sequence[np.ndarray], what: str) -> None:
        """Check that ct . (J t) = (ct J) . t, with J t by the central difference."""
        direction = self.random_like(args)
        values, pull = vjp(f, *args)
        cotangents = self.random_like([to_numpy(v) for v in values])
        pulled = pull(tuple(_with_dtype_of(values, cotangents)))
        expected = paired(cotangents, self.difference(f, args, direction))
        dtypes = [np.asarray(x).dtype for x in args]
        size = sum(np.abs(np.asarray(c, complex)).sum() for c in cotangents)
        np.testing.assert_allclose(
            paired(pulled, direction),
            expected,
            rtol=max(map(self.rtol, dtypes), default=0.0),
            atol=max(map(self.atol, dtypes), default=0.0) * max(1.0, float(size)),
            err_msg=what,
        )

    def difference(
        self, f: Flat, args: Sequence[np.ndarray], direction: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, ...]:
        """(f(x + e t) - f(x - e t)) / 2e, subtracted in float64."""
        step = self.eps or max((_STEPS[_width(x.dtype)] for x in args), default=1.0)
        ahead, behind = (
            f(*(_moved(x, sign * step, t) for x, t in zip(args, direction, strict=True)))
            for sign in (1, -1)
        )
        return tuple(
            _gap(wide(a), wide(b)) / (2 * step) for a, b in zip(ahead, behind, strict=True)
        )

    def random_like(self, arrays: Sequence[Any]) -> list[np.ndarray]:
        """A random array of the shape and dtype of each."""
        result = []
        for x in arrays:
            values = np.asarray(self.generator.normal(size=x.shape))
            if is_complex(x.dtype):
                values = values + 1j * self.generator.normal(size=x.shape)
            result.append(np.asarray(values).astype(x.dtype))
        return result

    def close(self, actual: Sequence[Any], expected: Sequence[Any], what: str) -> None:
        """Compare arrays with the tolerance of the actual ones."""
        for x, y in zip(actual, expected, strict=True):
            dtype = to_numpy(x).dtype
            assert_close(x, y, self.rtol(dtype), self.atol(dtype), check_dtype=False, message=what)


def by_dtype(given: Tolerance) -> Callable[[np.dtype], float]:
    """The tolerance of a derivative by dtype, from a number or a number for each dtype."""
    if isinstance(given, Mapping):
        table = {np.dtype(dtype): value for dtype, value in given.items()}
        return lambda dtype: table[dtype] if dtype in table else gradient_tolerance(dtype)
    return lambda dtype: gradient_tolerance(dtype) if given is None else given


def _gap(ahead: np.ndarray, behind: np.ndarray) -> np.ndarray:
    """The difference; 0 between equal infinities."""
    with np.errstate(invalid="ignore"):
        return np.where(ahead == behind, 0, ahead - behind)


def _moved(x: np.ndarray, step: float, direction: np.ndarray) -> np.ndarray:
    # 0-d arithmetic gives NumPy scalars, which are weakly typed: back to an array
    return np.asarray(wide(x) + step * wide(direction)).astype(x.dtype)


def _width(dtype: np.dtype) -> int:
    return dtype.itemsize // 2 if is_complex(dtype) else dtype.itemsize


def wide(x: Any) -> np.ndarray:
    """Convert to float64, or complex128."""
    array = to_numpy(x)
    return array.astype(np.complex128 if is_complex(array.dtype) else np.float64)


def paired(cotangents: Sequence[Any], tangents: Sequence[Any]) -> float:
    """The real inner product that defines transposes: Re(sum of products), no conjugates."""
    return float(
        sum(np.real(np.sum(wide(c) * wide(t))) for c, t in zip(cotangents, tangents, strict=True))
    )


def _with_dtype_of(values: Sequence[Any], arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [np.asarray(a).astype(v.dtype) for a, v in zip(arrays, values, strict=True)]


def _pushed(f: Flat, direction: Sequence[np.ndarray]) -> Flat:
    return lambda *args: jvp(f, args, tuple(direction))[1]


def _pulled(f: Flat) -> Flat:
    def gradient(*args: Any) -> tuple[Any, ...]:
        values, pull = vjp(f, *args)
        return pull(values)

    return gradient


def check_grads(
    f: Callable[..., Any],
    args: Sequence[Any],
    order: int,
    modes: Sequence[str] = ("fwd", "rev"),
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
) -> None:
    """Compare derivatives of `f` at `args` with finite differences along one random direction.

    Args:
      f: a function of arrays, or trees of them; integer arguments and results are constant.
      args: its positional arguments. float64 gives the strictest check.
      order: the highest order of derivatives; every combination of `modes` is checked up to it.
      modes: "fwd" (jvp), "rev" (vjp), or both.
      atol, rtol: tolerances, a number or one for each dtype ({dtype: number}); they default to the dtype's tolerance.
      eps: the step of the central difference; by default it follows from the dtype.

    Raises: AssertionError if a derivative is wrong, with its name.

    >>> import numpy as np
    >>> import rlx
    >>> from rlx.testing import check_grads
    >>> check_grads(lambda x: rlx.numpy.sin(x) * x, (np.array([1.0, 2.0]),), order=2)
    """
    leaves, structure = tree.flatten(tuple(args))
    moving = [is_inexact(type_of(x).dtype) for x in leaves]
    arrays = [to_numpy(x) for x, m in zip(leaves, moving, strict=True) if m]

    def flat(*values: Any) -> tuple[Any, ...]:
        given = iter(values)
        filled = [next(given) if m else x for x, m in zip(leaves, moving, strict=True)]
        results = tree.leaves(f(*tree.unflatten(structure, filled)))
        return tuple(r for r in results if is_inexact(type_of(r).dtype))

    _Check(modes, atol, rtol, eps).run(flat, arrays, order, "")
