"""GradientTransformation: the pair of functions that optimisers are made of, and how pairs combine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rlx import lax
from rlx import numpy as jnp
from rlx.advice.habits import missing_name
from rlx.array import Array
from rlx.errors import InputTypeError, TreeMismatchError, describe
from rlx.trace.flat import as_array
from rlx.trees import tree

__all__ = [
    "EmptyState",
    "GradientTransformation",
    "GradientTransformationExtraArgs",
    "MaskedState",
    "apply_updates",
    "chain",
    "global_norm",
    "identity",
    "masked",
    "set_to_zero",
    "with_extra_args_support",
]

Tree = Any


class InitFunction(Protocol):
    """Makes a state from the parameters."""

    def __call__(self, params: Tree) -> Any:
        """The state."""


UpdateFunction = Callable[..., tuple[Tree, Any]]
"""update(updates, state, params=None) turns gradients into updates; returns them and the next state."""


class GradientTransformation(NamedTuple):
    """init(params) -> state; update(updates, state, params) -> (updates, state).

    `updates` go in as gradients, or as the result of another transformation, and come out to be added
    to the parameters with apply_updates.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> halve = optim.GradientTransformation(
    ...     init=lambda params: (), update=lambda updates, state, params=None: (updates / 2, state)
    ... )
    >>> rule = optim.chain(halve, optim.scale(-1.0))
    >>> rule.update(jnp.array([4.0]), rule.init(jnp.ones(1)))[0].tolist()
    [-2.0]
    """

    init: InitFunction
    update: UpdateFunction

    if not TYPE_CHECKING:  # type checkers know the attributes

        def __getattr__(self, name: str) -> Any:
            raise missing_name("rlx.optim.GradientTransformation", name, self._fields)


class GradientTransformationExtraArgs(GradientTransformation):
    """A transformation whose update takes further keyword arguments, for example the value of the loss.

    `chain` and the wrappers pass them to the transformations that take them.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> by_value = optim.GradientTransformationExtraArgs(
    ...     init=lambda params: (), update=lambda updates, state, params=None, *, value: (updates * value, state)
    ... )
    >>> rule = optim.chain(by_value, optim.scale(-1.0))
    >>> rule.update(jnp.array([4.0]), rule.init(jnp.ones(1)), value=0.5)[0].tolist()
    [-2.0]
    """


def with_extra_args_support(tx: GradientTransformation) -> GradientTransformationExtraArgs:
    """The same transformation; its update ignores keyword arguments that it does not take.

    >>> from rlx import optim
    >>> rule = optim.with_extra_args_support(optim.scale(2.0))
    >>> rule.update(3.0, rule.init(1.0), value=0.5)[0].item()
    6.0
    """
    if isinstance(tx, GradientTransformationExtraArgs):
        return tx
    if not (hasattr(tx, "init") and hasattr(tx, "update")):
        name = getattr(tx, "__name__", "")
        raise InputTypeError(
            f"{name or describe(tx)} is not a gradient transformation.",
            f"Call it: rlx.optim.{name}(...) returns one." if name else "Pass one such as rlx.optim.adam(1e-3).",
        )

    def update(updates: Tree, state: Any, params: Tree = None, **extra_args: Any) -> tuple[Tree, Any]:
        return tx.update(updates, state, params)

    return GradientTransformationExtraArgs(tx.init, update)


class EmptyState(NamedTuple):
    """The state of a transformation without memory.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> optim.scale(2.0).init(jnp.ones(2))
    EmptyState()
    """


def stateless(function: Callable[[Tree, Tree], Tree]) -> GradientTransformation:
    """A transformation without a state from function(updates, params) -> updates."""

    def init(params: Tree) -> EmptyState:
        return EmptyState()

    def update(updates: Tree, state: Any, params: Tree = None) -> tuple[Tree, Any]:
        return function(updates, params), state

    return GradientTransformation(init, update)


def identity() -> GradientTransformation:
    """The transformation that changes nothing.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> rule = optim.identity()
    >>> rule.update(jnp.array([3.0]), rule.init(jnp.ones(1)))[0].tolist()
    [3.0]
    """
    return stateless(lambda updates, params: updates)


def set_to_zero() -> GradientTransformation:
    """The transformation that gives zeros: parameters stay as they are.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> rule = optim.set_to_zero()
    >>> rule.update(jnp.array([3.0]), rule.init(jnp.ones(1)))[0].tolist()
    [0.0]
    """
    return stateless(lambda updates, params: tree.map(jnp.zeros_like, updates))


def needs_params(name: str, params: Tree) -> Tree:
    """The parameters; TreeMismatchError where update was called without."""
    if params is None:
        raise TreeMismatchError(
            f"optim.{name} needs the parameters, but update was called without.",
            "Call update(gradients, state, params).",
        )
    return params


def chain(*transformations: GradientTransformation) -> GradientTransformationExtraArgs:
    """Apply transformations one after another; update passes keyword arguments to those that accept them.

    >>> import rlx
    >>> from rlx import optim
    >>> half = optim.chain(optim.clip(1.0), optim.scale(-0.5))
    >>> updates, _ = half.update(8.0, half.init(0.0))
    >>> updates.item()
    -0.5
    """

    parts = [with_extra_args_support(t) for t in transformations]

    def init(params: Tree) -> tuple[Any, ...]:
        return tuple(t.init(params) for t in parts)

    def update(updates: Tree, state: Any, params: Tree = None, **extra_args: Any) -> tuple[Tree, Any]:
        if not isinstance(state, (tuple, list)) or len(state) != len(transformations):
            got = f"{type(state).__name__}{f' of {len(state)} parts' if isinstance(state, (tuple, list)) else ''}"
            raise TreeMismatchError(
                f"The optimiser's update got a {got} as state, which is a tuple of {len(transformations)} parts.",
                "Make the state with state = optimizer.init(params), and pass on the one that update returns:"
                " updates, state = optimizer.update(gradients, state, params).",
            )
        states = []
        for transformation, own in zip(parts, state, strict=True):
            try:
                updates, own = transformation.update(updates, own, params, **extra_args)
            except AttributeError as error:
                if error.obj is not own:
                    raise
                raise TreeMismatchError(
                    f"The optimiser's update got the state of another one: a part is {type(own).__name__}, which has"
                    f" no {error.name}.",
                    "Make the state with state = optimizer.init(params). For a state from a file, pass load a tree of"
                    " the same structure: rlx.load(path, like=state).",
                ) from None
            states.append(own)
        return updates, tuple(states)

    return GradientTransformationExtraArgs(init, update)


def apply_updates(params: Tree, updates: Tree) -> Tree:
    """params + updates, in the parameters' dtypes; None among the updates leaves a parameter alone.

    >>> import rlx
    >>> rlx.optim.apply_updates({"w": 1.0}, {"w": 0.5})["w"].item()
    1.5
    """

    def add(parameter: Any, change: Any) -> Any:
        if parameter is None or change is None:
            return parameter
        value = as_array(parameter)
        return lax.convert_element_type(value + change, value.dtype)

    return tree.map(add, params, updates, is_leaf=lambda x: x is None)


def global_norm(updates: Tree) -> Array:
    """The root of the sum of the squares of all leaves' elements.

    >>> import rlx
    >>> rlx.optim.global_norm({"a": 3.0, "b": 4.0}).item()
    5.0
    """
    total: Any = 0.0
    for leaf in tree.leaves(updates):
        value = as_array(leaf)
        squares = jnp.square(jnp.abs(value))
        total = total + lax.reduce_sum(squares, tuple(range(value.ndim)))
    return jnp.sqrt(total)


# ------------------------------------------------------------- some of the leaves
class MaskedState(NamedTuple):
    """The state of the transformation that is applied to some leaves.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> rule = optim.masked(optim.trace(0.9), {"a": True, "b": False})
    >>> rule.init({"a": jnp.ones(2), "b": jnp.ones(3)}).inner_state.trace["a"].tolist()
    [0.0, 0.0]
    """

    inner_state: Any


class MaskedNode(NamedTuple):
    """A placeholder for a leaf that is left out."""


def masked(
    inner: GradientTransformation, mask: Any, *, mask_compatible_extra_args: bool = False
) -> GradientTransformationExtraArgs:
    """Apply a transformation to some leaves; the others' updates pass unchanged.

    Args:
      mask: a tree of bools with the parameters' structure or a prefix of that structure, or a function that makes
        one from the parameters.
      mask_compatible_extra_args: also leave out leaves of update's keyword arguments of the parameters' structure.

    >>> import rlx
    >>> from rlx import optim
    >>> only_a = optim.masked(optim.scale(2.0), {"a": True, "b": False})
    >>> updates, _ = only_a.update({"a": 1.0, "b": 1.0}, only_a.init({"a": 0.0, "b": 0.0}))
    >>> float(updates["a"]), float(updates["b"])
    (2.0, 1.0)
    """

    part = with_extra_args_support(inner)

    def split(values: Tree, reference: Tree) -> Tree:
        chosen = mask(reference) if callable(mask) else mask
        return tree.map(
            lambda keep, leaf: leaf if keep else tree.map(lambda _: MaskedNode(), leaf),
            chosen,
            values,
        )

    def init(params: Tree) -> MaskedState:
        return MaskedState(part.init(split(params, params)))

    def update(updates: Tree, state: Any, params: Tree = None, **extra_args: Any) -> tuple[Tree, Any]:
        kept = split(updates, updates)
        kept_params = None if params is None else split(params, updates)
        if mask_compatible_extra_args:
            structure = tree.structure(updates)
            extra_args = {k: split(v, updates) if tree.structure(v) == structure else v for k, v in extra_args.items()}
        changed, next_state = part.update(kept, state.inner_state, kept_params, **extra_args)
        is_left_out = lambda x: isinstance(x, MaskedNode)  # noqa: E731
        merged = tree.map(
            lambda new, old: old if isinstance(new, MaskedNode) else new,
            changed,
            updates,
            is_leaf=is_left_out,
        )
        return merged, MaskedState(next_state)

    return GradientTransformationExtraArgs(init, update)
