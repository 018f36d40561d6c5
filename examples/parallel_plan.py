"""The cost of a GPT training step on 8 to 4,096 devices, divided in five ways: a plan, checked on real devices.

For each way and number of devices, a table shows the gigabytes on a device of parameters, Adam's moments and tokens, at
the peak, and sent in a step, and the seconds by an alpha-beta model of a default machine. Nothing is allocated: the
program of one device is traced and counted. With RLX_NUM_CPU_DEVICES=8, eight devices then run a step of a small GPT in
all five ways: their memory matches the plan, and their parameters agree.
"""

from typing import NamedTuple

import numpy as np

import rlx
import rlx.numpy as jnp
from rlx import parallel
from rlx.sharding import PartitionSpec as P


class Sizes(NamedTuple):
    """Sizes of a GPT and of the global batch, in parts for a pipeline."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    length: int
    batch: int
    parts: int


LARGE, SMALL = Sizes(32, 4096, 32, 32_000, 2048, 4096, 8), Sizes(8, 16, 8, 24, 16, 16, 2)
ADAM, AXES = rlx.optim.adam(1e-3), ("data", "model", "places", "stage")
INTO, OUT = ("query", "key", "value", "up"), ("mix", "down")
WAYS = {"data": "data", "zero1": "data", "tensor": "model", "sequence": "places", "pipeline": "stage"}


def sizes_of(way, n):
    """Sizes for n devices: data parallelism, combined with up to eight devices for another way."""
    inner = n if WAYS[way] == "data" else min(8, n)
    return {axis: 1 for axis in AXES} | {"data": n // inner} | {WAYS[way]: inner}


def arguments(way, sizes, n):
    """Shapes of parameters, optimiser state and tokens, with their partition specs."""
    layers, w = sizes.layers, sizes.width
    wide = {name: (layers, w, w) for name in (*INTO, *OUT)} | {"up": (layers, w, 4 * w), "down": (layers, 4 * w, w)}
    specs = dict.fromkeys(INTO, P("stage", None, "model")) | dict.fromkeys(OUT, P("stage", "model"))
    shapes = {name: rlx.ShapeDtypeStruct(s, "float32") for name, s in (wide | {"table": (sizes.vocabulary, w)}).items()}
    specs["table"], state = P(), rlx.eval_shape(ADAM.init, shapes)
    moments, lie = shapes, specs
    if way == "zero1":
        flat = lambda s: (-(-int(np.prod(s.shape)) // n) * n,)  # noqa: E731
        moments = {name: rlx.ShapeDtypeStruct(flat(s), "float32") for name, s in shapes.items()}
        lie = dict.fromkeys(shapes, P("data"))
    state, of_state = ((state[0]._replace(mu=m, nu=m), *state[1:]) for m in (moments, lie))
    parts = (sizes.parts,) if way == "pipeline" else ()
    tokens = rlx.ShapeDtypeStruct((*parts, sizes.batch // (*parts, 1)[0], sizes.length), "int32")
    where = P(*[None] * len(parts), "data", "places")
    return (shapes, state, tokens, tokens), (specs, (of_state[0]._replace(count=P()), *of_state[1:]), where, where)


def layers_of(way, sizes):
    """Apply all layers of a device."""

    def layer(x, w):
        y = rlx.nn.rms_norm(x)
        if way == "sequence":
            heads = ((y @ w[name]).reshape(*x.shape[:-1], sizes.heads, -1) for name in INTO[:3])
            x = x + parallel.ring_attention(*heads, "places", is_causal=True).reshape(x.shape) @ w["mix"]
        else:
            weights = (w[name] for name in (*INTO[:3], "mix"))
            x = x + parallel.attention(y, *weights, "model", heads=sizes.heads, is_causal=True)
        return x + parallel.feed_forward(rlx.nn.rms_norm(x), w["up"], w["down"], "model"), None

    return lambda weights, x: rlx.lax.scan(rlx.checkpoint(layer), x, weights)[0]


def step_of(way, sizes):
    """A step of one device: the gradient, means over devices that have copies, Adam."""
    run, rule = layers_of(way, sizes), parallel.zero1(ADAM, "data") if way == "zero1" else ADAM
    axes = ("places",) if way == "zero1" else ("data", "places")

    def cost(table, x, targets):
        return -jnp.take_along_axis(rlx.nn.log_softmax(x @ table.T), targets[..., None], -1).mean()

    def gradient_of(w, tokens, targets):
        weights = {name: w[name] for name in w if name != "table"}
        if way == "pipeline":
            line = parallel.pipeline(run, cost, "stage", embed=lambda table, tokens: table[tokens])
            own, shared = line(weights, w["table"], tokens, targets)[1]
            return own | {"table": shared}
        loss = lambda w: cost(w["table"], run({n: w[n] for n in weights}, w["table"][tokens]), targets)  # noqa: E731
        return rlx.grad(loss)(w)

    def step(w, state, tokens, targets):
        updates, state = rule.update(rlx.lax.pmean(gradient_of(w, tokens, targets), axes), state, w)
        return rlx.optim.apply_updates(w, updates), state

    return step


def planned(way, sizes, n):
    """The plan, and the values needed to run the step."""
    args, specs = arguments(way, sizes, n)
    mesh = rlx.sharding.AbstractMesh(tuple(sizes_of(way, n).values()), AXES)
    return parallel.plan(step_of(way, sizes), mesh=mesh, in_specs=specs, check_vma=False)(*args), args, specs


def small_step(way, n):
    """Parameters after a step on the available devices; checks each device's memory against the plan."""
    plan, shapes, specs = planned(way, SMALL, n)
    mesh, generator = rlx.make_mesh(tuple(sizes_of(way, n).values()), AXES), np.random.default_rng(0)
    w = rlx.tree.map(lambda s: (generator.normal(size=s.shape) / 4).astype("float32"), shapes[0])
    state = rlx.tree.map(lambda s: np.zeros(s.shape, s.dtype), shapes[1])
    tokens = [generator.integers(0, SMALL.vocabulary, shapes[2].shape).astype("int32") for _ in range(2)]
    leaves, structure = rlx.tree.flatten((w, state, *tokens))
    pairs = zip(leaves, structure.flatten_up_to(specs), strict=True)
    placed = [rlx.device_put(x, rlx.NamedSharding(mesh, spec)) for x, spec in pairs]
    assert sum(x.addressable_shards[n - 1].data.nbytes for x in placed) == plan.held, way
    step = rlx.shard_map(step_of(way, SMALL), mesh=mesh, in_specs=specs, out_specs=specs[:2], check_vma=False)
    return rlx.jit(step)(*rlx.tree.unflatten(structure, placed))[0]


def main():
    """The table; then a small model on the available devices."""
    print(f"{'way':10} {'devices':>8} {'GB held':>9} {'GB peak':>9} {'GB sent':>9} {'seconds':>12}")
    for way in WAYS:
        for n in (8, 64, 512, 4096):
            plan = planned(way, LARGE, n)[0]
            row = " ".join(f"{x / 1e9:9.2f}" for x in (plan.held, plan.peak, plan.traffic.sent))
            print(f"{way:10} {n:8,d} {row} {plan.seconds:12,.0f}")
    n, found = rlx.device_count(), {way: small_step(way, rlx.device_count()) for way in WAYS}
    away = [max(float(abs(w[k] - found["data"][k]).max()) for k in w) for w in found.values()]
    print(f"{n} devices match the plan; the five ways' parameters after a step differ by {max(away):.1e}")
    assert max(away) < 1e-4
    return max(away)


if __name__ == "__main__":
    main()
