"""Divided models on eight CPU devices against the same models undivided: a process runs all and prints what failed.

The number of devices is read once, so that test_divided.py starts this file.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

import rlx
import rlx.numpy as jnp
from rlx import parallel
from rlx.sharding import PartitionSpec as P

CHECKS: dict[str, Callable[[], None]] = {}
NEAR = {"float32": 1e-6, "float64": 1e-12}


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS[function.__name__] = function
    return function


def mesh_of(**sizes: int) -> rlx.sharding.Mesh:
    devices = np.array(rlx.devices()[: int(np.prod(list(sizes.values())))]).reshape(*sizes.values())
    return rlx.sharding.Mesh(devices, tuple(sizes))


def drawn(dtype: Any, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [(generator.normal(size=s) / np.sqrt(s[0])).astype(dtype) for s in shapes]


def near(found: Any, expected: Any, dtype: str = "float64", scale: float = 1.0) -> None:
    """Within the tolerance of a dtype, of the largest element."""
    for a, b in zip(rlx.tree.leaves(found), rlx.tree.leaves(expected), strict=True):
        size = max(1.0, float(np.abs(np.asarray(b)).max()))
        np.testing.assert_allclose(a, b, rtol=0, atol=scale * size * NEAR[dtype])


# ------------------------------------------------------------- tensor parallel
LENGTH, WIDTH, HIDDEN, HEADS = 6, 16, 32, 8
COLUMNS, ROWS = P(None, "m"), P("m")
SPECS = (P(), COLUMNS, COLUMNS, COLUMNS, ROWS, COLUMNS, ROWS)
SHAPES = ((LENGTH, WIDTH), *[(WIDTH, WIDTH)] * 4, (WIDTH, HIDDEN), (HIDDEN, WIDTH))


def block(x: Any, q: Any, k: Any, v: Any, o: Any, up: Any, down: Any) -> Any:
    x = x + parallel.attention(jnp.tanh(x), q, k, v, o, "m", heads=HEADS, is_causal=True)
    return jnp.mean((x + parallel.feed_forward(jnp.tanh(x), up, down, "m")) ** 2)


def whole_block(x: Any, q: Any, k: Any, v: Any, o: Any, up: Any, down: Any) -> Any:
    parts = (y.reshape(LENGTH, HEADS, -1) for y in (jnp.tanh(x) @ q, jnp.tanh(x) @ k, jnp.tanh(x) @ v))
    x = x + rlx.nn.dot_product_attention(*parts, is_causal=True).reshape(LENGTH, WIDTH) @ o
    return jnp.mean((x + rlx.nn.gelu(jnp.tanh(x) @ up) @ down) ** 2)


@check
def tensor_parallel_gradients() -> None:
    """Inside of the map and of the map, with copies tracked and not, on 2, 4 and 8 devices."""
    every = tuple(range(len(SHAPES)))
    for dtype in ("float32", "float64"):
        args = drawn(dtype, *SHAPES)
        expected = rlx.grad(whole_block, every)(*args)
        for n, vma in ((2, False), (4, True), (8, False), (8, True)):
            options: dict[str, Any] = dict(mesh=mesh_of(m=n), in_specs=SPECS, check_vma=vma)
            near(rlx.shard_map(rlx.grad(block, every), out_specs=SPECS, **options)(*args), expected, dtype)
            near(rlx.grad(rlx.shard_map(block, out_specs=P(), **options), every)(*args), expected, dtype)


@check
def tensor_parallel_forward_mode() -> None:
    args = drawn("float64", *SHAPES)
    mapped = rlx.shard_map(block, mesh=mesh_of(m=4), in_specs=SPECS, out_specs=P())
    tangents = [np.cos(np.arange(x.size)).reshape(x.shape) for x in args]
    near(rlx.jvp(mapped, args, tangents), rlx.jvp(whole_block, args, tangents))


@check
def tensor_parallel_second_derivatives() -> None:
    """fan_in and fan_out are each other's transposes."""
    args = drawn("float64", *SHAPES)
    w = args[5]

    def steep(f: Any) -> Any:
        return lambda *xs: rlx.grad(lambda up: jnp.sum(rlx.grad(f, 5)(*xs[:5], up, xs[6]) ** 2))(xs[5])

    expected = steep(whole_block)(*args)
    outer = rlx.shard_map(block, mesh=mesh_of(m=4), in_specs=SPECS, out_specs=P(), check_vma=False)
    assert expected.shape == w.shape
    near(steep(outer)(*args), expected)


# ------------------------------------------------------------- ZeRO-1
def parameters(dtype: str) -> dict[str, Any]:
    first, second, bias = drawn(dtype, (5, 7), (7, 3), (7,))
    return {"first": first, "second": second, "bias": bias}


def loss(p: Any, x: Any) -> Any:
    return jnp.mean(jnp.square(jnp.tanh(x @ p["first"] + p["bias"]) @ p["second"] - 1.0))


def one_step(rule: Any, p: Any, state: Any, gradient: Any) -> Any:
    updates, state = rule.update(gradient, state, p)
    return rlx.optim.apply_updates(p, updates), state


@check
def zero1_is_the_optimiser() -> None:
    """Three steps of adamw with decay for matrices only: the state of a member is 1 / n of the whole, rounded up."""
    for dtype, n in (("float32", 8), ("float64", 4)):
        inner = rlx.optim.adamw(0.03, mask={"first": True, "second": True, "bias": False})
        rule, p, (x,) = parallel.zero1(inner, "d"), parameters(dtype), drawn(dtype, (16, 5))
        mesh, alone = mesh_of(d=n), inner.init(parameters(dtype))
        specs = rlx.tree.map(lambda leaf: P("d") if np.ndim(leaf) else P(), alone)
        state = rlx.shard_map(rule.init, mesh=mesh, in_specs=P(), out_specs=specs)(p)
        sizes = [-(-leaf.size // n) * np.asarray(leaf).itemsize for leaf in rlx.tree.leaves(alone) if leaf.ndim]
        held = [s.addressable_shards[n - 1].data.nbytes for s in rlx.tree.leaves(state) if s.ndim]
        assert held == sizes, (held, sizes)
        for vma in (True, False):

            def step(p: Any, state: Any, x: Any) -> Any:
                own = rlx.lax.pcast(p, "d", to="varying")
                return one_step(rule, p, state, rlx.grad(loss)(own, x))  # noqa: B023

            out_specs = (P(), specs)
            mapped = rlx.shard_map(
                step, mesh=mesh, in_specs=(P(), specs, P("d")), out_specs=out_specs, check_vma=vma
            )
            q, r, whole, single = p, state, p, alone
            for _ in range(3):
                q, r = mapped(q, r, x)
                whole, single = one_step(inner, whole, single, rlx.grad(loss)(whole, x))
            near(q, whole, dtype)


@check
def zero1_gets_the_same_bits_from_the_same_gradients() -> None:
    p, n = parameters("float32"), 8
    inner = rlx.optim.adam(0.01)
    rule = parallel.zero1(inner, "d")

    def step(p: Any) -> Any:
        return rule.update(rlx.tree.map(jnp.sin, p), rule.init(p), p)[0]

    found = rlx.shard_map(step, mesh=mesh_of(d=n), in_specs=P(), out_specs=P())(p)
    expected = inner.update(rlx.tree.map(jnp.sin, p), inner.init(p), p)[0]
    for a, b in zip(rlx.tree.leaves(found), rlx.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(a, b)


# ------------------------------------------------------------- ring attention
@check
def ring_attention_is_attention() -> None:
    """Values and derivatives, from inside and from outside; heads in groups; narrow floats."""
    shapes = ((2, 16, 4, 3), (2, 16, 2, 3), (2, 16, 2, 3), (2, 16, 4, 3))
    part = P(None, "s")
    for dtype, n, causal, vma in (
        ("float64", 8, True, True), ("float64", 4, False, False),
        ("float32", 2, True, False), ("float32", 8, False, True),
    ):  # fmt: skip
        q, k, v, w = drawn(dtype, *shapes)

        def ring(q: Any, k: Any, v: Any, w: Any) -> Any:
            return jnp.sum(parallel.ring_attention(q, k, v, "s", is_causal=causal) * w)  # noqa: B023

        def whole(q: Any, k: Any, v: Any, w: Any) -> Any:
            return jnp.sum(rlx.nn.dot_product_attention(q, k, v, is_causal=causal) * w)  # noqa: B023

        expected = rlx.value_and_grad(whole, (0, 1, 2))(q, k, v, w)
        options: dict[str, Any] = dict(mesh=mesh_of(s=n), in_specs=(part,) * 4, check_vma=vma)
        total = rlx.shard_map(lambda *a: rlx.lax.psum(ring(*a), "s"), out_specs=P(), **options)
        near(rlx.value_and_grad(total, (0, 1, 2))(q, k, v, w), expected, dtype, 4)
        inner = rlx.shard_map(rlx.grad(ring, (0, 1, 2)), out_specs=(part,) * 3, **options)
        near(inner(q, k, v, w), expected[1], dtype, 4)
    q, k, v, _ = (x.astype(jnp.bfloat16) for x in drawn("float32", *shapes))
    f = rlx.shard_map(lambda *a: parallel.ring_attention(*a, "s"), mesh=mesh_of(s=4), in_specs=part, out_specs=part)
    expected = rlx.nn.dot_product_attention(q, k, v)
    assert f(q, k, v).dtype == expected.dtype == jnp.bfloat16
    np.testing.assert_allclose(f(q, k, v).astype("float32"), expected.astype("float32"), atol=0.02)


# ------------------------------------------------------------- pipelines
def stage(w: Any, x: Any) -> Any:
    return x + jnp.tanh(x @ w["w"] + w["b"])


def embed(shared: Any, tokens: Any) -> Any:
    return shared[tokens]


def cost(shared: Any, y: Any, target: Any) -> Any:
    return -jnp.take_along_axis(rlx.nn.log_softmax(y @ shared.T), target[:, None], 1).mean()


def pipeline_case(dtype: str, p: int, m: int) -> Any:
    w, b, table = drawn(dtype, (p, 4, 4), (p, 4), (9, 4))
    tokens = np.random.default_rng(1).integers(0, 9, (m, 5)).astype(np.int32)

    def whole(own: Any, shared: Any) -> Any:
        values = []
        for inputs, target in zip(tokens, tokens[:, ::-1], strict=True):
            x = embed(shared, inputs)
            for s in range(p):
                x = stage(rlx.tree.map(lambda leaf: leaf[s], own), x)  # noqa: B023
            values.append(cost(shared, x, target))
        return sum(values) / m

    return {"w": w, "b": b}, table, tokens, whole


@check
def pipelines_are_the_model() -> None:
    """Both schedules; more and fewer microbatches than stages; an odd number of stages; a data axis beside."""
    for kind, dtype, p, m, vma in (
        ("1f1b", "float64", 4, 6, True), ("1f1b", "float32", 8, 3, False), ("gpipe", "float64", 4, 6, False),
        ("gpipe", "float32", 3, 2, True), ("1f1b", "float64", 3, 5, False), ("1f1b", "float64", 1, 2, True),
    ):  # fmt: skip
        own, table, tokens, whole = pipeline_case(dtype, p, m)
        run = parallel.pipeline(stage, cost, "p", schedule=kind, embed=embed)

        def each(own: Any, shared: Any, inputs: Any, targets: Any) -> Any:
            value, (g, gs) = run(rlx.tree.map(lambda x: x[0], own), shared, inputs, targets)  # noqa: B023
            return value, (rlx.tree.map(lambda x: x[None], g), gs)

        out_specs = (P(), (P("p"), P()))
        f = rlx.shard_map(
            each, mesh=mesh_of(p=p), in_specs=(P("p"), P(), P(), P()), out_specs=out_specs, check_vma=vma
        )
        expected = rlx.value_and_grad(whole, (0, 1))(own, table)
        near(rlx.jit(f)(own, table, tokens, tokens[:, ::-1]), expected, dtype)


@check
def a_pipeline_beside_a_data_axis() -> None:
    """Gradients of what is equal over the data axis are sums over it, as value_and_grad's are; taken once."""
    own, table, tokens, whole = pipeline_case("float64", 2, 4)
    run = parallel.pipeline(stage, cost, "p", embed=embed)

    def each(own: Any, shared: Any, inputs: Any, targets: Any) -> Any:
        value, (g, gs) = run(rlx.tree.map(lambda x: x[0], own), shared, inputs, targets)
        return rlx.lax.pmean(value, "d"), (rlx.tree.map(lambda x: x[None] / 2, g), gs / 2)

    specs = (P("p"), P(), P("d"), P("d"))
    f = rlx.shard_map(each, mesh=mesh_of(d=2, p=2), in_specs=specs, out_specs=(P(), (P("p"), P())))
    args = own, table, tokens, tokens[:, ::-1].copy()
    near(f(*args), rlx.value_and_grad(whole, (0, 1))(own, table))
    sent = parallel.traffic(each, mesh=mesh_of(d=2, p=2), in_specs=specs)(*args)
    own_bytes = sum(x.nbytes for x in rlx.tree.leaves(own)) // 2
    assert sent.of("psum", "d").sent == own_bytes + 8 + table.nbytes * 3 // 2, str(sent)


# ------------------------------------------------------------- mixtures of experts
@check
def experts_elsewhere_are_experts_here() -> None:
    """With room for all tokens: values and gradients of the dense computation. Without: what is dropped gives zeros."""
    tokens, width, hidden, count = 16, 4, 6, 8
    shapes = (tokens, width), (width, count), (count, width, hidden), (count, hidden, width)
    x, router, up, down = drawn("float64", *shapes)

    def layer(capacity: int) -> Any:
        def each(x: Any, router: Any, up: Any, down: Any) -> Any:
            def experts(t: Any) -> Any:
                return jnp.tanh(t @ up) @ down

            options: dict[str, Any] = dict(chosen=2, capacity=capacity, normalised=True)
            return parallel.mixture_of_experts(x, x @ router, experts, "e", **options)

        return each

    def kept(scores: Any) -> np.ndarray:
        """Which choices of tokens of two members find room, one for each expert and member."""
        _, best = rlx.lax.top_k(scores, 2)
        found = np.zeros(best.shape)
        for member in (slice(0, 8), slice(8, 16)):
            taken = set()
            for choice in range(2):
                for token in range(tokens)[member]:
                    expert = int(best[token, choice])
                    found[token, choice] = expert not in taken
                    taken.add(expert)
        return found

    def dense(x: Any, router: Any, up: Any, down: Any, kept: Any = 1.0) -> Any:
        weights, best = rlx.lax.top_k(rlx.nn.softmax(x @ router), 2)
        weights = weights / weights.sum(-1, keepdims=True)
        every = jnp.einsum("eth,ehw->tew", jnp.tanh(jnp.einsum("tw,ewh->eth", x, up)), down)
        return jnp.sum(jnp.take_along_axis(every, best[..., None], 1) * (weights * kept)[..., None], 1)

    specs = (P("e"), P(), P("e"), P("e"))
    for n in (2, 8):
        options: dict[str, Any] = dict(mesh=mesh_of(e=n), in_specs=specs, out_specs=P("e"))
        f = rlx.shard_map(layer(tokens // n), **options)
        near(f(x, router, up, down), dense(x, router, up, down))

        def steep(g: Any) -> Any:
            return rlx.grad(lambda *a: jnp.sum(jnp.sin(g(*a))), (0, 1, 2, 3))(x, router, up, down)

        near(steep(f), steep(dense))
        inner = rlx.grad(lambda *a: jnp.sum(jnp.sin(layer(tokens // n)(*a))), (0, 1, 2, 3))  # noqa: B023
        near(rlx.shard_map(inner, **{**options, "out_specs": specs})(x, router, up, down), steep(dense))
    few = rlx.shard_map(layer(1), mesh=mesh_of(e=2), in_specs=specs, out_specs=P("e"))(x, router, up, down)
    near(few, dense(x, router, up, down, kept(x @ router)))
    assert not np.allclose(few, dense(x, router, up, down))


# ------------------------------------------------------------- memory
@check
def what_a_device_holds_is_what_the_plan_says() -> None:
    """The parts of real arrays on 2, 4 and 8 devices."""
    args = drawn("float32", *SHAPES)
    for n in (2, 4, 8):
        mesh = mesh_of(m=n)
        placed = [rlx.device_put(x, rlx.NamedSharding(mesh, s)) for x, s in zip(args, SPECS, strict=True)]
        held = {sum(x.addressable_shards[d].data.nbytes for x in placed) for d in range(n)}
        abstract = rlx.sharding.AbstractMesh((n,), ("m",))
        shapes = [rlx.ShapeDtypeStruct(x.shape, x.dtype) for x in args]
        found = parallel.plan(rlx.grad(block), mesh=abstract, in_specs=SPECS, check_vma=False)(*shapes)
        assert held == {found.held}, (held, found)


def main() -> None:
    found = {}
    for name in [name for name in sys.argv[1:] if name != "-v"] or CHECKS:
        start = time.process_time()
        try:
            CHECKS[name]()
            found[name] = ""
        except Exception:
            found[name] = traceback.format_exc()[-2500:]
        if "-v" in sys.argv:
            print(f"{name}: {time.process_time() - start:.1f} s {found[name]}", file=sys.stderr)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
