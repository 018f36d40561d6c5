"""Transformations of named parts: different rules for different parameters, and parameters that stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

from rlx.errors import TreeMismatchError
from rlx.optim.transformation import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    Tree,
    masked,
    set_to_zero,
    with_extra_args_support,
)
from rlx.trees import tree

__all__ = ["PartitionState", "freeze", "multi_transform", "named_chain", "partition", "selective_transform"]


def named_chain(*transforms: tuple[str, GradientTransformation]) -> GradientTransformationExtraArgs:
    """`chain` of (name, transformation) pairs, whose state is a dict from name to state.

    Raises: ValueError if two names are equal.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> rule = optim.named_chain(("momentum", optim.trace(0.9)), ("step", optim.scale(-0.5)))
    >>> updates, state = rule.update(jnp.array([4.0]), rule.init(jnp.ones(1)))
    >>> updates.tolist(), state["momentum"].trace.tolist()
    ([-2.0], [4.0])
    """
    parts = {name: with_extra_args_support(t) for name, t in transforms}
    if len(parts) != len(transforms):
        raise ValueError(f"optim.named_chain got the names {[name for name, _ in transforms]}: they must be different.")

    def init(params: Tree) -> dict[str, Any]:
        return {name: part.init(params) for name, part in parts.items()}

    def update(updates: Tree, state: Any, params: Tree = None, **extra_args: Any) -> tuple[Tree, Any]:
        states = {}
        for name, part in parts.items():
            updates, states[name] = part.update(updates, state[name], params, **extra_args)
        return updates, states

    return GradientTransformationExtraArgs(init, update)


class PartitionState(NamedTuple):
    """The state of each label's transformation.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> rule = optim.partition({"fast": optim.trace(0.9)}, {"w": "fast"})
    >>> rule.init({"w": jnp.ones(2)}).inner_states["fast"].inner_state.trace["w"].tolist()
    [0.0, 0.0]
    """

    inner_states: Mapping[Hashable, Any]


def partition(
    transforms: Mapping[Hashable, GradientTransformation],
    param_labels: Tree | Callable[[Tree], Tree],
    *,
    mask_compatible_extra_args: bool = False,
) -> GradientTransformationExtraArgs:
    """A transformation for each label: every leaf is transformed by the one of its label.

    Args:
      transforms: from label to transformation.
      param_labels: a tree of labels with the parameters' structure or a prefix of that structure, or a function that
        makes one from the parameters.
      mask_compatible_extra_args: as for `masked`.

    Raises: TreeMismatchError if a label has no transformation.

    >>> from rlx import optim
    >>> rule = optim.partition({"train": optim.sgd(1.0), "fixed": optim.set_to_zero()}, {"w": "train", "b": "fixed"})
    >>> gradients = {"w": 2.0, "b": 2.0}
    >>> updates, state = rule.update(gradients, rule.init({"w": 0.0, "b": 0.0}))
    >>> updates["w"].item(), updates["b"].item()
    (-2.0, 0.0)
    """

    def parts(values: Tree) -> dict[Hashable, GradientTransformationExtraArgs]:
        labels = param_labels(values) if callable(param_labels) else param_labels
        unknown = set(tree.leaves(labels)) - set(transforms)
        if unknown:
            raise TreeMismatchError(
                f"optim.partition got parameters with the labels {', '.join(sorted(map(repr, unknown)))}, which have no"
                " transformation.",
                f"The labels of the transformations are {', '.join(sorted(map(repr, transforms)))}.",
            )

        def of(group: Hashable, transform: GradientTransformation) -> GradientTransformationExtraArgs:
            mask = tree.map(lambda label: label == group, labels)
            return masked(transform, mask, mask_compatible_extra_args=mask_compatible_extra_args)

        return {group: of(group, transform) for group, transform in transforms.items()}

    def init(params: Tree) -> PartitionState:
        return PartitionState({group: part.init(params) for group, part in parts(params).items()})

    def update(updates: Tree, state: Any, params: Tree = None, **extra_args: Any) -> tuple[Tree, Any]:
        states = {}
        for group, part in parts(updates).items():
            updates, states[group] = part.update(updates, state.inner_states[group], params, **extra_args)
        return updates, PartitionState(states)

    return GradientTransformationExtraArgs(init, update)


multi_transform = partition


def freeze(mask: Tree) -> GradientTransformationExtraArgs:
    """Zero updates where the mask is True, so that these parameters stay as they are.

    Args: mask: as for `masked`.

    >>> from rlx import optim
    >>> rule = optim.chain(optim.sgd(1.0), optim.freeze({"w": False, "b": True}))
    >>> params = {"w": 0.0, "b": 0.0}
    >>> updates, state = rule.update({"w": 2.0, "b": 2.0}, rule.init(params))
    >>> updates["w"].item(), updates["b"].item()
    (-2.0, 0.0)
    """
    return masked(set_to_zero(), mask)


def selective_transform(optimizer: GradientTransformation, *, freeze_mask: Tree) -> GradientTransformationExtraArgs:
    """The optimiser for the leaves whose mask is False; the others stay as they are and have no state.

    Args: freeze_mask: a tree of bools with the parameters' structure or a prefix of that structure.

    >>> from rlx import optim
    >>> rule = optim.selective_transform(optim.adam(0.1), freeze_mask={"w": False, "b": True})
    >>> params = {"w": 0.0, "b": 0.0}
    >>> updates, state = rule.update({"w": 2.0, "b": 2.0}, rule.init(params))
    >>> round(updates["w"].item(), 3), updates["b"].item()
    (-0.1, 0.0)
    """
    labels = tree.map(lambda is_frozen: "freeze" if is_frozen else "train", freeze_mask)
    return partition({"train": optimizer, "freeze": set_to_zero()}, labels)
