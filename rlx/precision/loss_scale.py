"""Dynamic loss scaling: float16 gradients that neither vanish nor overflow.

Small gradients round to zero in float16. The loss is multiplied by a large power of two before it is
differentiated, and the gradients divided by it; if they overflow, the step is skipped and the scale
halved, and after a run of good steps it is doubled (Micikevicius et al., Mixed Precision Training,
ICLR 2018, section 3.2). bfloat16, with the range of float32, needs none of this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import RlxError
from rlx.ir.types import is_inexact
from rlx.trace.flat import as_array
from rlx.trees import tree

__all__ = ["LossScale", "LossScaler", "Unscaled", "all_finite", "choose"]


class LossScale(NamedTuple):
    """The state: the scale (float32), and the number of consecutive finite steps (int32).

    >>> import rlx
    >>> rlx.precision.LossScaler(initial=8.0).init().scale.item()
    8.0
    """

    scale: Array
    good_steps: Array


class Unscaled(NamedTuple):
    """Unscaled gradients, and whether all are finite (a bool array).

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> scaler = rlx.precision.LossScaler(initial=8.0)
    >>> found = scaler.unscale(scaler.init(), jnp.array([8.0, jnp.inf]))
    >>> found.gradients.tolist(), found.finite.item()
    ([1.0, inf], False)
    """

    gradients: Any
    finite: Array


@dataclass(frozen=True)
class LossScaler:
    """The rules of a dynamic loss scale; every method is a pure function and works under jit.

    Args:
      initial: the first scale. factor: multiplies or divides the scale; powers of two are exact.
      interval: the number of consecutive finite steps after which it grows. least, greatest: its bounds.

    >>> import rlx, rlx.numpy as jnp
    >>> scaler = rlx.precision.LossScaler(initial=1024.0)
    >>> state, w = scaler.init(), jnp.array([1.0, 2.0])
    >>> gradients = rlx.grad(lambda w: scaler.scale(state, (w * w).sum()))(w)
    >>> gradients, finite = scaler.unscale(state, gradients)
    >>> w = rlx.precision.choose(finite, w - 0.5 * gradients, w)
    >>> w, float(scaler.update(state, finite).scale)
    (Array([0., 0.], dtype=float32), 1024.0)
    """

    initial: float = 2.0**15
    factor: float = 2.0
    interval: int = 2000
    least: float = 1.0
    greatest: float = 2.0**24

    def __post_init__(self) -> None:
        if not (self.factor > 1 and self.interval >= 1 and 0 < self.least <= self.initial <= self.greatest):
            raise RlxError(
                f"{self} is not a valid loss scale rule.",
                "It needs factor > 1, interval >= 1 and 0 < least <= initial <= greatest.",
            )

    def init(self) -> LossScale:
        """The first state."""
        return LossScale(jnp.asarray(self.initial, jnp.float32), jnp.asarray(0, jnp.int32))

    def scale(self, state: LossScale, loss: Any) -> Array:
        """The loss (a float array) times the scale, in the loss's dtype; float32 if it has 16 bits."""
        value = as_array(loss, "the loss")
        wide = value.astype(jnp.float32) if value.dtype.itemsize < 4 else value
        return wide * state.scale.astype(wide.dtype)

    def unscale(self, state: LossScale, gradients: Any) -> Unscaled:
        """A tree of gradients divided by the scale, and whether all are finite. Integer leaves are unchanged."""

        def divided(leaf: Any) -> Any:
            value = as_array(leaf, "a gradient")
            if not is_inexact(value.dtype):
                return value
            wide = value.astype(jnp.float32) if value.dtype.itemsize < 4 else value
            return wide / state.scale.astype(wide.dtype)

        found = tree.map(divided, gradients)
        return Unscaled(found, all_finite(found))

    def update(self, state: LossScale, finite: Any) -> LossScale:
        """The state after a step whose gradients were finite or not."""
        steps = state.good_steps + 1
        grows = steps >= self.interval
        grown = jnp.minimum(state.scale * self.factor, self.greatest)
        good = LossScale(jnp.where(grows, grown, state.scale), jnp.where(grows, 0, steps))
        bad = LossScale(jnp.maximum(state.scale / self.factor, self.least), jnp.zeros_like(state.good_steps))
        return choose(finite, good, bad)


def all_finite(values: Any) -> Array:
    """Whether every float of a tree is finite, as a bool array.

    >>> import rlx.numpy as jnp
    >>> bool(all_finite({"a": jnp.ones(2), "b": jnp.array([1.0, jnp.inf])}))
    False
    """
    result = jnp.asarray(True)
    for leaf in tree.leaves(values):
        value = as_array(leaf)
        if is_inexact(value.dtype):
            result = jnp.logical_and(result, jnp.all(jnp.isfinite(value)))
    return result


def choose(condition: Any, on_true: Any, on_false: Any) -> Any:
    """One of two trees of equal structure by a bool scalar: the new parameters, or the old ones.

    >>> import rlx.numpy as jnp
    >>> choose(True, (jnp.ones(1), 2), (jnp.zeros(1), 3))[0]
    Array([1.], dtype=float32)
    """
    return tree.map(lambda new, old: jnp.where(condition, new, old), on_true, on_false)
