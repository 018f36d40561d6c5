"""Ring attention: a sequence is divided over devices, and keys and values are passed around a ring.

With `RLX_NUM_CPU_DEVICES=8 python examples/parallel_ring.py` eight devices attend to a sequence, an eighth of it
on each. No device ever has all keys, nor more than an eighth of an eighth of the scores. The result and its gradient
equal attention to the whole sequence. Keys and values are sent in the forward pass, and again with their cotangents in
the backward pass.
"""

import numpy as np

import rlx
import rlx.numpy as jnp
from rlx import parallel
from rlx.sharding import PartitionSpec as P

LENGTH, HEADS, GROUPS, FEATURES = 512, 4, 2, 16
PLACES = P("sequence")


def inputs():
    """Queries of four heads, keys and values of two, and weights of the results."""
    generator = np.random.default_rng(0)
    heads = (HEADS, GROUPS, GROUPS, HEADS)
    return [jnp.asarray(generator.normal(size=(LENGTH, count, FEATURES))) for count in heads]


def ring(query, key, value, weights):
    """A device's computation: its part of a sum, and the gradient for its queries, keys and values."""

    def part(query, key, value):
        return jnp.sum(weights * parallel.ring_attention(query, key, value, "sequence", is_causal=True))

    total, gradient = rlx.value_and_grad(part, (0, 1, 2))(query, key, value)
    return rlx.lax.psum(total, "sequence"), gradient


def whole(query, key, value, weights):
    """The same on one device."""

    def total(query, key, value):
        return jnp.sum(weights * rlx.nn.dot_product_attention(query, key, value, is_causal=True))

    return rlx.value_and_grad(total, (0, 1, 2))(query, key, value)


def main():
    """Compare the sum and its gradient, and count the traffic."""
    n, arrays = rlx.device_count(), inputs()
    options = dict(mesh=rlx.make_mesh((n,), ("sequence",)), in_specs=(PLACES,) * 4)
    divided = rlx.jit(rlx.shard_map(ring, out_specs=(P(), (PLACES,) * 3), **options))
    (found, gradient), (expected, steepest) = divided(*arrays), rlx.jit(whole)(*arrays)
    away = max(float(abs(a - b).max()) for a, b in zip(gradient, steepest, strict=True))
    cost = parallel.plan(ring, **options)(*arrays)
    print(f"{n} devices: {abs(found - expected):.1e} and {away:.1e} from one device, in the sum and its gradient")
    print(f"a device holds {cost.held:,} bytes; at its peak {cost.peak:,}\n{cost.traffic}")
    assert abs(found - expected) < 1e-9 and away < 1e-12
    keys = arrays[1].nbytes // n
    assert cost.traffic.of("ppermute").sent == ((6 * (n - 1) + 2) * keys if n > 1 else 0)
    assert cost.held == sum(x.nbytes for x in arrays) // n
    return float(found)


if __name__ == "__main__":
    main()
