"""A mixture of experts on different devices: tokens are sent to the experts and back.

With `RLX_NUM_CPU_DEVICES=8 python examples/parallel_experts.py` each of eight devices has one expert and a part of the
tokens. A router chooses two experts for each token. With capacity for all tokens, results and gradients equal those on
one device with all experts; with less capacity fewer bytes are sent, and some choices are dropped.
"""

import numpy as np

import rlx
import rlx.numpy as jnp
from rlx import parallel
from rlx.sharding import PartitionSpec as P

TOKENS, WIDTH, HIDDEN, EXPERTS, CHOSEN = 64, 16, 32, 8, 2
SPECS = (P(), {"up": P("expert"), "down": P("expert")}, P("expert"))


def initial_parameters():
    """A router, which all devices have, and experts of two layers."""
    generator = np.random.default_rng(0)
    up, down = generator.normal(size=(EXPERTS, WIDTH, HIDDEN)) / 4, generator.normal(size=(EXPERTS, HIDDEN, WIDTH)) / 6
    return jnp.asarray(generator.normal(size=(WIDTH, EXPERTS))), {"up": jnp.asarray(up), "down": jnp.asarray(down)}


def layer(capacity):
    """A device's computation, on its tokens and with its experts."""

    def divided(router, experts, x):
        def of_each(tokens):
            return jnp.maximum(tokens @ experts["up"], 0.0) @ experts["down"]

        options = dict(chosen=CHOSEN, capacity=capacity, normalised=True)
        return x + parallel.mixture_of_experts(x, x @ router, of_each, "expert", **options)

    return divided


def whole(router, experts, x):
    """The same with all experts: each computes all tokens."""
    weights, best = rlx.lax.top_k(rlx.nn.softmax(x @ router), CHOSEN)
    every = jnp.maximum(x @ experts["up"], 0.0) @ experts["down"]
    found = every[best, np.arange(TOKENS)[:, None]]
    return x + jnp.sum(found * (weights / weights.sum(axis=-1, keepdims=True))[..., None], axis=1)


def steepest(layer):
    """The gradient of a sum of squares, by router, experts and tokens."""
    return rlx.jit(rlx.grad(lambda *args: jnp.sum(layer(*args) ** 2), (0, 1, 2)))


def main():
    """Compare with one device, then reduce the capacity."""
    n, (router, experts) = rlx.device_count(), initial_parameters()
    x = jnp.asarray(np.random.default_rng(1).normal(size=(TOKENS, WIDTH)))
    options = dict(mesh=rlx.make_mesh((n,), ("expert",)), in_specs=SPECS)
    expected, differences = whole(router, experts, x), []
    for capacity in (TOKENS // n, -(-TOKENS * CHOSEN // (n * EXPERTS))):
        divided = rlx.shard_map(layer(capacity), out_specs=P("expert"), **options)
        differences.append(float(abs(divided(router, experts, x) - expected).max()))
        sent = parallel.traffic(layer(capacity), **options)(router, experts, x).sent
        assert sent == 2 * (n - 1) * EXPERTS * capacity * WIDTH * 8 // n
        print(f"{n} devices, capacity {capacity}: {differences[-1]:.1e} from one device, a device sends {sent:,} bytes")
    roomy = rlx.shard_map(layer(TOKENS // n), out_specs=P("expert"), **options)
    pairs = zip(*(rlx.tree.leaves(steepest(f)(router, experts, x)) for f in (roomy, whole)), strict=True)
    away = max(float(abs(a - b).max()) for a, b in pairs)
    print(f"the gradient, with capacity for all: {away:.1e} from one device")
    assert differences[0] < 1e-12 and away < 1e-11 and differences[1] > 1e-3
    return differences[0]


if __name__ == "__main__":
    main()
