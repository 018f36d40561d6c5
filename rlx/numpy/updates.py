"""x.at[index]: arrays with some elements changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from rlx.array import Array, is_array, is_array_or_numpy
from rlx.config import config
from rlx.errors import ImmutableArrayError, InputTypeError, TypePromotionError, UnsupportedError, warn
from rlx.ir.types import promote_dtypes
from rlx.numpy.creation import asarray
from rlx.numpy.elementwise import divide
from rlx.numpy.index_dtypes import holding, index_dtype
from rlx.numpy.indexing import Plan, expand_index, plan_index, read, stack_columns, takes_axis
from rlx.numpy.placement import check_placement
from rlx.numpy.powers import power
from rlx.numpy.promotion import broadcast_array, convert_to, fill, operand, promote, scalar_array
from rlx.numpy.rounding import remainder
from rlx.ops import arithmetic, comparison
from rlx.ops import shape as shapes
from rlx.ops.arithmetic import select
from rlx.ops.dynamic import dynamic_update_slice
from rlx.ops.families import refuse_keys
from rlx.ops.index_windows import ScatterDimensionNumbers
from rlx.ops.reduction import reduce_max
from rlx.ops.scatter import scatter, scatter_add, scatter_max, scatter_min, scatter_mul
from rlx.ops.while_loop import loop_while
from rlx.trace.flat import as_array
from rlx.trace.replay import replayed

__all__ = ["IndexReference", "IndexUpdates"]

_COUNT = np.dtype("i4")
_ON_BOOLS = {arithmetic.add: comparison.bitwise_or, arithmetic.multiply: comparison.bitwise_and}
_MODES = {
    None: None,
    "clip": "clip",
    "drop": "drop",
    "fill": "fill",
    "promise_in_bounds": "promise_in_bounds",
    "wrap": "wrap",
}


def parse_mode(mode: Any) -> str | None:
    """An out-of-bounds mode as text: a name, or an enumeration member of that name."""
    name = getattr(mode, "name", mode)
    name = name.lower() if isinstance(name, str) else name
    name = {"fill_or_drop": "fill"}.get(name, name)
    if name not in _MODES:
        raise UnsupportedError(
            f"There is no out-of-bounds mode {mode!r}.",
            'Use "clip", "drop", "fill", "wrap" or "promise_in_bounds".',
        )
    return name


class IndexUpdates:
    """`x.at`: give it an index.

    >>> import rlx.numpy as jnp
    >>> x = jnp.zeros(3)
    >>> x.at[1].add(5.0).tolist(), x.at[jnp.array([0, 0])].add(1.0).tolist()
    ([0.0, 5.0, 0.0], [2.0, 0.0, 0.0])
    """

    __slots__ = ("array",)

    def __init__(self, array: Array) -> None:
        self.array = array

    def __getitem__(self, index: Any) -> IndexReference:
        return IndexReference(self.array, index)

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        raise ImmutableArrayError(
            "x.at[index] = value does not work: rlx arrays are immutable.", "Write x = x.at[index].set(value)."
        )

    def __call__(self, *index: Any) -> NoReturn:
        raise InputTypeError("x.at(...) was called, but takes its index in brackets.", "Write x.at[index].set(value).")

    def __repr__(self) -> str:
        return f"IndexUpdates({self.array!r})"


class IndexReference:
    """`x.at[index]`: each method returns a new array with the selected elements changed.

    Options of all methods that write: mode (see below), unique_indices and indices_are_sorted (known
    facts about the indices), by keyword.

    Indices out of bounds are dropped (reading: clipped) unless `mode` is set. If an index
    occurs twice, `set` keeps the last value and the others combine all of them.

    >>> import rlx.numpy as jnp
    >>> jnp.zeros(3).at[1].set(5.0)
    Array([0., 5., 0.], dtype=float32)
    """

    __slots__ = ("array", "index")

    def __init__(self, array: Array, index: Any) -> None:
        self.array = array
        self.index = index

    def __repr__(self) -> str:
        return f"IndexReference({self.array!r}, {self.index!r})"

    def get(
        self,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        fill_value: Any = None,
        wrap_negative_indices: bool = True,
        out_sharding: Any = None,
    ) -> Array:
        """The elements, with control over reads out of bounds.

        mode: "clip" (the nearest element), "fill" (fill_value, or NaN), "wrap", "promise_in_bounds" (the
        nearest, but without a derivative out of bounds: the default); wrap_negative_indices: False takes
        negative indices as out of bounds.
        """
        check_placement(None, out_sharding)
        parsed = parse_mode(mode)
        entries = _entries(self.array, self.index, parsed, strict=parsed is None and fill_value is None)
        nearest = parsed in ("clip", "wrap") or (parsed is None and fill_value is None)
        if parsed is None:
            parsed = "promise_in_bounds" if fill_value is None else "fill"
        parsed = {"drop": "fill", "wrap": "clip"}.get(parsed, parsed)
        if is_array(fill_value):
            fill_value = fill_value.item()
        wrapping = bool(wrap_negative_indices)
        return read(self.array, entries, parsed, fill_value, nearest and wrapping, wrapping)

    def set(self, values: Any, **options: Any) -> Array:
        """Replace the elements by `values`."""
        return _update(self.array, self.index, scatter, None, values, **options)

    def add(self, values: Any, **options: Any) -> Array:
        """Add `values` to the elements."""
        return _update(self.array, self.index, scatter_add, arithmetic.add, values, **options)

    def subtract(self, values: Any, **options: Any) -> Array:
        """Subtract `values` from the elements."""
        x, given = self.array, _operand(values)
        known = convert_update(given, x) if _holds(x, as_array(given)) else promote("an update", given, x)[0]
        return _update(x, self.index, scatter_add, arithmetic.add, arithmetic.negative(known), **options)

    def multiply(self, values: Any, **options: Any) -> Array:
        """Multiply the elements by `values`."""
        return _update(self.array, self.index, scatter_mul, arithmetic.multiply, values, **options)

    mul = multiply

    def min(self, values: Any, **options: Any) -> Array:
        """The smaller ones of the elements and `values`."""
        return _update(self.array, self.index, scatter_min, arithmetic.minimum, values, **options)

    def max(self, values: Any, **options: Any) -> Array:
        """The larger ones of the elements and `values`."""
        return _update(self.array, self.index, scatter_max, arithmetic.maximum, values, **options)

    def divide(self, values: Any, **options: Any) -> Array:
        """Divide the elements by `values`."""
        return divide(self.array, self._spread(values, options))

    def power(self, values: Any, **options: Any) -> Array:
        """Raise the elements to the powers `values`."""
        return power(self.array, self._spread(values, options))

    def _spread(self, values: Any, options: dict[str, Any]) -> Array:
        """Ones, multiplied by `values` at the index."""
        dtype = promote("at", self.array, _operand(values))[0].dtype
        ones = fill(self.array.shape, 1, dtype)
        return IndexReference(ones, self.index).multiply(values, **options)

    def apply(self, ufunc: Callable[[Any], Any], **options: Any) -> Array:
        """Replace the elements by `ufunc` of them, applied once for each time that an index occurs."""
        reading = {k: v for k, v in options.items() if k in ("mode", "wrap_negative_indices")}
        before = self.get(**reading)
        once = as_array(ufunc(before))
        if options.get("unique_indices") or _only_static(self.index):
            return self.set(once, **options)
        times = IndexReference(fill(self.array.shape, 0, _COUNT), self.index).add(1, **options)
        times = IndexReference(times, self.index).get(**reading)
        return self.set(_repeated(ufunc, before, convert_to(once, before.dtype), times), **options)


def _repeated(ufunc: Callable[[Any], Any], before: Any, once: Any, times: Any) -> Any:
    """`ufunc` applied to elements as often as `times` says; `once` is the first result."""
    if times.size == 0:
        return once

    def unfinished(count: Any, value: Any) -> Any:
        return comparison.less(count, reduce_max(times, axes=tuple(range(times.ndim))))

    def again(count: Any, value: Any) -> list[Any]:
        active = comparison.less(broadcast_array(count, times.shape), times)
        # elements that are done go through as they were, so that derivatives stay finite
        value = select(active, convert_to(as_array(ufunc(select(active, value, before))), value.dtype), value)
        return [arithmetic.add(count, scalar_array(1, _COUNT, False)), value]

    return loop_while(unfinished, again, [scalar_array(1, _COUNT, False), once])[1]


# ------------------------------------------------------------------ writing
def _entries(x: Any, index: Any, mode: str | None, strict: bool) -> list[Any]:
    entries = expand_index(x.shape, index, strict, inside=mode in ("clip", "wrap", "promise_in_bounds"))
    if mode != "wrap":
        return entries
    sizes = iter(x.shape)
    return [_wrapped_entry(e, next(sizes)) if takes_axis(e) else e for e in entries]


def _wrapped_entry(entry: Any, size: int) -> Any:
    return remainder(holding(entry, size), size) if is_array(entry) else entry


def _operand(values: Any) -> Any:
    """The values of an update; lists and tuples are arrays here, as in JAX."""
    return asarray(values) if isinstance(values, (list, tuple)) else operand(values, "an update")


def _given(values: Any) -> Any:
    """The values of an update: an array, or a number. A NumPy number yields to the array as Python's does."""
    given = _operand(values)
    return given.item() if isinstance(given, np.generic) else given


def convert_update(values: Any, x: Any) -> Any:
    """Values in the dtype of the array that they go into."""
    given = _given(values)
    values, dtype = as_array(given), x.dtype
    holds = values.dtype == dtype or _holds(x, values)
    if holds and given is not values and isinstance(given, (bool, int, float, complex)):
        return scalar_array(given, dtype, x.weak_type)  # not by way of the default dtype
    if not holds:
        _warn_of_loss(values, x)
    return convert_to(values, dtype, x.weak_type)


def _warn_of_loss(values: Any, x: Any) -> None:
    refuse_keys("an update", x.type, values.type)
    warn(
        f"An update of dtype {values.dtype.name} is written to an array of dtype {x.dtype.name}, which may not hold it:"
        " convert it with .astype(...) if that is meant.",
        FutureWarning,
    )


def _to_combine(values: Any, x: Any) -> tuple[Any, Any]:
    """Both in the dtype of the combination: the array's, if it holds the values, else a wider one."""
    number = _given(values)
    given = as_array(number)
    if given.dtype == x.dtype or _holds(x, given):
        return x, convert_update(values, x)
    _warn_of_loss(given, x)
    try:
        wide = promote("an update", x, number)
    except TypePromotionError:
        wide = (x, None)
    return (wide[0], as_array(wide[1])) if wide[1] is not None else (x, convert_to(given, x.dtype))


def _holds(x: Any, values: Any) -> bool:
    """Whether x and the values promote to the dtype of x."""
    pairs = [(v.dtype, v.weak_type) for v in (x, values)]
    try:
        return promote_dtypes(pairs, config.default_float, config.default_int)[0] == x.dtype
    except TypeError:
        return False


@replayed
def _update(
    x: Array,
    index: Any,
    primitive: Any,
    combine: Any,
    values: Any,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: Any = None,
    wrap_negative_indices: bool = True,
    out_sharding: Any = None,
) -> Any:
    """`values` scattered by a primitive, or combined with a static window."""
    check_placement(None, out_sharding)
    parsed = parse_mode(mode)
    own = x.type
    x, values = (x, convert_update(values, x)) if combine is None else _to_combine(values, x)
    entries = _entries(x, index, parsed, strict=parsed is None and _only_static(index))
    plan = plan_index(x.shape, entries, bool(wrap_negative_indices))
    values = _shaped(values, plan)
    if plan.static:
        return convert_to(_update_window(x, plan, combine, values), own.dtype, own.weak)
    mode = {None: "drop", "fill": "drop", "wrap": "clip"}.get(parsed, parsed)
    numbers = ScatterDimensionNumbers(
        tuple(i for i, (kind, _) in enumerate(plan.layout) if kind == "window"),
        tuple(plan.indexed),
        (*plan.indexed, *_window_starts(plan, x.shape)),
    )
    result = primitive(
        x,
        _indices(x, plan),
        values,
        dimension_numbers=numbers,
        mode=mode,
        unique_indices=unique_indices or not plan.batch,
        indices_are_sorted=indices_are_sorted,
    )
    return convert_to(result, own.dtype, own.weak)


def _only_static(index: Any) -> bool:
    """Whether no entry is an array, so that an int outside must be a mistake."""
    entries = index if isinstance(index, tuple) else (index,)
    return not any(is_array_or_numpy(i) or isinstance(i, list) for i in entries)


def _shaped(values: Any, plan: Plan) -> Any:
    """Values broadcast to the plan's shape, in the order of increasing elements."""
    final = plan.final_shape()
    excess = values.ndim - len(final)
    if excess > 0 and all(n == 1 for n in values.shape[:excess]):
        values = shapes.reshape(values, shape=values.shape[excess:])
    values = broadcast_array(values, final, "an update through .at[...]")
    if plan.newaxes:
        values = shapes.reshape(values, shape=plan.result_shape())
    backwards = plan.flipped()
    return shapes.reverse(values, axes=backwards) if backwards else values


def _window_starts(plan: Plan, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Axes whose window is not the whole axis, so that it needs a start."""
    return tuple(axis for axis, _, size, _ in plan.windows if size != shape[axis])


def _indices(x: Any, plan: Plan) -> Any:
    starts = {axis: start for axis, start, _, _ in plan.windows}
    columns = list(plan.columns)
    for axis in _window_starts(plan, x.shape):
        columns.append(scalar_columns(starts[axis], len(plan.batch), x.shape[axis]))
    if not columns:
        return fill((*plan.batch, 0), 0, np.dtype("i4"))
    return stack_columns(columns, plan.batch)


def scalar_columns(start: int, rank: int, size: int) -> Any:
    """One start as an index column."""
    dtype = index_dtype(size)
    return fill((1,) * rank, start, dtype)


def _update_window(x: Any, plan: Plan, combine: Any, values: Any) -> Any:
    """An update of a static window: slice, combine, write back."""
    starts = {axis: start for axis, start, _, _ in plan.windows}
    sizes = {axis: size for axis, _, size, _ in plan.windows}
    for axis, column in zip(plan.indexed, plan.columns, strict=True):
        starts[axis], sizes[axis] = int(column.numpy()), 1
    begin = tuple(starts[i] for i in range(x.ndim))
    window = tuple(sizes[i] for i in range(x.ndim))
    values = shapes.reshape(values, shape=window)
    if combine is not None:
        limits = tuple(b + n for b, n in zip(begin, window, strict=True))
        before = shapes.slice(x, starts=begin, limits=limits, strides=(1,) * x.ndim)
        values = (_ON_BOOLS if x.dtype.kind == "b" else {}).get(combine, combine)(before, values)
    if window == x.shape:
        return values
    return dynamic_update_slice(x, values, *[scalar_array(b, index_dtype(b), False) for b in begin])
