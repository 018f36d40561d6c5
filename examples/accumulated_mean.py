"""Handwritten digits with small batches that act as a large one, and with a running mean of the weights.

A network is trained on scikit-learn's digits. `optim.MultiSteps` gathers the gradients of eight batches of 32 images
before each step of AdamW, so the batch has 256 images and the memory holds 32. The biases have no weight decay:
`optim.partition` gives them their own optimiser. `optim.incremental_update` keeps a running mean of the weights, which
is tested at the end. The whole epoch is one `scan`. The program first checks that eight small batches give the step of
one large batch, then prints the loss of each epoch and the accuracies of the weights and of their mean.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import rlx
import rlx.numpy as jnp
from rlx import optim

SMALL, TIMES, KEPT = 32, 8, 0.95


def network(params, images):
    """Logits of ten classes."""
    hidden = rlx.nn.relu(images @ params["first"] + params["first_bias"])
    return hidden @ params["second"] + params["second_bias"]


def loss(params, images, labels):
    """The mean cross-entropy; a little of each label is spread over the other classes."""
    targets = optim.smooth_labels(rlx.nn.one_hot(labels, 10), 0.05)
    return optim.softmax_cross_entropy(network(params, images), targets).mean()


def start(key, width=64):
    """Weights of a network with one hidden layer."""
    first, second = rlx.random.split(key)
    he = rlx.nn.initializers.he_normal()
    zeros = {"first_bias": jnp.zeros(width), "second_bias": jnp.zeros(10)}
    return {"first": he(first, (64, width)), "second": he(second, (width, 10)), **zeros}


def labels_of(params):
    """The optimiser of each parameter, by its name."""
    return {name: "plain" if name.endswith("bias") else "decayed" for name in params}


def make_optimizer(times):
    """AdamW for matrices and Adam for biases, every `times` gradients."""
    rules = {"decayed": optim.adamw(3e-3, weight_decay=1e-2), "plain": optim.adam(3e-3)}
    return optim.MultiSteps(optim.partition(rules, labels_of), every_k_schedule=times)


def make_epoch(optimizer):
    """A compiled function that trains with all batches once."""

    def step(carry, batch):
        params, mean, state = carry
        value, gradients = rlx.value_and_grad(loss)(params, *batch)
        updates, state = optimizer.update(gradients, state, params)
        params = optim.apply_updates(params, updates)
        moved = optim.incremental_update(params, mean, 1 - KEPT)
        is_step = optimizer.has_updated(state)
        mean = rlx.tree.map(lambda new, old: jnp.where(is_step, new, old), moved, mean)
        return (params, mean, state), value

    return rlx.jit(lambda carry, images, labels: rlx.lax.scan(step, carry, (images, labels)))


def check_that_small_batches_act_as_a_large_one(params, images, labels):
    """The largest difference between one step with all images and one step of eight gradients."""
    results = []
    for times in (TIMES, 1):
        optimizer, size = make_optimizer(times), SMALL * TIMES // times
        batches = images[: SMALL * TIMES].reshape(times, size, 64), labels[: SMALL * TIMES].reshape(times, size)
        (moved, _, _), _ = make_epoch(optimizer)((params, params, optimizer.init(params)), *batches)
        results.append(np.concatenate([np.ravel(x) for x in rlx.tree.leaves(moved)]))
    difference = float(np.abs(results[0] - results[1]).max())
    print(f"largest difference from a large batch {difference:.1e}")
    assert difference < 1e-4, difference


def main(epochs=40):
    """Train, print the losses, test the weights and their mean."""
    data = load_digits()
    split = train_test_split(data.data.astype(np.float32) / 16, data.target, test_size=0.2, random_state=0)
    images, test_images, labels, test_labels = split
    params = start(rlx.random.key(0))
    check_that_small_batches_act_as_a_large_one(params, images, labels)
    optimizer, random = make_optimizer(TIMES), np.random.default_rng(0)
    epoch, carry = make_epoch(optimizer), (params, params, optimizer.init(params))
    count = len(images) // (SMALL * TIMES) * TIMES
    for number in range(epochs):
        order = random.permutation(len(images))[: count * SMALL]
        batches = images[order].reshape(count, SMALL, 64), labels[order].reshape(count, SMALL)
        carry, values = epoch(carry, *batches)
        if number % 10 == 9:
            print(f"epoch {number + 1:3d}   loss {float(values.mean()):.4f}")
    accuracies = [float((network(p, test_images).argmax(-1) == test_labels).mean()) for p in carry[:2]]
    print(f"accuracy {accuracies[0]:.4f}, of the mean of the weights {accuracies[1]:.4f}")
    assert accuracies[1] > 0.95, accuracies
    return accuracies[1]


if __name__ == "__main__":
    main()
