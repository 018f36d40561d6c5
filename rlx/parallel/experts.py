"""Mixtures of experts that are placed on different members of a named axis: tokens are sent to them and back.

Lepikhin et al.: GShard: Scaling Giant Models with Conditional Computation and Automatic Sharding, 2020.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlx import lax, nn
from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import ShapeError
from rlx.trace.flat import as_array

__all__ = ["Routing", "combine", "dispatch", "mixture_of_experts", "route"]


class Routing(NamedTuple):
    """The destinations of a member's tokens: the slot of each choice, (T, chosen), and its weight. Overflow is dropped.

    The slots of expert 0 are followed by the slots of expert 1, ...; `experts` experts have `capacity` slots each.

    >>> import rlx.numpy as jnp
    >>> from rlx.parallel import route
    >>> found = route(jnp.array([[9.0, 0.0], [9.0, 0.0], [0.0, 9.0]]), chosen=1, capacity=1)
    >>> found.slots.tolist(), found.experts, found.capacity
    ([[0], [2], [1]], 2, 1)
    """

    slots: Any
    weights: Any
    experts: int
    capacity: int


def route(scores: Any, chosen: int, capacity: int, normalised: bool = False) -> Routing:
    """Each token's best experts, subject to capacity: first choices first, earlier tokens first.

    Args:
      scores: floats (T, experts), for this member's tokens. chosen: the number of experts that a token is sent to.
      capacity: the number of one member's tokens that an expert accepts. Other choices are dropped: they give zeros.
      normalised: weights of the chosen experts add up to 1; otherwise they are softmax weights over all experts.

    Returns: a Routing.

    >>> import rlx.numpy as jnp
    >>> from rlx.parallel import route
    >>> route(jnp.array([[0.0, 0.0]]), chosen=2, capacity=4).weights.tolist()
    [[0.5, 0.5]]
    """
    scores = as_array(scores)
    tokens, experts = scores.shape
    weights, best = lax.top_k(nn.softmax(scores, axis=-1), chosen)
    weights = weights / jnp.sum(weights, axis=-1, keepdims=True) if normalised else weights
    ordered = jnp.swapaxes(best, 0, 1).reshape(-1)  # first choices of all tokens, then second ones
    here = nn.one_hot(ordered, experts, dtype=np.int32)
    place = jnp.sum((jnp.cumsum(here, axis=0) - here) * here, axis=-1)
    slots = jnp.where(place < capacity, ordered * capacity + place, experts * capacity)
    return Routing(jnp.swapaxes(slots.reshape(chosen, tokens), 0, 1).astype(np.int32), weights, experts, capacity)


def dispatch(x: Any, routing: Routing, axis_name: Any) -> Array:
    """Send tokens to the members that have their experts.

    Args:
      x: (T, width), this member's tokens. routing: the routing of these tokens.
      axis_name: the name of a mapped axis of n members. Member r has E / n of the E experts, from r * E / n.

    Returns: (E / n, n * capacity, width), the input of each of this member's experts; zeros in empty slots.

    Raises: ShapeError if the axis size does not divide the number of experts.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx.parallel import dispatch, route
    >>> x, scores = jnp.array([[[1.0]], [[2.0]]]), jnp.array([[[0.0, 1.0]], [[0.0, 1.0]]])
    >>> rlx.vmap(lambda x, s: dispatch(x, route(s, 1, 1), "e"), axis_name="e")(x, scores).reshape(2, 2).tolist()
    [[0.0, 0.0], [1.0, 2.0]]
    """
    x, members = as_array(x), lax.axis_size(axis_name)
    experts, capacity = routing.experts, routing.capacity
    if experts % members:
        raise ShapeError(f"parallel.dispatch got {experts} experts for {members} members.", "Each has the same number.")
    chosen = routing.slots.shape[1]
    filled = jnp.zeros((experts * capacity, x.shape[-1]), x.dtype)
    filled = filled.at[routing.slots.reshape(-1)].add(jnp.repeat(x, chosen, axis=0), mode="drop")
    parts = filled.reshape(members, experts // members, capacity, x.shape[-1])
    arrived = lax.all_to_all(parts, axis_name, 0, 1)
    return arrived.reshape(experts // members, members * capacity, x.shape[-1])


def combine(y: Any, routing: Routing, axis_name: Any) -> Array:
    """Send the experts' results back to the tokens' members, and sum them with the weights of the choices.

    Args:
      y: (E / n, n * capacity, width), as `dispatch` returns. routing: of this member's tokens. axis_name: likewise.

    Returns: (T, width).

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx.parallel import combine, dispatch, route
    >>> def there_and_back(x, scores):
    ...     routing = route(scores, 2, 2, normalised=True)
    ...     return combine(dispatch(x, routing, "e"), routing, "e")
    >>> rlx.vmap(there_and_back, axis_name="e")(jnp.array([[[1.0]], [[2.0]]]), jnp.zeros((2, 1, 2))).tolist()
    [[[1.0]], [[2.0]]]
    """
    y, members = as_array(y), lax.axis_size(axis_name)
    parts = y.reshape(y.shape[0], members, routing.capacity, y.shape[-1])
    back = lax.all_to_all(parts, axis_name, 1, 0).reshape(routing.experts * routing.capacity, y.shape[-1])
    found = back.at[routing.slots].get(mode="fill", fill_value=0)
    return jnp.sum(found * routing.weights[..., None].astype(y.dtype), axis=-2)


def mixture_of_experts(
    x: Any,
    scores: Any,
    experts: Callable[[Any], Any],
    axis_name: Any,
    *,
    chosen: int,
    capacity: int,
    normalised: bool = False,
) -> Array:
    """Each token's weighted results of its best experts; experts and tokens are divided over an axis.

    Args:
      x: (T, width), this member's tokens. scores: (T, E), from a router.
      experts: takes (E / n, tokens, width), the tokens of each of this member's experts, and returns such an array.
      axis_name, chosen, capacity, normalised: as in `route` and `dispatch`.

    Returns: (T, width). It is the weighted result of all chosen experts if capacity is at least T; otherwise choices
      beyond the capacity contribute zeros.

    Raises: ShapeError if the axis size does not divide the experts; AxisNameError for an axis that is not in scope.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx.parallel import mixture_of_experts
    >>> def layer(x, scores, factor):  # one expert on each of two members
    ...     return mixture_of_experts(x, scores, lambda t: t * factor, "e", chosen=1, capacity=2, normalised=True)
    >>> x, scores = jnp.ones((2, 1, 1)), jnp.array([[[0.0, 1.0]], [[1.0, 0.0]]])
    >>> rlx.vmap(layer, axis_name="e")(x, scores, jnp.array([10.0, 20.0])).reshape(-1).tolist()
    [20.0, 10.0]
    """
    routing = route(scores, chosen, capacity, normalised)
    return combine(experts(dispatch(x, routing, axis_name)), routing, axis_name)
