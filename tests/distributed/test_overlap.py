"""Exchanges go on while kernels run: what is begun and awaited when, told by the order of events, never by time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import distributed, errors
from rlx.distributed import threads
from rlx.distributed.threads import ThreadMember
from rlx.ir.collectives import communicator
from rlx.ir.kernels import Await, Collective, Contract, Kernel, Plan, members

WIDTH = 192  # of layers, whose gradients have 147,456 bytes


def parameters(layers: int = 3) -> list[Any]:
    generator = np.random.default_rng(0)
    return [jnp.asarray((generator.normal(size=(WIDTH, WIDTH)) / 14).astype(np.float32)) for _ in range(layers)]


def loss(weights: list[Any], x: Any) -> Any:
    for weight in weights:
        x = jnp.tanh(x @ weight)
    return (x**2).mean()


def step(weights: list[Any], x: Any) -> Any:
    gradient = distributed.all_reduce(rlx.grad(loss)(weights, x), "mean", bucket_bytes=1)
    return [w - 0.1 * g for w, g in zip(weights, gradient, strict=True)]


def kernels(plan: Plan) -> list[Kernel]:
    return [inner for kernel in plan.kernels for inner in members(kernel)]


def test_exchanges_are_begun_as_soon_as_their_operands_are_there() -> None:
    def work() -> None:
        order = kernels(rlx.inspect(step)(parameters(), np.ones((32, WIDTH), np.float32)).plan)
        begun = {k.output.buffer: n for n, k in enumerate(order) if isinstance(k, Collective)}
        awaited = {k.output.buffer: n for n, k in enumerate(order) if isinstance(k, Await)}
        products = [n for n, k in enumerate(order) if isinstance(k, Contract)]
        # the backward pass has a product for the gradient of each layer, and one on the way to the layer before
        first, second, third = begun.values()
        assert [sum(n > begin for n in products) for begin in (first, second, third)] == [4, 2, 0]
        assert set(awaited) == {k.output.buffer for k in order if isinstance(k, Collective) and k.awaited}
        assert len(awaited) >= 2 and all(awaited[buffer] > max(products) for buffer in awaited)

    threads.run(2, work)


def test_the_first_layers_gradient_is_computed_while_the_last_ones_is_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RLX_COLLECTIVE_TIMEOUT", "20")
    computed, events = threading.Event(), []
    later, settle = ThreadMember.later, ThreadMember.settle

    def begins(self: ThreadMember, work: Callable[[], None]) -> Callable[[], None]:
        events.append("an exchange begins")
        return later(self, work)

    def settles(self: ThreadMember) -> None:
        if self.rank == 0 and events:
            events.append("the last gradient is there")
            computed.set()
        settle(self)

    def work() -> list[Any]:
        weights, x = parameters(), np.full((32, WIDTH), 0.1 + rlx.process_index(), np.float32)
        function = rlx.jit(step)
        function.lower(weights, x).compile()
        distributed.barrier()
        if rlx.process_index() == 0:
            monkeypatch.setattr(communicator(), "later", begins.__get__(communicator()), raising=False)
            monkeypatch.setattr(communicator(), "settle", settles.__get__(communicator()), raising=False)
        else:  # comes when the other has all gradients: were exchanges not beside them, that would wait for this one
            assert computed.wait(15)
        return [np.asarray(w) for w in function(weights, x)]

    one, other = threads.run(2, work)
    assert events == ["an exchange begins"] * 2 + ["the last gradient is there"]
    expected = alone(2)
    for mine, theirs, alike in zip(one, other, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)
        np.testing.assert_allclose(mine, alike, rtol=1e-5, atol=1e-7)


def alone(size: int) -> list[Any]:
    """What one process makes of all gradients."""
    parts = [np.full((32, WIDTH), 0.1 + rank, np.float32) for rank in range(size)]
    gradients = [rlx.grad(loss)(parameters(), x) for x in parts]
    return [np.asarray(w - 0.1 * sum(g) / size) for w, *g in zip(parameters(), *gradients, strict=True)]


def test_what_goes_wrong_while_an_exchange_goes_on_leaves_nothing_behind() -> None:
    def function(x: Any) -> Any:
        summed = distributed.all_reduce(x)
        y = jnp.sin(x) @ jnp.cos(x)
        return summed, distributed.all_reduce(y)

    def work() -> str:
        x = jnp.ones((WIDTH, WIDTH))
        compiled = rlx.jit(function)
        compiled(x)
        other = rlx.jit(lambda x: function(x * 2)) if rlx.process_index() else compiled
        with pytest.raises(errors.CollectiveError) as caught:
            other(x)
        return str(caught.value)

    said = threads.run(2, work)
    assert all("do different things" in text and "summed = distributed.all_reduce(x)" in text for text in said)


def test_what_reads_a_result_is_not_fused_with_what_can_run_before() -> None:
    def function(x: Any) -> Any:
        summed, y = distributed.all_reduce(x), x @ x
        return jnp.tanh(y) + summed, distributed.all_reduce(jnp.cos(y), "max")

    def work() -> list[str]:
        plan = rlx.inspect(function)(jnp.ones((WIDTH, WIDTH))).plan
        return [type(kernel).__name__ for kernel in kernels(plan)]

    expected = ["Collective", "Contract", "Loops", "Collective", "Await", "Loops", "Await"]
    assert threads.run(2, work) == [expected] * 2


def test_small_exchanges_are_not_handed_to_another_thread() -> None:
    def work() -> bool:
        plan = rlx.inspect(lambda x: distributed.all_reduce(x) + jnp.sin(x).sum())(jnp.ones(3)).plan
        return any(isinstance(k, Await) for k in plan.kernels)

    assert threads.run(2, work) == [False, False]


def test_exchanges_stay_in_order_around_callbacks() -> None:
    seen: dict[int, list[float]] = {0: [], 1: []}

    def function(x: Any) -> Any:
        first = distributed.all_reduce(x)
        rlx.debug.callback(lambda v, rank: seen[int(rank)].append(float(v)), first[0, 0], rlx.process_index())
        return distributed.all_reduce(jnp.cos(x) @ x) + first

    def work() -> Any:
        x = jnp.ones((WIDTH, WIDTH))
        return np.asarray(rlx.jit(function)(x))

    found = threads.run(2, work)
    np.testing.assert_allclose(found[0], 2 + 2 * WIDTH * np.cos(1.0), rtol=1e-5)
    assert seen == {0: [2.0], 1: [2.0]}
