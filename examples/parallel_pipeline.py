"""A pipeline: the layers of a network on different devices, through which the parts of a batch pass.

With `RLX_NUM_CPU_DEVICES=8 python examples/parallel_pipeline.py` eight devices have a layer each. The
schedule 1F1B is printed, a row for each device and a column for each tick: letters are forward work, capitals backward
work on the same part of the batch, dots are idle. Both schedules give the loss and the gradient of the whole network;
they take the same time, but 1F1B keeps fewer activations.
"""

import numpy as np

import rlx
import rlx.numpy as jnp
from rlx import parallel
from rlx.sharding import PartitionSpec as P

PARTS, ROWS, WIDTH = 24, 32, 16


def layer(weight, x):
    """A stage's computation."""
    return x + jnp.tanh(rlx.nn.layer_norm(x) @ weight)


def embed(shared, tokens):
    """The first stage's input: rows of a table."""
    return shared["table"][tokens]


def loss(shared, y, target):
    """The end of the last stage: the mean squared error of a readout."""
    return jnp.mean((y @ shared["readout"] - target) ** 2)


def whole_loss(weights, shared, tokens, targets):
    """The same on one device, of all parts at once."""
    x = embed(shared, tokens)
    for weight in weights:
        x = layer(weight, x)
    return loss(shared, x, targets)


def picture(kind, stages):
    """A schedule as text."""
    rows = [["."] * 2 * (PARTS + stages - 1) for _ in range(stages)]
    for step in parallel.schedule(kind, stages, PARTS):
        letter = "abcdefghijklmnopqrstuvwxyz"[step.microbatch]
        rows[step.stage][step.tick] = letter if step.work == "forward" else letter.upper()
    return "\n".join(map("".join, rows))


def main():
    """Compare both schedules with one device."""
    n, generator = rlx.device_count(), np.random.default_rng(0)
    weights = jnp.asarray(generator.normal(size=(n, WIDTH, WIDTH)) / 4)
    shared = {"table": generator.normal(size=(10, WIDTH)), "readout": generator.normal(size=(WIDTH, 3))}
    shared = rlx.tree.map(jnp.asarray, shared)
    tokens = generator.integers(0, 10, (PARTS, ROWS)).astype(np.int32)
    targets = generator.normal(size=(PARTS, ROWS, 3))
    value, gradient = rlx.jit(rlx.value_and_grad(whole_loss, (0, 1)))(weights, shared, tokens, targets)
    options = dict(mesh=rlx.make_mesh((n,), ("stage",)), in_specs=(P("stage"), P(), P(), P()))
    print(picture("1f1b", n))
    peaks = {}
    for kind in ("gpipe", "1f1b"):
        run = parallel.pipeline(layer, loss, "stage", schedule=kind, embed=embed)

        def step(weights, shared, tokens, targets, run=run):
            found, (own, of_shared) = run(weights[0], shared, tokens, targets)
            return found, (own[None], of_shared)

        divided = rlx.jit(rlx.shard_map(step, out_specs=(P(), (P("stage"), P())), **options))
        found, steepest = divided(weights, shared, tokens, targets)
        pairs = zip(rlx.tree.leaves(steepest), rlx.tree.leaves(gradient), strict=True)
        away = max(float(abs(a - b).max()) for a, b in pairs)
        cost = parallel.plan(step, **options)(weights, shared, tokens, targets)
        print(f"{kind}, {n} devices: loss {found:.6f}, gradient {away:.1e} from one device, peak {cost.peak:,} bytes")
        peaks[kind] = cost.peak
        assert abs(found - value) < 1e-12 and away < 1e-12
        activation = ROWS * WIDTH * 8
        assert cost.traffic.of("ppermute").sent == (2 * (PARTS + n - 1) * activation if n > 1 else 0)
    assert peaks["1f1b"] < peaks["gpipe"]
    return float(found)


if __name__ == "__main__":
    main()
