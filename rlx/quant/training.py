"""Rounding that gradients pass through: fake quantisation with a fixed scale, and with one that is learned (LSQ)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx import lax
from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import OptionError, ShapeError
from rlx.numpy.promotion import canonical_axis
from rlx.quant.scales import LEAST_SCALE
from rlx.trace.builder import is_traced
from rlx.trace.flat import as_array
from rlx.trace.replay import block

__all__ = ["fake_quantize", "first_scale", "lsq", "observed_scale", "range_of"]

_BITS = (2, 4, 8)
STRAIGHT_THROUGH = ("identity", "clipped", "tanh", "hard_tanh")


def range_of(bits: int) -> int:
    """The largest code of `bits` bits: 1, 7, 127. Raises OptionError for other numbers of bits.

    >>> range_of(4)
    7
    """
    if bits not in _BITS:
        raise OptionError(f"Codes have {bits!r} bits.", f"There are codes of {', '.join(map(str, _BITS))} bits.")
    return 2 ** (bits - 1) - 1


def observed_scale(x: Any, bits: int = 8, axis: int | None = None, before: Any = None, decay: float = 0.9) -> Array:
    """max|x| / q_max: of the whole array, or of each position along an axis (shaped to broadcast).

    It is at least the smallest normal float32.

    Args:
      x: floating numbers; bits, axis: as fake_quantize's.
      before: the previous result, or None. The result is then a moving average:
        decay * before + (1 - decay) * scale of x, a scale for fake_quantize and `before` of the next call.
      decay: in [0, 1).

    Raises OptionError for other bits, another decay, and scales before that are not positive and finite where they are
    known, ShapeError where they do not fit the axis.

    >>> import numpy as np
    >>> observed_scale(np.array([[1.0, -127.0], [0.0, 0.0]], np.float32), axis=0).tolist()
    [[1.0], [1.1754943508222875e-38]]
    >>> first = observed_scale(np.array([127.0], np.float32))
    >>> observed_scale(np.array([254.0], np.float32), before=first, decay=0.5).item()
    1.5
    """
    value = as_array(x)
    kept = None if axis is None else canonical_axis(axis, value.ndim, "observed_scale")
    axes = tuple(i for i in range(value.ndim) if i != kept)
    largest = jnp.max(jnp.abs(value), axis=axes, keepdims=axis is not None)
    now = jnp.maximum(largest / np.float32(range_of(bits)), np.float32(LEAST_SCALE))
    if not 0 <= decay < 1:
        raise OptionError(f"observed_scale got decay={decay}.", "A decay lies in [0, 1).")
    if before is None:
        return now
    _refuse(before)
    return np.float32(decay) * _along(as_array(before), value, axis) + np.float32(1 - decay) * now


def fake_quantize(
    x: Any, scale: Any = None, bits: int = 8, axis: int | None = None, straight_through: str = "clipped"
) -> Array:
    """x rounded to codes and back: rint(x / scale) limited to -q_max ... q_max, times the scale.

    Args:
      x: floating numbers.
      scale: of the whole array, or one for each position along `axis`; None: observed_scale(x, bits, axis), which
        also computes moving averages.
      bits: 2, 4 or 8.
      axis: of scales.
      straight_through: the derivative used for rounding: "identity", "clipped" (1 inside the range, else
        0), "tanh" (the derivative of tanh(x / (q_max scale))) or "hard_tanh" (its piecewise linear form).

    Raises OptionError for other bits or another name, and for scales that are not positive and finite where they are
    known, ShapeError for scales that do not fit the axis.

    >>> import numpy as np
    >>> from rlx import quant
    >>> quant.fake_quantize(np.array([0.3, 1.2, 9.0], np.float32), scale=0.5, bits=4).tolist()
    [0.5, 1.0, 3.5]
    """
    value = as_array(x)
    top = range_of(bits)
    if straight_through not in STRAIGHT_THROUGH:
        raise OptionError(
            f"fake_quantize got straight_through={straight_through!r}.", f"There are: {', '.join(STRAIGHT_THROUGH)}."
        )
    if scale is not None:
        _refuse(scale)
        return fixed_rounding(value, as_array(scale), bits, axis, straight_through)
    return _rounded(value, observed_scale(value, bits, axis), top, straight_through)


@block()
def fixed_rounding(x: Any, scale: Any, bits: int, axis: int | None, straight_through: str) -> Array:
    """fake_quantize with a scale: in programs it keeps its name, so that rlx.quant.quant_propagate finds it."""
    return _rounded(x, _along(scale, x, axis), range_of(bits), straight_through)


def _rounded(value: Array, step: Array, top: int, straight_through: str) -> Array:
    step = lax.stop_gradient(step.astype(value.dtype))
    scaled = value / step
    rounded = jnp.clip(jnp.rint(scaled), -top, top) * step
    surrogate = value
    if straight_through == "tanh":
        surrogate = jnp.tanh(scaled / top) * (top * step)
    elif straight_through in ("clipped", "hard_tanh"):
        inside = jnp.abs(scaled) <= top if straight_through == "hard_tanh" else jnp.abs(jnp.rint(scaled)) <= top
        surrogate = jnp.where(inside, value, lax.stop_gradient(value))
    # exactly the rounded value, with the surrogate's derivative
    return lax.stop_gradient(rounded) + (surrogate - lax.stop_gradient(surrogate))


def first_scale(x: Any, bits: int = 8) -> Array:
    """Where a learned scale begins: 2 mean|x| / sqrt(q_max).

    >>> import numpy as np
    >>> first_scale(np.ones(4, np.float32), bits=2).item()
    2.0
    """
    return 2 * jnp.mean(jnp.abs(as_array(x))) / np.float32(math.sqrt(range_of(bits)))


def lsq(x: Any, scale: Any, bits: int = 8, axis: int | None = None, gradient_scale: bool = True) -> Array:
    """Fake quantisation whose scale is learned (Esser and others, 2020).

    Args:
      x: floating numbers; scale: of the whole array, or one for each position along `axis`.
      gradient_scale: the scale's gradient is multiplied by 1 / sqrt(N q_max), N elements to a scale.

    The derivative in x is 1 inside the range and 0 outside; in the scale rint(x / s) - x / s inside, q_max or -q_max
    outside.

    >>> import numpy as np, rlx
    >>> from rlx import quant
    >>> x = np.array([0.3, 9.0], np.float32)
    >>> round(rlx.grad(lambda s: quant.lsq(x, s, bits=4, gradient_scale=False).sum())(0.5).item(), 2)
    7.4
    """
    value = as_array(x)
    top = range_of(bits)
    _refuse(scale)
    given = _along(as_array(scale), value, axis).astype(value.dtype)
    factor = 1.0
    if gradient_scale:
        factor = 1 / math.sqrt(max(value.size // max(given.size, 1), 1) * top)
    step = given * np.float32(factor) + lax.stop_gradient(given - given * np.float32(factor))
    scaled = value / step
    inside = jnp.abs(jnp.rint(scaled)) <= top  # as codes are
    limited = jnp.where(inside, scaled, jnp.clip(lax.stop_gradient(scaled), -top, top))
    rounded = limited + lax.stop_gradient(jnp.rint(limited) - limited)
    return rounded * step


def _refuse(scale: Any) -> None:
    """OptionError for known scales that are not positive and finite."""
    if is_traced(scale):
        return
    known = np.asarray(scale)
    if not ((known > 0) & np.isfinite(known)).all():
        raise OptionError("A scale is not positive, or not finite.", "Scales are max|x| / q_max, at least 2**-126.")


def _along(scale: Array, value: Array, axis: int | None) -> Array:
    """Scales shaped to broadcast along an axis."""
    if axis is None:
        if scale.ndim and scale.size != 1:
            raise ShapeError(f"A scale of {list(scale.shape)} without an axis.", "Pass its axis: axis=0.")
        return scale.reshape(())
    axis = canonical_axis(axis, value.ndim, "quant")
    wanted = [1] * value.ndim
    wanted[axis] = value.shape[axis]
    if scale.size != value.shape[axis]:
        raise ShapeError(
            f"Scales of {list(scale.shape)} for axis {axis} of {list(value.shape)}.",
            f"Pass {value.shape[axis]} scales.",
        )
    return scale.reshape(wanted)
