"""Tensor parallelism: the weights of a transformer block are divided over devices, by columns, then by rows.

With `RLX_NUM_CPU_DEVICES=8 python examples/parallel_tensor.py` eight devices train a block, each with one attention
head and an eighth of the hidden units. The losses equal those on one device with all weights. Each step sends sums of
activations: in the forward pass one for attention and one for the feed-forward part; in the backward pass one, and two
if another block comes before and needs the gradient of its result.
"""

import numpy as np

import rlx
import rlx.numpy as jnp
from rlx import parallel
from rlx.sharding import PartitionSpec as P

LENGTH, WIDTH, HIDDEN, HEADS, RATE = 12, 32, 64, 8, 0.3
COLUMNS, ROWS = P(None, "model"), P("model")
SPECS = {"query": COLUMNS, "key": COLUMNS, "value": COLUMNS, "out": ROWS, "up": COLUMNS, "down": ROWS}


def initial_parameters():
    """Six matrices."""
    generator = np.random.default_rng(0)
    shapes = {name: (WIDTH, WIDTH) for name in SPECS} | {"up": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH)}
    return {name: jnp.asarray(generator.normal(size=shape) / np.sqrt(shape[0])) for name, shape in shapes.items()}


def block(w, x):
    """A device's computation, with its parts of the weights."""
    attended = parallel.attention(
        rlx.nn.layer_norm(x), w["query"], w["key"], w["value"], w["out"], "model", heads=HEADS, is_causal=True
    )
    x = x + attended
    return x + parallel.feed_forward(rlx.nn.layer_norm(x), w["up"], w["down"], "model")


def whole_block(w, x):
    """The same with all weights, in the functions of rlx.nn."""
    y = rlx.nn.layer_norm(x)
    heads = [(y @ w[name]).reshape(LENGTH, HEADS, -1) for name in ("query", "key", "value")]
    x = x + rlx.nn.dot_product_attention(*heads, is_causal=True).reshape(LENGTH, WIDTH) @ w["out"]
    return x + rlx.nn.gelu(rlx.nn.layer_norm(x) @ w["up"]) @ w["down"]


def step_of(block):
    """A step of gradient descent towards the sequence, shifted by one."""

    def step(w, x):
        value, gradient = rlx.value_and_grad(lambda w: jnp.mean((block(w, x[:-1]) - x[1:]) ** 2))(w)
        return rlx.tree.map(lambda p, g: p - RATE * g, w, gradient), value

    return step


def main(steps=20):
    """Train divided, and undivided; compare."""
    mesh = rlx.make_mesh((rlx.device_count(),), ("model",))
    w = alone = initial_parameters()
    x = jnp.asarray(np.random.default_rng(1).normal(size=(LENGTH + 1, WIDTH)))
    # every device has separate parts; Megatron's pair of sums marks values that are equal on all devices
    options = dict(mesh=mesh, in_specs=(SPECS, P()), check_vma=False)
    step = rlx.jit(rlx.shard_map(step_of(block), out_specs=(SPECS, P()), **options))
    step_alone = rlx.jit(step_of(whole_block))
    for _ in range(steps):
        w, value = step(w, x)
        alone, expected = step_alone(alone, x)
    away = max(float(abs(w[name] - alone[name]).max()) for name in w)
    sent = parallel.traffic(step_of(block), **options)(w, x).sent
    n, activation = mesh.size, x[:-1].nbytes
    print(f"{n} devices: loss {value:.4f}; {away:.1e} from one device; a device sends {sent:,} bytes in a step")
    assert away < 1e-12 and abs(value - expected) < 1e-12
    assert sent == 3 * 2 * (n - 1) * activation // n
    assert w["up"].addressable_shards[0].data.shape == (WIDTH, HIDDEN // n)
    return float(value)


if __name__ == "__main__":
    main()
