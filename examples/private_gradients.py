"""Training with differential privacy: every example's gradient is clipped, and noise is added to the sum.

A small network learns handwritten digits while no single image moves it by more than a fixed amount.
`vmap(grad(loss))` gives the gradients of the examples of a batch in one compiled program; a framework that only
has gradients of batches needs a loop for this. The script checks that no clipped gradient is longer than the bound,
and prints the test accuracy.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import rlx
import rlx.numpy as jnp

BOUND, NOISE, RATE, BATCH = 1.0, 0.8, 1.0, 128


def loss(parameters, image, label):
    """Cross-entropy of one image: no batch axis anywhere."""
    hidden = jnp.tanh(image @ parameters["in"] + parameters["shift"])
    return -rlx.nn.log_softmax(hidden @ parameters["out"])[label]


def length(tree):
    """Euclidean norm over all leaves."""
    return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in rlx.tree.leaves(tree)))


def clipped_gradient(parameters, image, label):
    """The gradient of one example, scaled down to at most BOUND, and its length before."""
    gradient = rlx.grad(loss)(parameters, image, label)
    size = length(gradient)
    factor = jnp.minimum(1.0, BOUND / (size + 1e-12))
    return rlx.tree.map(lambda g: g * factor, gradient), size


per_example = rlx.vmap(clipped_gradient, in_axes=(None, 0, 0))


@rlx.jit
def step(parameters, key, images, labels):
    """One step of gradient descent with clipped gradients and noise; also the lengths after and before clipping."""
    gradients, before = per_example(parameters, images, labels)
    after = rlx.vmap(length)(gradients)
    leaves, structure = rlx.tree.flatten(parameters)
    keys = rlx.tree.unflatten(structure, list(rlx.random.split(key, len(leaves))))

    def update(p, g, key):
        noisy = g.sum(axis=0) + NOISE * BOUND * rlx.random.normal(key, p.shape)
        return p - RATE / images.shape[0] * noisy

    return rlx.tree.map(update, parameters, gradients, keys), after, before


def main(steps=300):
    """Train, check the clipping, return the test accuracy."""
    digits = load_digits()
    images, labels = (digits.data / 16.0).astype(np.float32), digits.target.astype(np.int32)
    train_images, test_images, train_labels, test_labels = train_test_split(
        images, labels, test_size=0.2, random_state=0, stratify=labels
    )
    first, second = rlx.random.split(rlx.random.key(0))
    parameters = {
        "in": rlx.random.normal(first, (64, 32)) / 8.0,
        "shift": jnp.zeros(32),
        "out": rlx.random.normal(second, (32, 10)) / 6.0,
    }
    generator = np.random.default_rng(0)
    for count in range(steps):
        rows = generator.choice(len(train_images), BATCH, replace=False)
        key = rlx.random.fold_in(rlx.random.key(1), count)
        parameters, after, before = step(parameters, key, train_images[rows], train_labels[rows])
        assert float(after.max()) <= BOUND * (1.0 + 1e-5), float(after.max())
        if count % 100 == 0:
            longest, clipped = float(before.max()), float(after.max())
            print(f"step {count:3d}   longest gradient {longest:.2f}, after clipping {clipped:.2f}")
    hidden = np.tanh(test_images @ np.asarray(parameters["in"]) + np.asarray(parameters["shift"]))
    guesses = (hidden @ np.asarray(parameters["out"])).argmax(axis=1)
    accuracy = float((guesses == test_labels).mean())
    print(f"test accuracy {accuracy:.4f} with noise {NOISE} on gradients clipped to {BOUND}")
    assert accuracy >= 0.88, accuracy
    return accuracy


if __name__ == "__main__":
    main()
