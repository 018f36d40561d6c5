"""Users' types with rules for vmap: how to split a value into elements, and how to combine elements."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from rlx.array import Array
from rlx.errors import VmapAxisError
from rlx.ir.types import TensorType
from rlx.trace.builder import Builder, is_traced, state
from rlx.trace.flat import as_array

__all__ = ["MappedCall", "is_spec", "is_vmappable", "register_vmappable", "registered", "unregister_vmappable"]


class _VmapRules(NamedTuple):
    spec_type: type
    to_elt: Callable[..., Any]
    from_elt: Callable[..., Any]


_rules: dict[type, _VmapRules] = {}


def register_vmappable(
    data_type: type,
    spec_type: type,
    axis_size_type: type,
    to_elt: Callable[..., Any],
    from_elt: Callable[..., Any],
    make_iota: Callable[..., Any] | None = None,
) -> None:
    """Let vmap map values of a type of the user's, by rules.

    Args:
      data_type: the type; it need not be a node of trees.
      spec_type: the type of such values' entries in in_axes and out_axes.
      to_elt: (part, index, value, spec) -> the element that the mapped function gets. part(array, axis) is the
        element of an array along an axis, or the array itself for None; index() is the element's number.
      from_elt: (whole, axis_size, element, spec) -> the value that elements make, for results of this type.
        whole(axis_size, array, axis) is the array of all elements, its new axis at `axis`; for None it is the array,
        which must not depend on the element.
      axis_size_type, make_iota: accepted as in JAX. vmap needs axis_size if no other argument has an axis.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> class Celsius:
    ...     def __init__(self, degrees):
    ...         self.degrees = degrees
    >>> rlx.custom_batching.register_vmappable(
    ...     Celsius, int, int,
    ...     lambda part, index, value, axis: Celsius(part(value.degrees, axis)),
    ...     lambda whole, size, element, axis: Celsius(whole(size, element.degrees, axis)),
    ... )
    >>> warmer = rlx.vmap(lambda t, by: Celsius(t.degrees + by))(Celsius(jnp.zeros(3)), jnp.arange(3.0))
    >>> warmer.degrees.tolist()
    [0.0, 1.0, 2.0]
    >>> rlx.custom_batching.unregister_vmappable(Celsius)
    """
    _rules[data_type] = _VmapRules(spec_type, to_elt, from_elt)


def unregister_vmappable(data_type: type) -> None:
    """Forget the rules of a type. Raises KeyError if there are none.

    >>> import rlx
    >>> rlx.custom_batching.unregister_vmappable(int)
    Traceback (most recent call last):
        ...
    KeyError: <class 'int'>
    """
    del _rules[data_type]


def registered() -> bool:
    """Whether there are such types."""
    return bool(_rules)


def is_vmappable(value: Any) -> bool:
    """Whether vmap maps it by rules."""
    return type(value) in _rules


def is_spec(value: Any) -> bool:
    """Whether a value can replace an axis in in_axes."""
    return any(type(value) is rules.spec_type for rules in _rules.values())


class _Between(Builder):
    """The builders in which rules run: an operation is recorded with its operands, or else outside."""

    def __init__(self, outside: Builder | None, sides: Sequence[Builder]) -> None:
        super().__init__("rules")
        self.parent, self.outside, self.sides = sides[0], outside, sides

    def home(self, values: Sequence[Any]) -> Builder | None:
        """The side of the operands, or the outer builder."""
        builders = [x.builder for x in values if is_traced(x)]
        return next((side for side in self.sides if side in builders), self.outside)

    def _hands_on(self, primitive: Any, params: dict[str, Any]) -> bool:
        return True


@contextmanager
def _between(outside: Builder | None, *sides: Builder) -> Generator[None]:
    here, state.builder = state.builder, _Between(outside, sides)
    try:
        yield
    finally:
        state.builder = here


def _element(x: Array, axis: int) -> TensorType:
    """The type of an array's elements along an axis."""
    if not -x.ndim <= axis < x.ndim:
        raise VmapAxisError(
            f"A rule for vmap named axis {axis} of an array of shape {x.shape}, which has {x.ndim} axes.",
            "Use an axis that the array has, or None to leave it unmapped.",
        )
    return x.type.update(shape=tuple(np.delete(x.shape, axis).tolist()))


class MappedCall:
    """One call of vmap with arguments or results that are mapped by rules.

    The rules run twice: first to find the arrays that they map and the axes, then with the elements of these
    arrays, or the arrays of all elements.
    """

    def __init__(self, values: Sequence[Any], specs: Sequence[Any], size: int | None) -> None:
        self.values, self.specs, self.size = values, specs, size
        self.outside = state.builder
        self.out_tree: Any = None
        # the arrays to map, and their axes; other arguments unchanged
        self.arguments: list[Any] = []
        self.axes: list[int | None] = []
        for value, spec in zip(values, specs, strict=True):
            if is_vmappable(value) and spec is not None:
                self._find(value, spec)
            else:
                self.arguments.append(value)
                self.axes.append(spec)
                shape = getattr(value, "shape", ())
                if self.size is None and spec is not None and -len(shape) <= spec < len(shape):
                    self.size = shape[spec]

    def _find(self, value: Any, spec: Any) -> None:
        """Find the values that to_elt maps."""
        inside = Builder("elements")
        inside.parent = self.outside

        def part(array: Any, axis: int | None) -> Any:
            x = as_array(array, "an array of a rule for vmap")
            if axis is None:
                return x
            element = inside.input(_element(x, axis))
            self.arguments.append(x)
            self.axes.append(axis)
            self.size = x.shape[axis] if self.size is None else self.size
            return element

        with _between(self.outside, inside):
            _rules[type(value)].to_elt(part, lambda: part(self._numbers(), 0), value, spec)

    def _numbers(self) -> np.ndarray:
        if self.size is None:
            raise VmapAxisError("A rule for vmap asked for an element's number before any size.", "Pass axis_size.")
        return np.arange(self.size, dtype=np.int32)

    def elements(self, arguments: Sequence[Any]) -> list[Any]:
        """The mapped function's arguments, from the elements of the arguments, while it is traced."""
        rest = iter(arguments)
        assert state.builder is not None, "elements exist while the function is traced"
        self.inside = state.builder

        def part(array: Any, axis: int | None) -> Any:
            return as_array(array) if axis is None else next(rest)

        found = []
        for value, spec in zip(self.values, self.specs, strict=True):
            if is_vmappable(value) and spec is not None:
                with _between(self.outside, self.inside):
                    found.append(_rules[type(value)].to_elt(part, lambda: part(None, 0), value, spec))
            else:
                found.append(next(rest))
        return found

    def parts(self, results: Sequence[Any], specs: Sequence[Any]) -> list[Any]:
        """The arrays of the function's results, for elements; while it is traced."""
        self.results, self.out_specs = results, specs
        self.out_axes: list[int | None] = []
        found: list[Any] = []
        aside = Builder("whole")  # operations on these arrays run again in `together`
        aside.parent = self.inside

        def whole(size: int, array: Any, axis: int | None) -> Any:
            x = as_array(array, "an array of a rule for vmap")
            found.append(x)
            self.out_axes.append(axis)
            if axis is None:
                return x
            shape = list(x.shape)
            shape.insert(axis % (x.ndim + 1), size)
            return aside.input(x.type.update(shape=tuple(shape)))

        for result, spec in zip(results, specs, strict=True):
            if is_vmappable(result):
                with _between(self.outside, aside, self.inside):
                    _rules[type(result)].from_elt(whole, self.size, result, spec)
            else:
                found.append(result)
                self.out_axes.append(spec)
        return found

    def together(self, arrays: Sequence[Any]) -> list[Any]:
        """The results, for the arrays of all elements."""
        rest = iter(arrays)

        def whole(_: Any, array: Any, axis: int | None) -> Any:
            return next(rest)

        found = []
        for result, spec in zip(self.results, self.out_specs, strict=True):
            if is_vmappable(result):
                with _between(self.outside, self.inside):
                    found.append(_rules[type(result)].from_elt(whole, self.size, result, spec))
            else:
                found.append(next(rest))
        return found
