"""What is sent, held and done when: counted in programs, against formulas written down here."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import parallel
from rlx.distributed import threads
from rlx.distributed.threads import ThreadMember
from rlx.parallel.traffic import device_program
from rlx.sharding import AbstractMesh
from rlx.sharding import PartitionSpec as P

SIZES = (2, 4, 8, 64, 4096)


def shape(*sizes: int, dtype: Any = np.float32) -> rlx.ShapeDtypeStruct:
    return rlx.ShapeDtypeStruct(sizes, np.dtype(dtype))


def mesh_of(**sizes: int) -> AbstractMesh:
    return AbstractMesh(tuple(sizes.values()), tuple(sizes))


def sent(f: Any, mesh: AbstractMesh, specs: Any, *args: Any, vma: bool = False) -> parallel.Traffic:
    return parallel.traffic(f, mesh=mesh, in_specs=specs, check_vma=vma)(*args)


# ------------------------------------------------------------- what is sent
@pytest.mark.parametrize("n", [2, 8, 4096])
def test_each_exchange_sends_what_its_ring_does(n: int) -> None:
    lax, mesh, x, b = rlx.lax, mesh_of(m=n), shape(n * n, 3), 12 * n
    rows: dict[str, tuple[Any, int, int]] = {
        "psum": (lambda x: lax.psum(x, "m"), 2 * (n - 1) * b // n, 2 * (n - 1)),
        "pmax": (lambda x: lax.pmax(x, "m"), 2 * (n - 1) * b // n, 2 * (n - 1)),
        "all_gather": (lambda x: lax.all_gather(x, "m"), (n - 1) * b, n - 1),
        "psum_scatter": (lambda x: lax.psum_scatter(x, "m", tiled=True), (n - 1) * b // n, n - 1),
        "all_to_all": (lambda x: lax.all_to_all(x, "m", 0, 0, tiled=True), (n - 1) * b // n, n - 1),
        "ppermute": (lambda x: lax.ppermute(x, "m", [(0, 1)]), b, 1),
    }
    for kind, (f, nbytes, rounds) in rows.items():
        found = sent(f, mesh, P("m"), x)
        assert found == parallel.Traffic((parallel.AxisTraffic(kind, ("m",), 1, rounds, nbytes),)), kind


def test_nothing_is_sent_for_what_all_have() -> None:
    """A sum of copies is a product; an axis of one device has nobody to send to; what nobody reads is not sent."""
    assert not sent(lambda x: rlx.lax.psum(x, "m"), mesh_of(m=4), P(), shape(3)).exchanges
    assert not sent(lambda x: rlx.lax.psum(x, "m"), mesh_of(m=1), P("m"), shape(3)).exchanges
    assert not sent(lambda x: (rlx.lax.psum(x, "m"), x)[1], mesh_of(m=4), P("m"), shape(4)).exchanges
    once = sent(lambda x: rlx.lax.psum(rlx.lax.psum(x, "m"), "m"), mesh_of(m=4), P("m"), shape(4))
    assert once.of("psum").exchanges[0].count == 1


def test_loops_count_their_turns_and_branches_the_dearest() -> None:
    def turns(x: Any) -> Any:
        def turn(x: Any, _: Any) -> Any:
            small = lambda x: rlx.lax.psum(x[:1], "m") + x  # noqa: E731
            return rlx.lax.cond(x[0] > 0, small, lambda x: rlx.lax.psum(x, "m"), x), None

        return rlx.lax.scan(turn, x, None, length=5)[0]

    found = sent(turns, mesh_of(m=2), P("m"), shape(8))
    assert found.sent == 5 * 16 and found.exchanges[0].count == 5
    # a carry that is equal everywhere at first, and no longer after a turn
    late = lambda x: rlx.lax.fori_loop(0, 3, lambda _, c: rlx.lax.psum(c, "m") + x, jnp.zeros(4))  # noqa: E731
    assert sent(late, mesh_of(m=2), P("m"), shape(8)).sent == 3 * 16
    endless = lambda x: rlx.lax.while_loop(lambda c: c[0] < 9, lambda c: rlx.lax.psum(c, "m"), x)  # noqa: E731
    with pytest.raises(rlx.errors.UnsupportedError, match="psum over .* in a while_loop"):
        sent(endless, mesh_of(m=2), P("m"), shape(8))
    quiet = lambda x: rlx.lax.while_loop(lambda c: c[0] < 9, lambda c: c + 1, x)  # noqa: E731
    assert not sent(quiet, mesh_of(m=2), P("m"), shape(8)).exchanges


@pytest.mark.parametrize("vma", [True, False])
def test_gradients_of_copies_are_summed_where_they_are_tracked(vma: bool) -> None:
    """With check_vma a gradient by a copy is the sum over devices: an exchange of its bytes."""
    step = rlx.grad(lambda w, x: jnp.sum((x @ w) ** 2))
    found = sent(step, mesh_of(d=4), (P(), P("d")), shape(6), shape(8, 6), vma=vma)
    assert found.sent == (2 * 3 * 24 // 4 if vma else 0)


@pytest.mark.parametrize("n", SIZES)
def test_a_tensor_parallel_block_sends_four_activations(n: int) -> None:
    """Two sums forward, two backward, of (length, width) numbers: Megatron's count."""
    length, width, heads = 4, n, n

    def block(x: Any, q: Any, o: Any, up: Any, down: Any) -> Any:
        x = x + parallel.attention(x, q, q, q, o, "m", heads=heads, is_causal=True)
        return jnp.sum((x + parallel.feed_forward(x, up, down, "m")) ** 2)

    columns, rows = P(None, "m"), P("m")
    shapes = (shape(length, width), *(shape(width, width),) * 4)
    step = rlx.grad(block, (0, 1, 2, 3, 4))
    found = sent(step, mesh_of(m=n), (P(), columns, rows, columns, rows), *shapes)
    nbytes = 4 * 2 * (n - 1) * 4 * length * width // n
    assert found.exchanges == (parallel.AxisTraffic("psum", ("m",), 4, 8 * (n - 1), nbytes),)


@pytest.mark.parametrize("n", SIZES)
def test_zero1_sends_what_an_all_reduce_does_and_holds_a_part(n: int) -> None:
    rule, count = parallel.zero1(rlx.optim.adam(0.1), "d"), 3 * 4096
    params = {"a": shape(4096), "b": shape(2, 4096)}

    def step(p: Any, g: Any) -> Any:
        return rule.update(g, rule.init(p), p)[0]

    found = sent(step, mesh_of(d=n), (P(), P("d")), params, {"a": shape(4096 * n), "b": shape(2 * n, 4096)})
    reduced = sent(lambda g: rlx.lax.psum(g, "d"), mesh_of(d=n), P("d"), shape(n * count))
    assert found.sent == reduced.sent == 2 * (n - 1) * 4 * count // n
    assert {e.kind: (e.count, e.rounds) for e in found.exchanges} == {
        "psum_scatter": (1, n - 1), "all_gather": (1, n - 1),
    }  # fmt: skip


@pytest.mark.parametrize("n", SIZES)
def test_a_ring_sends_keys_values_and_cotangents(n: int) -> None:
    """Forward k and v, n - 1 times; backward k, v and their cotangents as often, and these once more to come home."""
    part = 4 * 2 * 2 * 3  # bytes of a member's keys: places, heads, features
    whole, specs = shape(2 * n, 2, 3), (P("s"),) * 3
    f = lambda q, k, v: jnp.sum(parallel.ring_attention(q, k, v, "s") ** 2)  # noqa: E731
    assert sent(f, mesh_of(s=n), specs, whole, whole, whole).sent == 2 * (n - 1) * part
    found = sent(rlx.grad(f, (0, 1, 2)), mesh_of(s=n), specs, whole, whole, whole)
    assert found.of("ppermute").sent == found.sent == (2 * (n - 1) + 4 * (n - 1) + 2) * part


@pytest.mark.parametrize("kind", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("p", "m"), [(2, 8), (4, 3), (64, 128)])
def test_a_pipeline_sends_one_activation_a_tick(kind: str, p: int, m: int) -> None:
    run = parallel.pipeline(lambda w, x: w * x, lambda _, y, t: jnp.sum((y - t) ** 2), "p", schedule=kind)
    f = lambda w, x, t: run(w[0], (), x, t)  # noqa: E731
    found = sent(f, mesh_of(p=p), (P("p"), P(), P()), shape(p, 5), shape(m, 5), shape(m, 5))
    ticks = 2 * (m + p - 1)
    assert found.of("ppermute").exchanges == (parallel.AxisTraffic("ppermute", ("p",), ticks, ticks, ticks * 20),)
    assert found.of("psum").sent == -(-2 * (p - 1) * 4 // p)  # the value


@pytest.mark.parametrize("n", (2, 8, 64))
def test_experts_send_slots_there_and_back(n: int) -> None:
    tokens, width, experts, capacity = 4, 3, 64, 2
    f = lambda x, s: parallel.mixture_of_experts(x, s, jnp.tanh, "e", chosen=2, capacity=capacity)  # noqa: E731
    args = shape(tokens * n, width), shape(tokens * n, experts)
    found = sent(f, mesh_of(e=n), P("e"), *args)
    forward = 2 * (n - 1) * 4 * experts * capacity * width // n
    assert found.of("all_to_all").sent == found.sent == forward
    step = rlx.value_and_grad(lambda x, s: jnp.sum(f(x, s)), (0, 1))
    assert sent(step, mesh_of(e=n), P("e"), *args).sent == 2 * forward


def test_exchanges_of_processes_count() -> None:
    def work() -> Any:
        f = lambda x: rlx.distributed.all_reduce({"a": x, "b": x}, "mean")  # noqa: E731
        return sent(f, mesh_of(m=1), P(), shape(6))

    for found in threads.run(3, work):
        row = parallel.AxisTraffic("process_all_reduce", ("world",), 1, 4, 2 * 2 * 48 // 3)
        assert found == parallel.Traffic((row,))


@pytest.mark.parametrize("n", [2, 4, 8])
def test_processes_send_what_was_counted(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum, and a step of ZeRO-1: the bytes of the pieces that members hand to others."""
    found: dict[int, int] = {}

    def counting(name: str) -> None:
        before = getattr(ThreadMember, name)

        def counted(self: Any, pieces: Any, *rest: Any) -> Any:
            alone = name == "gather_pieces" and isinstance(pieces, np.ndarray)  # its own piece, for each of the others
            others = [pieces] * (n - 1) if alone else [p for r, p in enumerate(pieces) if r != self.rank]
            found[self.rank] = found.get(self.rank, 0) + sum(p.nbytes for p in others)
            return before(self, pieces, *rest)

        monkeypatch.setattr(ThreadMember, name, counted)

    counting("gather_pieces")
    counting("deal_pieces")
    rule, w = parallel.zero1(rlx.optim.adam(0.1)), {"a": jnp.ones((64, 64)), "b": jnp.ones(2048)}

    def step(w: Any) -> Any:
        return rule.update(rlx.distributed.all_reduce(w), rule.init(w), w)[0]

    def work() -> Any:
        rlx.jit(step)(w)["a"].block_until_ready()
        return sent(step, mesh_of(m=1), P(), w).sent

    counts = threads.run(n, work)
    assert counts == [found[rank] for rank in range(n)] == [2 * 2 * (n - 1) * 4 * (64 * 64 + 2048) // n] * n


def test_gradients_of_late_layers_are_summed_before_those_of_early_ones_are_known() -> None:
    """`copied`, layer by layer: the last layer's sum stands before the first layer's product of the backward pass."""

    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = jnp.tanh(x @ parallel.copied(w, "d"))
        return jnp.sum(x)

    found = device_program(rlx.grad(loss), mesh_of(d=4), (P(), P("d")), ([shape(3, 3)] * 3, shape(8, 3)), False)
    kinds = [e.primitive.name for e in found.program.equations if e.primitive.name in ("fan_in", "dot_general")]
    assert kinds.count("fan_in") == 3 and kinds.count("dot_general") == 3 + 3 + 2
    assert "dot_general" in kinds[kinds.index("fan_in") :]


# ------------------------------------------------------------- when it is done
@pytest.mark.parametrize("kind", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("p", "m"), [(1, 1), (1, 4), (2, 1), (4, 8), (5, 3), (8, 32)])
def test_schedules(kind: str, p: int, m: int) -> None:
    """Every work once, after what it needs, never two at once on a stage; the bubble; who holds how much."""
    steps = parallel.schedule(kind, p, m)
    at = {(s.stage, s.work, s.microbatch): s.tick for s in steps}
    assert len(at) == len(steps) == 2 * p * m
    assert max(Counter((s.tick, s.stage) for s in steps).values()) == 1
    for s in range(p):
        for i in range(m):
            assert s == 0 or at[s, "forward", i] > at[s - 1, "forward", i]
            assert at[s, "backward", i] > at[s, "forward", i]
            assert s == p - 1 or at[s, "backward", i] > at[s + 1, "backward", i]
    ticks = 1 + max(s.tick for s in steps)
    assert ticks == 2 * (m + p - 1) and (ticks - 2 * m) / ticks == (p - 1) / (m + p - 1)
    for stage in range(p):
        own = [s.work for s in steps if s.stage == stage]
        live = np.cumsum([1 if work == "forward" else -1 for work in own])
        assert max(live) == (m if kind == "gpipe" else min(p - stage, m))
        if kind == "1f1b" and m >= p:
            ahead = p - stage - 1
            alternating = own[ahead : 2 * m - ahead]
            assert own[:ahead] == ["forward"] * ahead and alternating == ["forward", "backward"] * (m - ahead)


def test_a_schedule_that_there_is_not() -> None:
    for f in (lambda: parallel.schedule("zigzag", 2, 2), lambda: parallel.pipeline(max, max, "p", schedule="zigzag")):
        with pytest.raises(rlx.errors.OptionError, match="'gpipe' or '1f1b'"):
            f()


def test_a_pipeline_keeps_as_many_inputs_as_there_are_stages() -> None:
    """The peak grows with the number of microbatches under gpipe only, by an activation for each."""
    x, found = 1000, {}
    for kind in ("gpipe", "1f1b"):
        run = parallel.pipeline(lambda w, x: w * x, lambda _, y, t: jnp.sum(y * t), "p", schedule=kind)
        f = lambda w, a, t: run(w[0], (), a, t)  # noqa: B023, E731
        for m in (8, 16):
            args = shape(4, 1), shape(m, x), shape(m, 1)
            cost = parallel.plan(f, mesh=mesh_of(p=4), in_specs=(P("p"), P(), P()), check_vma=False)(*args)
            found[kind, m] = cost.peak - cost.held
    assert abs(found["1f1b", 16] - found["1f1b", 8]) < x  # numbers of microbatches
    assert found["gpipe", 16] - found["gpipe", 8] >= 8 * 4 * x


# ------------------------------------------------------------- what it costs
def test_a_plan_is_work_and_messages() -> None:
    machine = parallel.Machine(flops=1e9, latency=1e-3, bandwidth=1e6)
    f = lambda a, b: rlx.lax.psum(a @ b, "m")  # noqa: E731
    cost = parallel.plan(f, mesh=mesh_of(m=4), in_specs=(P(None, "m"), P("m")), machine=machine)
    found = cost(shape(16, 32), shape(32, 8))
    assert found.held == 4 * (16 * 8 + 8 * 8) and found.peak == found.held + 2 * 4 * 16 * 8
    work, message = 2 * 16 * 8 * 8 + 16 * 8, 2 * 3 * 4 * 16 * 8 // 4
    assert (found.flops, found.traffic.sent, found.devices) == (work, message, 4)
    assert found.seconds == pytest.approx(work / 1e9 + 6e-3 + message / 1e6)


# ------------------------------------------------------------- processes, and bad input
@pytest.mark.parametrize("n", [1, 2, 3])
def test_zero1_over_processes_is_the_optimiser(n: int) -> None:
    inner = rlx.optim.adamw(0.05)
    rule, p = parallel.zero1(inner), {"w": jnp.linspace(0.0, 1.0, 7), "b": jnp.ones((2, 2), np.float64)}

    def gradient(rank: int) -> Any:
        return rlx.tree.map(lambda x: jnp.cos(x + rank), p)

    def work() -> Any:
        state = rule.init(p)
        step = rlx.jit(lambda state: rule.update(gradient(rlx.process_index()), state, p))
        updates, state = step(state)
        return step(state)[0], [x.size for x in rlx.tree.leaves(state[0].mu)]

    mean = rlx.tree.map(lambda *xs: sum(xs) / n, *[gradient(rank) for rank in range(n)])
    _, state = inner.update(mean, inner.init(p), p)
    expected, _ = inner.update(mean, state, p)
    for found, sizes in threads.run(n, work):
        assert sizes == [-(-4 // n), -(-7 // n)]
        rlx.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), found, expected)


def test_mistakes_are_named() -> None:
    def on_two(f: Any) -> Any:
        return lambda *args: rlx.vmap(f, axis_name="m")(*args)

    x, three = jnp.ones((2, 4, 3)), jnp.ones((2, 3, 3))
    with pytest.raises(rlx.errors.ShapeError, match="3 heads for 2 members"):
        on_two(lambda x, w: parallel.attention(x, w, w, w, w, "m", heads=3))(x, three)
    with pytest.raises(rlx.errors.ShapeError, match="column_parallel got x of shape"):
        on_two(lambda x: parallel.column_parallel(x, x, "m"))(x)
    with pytest.raises(rlx.errors.ShapeError, match="ring_attention got query"):
        on_two(lambda x: parallel.ring_attention(x, x, x, "m"))(x)
    with pytest.raises(rlx.errors.ShapeError, match="3 experts for 2 members"):
        on_two(lambda x: parallel.dispatch(x, parallel.route(x, 1, 1), "m"))(x)
    with pytest.raises(rlx.errors.AxisNameError, match="'m'"):
        parallel.copied(x, "m")
    with pytest.raises(rlx.errors.CollectiveError, match="one process"):
        parallel.measure()
