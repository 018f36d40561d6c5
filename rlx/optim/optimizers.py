"""Optimisers: chains of transformations with the usual names."""

from __future__ import annotations

from typing import Any

from rlx.optim.transformation import GradientTransformation, chain, identity
from rlx.optim.updates import (
    add_decayed_weights,
    scale_by_adam,
    scale_by_learning_rate,
    scale_by_lion,
    scale_by_rms,
    scale_by_rss,
    trace,
)

__all__ = ["adagrad", "adam", "adamw", "lion", "nadam", "rmsprop", "sgd"]


def sgd(
    learning_rate: Any,
    momentum: Any = None,
    nesterov: bool = False,
    accumulator_dtype: Any = None,
) -> GradientTransformation:
    """Gradient descent, with momentum if it is given.

    >>> import rlx
    >>> from rlx import optim
    >>> optimizer = optim.sgd(0.5)
    >>> updates, state = optimizer.update(2.0, optimizer.init(1.0))
    >>> float(optim.apply_updates(1.0, updates))
    0.0
    """
    moved = identity() if momentum is None else trace(momentum, nesterov, accumulator_dtype)
    return chain(moved, scale_by_learning_rate(learning_rate))


def adam(
    learning_rate: Any,
    b1: Any = 0.9,
    b2: Any = 0.999,
    eps: Any = 1e-8,
    eps_root: Any = 0.0,
    mu_dtype: Any = None,
    *,
    nesterov: bool = False,
) -> GradientTransformation:
    """Adam.

    >>> import rlx
    >>> from rlx import optim
    >>> optimizer = optim.adam(0.1)
    >>> updates, state = optimizer.update(3.0, optimizer.init(1.0))
    >>> round(float(updates), 4)
    -0.1
    """
    scaled = scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov)
    return chain(scaled, scale_by_learning_rate(learning_rate))


def nadam(
    learning_rate: Any,
    b1: Any = 0.9,
    b2: Any = 0.999,
    eps: Any = 1e-8,
    eps_root: Any = 0.0,
    mu_dtype: Any = None,
) -> GradientTransformation:
    """Adam with Nesterov momentum.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> rule = optim.nadam(0.1)
    >>> updates, state = rule.update(jnp.array([2.0]), rule.init(jnp.ones(1)))
    >>> print(updates.round(4))
    [-0.1474]
    """
    return adam(learning_rate, b1, b2, eps, eps_root, mu_dtype, nesterov=True)


def adamw(
    learning_rate: Any,
    b1: Any = 0.9,
    b2: Any = 0.999,
    eps: Any = 1e-8,
    eps_root: Any = 0.0,
    mu_dtype: Any = None,
    weight_decay: Any = 1e-4,
    mask: Any = None,
    *,
    nesterov: bool = False,
) -> GradientTransformation:
    """Adam with decoupled weight decay, scaled by the learning rate.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> rule = optim.adamw(0.1, weight_decay=0.5)
    >>> updates, state = rule.update(jnp.array([2.0]), rule.init(jnp.ones(1)), jnp.ones(1))
    >>> print(updates.round(4))
    [-0.15]
    """
    return chain(
        scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


def lion(
    learning_rate: Any,
    b1: Any = 0.9,
    b2: Any = 0.99,
    mu_dtype: Any = None,
    weight_decay: Any = 1e-3,
    mask: Any = None,
) -> GradientTransformation:
    """Lion: steps of constant size in the direction of the mean gradient's sign.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> rule = optim.lion(0.1, weight_decay=0.0)
    >>> updates, state = rule.update(jnp.array([-7.0, 0.01]), rule.init(jnp.ones(2)), jnp.ones(2))
    >>> print(updates.round(4))
    [ 0.1 -0.1]
    """
    return chain(
        scale_by_lion(b1, b2, mu_dtype),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


def rmsprop(
    learning_rate: Any,
    decay: Any = 0.9,
    eps: Any = 1e-8,
    initial_scale: Any = 0.0,
    eps_in_sqrt: bool = True,
    momentum: Any = None,
    nesterov: bool = False,
) -> GradientTransformation:
    """RMSProp, with momentum if it is given.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> rule = optim.rmsprop(0.1)
    >>> updates, state = rule.update(jnp.array([2.0]), rule.init(jnp.ones(1)))
    >>> print(updates.round(4))
    [-0.3162]
    """
    return chain(
        scale_by_rms(decay, eps, initial_scale, eps_in_sqrt),
        scale_by_learning_rate(learning_rate),
        identity() if momentum is None else trace(momentum, nesterov),
    )


def adagrad(
    learning_rate: Any, initial_accumulator_value: Any = 0.1, eps: Any = 1e-7
) -> GradientTransformation:
    """Adagrad.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> rule = optim.adagrad(0.1)
    >>> updates, state = rule.update(jnp.array([2.0]), rule.init(jnp.ones(1)))
    >>> print(updates.round(4))
    [-0.0988]
    """
    scaled = scale_by_rss(initial_accumulator_value, eps)
    return chain(scaled, scale_by_learning_rate(learning_rate))
