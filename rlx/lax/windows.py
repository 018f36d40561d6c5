"""Reductions over sliding windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx.array import Array
from rlx.errors import ShapeError
from rlx.lax.convolution import Padding, paddings, padtype_to_pads
from rlx.lax.operands import as_array, canonical_shape
from rlx.lax.reduction import initial, is_identity, monoid_of, reduce_by, scalar_program
from rlx.ops import window
from rlx.ops.shape import pad
from rlx.ops.window_spec import WindowSpec, dilated
from rlx.trace.primitive import registry
from rlx.trees import tree

__all__ = ["reduce_window"]

_WINDOW_MONOIDS = {"add": "add", "multiply": "mul", "maximum": "max", "minimum": "min"}


def reduce_window(
    operand: Any,
    init_value: Any,
    computation: Callable[[Any, Any], Any],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    padding: Padding = "VALID",
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Any:
    """Reduce each position of a sliding window; padding counts as init_value.

    Args:
      operand: an array, or a tree of arrays that are reduced together.
      init_value: the scalar (or tree of scalars) that each reduction starts from.
      computation: an associative function of two scalars, such as lax.max or lax.add.
      window_dimensions, window_strides: size and step of the window along each axis.
      padding: "SAME", "SAME_LOWER", "VALID", or a pair (low, high) for each axis.
      base_dilation, window_dilation: distance between elements of the operand and of the window.

    >>> import numpy as np
    >>> from rlx import lax
    >>> x = lax.iota("float32", 6)
    >>> lax.reduce_window(x, -np.inf, lax.max, (2,), (2,), "VALID").tolist()
    [1.0, 3.0, 5.0]
    """
    leaves, treedef = tree.flatten(operand)
    inits, init_tree = tree.flatten(init_value)
    if treedef != init_tree or not leaves:
        raise ShapeError(
            f"lax.reduce_window got operands of structure {treedef} and initial values of {init_tree}.",
            "Give one initial value for each operand.",
        )
    arrays = [as_array(x) for x in leaves]
    spec = _spec(arrays[0].shape, window_dimensions, window_strides, padding, base_dilation, window_dilation)
    starts = [initial(i, x) for i, x in zip(inits, arrays, strict=True)]
    if len(arrays) == 1:
        monoid = monoid_of(computation, arrays[0].dtype, treedef)
        if monoid in _WINDOW_MONOIDS and arrays[0].dtype.kind != "b":
            return tree.unflatten(treedef, [_by_monoid(monoid, arrays[0], starts[0], spec)])
    program = scalar_program("reduce_window", computation, arrays, treedef)
    views = window.general_windows(arrays, starts, spec)
    return tree.unflatten(treedef, reduce_by(program, views, starts, spec.offsets))


def _spec(
    shape: tuple[int, ...],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None,
    padding: Padding,
    base_dilation: Sequence[int] | None,
    window_dilation: Sequence[int] | None,
) -> WindowSpec:
    ones = (1,) * len(shape)
    sizes = canonical_shape(window_dimensions)
    strides = ones if window_strides is None else canonical_shape(window_strides)
    base = ones if base_dilation is None else canonical_shape(base_dilation)
    steps = ones if window_dilation is None else canonical_shape(window_dilation)
    for what, values in (
        ("window_dimensions", sizes),
        ("window_strides", strides),
        ("base_dilation", base),
        ("window_dilation", steps),
    ):
        if len(values) != len(shape) or any(v < 1 for v in values):
            raise ShapeError(
                f"lax.reduce_window got {what}={values} for an operand of shape {shape}.",
                "It must have a positive size for each axis of the operand.",
            )
    if isinstance(padding, str):
        reach = [dilated(n, d) for n, d in zip(sizes, steps, strict=True)]
        padding = padtype_to_pads(shape, reach, strides, padding)  # JAX computes it without base_dilation
    return WindowSpec(sizes, strides, paddings(padding), base, steps)


def _by_monoid(monoid: str, x: Array, start: Array, spec: WindowSpec) -> Array:
    op = _WINDOW_MONOIDS[monoid]
    if is_identity(start, monoid, x.dtype):
        return window.reduce_window(x, op=op, **spec.params())
    spec.check("reduce_window", x.shape)
    padded = pad(x, start, config=spec.config()) if spec.pads else x
    reduced = window.reduce_window(padded, op=op, **spec.unpadded().params())
    return registry[monoid](start, reduced)
