"""rlx.scipy.interpolate: interpolation on regular grids."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx.array import Array
from rlx.errors import DtypeError, ShapeError, UnsupportedError
from rlx.numpy.promotion import operand, promote_inexact
from rlx.offered_names import offer_names
from rlx.trace.flat import as_array
from rlx.trees import tree

__all__ = ["RegularGridInterpolator"]

offer_names(globals())

_METHODS = ("linear", "nearest")


def _check_method(method: str) -> None:
    if method not in _METHODS:
        raise ValueError(f"RegularGridInterpolator has no method {method!r}: use 'linear' or 'nearest'.")


class RegularGridInterpolator:
    """A function that has given values on a rectangular grid.

    Args:
      points: for each of n axes the ascending coordinates of the grid, 1-d arrays of two numbers or more.
      values: an array whose first n axes are the grid's axes.
      method: "linear" or "nearest".
      bounds_error: False: points outside the grid do not raise.
      fill_value: the result outside the grid; None: extrapolate the outermost cells.

    It is a pytree: it can be an argument and a result of transformed functions. Raises: ShapeError,
    DtypeError for a fill_value that does not fit, UnsupportedError for bounds_error=True.

    >>> import rlx, rlx.numpy as jnp
    >>> f = rlx.scipy.interpolate.RegularGridInterpolator((jnp.array([0.0, 1.0, 3.0]),), jnp.array([0.0, 2.0, 4.0]))
    >>> f(jnp.array([0.25, 2.0]))
    Array([0.5, 3. ], dtype=float32)
    """

    __slots__ = ("bounds_error", "fill_value", "grid", "method", "values")

    def __init__(
        self, points: Sequence[Any], values: Any, method: str = "linear", bounds_error: bool = False,
        fill_value: Any = np.nan,
    ) -> None:  # fmt: skip
        _check_method(method)
        if bounds_error:
            raise UnsupportedError(
                "RegularGridInterpolator(bounds_error=True): compiled functions cannot raise.",
                "Look for fill_value in the result.",
            )
        (self.values,) = promote_inexact("RegularGridInterpolator", values)
        self.grid = tuple(as_array(operand(p, "RegularGridInterpolator")) for p in points)
        self.method, self.bounds_error = method, bounds_error
        lengths = tuple(p.shape for p in self.grid)
        if lengths != tuple((n,) for n in self.values.shape[: len(self.grid)]):
            raise ShapeError(
                f"RegularGridInterpolator got points of shapes {lengths} for values of shape {self.values.shape}.",
                "Pass a 1-d array of points for each of the first axes of the values, of that axis' length.",
            )
        if any(size < 2 for (size,) in lengths):
            raise ShapeError(f"RegularGridInterpolator got points of shapes {lengths}.", "Pass two points or more.")
        self.fill_value = fill_value
        if fill_value is not None:
            self.fill_value = as_array(operand(fill_value, "RegularGridInterpolator"))
            if not jnp.can_cast(self.fill_value.dtype, self.values.dtype, casting="same_kind"):
                raise DtypeError(
                    f"A fill_value of {self.fill_value.dtype} does not fit values of {self.values.dtype}.",
                    "Convert the values, or pass another number.",
                )

    def __call__(self, xi: Any, method: str | None = None) -> Array:
        """The function at points.

        Args: xi: (..., n), or a tuple of n arrays of coordinates, or (...) for a grid of one axis;
        method: overrides the interpolator's method. Returns: an array with the shape of the points,
        followed by the values' axes after the grid's axes.
        """
        method = self.method if method is None else method
        _check_method(method)
        coordinates = self._coordinates(xi)
        shape = np.broadcast_shapes(*(x.shape for x in coordinates))
        flat = [jnp.ravel(jnp.broadcast_to(x, shape)) for x in coordinates]
        cells = [jnp.clip(jnp.searchsorted(g, x) - 1, 0, g.size - 2) for x, g in zip(flat, self.grid, strict=True)]
        shares = [(x - g[i]) / (g[i + 1] - g[i]) for x, i, g in zip(flat, cells, self.grid, strict=True)]
        result = self._linear(cells, shares) if method == "linear" else self._nearest(cells, shares)
        if self.fill_value is not None:
            beyond = [(x < g[0]) | (x > g[-1]) for x, g in zip(flat, self.grid, strict=True)]
            outside = functools.reduce(operator.or_, beyond)
            outside = jnp.reshape(outside, (-1, *[1] * (result.ndim - 1)))
            result = jnp.where(outside, self.fill_value, result)
        return jnp.reshape(result, shape + self.values.shape[len(self.grid) :])

    def _coordinates(self, xi: Any) -> list[Array]:
        """Those along each axis of the grid."""
        axes = len(self.grid)
        if isinstance(xi, tuple) and len(xi) > 1:
            found = [as_array(operand(x, "RegularGridInterpolator")) for x in xi]
        else:
            points = as_array(operand(xi[0] if isinstance(xi, tuple) else xi, "RegularGridInterpolator"))
            if points.ndim < 2:
                points = jnp.reshape(points, (-1, axes)) if points.size % axes == 0 else points[None]
            found = [points[..., i] for i in range(points.shape[-1])]
        if len(found) != axes:
            raise ShapeError(
                f"The points have {len(found)} coordinates; the grid has {axes} axes.",
                "The last axis of an array of points contains their coordinates.",
            )
        return found

    def _linear(self, cells: Sequence[Array], shares: Sequence[Array]) -> Array:
        """The mean of a cell's corners, weighted by nearness."""
        inner = (...,) + (None,) * (self.values.ndim - len(cells))

        def term(corner: tuple[int, ...]) -> Array:
            weights = [s if upper else 1 - s for s, upper in zip(shares, corner, strict=True)]
            found = self.values[tuple(i + upper for i, upper in zip(cells, corner, strict=True))]
            return found * functools.reduce(operator.mul, weights)[inner]

        return functools.reduce(operator.add, map(term, itertools.product((0, 1), repeat=len(cells))))

    def _nearest(self, cells: Sequence[Array], shares: Sequence[Array]) -> Array:
        return self.values[tuple(jnp.where(s <= 0.5, i, i + 1) for i, s in zip(cells, shares, strict=True))]

    # --------------------------------------------------------- pytree
    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[str, bool]]:
        """The arrays, and how they are used."""
        return (self.grid, self.values, self.fill_value), (self.method, self.bounds_error)

    @classmethod
    def tree_unflatten(cls, aux: tuple[str, bool], children: tuple[Any, ...]) -> RegularGridInterpolator:
        """An interpolator of its arrays."""
        function = cls.__new__(cls)
        function.grid, function.values, function.fill_value = children
        function.method, function.bounds_error = aux
        return function


tree.register_node(
    RegularGridInterpolator, RegularGridInterpolator.tree_flatten, RegularGridInterpolator.tree_unflatten
)
