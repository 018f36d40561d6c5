"""A network of Equinox, trained by rlx.

`rlx.compat.as_jax()` makes `import jax` mean rlx, so libraries written for JAX run on it unchanged. This example trains
an Equinox module on handwritten digits with Optax: `eqx.filter_jit` compiles the step with rlx, and
`eqx.filter_value_and_grad` differentiates it. The trained model is saved and restored with `rlx.CheckpointManager`,
with the model as the template. It prints the loss of each epoch and the accuracy on the test images. It needs
`pip install equinox optax jax` (Equinox asks for the package jax; its code does not run).
"""

import tempfile

import numpy as np
from sklearn.datasets import load_digits

import rlx
import rlx.compat
from rlx.data import accuracy, batches

rlx.compat.as_jax()  # before the libraries are imported

import equinox as eqx  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import optax  # noqa: E402


class Classifier(eqx.Module):
    """A convolution, and a perceptron of the ten classes."""

    convolution: eqx.nn.Conv2d
    head: eqx.nn.MLP

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.convolution = eqx.nn.Conv2d(1, 4, 3, padding=1, key=first)
        self.head = eqx.nn.MLP(256, 10, 64, 1, key=second)

    def __call__(self, image):
        return self.head(jax.nn.relu(self.convolution(image)).ravel())


def loss(model, images, labels):
    """Cross-entropy over a batch."""
    return optax.softmax_cross_entropy_with_integer_labels(jax.vmap(model)(images), labels).mean()


def main(epochs=8):
    """Train, save, restore, and test."""
    digits = load_digits()
    images, labels = digits.images.astype(np.float32)[:, None] / 16, digits.target.astype(np.int32)
    model = Classifier(jax.random.key(0))
    optimizer = optax.adam(3e-3)
    moments = optimizer.init(eqx.filter(model, eqx.is_array))

    @eqx.filter_jit
    def update(model, moments, batch):
        value, gradients = eqx.filter_value_and_grad(loss)(model, batch["image"], batch["label"])
        updates, moments = optimizer.update(gradients, moments, eqx.filter(model, eqx.is_array))
        return eqx.apply_updates(model, updates), moments, value

    rows = {"image": images[:1500], "label": labels[:1500]}
    for epoch in range(epochs):
        values = []
        for batch in batches(rows, 50, seed=0, epoch=epoch):
            model, moments, value = update(model, moments, batch)
            values.append(float(value))
        print(f"epoch {epoch}   loss {np.mean(values):.3f}")

    arrays, structure = eqx.partition(model, eqx.is_array)
    with tempfile.TemporaryDirectory() as folder, rlx.CheckpointManager(folder) as manager:
        manager.save(epochs, arrays)
        restored = eqx.combine(manager.restore(template=arrays), structure)
    scores = jax.vmap(restored)(jnp.asarray(images[1500:]))
    result = float(accuracy(scores, labels[1500:]))
    print(f"accuracy on the test images {result:.3f}")
    assert jax.jit is rlx.jit and result > 0.86
    return result


if __name__ == "__main__":
    main()
