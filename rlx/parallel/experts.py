"""Mixtures of experts that live on different members of a named axis: tokens travel to them and back.

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
    """Where a member's tokens go: the slot of each choice, (T, chosen), and its weight. A slot too far is nowhere.

    Slots are those of expert 0, then of expert 1, ...; `experts` of them with `capacity` slots each.

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
    """Each token's best experts, as long as these have room: first choices first, earlier tokens first.

    Args:
      scores: floats (T, experts), of this member's tokens. chosen: how many experts a token goes to.
      capacity: how many tokens of one member an expert takes; others are dropped: their choice gives zeros.
      normalised: weights of the chosen experts add up to 1; otherwise they are those of a softmax over all.

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
    """Tokens, sent to the members that have their experts.

    Args:
      x: (T, width), this member's tokens. routing: of these.
      axis_name: the name of a mapped axis of n members, of which member r has E / n experts of E, from r * E / n on.

    Returns: (E / n, n * capacity, width), what each of this member's experts gets from all; zeros in empty slots.

    Raises: ShapeError where the axis does not divide the experts.

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
        raise ShapeError(f"parallel.dispatch got {experts} experts for {members} members.", "Each has as many.")
    chosen = routing.slots.shape[1]
    filled = jnp.zeros((experts * capacity, x.shape[-1]), x.dtype)
    filled = filled.at[routing.slots.reshape(-1)].add(jnp.repeat(x, chosen, axis=0), mode="drop")
    parts = filled.reshape(members, experts // members, capacity, x.shape[-1])
    arrived = lax.all_to_all(parts, axis_name, 0, 1)
    return arrived.reshape(experts // members, members * capacity, x.shape[-1])


def combine(y: Any, routing: Routing, axis_name: Any) -> Array:
    """What experts made of tokens, sent back to where the tokens are, and added up with the weights of the choices.

    Args:
      y: (E / n, n * capacity, width), as `dispatch` returns. routing: of this member's tokens. axis_name: as there.

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
    """Each token's best experts' results, weighted; experts are divided over an axis, and so are tokens.

    Args:
      x: (T, width), this member's tokens. scores: (T, E), of a router.
      experts: takes (E / n, tokens, width), tokens of each of this member's experts, and returns such an array.
      axis_name, chosen, capacity, normalised: as of `route` and `dispatch`.

    Returns: (T, width). It is what all experts would give, weighted, where capacity is at least T; otherwise choices
    that found no room give zeros.

    Raises: ShapeError where members cannot have as many experts each; AxisNameError for an axis that is not in scope.

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
