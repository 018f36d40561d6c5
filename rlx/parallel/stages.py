"""Pipelines: stages of a model on the members of a named axis, through which small parts of a batch pass.

Huang et al.: GPipe, 2019; Narayanan et al.: Memory-Efficient Pipeline-Parallel DNN Training (1F1B with flushes), 2021.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlx import lax
from rlx import numpy as jnp
from rlx.call.jit import eval_shape
from rlx.errors import OptionError
from rlx.ops.variation import pvary, total, variation
from rlx.trace.flat import as_array
from rlx.trace.tracing import tracked_axes
from rlx.transforms.reverse import vjp
from rlx.trees import tree

__all__ = ["Step", "pipeline", "schedule"]

Tree = Any


class Step(NamedTuple):
    """At `tick`, a stage does the "forward" or "backward" work of a microbatch.

    >>> from rlx.parallel import schedule
    >>> schedule("gpipe", 1, 1)[1]
    Step(tick=1, stage=0, work='backward', microbatch=0)
    """

    tick: int
    stage: int
    work: str
    microbatch: int


def _check_kind(name: str, kind: str) -> None:
    if kind not in ("gpipe", "1f1b"):
        raise OptionError(f"parallel.{name} got schedule {kind!r}.", "Pass 'gpipe' or '1f1b'.")


def schedule(kind: str, stages: int, microbatches: int) -> list[Step]:
    """The work of each stage at each tick, with one tick for every forward and every backward pass of a microbatch.

    Both take 2 (m + p - 1) ticks for m microbatches and p stages. A stage is idle for 2 (p - 1) ticks: the bubble is
    (p - 1) / (m + p - 1). Stage s holds inputs of up to m microbatches under "gpipe", of min(p - s, m) under "1f1b",
    where it does p - s - 1 forwards, then alternates forwards and backwards.

    Args:
      kind: "gpipe": all forwards, then all backwards; "1f1b": one forward, one backward.

    Returns: steps in the order of ticks, then of stages.

    Raises: OptionError for another kind.

    >>> from rlx.parallel import schedule
    >>> [(step.tick, step.work, step.microbatch) for step in schedule("1f1b", 2, 2) if step.stage == 0]
    [(0, 'forward', 0), (2, 'forward', 1), (3, 'backward', 0), (5, 'backward', 1)]
    """
    _check_kind("schedule", kind)
    p, m = stages, microbatches
    steps = []
    for s in range(p):
        for i in range(m):
            ahead, behind = (s + i, m + 2 * p - 2 - s + i) if kind == "gpipe" else (s + 2 * i, 2 * p - 1 - s + 2 * i)
            steps += [Step(ahead, s, "forward", i), Step(behind, s, "backward", i)]
    return sorted(steps)


def pipeline(
    stage: Callable[[Tree, Any], Any],
    loss: Callable[[Tree, Any, Any], Any],
    axis_name: Any,
    *,
    schedule: str = "1f1b",
    embed: Callable[[Tree, Any], Any] | None = None,
) -> Callable[[Tree, Tree, Any, Any], tuple[Any, tuple[Tree, Tree]]]:
    """The mean loss of microbatches, and its gradient, of a model whose stages are the members of an axis.

    Activations are sent to the next stage, cotangents to the previous one; see `schedule` for the order. A stage keeps
    the input of each microbatch until its cotangent arrives, and recomputes the rest in the backward pass.

    Args:
      stage: (parameters of this stage, x) -> an array of x's shape and dtype.
      loss: (shared, y of the last stage, target) -> a scalar.
      axis_name: the name of a mapped axis of p members, stages 0 to p - 1.
      schedule: "1f1b" or "gpipe".
      embed: (shared, input) -> x of the first stage; the input itself by default.

    Returns: a function of a member's (parameters, shared, inputs, targets) that returns (value, (gradient, gradient of
    shared)). `parameters` are the stage's own; `shared`, inputs (m, ...) and targets (m, ...) of m microbatches are
    equal on all members; so are the value and the gradient of shared.

    Raises: OptionError for another schedule.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx.parallel import pipeline
    >>> run = pipeline(lambda w, x: w * x, lambda shared, y, target: (y - target) ** 2, "stage")
    >>> x, target = jnp.array([1.0, 2.0]), jnp.array([0.0, 0.0])
    >>> value, (slope, _) = rlx.vmap(lambda w: run(w, (), x, target), axis_name="stage")(jnp.array([3.0, 5.0]))
    >>> value.tolist(), slope.tolist()  # of the mean of (w0 * w1 * x) ** 2
    ([562.5, 562.5], [375.0, 225.0])
    """
    _check_kind("pipeline", schedule)
    first = embed if embed is not None else (lambda shared, x: x)

    def run(parameters: Tree, shared: Tree, inputs: Any, targets: Any) -> tuple[Any, tuple[Tree, Tree]]:
        line = _Line.of(stage, loss, first, axis_name, (parameters, shared), (inputs, targets))
        end = line.gpipe() if schedule == "gpipe" else line.by_turns()
        return lax.psum(end.value, axis_name), line.gradients(end.gradient)

    return run


class _State(NamedTuple):
    """A stage's state between ticks: the arrived value, kept inputs by slot, the loss and the gradient so far."""

    arrived: Any
    kept: Any
    value: Any
    gradient: tuple[Tree, Tree]


class _Line(NamedTuple):
    """A member of a pipeline: its functions, data and position. `given`: own and shared parameters as passed in."""

    stage: Callable[[Tree, Any], Any]
    loss: Callable[[Tree, Any, Any], Any]
    first: Callable[[Tree, Any], Any]
    axis_name: Any
    given: tuple[Tree, Tree]
    parameters: tuple[Tree, Tree]
    data: tuple[Any, Any]
    count: int  # of microbatches
    stages: int
    place: Any

    @classmethod
    def of(cls, stage: Any, loss: Any, first: Any, axis_name: Any, given: Any, data: Any) -> _Line:
        """A member whose parameters vary: otherwise reverse mode would sum over members in each microbatch."""
        axes = tracked_axes()
        own = tree.map(lambda x: pvary(as_array(x), axis_name=axes) if axes else as_array(x), given)
        data = tree.map(as_array, data)
        count, stages = tree.leaves(data)[0].shape[0], lax.axis_size(axis_name)
        return cls(stage, loss, first, axis_name, given, own, data, count, stages, lax.axis_index(axis_name))

    def gradients(self, found: tuple[Tree, Tree]) -> tuple[Tree, Tree]:
        """The gradients, summed over members that have copies of a parameter."""
        axes = tracked_axes()
        if not axes:
            return found[0], lax.psum(found[1], self.axis_name)
        marks = tree.map(lambda x: variation(as_array(x), axis_name=axes), self.given)
        return tree.map(lambda g, mark: total(g, mark, axis_name=axes), found, marks)

    def microbatch(self, number: Any) -> Any:
        """Input and target of one microbatch."""
        return tree.map(lambda x: lax.dynamic_index_in_dim(x, number, 0, keepdims=False), self.data)

    def start(self, slots: int) -> _State:
        """The state before anything has arrived."""
        x = eval_shape(lambda: self.first(self.parameters[1], self.microbatch(0)[0]))
        value = eval_shape(lambda: self.loss(self.parameters[1], jnp.zeros(x.shape, x.dtype), self.microbatch(0)[1]))
        zeros = tree.map(jnp.zeros_like, self.parameters)
        arrived, kept = jnp.zeros(x.shape, x.dtype), jnp.zeros((slots, *x.shape), x.dtype)
        return _State(arrived, kept, jnp.zeros((), value.dtype), zeros)

    def entering(self, shared: Tree, x: Any, number: Any) -> Any:
        """The input of the stage: at the first stage, the microbatch."""
        return lax.cond(self.place == 0, lambda: self.first(shared, self.microbatch(number)[0]), lambda: x)

    def forward(self, state: _State, number: Any) -> tuple[Any, _State]:
        """The value for the next stage."""
        kept = lax.dynamic_update_index_in_dim(state.kept, state.arrived, number % state.kept.shape[0], 0)
        out = self.stage(self.parameters[0], self.entering(self.parameters[1], state.arrived, number))
        return out, state._replace(kept=kept)

    def backward(self, state: _State, number: Any) -> tuple[Any, _State]:
        """The cotangent for the previous stage. The last stage begins with its loss."""
        last = self.place == self.stages - 1

        def work(own: Tree, shared: Tree, x: Any) -> tuple[Any, Any]:
            y = self.stage(own, self.entering(shared, x, number))
            target = self.microbatch(number)[1]
            none = lambda: jnp.zeros((), state.value.dtype)  # noqa: E731
            return y, lax.cond(last, lambda: self.loss(shared, y, target) / self.count, none)

        x = lax.dynamic_index_in_dim(state.kept, number % state.kept.shape[0], 0, keepdims=False)
        (_, value), pull = vjp(work, *self.parameters, x)
        cotangent = jnp.where(last, jnp.zeros_like(state.arrived), state.arrived)
        own, shared, back = pull((cotangent, jnp.ones_like(value)))
        gradient = tree.map(lambda a, b: a + b, state.gradient, (own, shared))
        return back, state._replace(value=state.value + value, gradient=gradient)

    def idle(self, state: _State, number: Any) -> tuple[Any, _State]:
        """An idle tick."""
        return jnp.zeros_like(state.arrived), state

    def tick(self, state: _State, works: Any, number: Any, pairs: list[tuple[int, int]]) -> _State:
        """One tick: idle (0), forward (1) or backward (2) work on a microbatch; the result is sent along the pairs."""
        choice = jnp.where((number >= 0) & (number < self.count), works, 0)
        safe = jnp.clip(number, 0, self.count - 1)
        message, state = lax.switch(choice, (self.idle, self.forward, self.backward), state, safe)
        return state._replace(arrived=lax.ppermute(message, self.axis_name, pairs))

    def gpipe(self) -> _State:
        """All forwards, then all backwards."""
        onward = [(s, s + 1) for s in range(self.stages - 1)]
        ticks = np.arange(self.count + self.stages - 1)

        def ahead(state: _State, tick: Any) -> tuple[_State, None]:
            return self.tick(state, 1, tick - self.place, onward), None

        def behind(state: _State, tick: Any) -> tuple[_State, None]:
            return self.tick(state, 2, tick - (self.stages - 1 - self.place), [(b, a) for a, b in onward]), None

        state, _ = lax.scan(ahead, self.start(self.count), ticks)
        return lax.scan(behind, state, ticks)[0]

    def by_turns(self) -> _State:
        """One forward, one backward: when even stages run forward odd ones run backward; neighbours swap results."""
        onward = [(s, s + 1) for s in range(self.stages - 1)]

        def turn(state: _State, half: Any) -> tuple[_State, None]:
            for odd in (0, 1):
                tick = 2 * half + odd
                ahead = self.place % 2 == odd
                number = jnp.where(ahead, tick - self.place, tick - (2 * self.stages - 1 - self.place)) // 2
                pairs = [pair for a, b in onward if a % 2 == odd for pair in ((a, b), (b, a))]
                state = self.tick(state, jnp.where(ahead, 1, 2), number, pairs)
            return state, None

        start = self.start(min(self.stages, self.count))
        return lax.scan(turn, start, np.arange(self.count + self.stages - 1))[0]
