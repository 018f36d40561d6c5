"""ZeRO-1: data-parallel training in which each device keeps only a part of the optimiser's state.

With `RLX_NUM_CPU_DEVICES=8 python examples/parallel_zero.py` eight devices learn handwritten digits, each from its part
of every batch. Adam's two moments are divided: a device holds an eighth of the moments, updates its eighth of the
parameters, and receives the other updates. The parameters equal a single device's with the whole state, and the
traffic equals plain data-parallel training's.
"""

import numpy as np
from sklearn.datasets import load_digits

import rlx
import rlx.numpy as jnp
from rlx import parallel
from rlx.sharding import PartitionSpec as P

BATCH, WIDTH = 64, 40


def load():
    """Images as rows of 64 numbers in 0..1, and labels, shuffled."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    return digits.data[order] / 16.0, digits.target[order].astype(np.int32)


def initial_parameters():
    """Two layers."""
    generator = np.random.default_rng(1)
    first, second = generator.normal(size=(64, WIDTH)) / 8.0, generator.normal(size=(WIDTH, 10)) / 6.0
    return rlx.tree.map(jnp.asarray, {"first": first, "bias": np.zeros(WIDTH), "second": second})


def loss(parameters, images, labels):
    """Mean cross-entropy."""
    scores = jnp.tanh(images @ parameters["first"] + parameters["bias"]) @ parameters["second"]
    return -jnp.take_along_axis(rlx.nn.log_softmax(scores), labels[:, None], axis=1).mean()


def step_of(rule, mean):
    """A step by an optimiser's rule; `mean` averages over the devices."""

    def step(parameters, state, images, labels):
        value, gradient = rlx.value_and_grad(loss)(parameters, images, labels)
        updates, state = rule.update(gradient, state, parameters)
        return rlx.optim.apply_updates(parameters, updates), state, mean(value)

    return step


def main(steps=60):
    """Train divided, and undivided; compare."""
    n, (images, labels) = rlx.device_count(), load()
    mesh, adam = rlx.make_mesh((n,), ("data",)), rlx.optim.adam(0.01)
    rule = parallel.zero1(adam, "data")
    parameters = alone = initial_parameters()
    state_alone = adam.init(alone)
    specs = rlx.tree.map(lambda x: P("data") if x.ndim else P(), state_alone)
    # gradients differ between devices: the rule takes the mean
    options = dict(mesh=mesh, check_vma=False)
    state = rlx.shard_map(rule.init, in_specs=P(), out_specs=specs, **options)(parameters)
    options["in_specs"] = (P(), specs, P("data"), P("data"))
    divided = step_of(rule, lambda value: rlx.lax.pmean(value, "data"))
    step = rlx.jit(rlx.shard_map(divided, out_specs=(P(), specs, P()), **options))
    step_alone = rlx.jit(step_of(adam, lambda value: value))
    for number in range(steps):
        first = number % (len(images) // BATCH) * BATCH
        batch = images[first : first + BATCH], labels[first : first + BATCH]
        parameters, state, value = step(parameters, state, *batch)
        alone, state_alone, expected = step_alone(alone, state_alone, *batch)
    away = max(float(abs(parameters[name] - alone[name]).max()) for name in parameters)
    held = sum(x.addressable_shards[0].data.nbytes for x in rlx.tree.leaves(state))
    whole = sum(x.nbytes for x in rlx.tree.leaves(state_alone))
    sent = parallel.traffic(divided, **options)(parameters, state, *batch)
    print(f"{n} devices: loss {value:.4f}; {away:.1e} from one device; {held:,} of {whole:,} bytes of state on each")
    print(sent)
    assert away < 1e-9 and abs(value - expected) < 1e-9 and value < 0.5
    assert held == 4 + 2 * 8 * sum(-(-x.size // n) for x in rlx.tree.leaves(parameters))
    padded = 8 * n * sum(-(-x.size // n) for x in rlx.tree.leaves(parameters))
    assert sent.of("psum_scatter").sent == sent.of("all_gather").sent == (n - 1) * padded // n
    return float(value)


if __name__ == "__main__":
    main()
