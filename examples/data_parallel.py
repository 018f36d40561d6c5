"""Data-parallel training: each process takes a part of every batch, and gradients are averaged over all processes.

`rlx launch -n 2 examples/data_parallel.py` trains a network on handwritten digits in two processes. Each prints the
number of images it has seen, whether both have bitwise equal parameters, and the difference from training one process
on whole batches: only rounding. `python examples/data_parallel.py` is one process. A step is one jitted function; the
communication is the line with `all_reduce` in it.
"""

import numpy as np
from sklearn.datasets import load_digits

import rlx
import rlx.numpy as jnp

BATCH, WIDTH = 64, 32


def load(dtype):
    """Images as rows of 64 numbers in 0..1, and labels, shuffled."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    return (digits.data[order] / 16.0).astype(dtype), digits.target[order].astype(np.int32)


def initial_parameters(dtype):
    """Two layers, the same in all processes."""
    generator = np.random.default_rng(1)
    first, second = generator.normal(size=(64, WIDTH)) / 8.0, generator.normal(size=(WIDTH, 10)) / 6.0
    parameters = {"first": first, "bias": np.zeros(WIDTH), "second": second}
    return rlx.tree.map(lambda x: jnp.asarray(x.astype(dtype)), parameters)


def loss(parameters, images, labels):
    """Mean cross-entropy."""
    scores = jnp.tanh(images @ parameters["first"] + parameters["bias"]) @ parameters["second"]
    return -jnp.take_along_axis(rlx.nn.log_softmax(scores), labels[:, None], axis=1).mean()


def trainer(optimizer, exchange):
    """One step: the gradient of this process's part of a batch, averaged over all by `exchange`, and an update."""

    @rlx.jit
    def step(parameters, state, images, labels):
        value, gradient = rlx.value_and_grad(loss)(parameters, images, labels)
        value, gradient = exchange((value, gradient))
        updates, state = optimizer.update(gradient, state, parameters)
        return rlx.optim.apply_updates(parameters, updates), state, value

    return step


def train(dtype, steps, rank, size, exchange):
    """The parameters and the last loss after `steps` steps as process `rank` of `size`."""
    images, labels = load(dtype)
    optimizer = rlx.optim.sgd(0.5, momentum=0.9)
    step, parameters = trainer(optimizer, exchange), initial_parameters(dtype)
    state, value = optimizer.init(parameters), None
    share = BATCH // size
    for number in range(steps):
        first = number % (len(images) // BATCH) * BATCH + rank * share
        part = slice(first, first + share)
        parameters, state, value = step(parameters, state, images[part], labels[part])
    return parameters, float(value)


def main(dtype="float64", steps=50):
    """Train with all processes and with one; compare."""
    rank, size = rlx.process_index(), rlx.process_count()
    parameters, value = train(dtype, steps, rank, size, lambda tree: rlx.distributed.all_reduce(tree, "mean"))
    alone, _ = train(dtype, steps, 0, 1, lambda tree: tree)
    leaves = rlx.tree.leaves(parameters)
    rows = [np.asarray(rlx.distributed.all_gather(leaf)) for leaf in leaves]
    same = all((row == rows_of_leaf[0]).all() for rows_of_leaf in rows for row in rows_of_leaf)
    away = max(float(abs(a - b).max()) for a, b in zip(leaves, rlx.tree.leaves(alone), strict=True))
    print(
        f"process {rank} of {size}: {steps * BATCH // size} images, loss {value:.4f}; same bits everywhere: {same};"
        f" {away:.1e} from one process"
    )
    assert same and value < 1.0
    assert away <= {"float64": 1e-12, "float32": 1e-5}[dtype]
    return value


if __name__ == "__main__":
    rlx.distributed.initialize()
    main("float64")
    main("float32")
