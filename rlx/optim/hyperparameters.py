"""Hyperparameters in the state, where a training loop can read and change them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, NamedTuple

import numpy as np

from rlx import numpy as jnp
from rlx.array import Array, is_array, is_array_or_numpy
from rlx.errors import TreeMismatchError
from rlx.ir.types import is_float
from rlx.optim.states import as_before, incremented, new_count
from rlx.optim.transformation import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    Tree,
    with_extra_args_support,
)
from rlx.trace.flat import as_array
from rlx.trees import tree

__all__ = ["InjectHyperparamsState", "inject_hyperparams"]


class InjectHyperparamsState(NamedTuple):
    """The number of steps, the hyperparameters by name, and the optimiser's state.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> state = optim.inject_hyperparams(optim.sgd)(learning_rate=0.5).init(jnp.ones(2))
    >>> state.hyperparams["learning_rate"].item()
    0.5
    """

    count: Any
    hyperparams: Mapping[str, Any]
    inner_state: Any


def _highest_float(params: Tree) -> Any:
    dtypes = [d for x in tree.leaves(params) if is_float(d := as_array(x).dtype)]
    return jnp.result_type(*dtypes) if dtypes else None


def _hyperparameter(value: Any, dtype: Any) -> Array:
    """An array; numbers of Python that are not whole have the given dtype."""
    is_own = isinstance(value, np.ndarray) or (is_array(value) and not value.weak_type)
    result = as_array(value)
    return jnp.asarray(result, dtype) if dtype is not None and not is_own and is_float(result.dtype) else result


def inject_hyperparams(
    inner_factory: Callable[..., GradientTransformation],
    static_args: str | Iterable[str] = (),
    hyperparam_dtype: Any = None,
) -> Callable[..., GradientTransformationExtraArgs]:
    """The optimiser's function with its numbers and schedules in the state, as `state.hyperparams[name]`.

    Numbers are read from the state in each step, so that assigning to the dict changes them without a new trace;
    schedules are computed and stored.

    Args:
      inner_factory: a function such as `adam`.
      static_args: names of arguments that are passed on unchanged; bools, None and functions of other meanings too.
      hyperparam_dtype: the dtype of the numbers; the widest floating dtype of the parameters by default.

    Raises: TreeMismatchError if inner_factory has no argument of a name in static_args.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> rule, params = optim.inject_hyperparams(optim.sgd)(learning_rate=0.5), jnp.ones(1)
    >>> state = rule.init(params)
    >>> state.hyperparams["learning_rate"] = jnp.float32(2.0)
    >>> rule.update(jnp.array([1.0]), state)[0].tolist()
    [-2.0]
    """
    fixed = {static_args} if isinstance(static_args, str) else set(static_args)
    signature = inspect.signature(inner_factory)
    if not fixed <= set(signature.parameters):
        raise TreeMismatchError(
            f"optim.inject_hyperparams got the static_args {sorted(fixed)}.",
            f"The arguments of the function are {list(signature.parameters)}.",
        )

    @wraps(inner_factory)
    def factory(*args: Any, **kwargs: Any) -> GradientTransformationExtraArgs:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        schedules, numbers, others = {}, {}, {}
        for name, value in bound.arguments.items():
            if name in fixed or isinstance(value, bool):
                others[name] = value
            elif callable(value):
                schedules[name] = value
            else:
                (numbers if is_array_or_numpy(value) or isinstance(value, (int, float)) else others)[name] = value

        def scheduled(count: Any) -> dict[str, Any]:
            return {name: schedule(count) for name, schedule in schedules.items()}

        def optimizer(values: Mapping[str, Any]) -> GradientTransformationExtraArgs:
            return with_extra_args_support(inner_factory(**others, **values))

        def init(params: Tree) -> InjectHyperparamsState:
            dtype = hyperparam_dtype or _highest_float(params)
            values = {name: _hyperparameter(x, dtype) for name, x in {**numbers, **scheduled(0)}.items()}
            return InjectHyperparamsState(new_count(), values, optimizer(values).init(params))

        def update(updates: Tree, state: Any, params: Tree = None, **extra_args: Any) -> tuple[Tree, Any]:
            values = as_before({**state.hyperparams, **scheduled(state.count)}, state.hyperparams)
            moved, inner = optimizer(values).update(updates, state.inner_state, params, **extra_args)
            return moved, InjectHyperparamsState(incremented(state.count), values, inner)

        return GradientTransformationExtraArgs(init, update)

    return factory
