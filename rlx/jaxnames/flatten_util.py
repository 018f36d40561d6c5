"""One vector from the arrays of a tree, and back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import DtypeError, ShapeError
from rlx.offered_names import offer_names
from rlx.trace.flat import as_array
from rlx.trees import tree

__all__ = ["ravel_pytree"]

offer_names(globals())


@dataclass(frozen=True)
class Unravel:
    """Converts a vector back to a tree. Two are equal if their tree structures and types are."""

    treedef: Any
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[Any, ...]
    dtype: Any

    def __call__(self, flat: Any) -> Any:
        """The tree. Raises ShapeError for another length, DtypeError for another dtype than the vector had."""
        vector = as_array(flat)
        sizes = [math.prod(shape) for shape in self.shapes]
        if vector.shape != (sum(sizes),):
            raise ShapeError(f"This tree has {sum(sizes)} elements, the vector has shape {vector.shape}.")
        uniform = all(dtype == self.dtype for dtype in self.dtypes)
        if vector.dtype != self.dtype and not uniform:
            raise DtypeError(
                f"This tree was raveled to {self.dtype}, the vector is of {vector.dtype}.",
                f"Write unravel(vector.astype({str(self.dtype)!r})).",
            )
        pieces, start = [], 0
        for shape, dtype, size in zip(self.shapes, self.dtypes, sizes, strict=True):
            piece = vector[start : start + size].reshape(shape)
            pieces.append(piece if uniform else piece.astype(dtype))
            start += size
        return tree.unflatten(self.treedef, pieces)


def ravel_pytree(pytree: Any) -> tuple[Array, Unravel]:
    """The arrays of a tree in one vector, and the function that converts such a vector back to a tree.

    Args:
      pytree: a tree of arrays and numbers.

    Returns the vector, of the dtype that the leaves promote to (the default float for no leaves), and `unravel`, which
    raises ShapeError for a vector of another length, and DtypeError for another dtype if the leaves' dtypes differ.

    >>> import rlx
    >>> from rlx.flatten_util import ravel_pytree
    >>> flat, unravel = ravel_pytree({"w": rlx.numpy.ones((2, 2)), "b": 3.0})
    >>> flat.tolist(), unravel(flat * 2)["b"].item()
    ([3.0, 1.0, 1.0, 1.0, 1.0], 6.0)
    """
    leaves, treedef = tree.flatten(pytree)
    arrays = [as_array(leaf) for leaf in leaves]
    dtype = jnp.result_type(*arrays) if arrays else jnp.zeros(0).dtype
    vector = jnp.concatenate([x.ravel().astype(dtype) for x in arrays]) if arrays else jnp.zeros(0, dtype)
    return vector, Unravel(treedef, tuple(x.shape for x in arrays), tuple(x.dtype for x in arrays), dtype)
