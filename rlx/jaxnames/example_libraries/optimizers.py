"""rlx.example_libraries.optimizers: update rules as triples of functions.

* init_fun(params) -> state
* update_fun(step, gradients, state) -> state
* get_params(state) -> params

`params` and gradients are trees of arrays; `optimizer` converts an optimizer for single arrays. Step sizes are
numbers, or schedules: functions of the step number. rlx.optim has composable optimisers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from rlx import numpy as jnp
from rlx import optim
from rlx.array import Array
from rlx.errors import InputTypeError, ShapeError, TreeMismatchError
from rlx.offered_names import offer_names
from rlx.trees import tree

__all__ = [
    "InitFn",
    "JoinPoint",
    "Optimizer",
    "OptimizerState",
    "Params",
    "ParamsFn",
    "Schedule",
    "State",
    "Step",
    "UpdateFn",
    "Updates",
    "adagrad",
    "adam",
    "adamax",
    "clip_grads",
    "constant",
    "exponential_decay",
    "inverse_time_decay",
    "l2_norm",
    "make_schedule",
    "momentum",
    "nesterov",
    "optimizer",
    "pack_optimizer_state",
    "piecewise_constant",
    "polynomial_decay",
    "rmsprop",
    "rmsprop_momentum",
    "sgd",
    "sm3",
    "unpack_optimizer_state",
]

offer_names(globals())

Params = Any
State = Any
Updates = Params
Step = int
Schedule = Callable[[Step], Any]


class OptimizerState(NamedTuple):
    """The states of all parameters: their leaves, the structure of the parameters, the structure of each state.

    >>> from rlx.example_libraries import optimizers
    >>> optimizers.momentum(0.1, 0.9).init_fn({"w": 1.0}).packed_state
    [[1.0, Array(0., dtype=float32, weak_type=True)]]
    """

    packed_state: Sequence[Sequence[Any]]
    tree_def: Any
    subtree_defs: Sequence[Any]


tree.register_node(
    OptimizerState,
    lambda state: ((state.packed_state,), (state.tree_def, tuple(state.subtree_defs))),
    lambda structures, packed: OptimizerState(packed[0], *structures),
)

InitFn = Callable[[Params], OptimizerState]
UpdateFn = Callable[[Step, Updates, OptimizerState], OptimizerState]
ParamsFn = Callable[[OptimizerState], Params]


class Optimizer(NamedTuple):
    """init_fn(params) -> state; update_fun(step, gradients, state) -> state; params_fn(state) -> params.

    >>> from rlx.example_libraries import optimizers
    >>> init_fun, update_fun, get_params = optimizers.sgd(0.5)
    >>> get_params(update_fun(0, 2.0, init_fun(1.0)))
    0.0
    """

    init_fn: InitFn
    update_fn: UpdateFn
    params_fn: ParamsFn


def _packed(states: Sequence[Any], treedef: Any) -> OptimizerState:
    """The states of the parameters, one for each leaf of `treedef`."""
    pairs = [tree.flatten(state) for state in states]
    return OptimizerState([leaves for leaves, _ in pairs], treedef, tuple(structure for _, structure in pairs))


def _states(state: OptimizerState) -> list[Any]:
    """The state of each parameter."""
    return [tree.unflatten(d, leaves) for d, leaves in zip(state.subtree_defs, state.packed_state, strict=True)]


def optimizer(opt_maker: Callable[..., Any]) -> Callable[..., Optimizer]:
    """A decorator: an optimizer written for single arrays takes trees of them.

    Args:
      opt_maker: returns functions (init, update, get_params) of an array: init(x) -> state,
        update(step, gradient, state) -> state, get_params(state) -> x, where a state is a tree of arrays.

    Raises: TreeMismatchError (a TypeError) if gradients have another structure than the parameters, or update
    changes the structure of the state.

    >>> from rlx.example_libraries import optimizers
    >>> @optimizers.optimizer
    ... def signs(step_size):
    ...     return lambda x: x, lambda i, g, x: x - step_size * (1 if g > 0 else -1), lambda x: x
    >>> init_fun, update_fun, get_params = signs(0.5)
    >>> get_params(update_fun(0, {"w": 7.0}, init_fun({"w": 1.0})))
    {'w': 0.5}
    """

    @functools.wraps(opt_maker)
    def tree_opt_maker(*args: Any, **kwargs: Any) -> Optimizer:
        init, update, get_params = opt_maker(*args, **kwargs)

        @functools.wraps(init)
        def tree_init(params: Params) -> OptimizerState:
            leaves, treedef = tree.flatten(params)
            return _packed([init(x) for x in leaves], treedef)

        @functools.wraps(update)
        def tree_update(step: Step, gradients: Updates, state: OptimizerState) -> OptimizerState:
            leaves, treedef = tree.flatten(gradients)
            if treedef != state.tree_def:
                raise TreeMismatchError(
                    f"An optimizer for parameters of structure {state.tree_def} got gradients of structure {treedef}.",
                    "Pass gradients with the structure of the parameters.",
                )
            states = [update(step, g, s) for g, s in zip(leaves, _states(state), strict=True)]
            updated = _packed(states, treedef)
            for before, after in zip(state.subtree_defs, updated.subtree_defs, strict=True):
                if before != after:
                    raise TreeMismatchError(
                        f"An optimizer's update took a state of structure {before} and returned one of {after}.",
                        "update must return what init returns: the same nesting, with the same keys.",
                    )
            return updated

        @functools.wraps(get_params)
        def tree_get_params(state: OptimizerState) -> Params:
            return tree.unflatten(state.tree_def, [get_params(s) for s in _states(state)])

        return Optimizer(tree_init, tree_update, tree_get_params)

    return tree_opt_maker


def _with_zeros(count: int) -> Callable[[Any], Any]:
    """The state of an optimizer: a parameter, followed by arrays of zeros like it."""
    return lambda x: (x, *(jnp.zeros_like(x) for _ in range(count)))


def _first(state: tuple[Any, ...]) -> Any:
    """The parameter, which is the first element of states that are tuples."""
    return state[0]


# ------------------------------------------------------------------ optimizers
@optimizer
def sgd(step_size: Any) -> Any:
    """Gradient descent.

    >>> from rlx.example_libraries import optimizers
    >>> init_fun, update_fun, get_params = optimizers.sgd(0.5)
    >>> get_params(update_fun(0, [2.0], init_fun([1.0])))
    [0.0]
    """
    rate = make_schedule(step_size)
    return lambda x: x, lambda i, g, x: x - rate(i) * g, lambda x: x


@optimizer
def momentum(step_size: Any, mass: Any) -> Any:
    """Gradient descent with momentum: along the sum of all gradients, with older ones decayed by `mass`.

    >>> from rlx.example_libraries import optimizers
    >>> init_fun, update_fun, get_params = optimizers.momentum(0.5, mass=0.5)
    >>> state = update_fun(1, 1.0, update_fun(0, 1.0, init_fun(0.0)))
    >>> float(get_params(state))
    -1.25
    """
    rate = make_schedule(step_size)

    def update(i: Step, g: Any, state: Any) -> Any:
        x, velocity = state
        velocity = mass * velocity + g
        return x - rate(i) * velocity, velocity

    return _with_zeros(1), update, _first


@optimizer
def nesterov(step_size: Any, mass: Any) -> Any:
    """Gradient descent with Nesterov momentum, which looks one step ahead.

    >>> from rlx.example_libraries import optimizers
    >>> init_fun, update_fun, get_params = optimizers.nesterov(0.5, mass=0.5)
    >>> float(get_params(update_fun(0, 1.0, init_fun(0.0))))
    -0.75
    """
    rate = make_schedule(step_size)

    def update(i: Step, g: Any, state: Any) -> Any:
        x, velocity = state
        velocity = mass * velocity + g
        return x - rate(i) * (mass * velocity + g), velocity

    return _with_zeros(1), update, _first


def _inverse_root(squares: Any) -> Array:
    """1 / sqrt of positive elements, and 0 for the others."""
    return jnp.where(squares > 0, 1.0 / jnp.sqrt(squares), 0.0)


@optimizer
def adagrad(step_size: Any, momentum: Any = 0.9) -> Any:
    """Adagrad with momentum (Duchi, Hazan and Singer, 2011).

    >>> from rlx.example_libraries import optimizers
    >>> init_fun, update_fun, get_params = optimizers.adagrad(0.5, momentum=0.0)
    >>> float(get_params(update_fun(0, 4.0, init_fun(0.0))))
    -0.5
    """
    rate = make_schedule(step_size)

    def update(i: Step, g: Any, state: Any) -> Any:
        x, squares, m = state
        squares = squares + jnp.square(g)
        m = (1.0 - momentum) * (g * _inverse_root(squares)) + momentum * m
        return x - rate(i) * m, squares, m

    return _with_zeros(2), update, _first


@optimizer
def rmsprop(step_size: Any, gamma: Any = 0.9, eps: Any = 1e-8) -> Any:
    """RMSProp: gradients divided by the root of a running mean of their squares, which decays by `gamma` per step.

    >>> from rlx.example_libraries import optimizers
    >>> init_fun, update_fun, get_params = optimizers.rmsprop(0.5, gamma=0.75)
    >>> round(float(get_params(update_fun(0, 4.0, init_fun(0.0)))), 4)
    -1.0
    """
    rate = make_schedule(step_size)

    def update(i: Step, g: Any, state: Any) -> Any:
        x, squares = state
        squares = squares * gamma + jnp.square(g) * (1.0 - gamma)
        return x - rate(i) * g / jnp.sqrt(squares + eps), squares

    return _with_zeros(1), update, _first


@optimizer
def rmsprop_momentum(step_size: Any, gamma: Any = 0.9, eps: Any = 1e-8, momentum: Any = 0.9) -> Any:
    """RMSProp with momentum.

    >>> from rlx.example_libraries import optimizers
    >>> init_fun, update_fun, get_params = optimizers.rmsprop_momentum(0.5, gamma=0.75, momentum=0.0)
    >>> round(float(get_params(update_fun(0, 4.0, init_fun(0.0)))), 4)
    -1.0
    """
    rate = make_schedule(step_size)

    def update(i: Step, g: Any, state: Any) -> Any:
        x, squares, m = state
        squares = squares * gamma + jnp.square(g) * (1.0 - gamma)
        m = momentum * m + rate(i) * g / jnp.sqrt(squares + eps)
        return x - m, squares, m

    return _with_zeros(2), update, _first


def _missing_part(decay: Any, i: Step, dtype: Any) -> Any:
    """The bias of a running mean that started at zero, after step i."""
    return 1 - jnp.asarray(decay, dtype) ** (i + 1)


@optimizer
def adam(step_size: Any, b1: Any = 0.9, b2: Any = 0.999, eps: Any = 1e-8) -> Any:
    """Adam (Kingma and Ba, 2014).

    Args:
      b1, b2: decay factors per step of the running means of gradients and of their squares.
      eps: added to the root.

    >>> from rlx.example_libraries import optimizers
    >>> init_fun, update_fun, get_params = optimizers.adam(0.5)
    >>> round(float(get_params(update_fun(0, 4.0, init_fun(0.0)))), 4)
    -0.5
    """
    rate = make_schedule(step_size)

    def update(i: Step, g: Any, state: Any) -> Any:
        x, m, v = state
        m = (1 - b1) * g + b1 * m
        v = (1 - b2) * jnp.square(g) + b2 * v
        mean, square = m / _missing_part(b1, i, m.dtype), v / _missing_part(b2, i, m.dtype)
        return x - rate(i) * mean / (jnp.sqrt(square) + eps), m, v

    return _with_zeros(2), update, _first


@optimizer
def adamax(step_size: Any, b1: Any = 0.9, b2: Any = 0.999, eps: Any = 1e-8) -> Any:
    """AdaMax: Adam with the decayed maximum of the gradients instead of their mean square.

    >>> from rlx.example_libraries import optimizers
    >>> init_fun, update_fun, get_params = optimizers.adamax(0.5)
    >>> round(float(get_params(update_fun(0, 4.0, init_fun(0.0)))), 4)
    -0.5
    """
    rate = make_schedule(step_size)

    def update(i: Step, g: Any, state: Any) -> Any:
        x, m, u = state
        m = (1 - b1) * g + b1 * m
        u = jnp.maximum(b2 * u, jnp.abs(g))
        return x - (rate(i) / _missing_part(b1, i, m.dtype)) * m / (u + eps), m, u

    return _with_zeros(2), update, _first


@optimizer
def sm3(step_size: Any, momentum: Any = 0.9) -> Any:
    """SM3, which keeps one vector for each axis (Anil, Gupta, Koren and Singer, 2019).

    >>> import numpy as np
    >>> from rlx.example_libraries import optimizers
    >>> init_fun, update_fun, get_params = optimizers.sm3(0.5, momentum=0.0)
    >>> get_params(update_fun(0, np.array([4.0, -2.0]), init_fun(np.zeros(2)))).tolist()
    [-0.5, 0.5]
    """
    rate = make_schedule(step_size)

    def init(x: Any) -> Any:
        wide = jnp.atleast_1d(x)
        return x, jnp.zeros_like(wide), [jnp.zeros(size, wide.dtype) for size in wide.shape]

    def update(i: Step, g: Any, state: Any) -> Any:
        x, m, maxima = state
        wide = jnp.atleast_1d(g)
        axes = range(wide.ndim)
        bounds = [jnp.expand_dims(v, [k for k in axes if k != at]) for at, v in enumerate(maxima)]
        squares = functools.reduce(jnp.minimum, bounds) + jnp.square(wide)
        m = (1.0 - momentum) * (wide * _inverse_root(squares)) + momentum * m
        maxima = [squares.max([k for k in axes if k != at]) for at in axes]
        return x - rate(i) * m.reshape(jnp.shape(x)), m, maxima

    return init, update, _first


# ------------------------------------------------------------------ schedules
def constant(step_size: Any) -> Schedule:
    """A constant step size.

    >>> from rlx.example_libraries import optimizers
    >>> optimizers.constant(0.1)(7)
    0.1
    """
    return optim.constant_schedule(step_size)


def exponential_decay(step_size: Any, decay_steps: Any, decay_rate: Any) -> Schedule:
    """step_size * decay_rate ** (step / decay_steps).

    >>> from rlx.example_libraries import optimizers
    >>> optimizers.exponential_decay(1.0, 10, 0.25)(5)
    0.5
    """
    return lambda i: step_size * decay_rate ** (i / decay_steps)


def inverse_time_decay(step_size: Any, decay_steps: Any, decay_rate: Any, staircase: bool = False) -> Schedule:
    """step_size / (1 + decay_rate * step / decay_steps); `staircase` decays in jumps, after whole decay_steps.

    >>> from rlx.example_libraries import optimizers
    >>> optimizers.inverse_time_decay(1.0, 10, 2.0)(5)
    0.5
    """
    if staircase:
        return lambda i: step_size / (1 + decay_rate * jnp.floor(i / decay_steps))
    return lambda i: step_size / (1 + decay_rate * i / decay_steps)


def polynomial_decay(step_size: Any, decay_steps: Any, final_step_size: Any, power: Any = 1.0) -> Schedule:
    """From step_size to final_step_size along a polynomial in decay_steps steps.

    >>> from rlx.example_libraries import optimizers
    >>> float(optimizers.polynomial_decay(1.0, 10, 0.0, power=2)(5))
    0.25
    """

    def schedule(i: Step) -> Any:
        remaining = (1 - jnp.minimum(i, decay_steps) / decay_steps) ** power
        return remaining * (step_size - final_step_size) + final_step_size

    return schedule


def piecewise_constant(boundaries: Any, values: Any) -> Schedule:
    """values[k] after boundaries[k - 1], until boundaries[k] inclusive.

    Raises: ShapeError (a ValueError) for incompatible lengths.

    >>> from rlx.example_libraries import optimizers
    >>> schedule = optimizers.piecewise_constant([2, 4], [1.0, 0.5, 0.25])
    >>> [float(schedule(i)) for i in (2, 3, 5)]
    [1.0, 0.5, 0.25]
    """
    ends, sizes = jnp.array(boundaries), jnp.array(values)
    if ends.ndim != 1 or sizes.shape != (ends.size + 1,):
        raise ShapeError(
            f"piecewise_constant got boundaries of shape {ends.shape} and values of shape {sizes.shape}.",
            "Pass two sequences, with one value more than boundaries.",
        )
    return lambda i: sizes[jnp.sum(i > ends)]


def make_schedule(scalar_or_schedule: Any) -> Schedule:
    """A schedule unchanged; a number as a constant schedule. Raises InputTypeError for anything else.

    >>> from rlx.example_libraries import optimizers
    >>> optimizers.make_schedule(0.1)(3)
    0.1
    """
    if callable(scalar_or_schedule):
        return scalar_or_schedule
    if jnp.ndim(scalar_or_schedule) == 0:
        return constant(scalar_or_schedule)
    raise InputTypeError(
        f"A step size is an array of shape {jnp.shape(scalar_or_schedule)}.",
        "Pass a number, or a function of the step.",
    )


# ------------------------------------------------------------------ gradients
def l2_norm(tree: Any) -> Array:
    """The root of the sum of the squares of all elements in a tree.

    >>> from rlx.example_libraries import optimizers
    >>> float(optimizers.l2_norm([3.0, (4.0,)]))
    5.0
    """
    return optim.global_norm(tree)


def clip_grads(grad_tree: Any, max_norm: Any) -> Any:
    """Gradients scaled down together if their norm is not below max_norm.

    >>> from rlx.example_libraries import optimizers
    >>> [round(float(g), 3) for g in optimizers.clip_grads([3.0, 4.0], 1.0)]
    [0.6, 0.8]
    """
    norm = l2_norm(grad_tree)
    return tree.map(lambda g: jnp.where(norm < max_norm, g, g * (max_norm / norm)), grad_tree)


# ------------------------------------------------------------------ states as trees, for saving
class JoinPoint:
    """Represents a parameter in a tree: its `subtree` is the parameter's state.

    >>> from rlx.example_libraries import optimizers
    >>> list(optimizers.JoinPoint((1.0, 2.0)))
    [(1.0, 2.0)]
    """

    def __init__(self, subtree: Any) -> None:
        self.subtree = subtree

    def __iter__(self) -> Iterator[Any]:
        yield self.subtree


def unpack_optimizer_state(opt_state: OptimizerState) -> Any:
    """The tree of parameters with a JoinPoint for each, which contains the parameter's state.

    >>> from rlx.example_libraries import optimizers
    >>> state = optimizers.sgd(0.1).init_fn({"w": 1.0})
    >>> optimizers.unpack_optimizer_state(state)["w"].subtree
    1.0
    """
    return tree.unflatten(opt_state.tree_def, [JoinPoint(state) for state in _states(opt_state)])


def pack_optimizer_state(marked_pytree: Any) -> OptimizerState:
    """The state from which unpack_optimizer_state built a tree of JoinPoints. Raises InputTypeError for other leaves.

    >>> from rlx.example_libraries import optimizers
    >>> state = optimizers.sgd(0.1).init_fn({"w": 1.0})
    >>> optimizers.pack_optimizer_state(optimizers.unpack_optimizer_state(state)) == state
    True
    """
    points, treedef = tree.flatten(marked_pytree)
    for point in points:
        if not isinstance(point, JoinPoint):
            raise InputTypeError(
                f"pack_optimizer_state got a leaf of type {type(point).__name__}.",
                "Pass the result of unpack_optimizer_state: a tree of JoinPoints.",
            )
    return _packed([point.subtree for point in points], treedef)
