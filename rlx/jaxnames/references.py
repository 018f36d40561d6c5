"""jax.new_ref: values that change, as cells that hold what is written to them (flax.nnx)."""

from __future__ import annotations

from typing import Any

from rlx.array import Array
from rlx.errors import UnsupportedError
from rlx.jaxnames.avals import AbstractValue, Typed, typeof
from rlx.trace.builder import state
from rlx.trace.flat import as_array

__all__ = ["AbstractRef", "Ref", "addupdate", "freeze", "get", "new_ref", "set", "swap"]


class AbstractRef(AbstractValue):
    """The type of a Ref: that of what it holds.

    >>> import rlx
    >>> from rlx.jaxnames.references import new_ref
    >>> new_ref(rlx.numpy.zeros(3)).aval.shape
    (3,)
    """

    def __init__(self, inner_aval: Any) -> None:
        self.inner_aval = inner_aval
        self.shape, self.dtype = inner_aval.shape, inner_aval.dtype


class Ref(Typed):
    """A cell with an array: `ref[...]` reads, `ref[...] = value` and `ref[index] = value` write.

    What is written is the state of the function that made the cell: a function that is traced on its own may read a
    cell of outside, but not write to it.

    >>> import rlx
    >>> from rlx.jaxnames.references import freeze, new_ref
    >>> def f(x):
    ...     ref = new_ref(rlx.numpy.zeros(2))
    ...     ref[0] = x
    ...     ref[...] += 1
    ...     return freeze(ref)
    >>> rlx.jit(f)(3.0).tolist()
    [4.0, 1.0]
    """

    def __init__(self, value: Any) -> None:
        self._value = as_array(value)
        self._builder = state.builder

    @property
    def aval(self) -> AbstractRef:
        """The type."""
        return AbstractRef(typeof(self._value))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self._value.shape

    @property
    def dtype(self) -> Any:
        """dtype of the array."""
        return self._value.dtype

    @property
    def ndim(self) -> int:
        """Number of axes of the array."""
        return self._value.ndim

    def __getitem__(self, index: Any) -> Array:
        return self._value[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.update(index, value, "set")

    def update(self, index: Any, value: Any, how: str) -> None:
        """Write as a method of `.at[index]` does: "set" or "add"."""
        if state.builder is not self._builder:
            raise UnsupportedError(
                "A traced function writes to a Ref that was made outside of it.",
                "Pass its value as an argument, return the new one, and write it to the Ref outside.",
            )
        self._value = getattr(self._value.at[index], how)(value)

    def __repr__(self) -> str:
        return f"Ref({self._value!r})"


def new_ref(init_val: Any, *, memory_space: Any = None) -> Ref:
    """A cell with this array."""
    return Ref(init_val)


def freeze(ref: Ref) -> Array:
    """What a cell holds."""
    return ref[...]


def get(ref: Ref, index: Any = ...) -> Array:
    """What a cell holds, or a part of it."""
    return ref[index]


def set(ref: Ref, index: Any, value: Any) -> None:
    """Write to a cell, or to a part of it."""
    ref[index] = value


def addupdate(ref: Ref, index: Any, value: Any) -> None:
    """Add to what a cell holds, or to a part of it: an element that the index names twice is added to twice.

    >>> import rlx
    >>> from rlx.jaxnames.references import addupdate, freeze, new_ref
    >>> ref = new_ref(rlx.numpy.zeros(2))
    >>> addupdate(ref, rlx.numpy.array([1, 1]), 2.0)
    >>> freeze(ref).tolist()
    [0.0, 4.0]
    """
    ref.update(index, value, "add")


def swap(ref: Ref, index: Any, value: Any) -> Array:
    """Write to a cell; what was there before."""
    before = ref[index]
    ref[index] = value
    return before
