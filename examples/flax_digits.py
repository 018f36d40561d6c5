"""A network of Flax, trained by rlx.

`rlx.compat.as_jax()` makes `import jax` mean rlx, so libraries written for JAX run on it unchanged. This example trains
a network of `flax.nnx` with batch normalisation and dropout on handwritten digits. `nnx.jit` compiles the step with
rlx, and `nnx.Optimizer` updates the model in place with Optax. The state of the model is saved and restored with
`rlx.CheckpointManager`. It prints the loss of each epoch and the accuracy on the test images. It needs
`pip install flax` (Flax asks for the package jax; its code does not run).
"""

import tempfile

import numpy as np
from sklearn.datasets import load_digits

import rlx
import rlx.compat
from rlx.data import accuracy, batches

rlx.compat.as_jax()  # before the libraries are imported

import jax  # noqa: E402
import optax  # noqa: E402
from flax import nnx  # noqa: E402


class Classifier(nnx.Module):
    """A perceptron of the ten classes, with normalisation and dropout."""

    def __init__(self, rngs):
        self.first = nnx.Linear(64, 64, rngs=rngs)
        self.norm = nnx.BatchNorm(64, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.second = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, images):
        return self.second(self.dropout(nnx.relu(self.norm(self.first(images)))))


def loss(model, images, labels):
    """Cross-entropy over a batch."""
    return optax.softmax_cross_entropy_with_integer_labels(model(images), labels).mean()


@nnx.jit
def update(model, optimizer, batch):
    """One step: changes the model and the optimiser, returns the loss."""
    value, gradients = nnx.value_and_grad(loss)(model, batch["image"], batch["label"])
    optimizer.update(model, gradients)
    return value


def main(epochs=4):
    """Train, save, restore into another model, and test."""
    digits = load_digits()
    images, labels = digits.data.astype(np.float32) / 16, digits.target.astype(np.int32)
    model = Classifier(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(3e-3), wrt=nnx.Param)
    rows = {"image": images[:1500], "label": labels[:1500]}
    for epoch in range(epochs):
        values = [float(update(model, optimizer, batch)) for batch in batches(rows, 50, seed=0, epoch=epoch)]
        print(f"epoch {epoch}   loss {np.mean(values):.3f}")

    restored = Classifier(nnx.Rngs(1))
    with tempfile.TemporaryDirectory() as folder, rlx.CheckpointManager(folder) as manager:
        manager.save(epochs, nnx.to_pure_dict(nnx.state(model)))
        state = nnx.state(restored)
        nnx.replace_by_pure_dict(state, manager.restore(template=nnx.to_pure_dict(state)))
    nnx.update(restored, state)
    restored.eval()
    result = float(accuracy(restored(images[1500:]), labels[1500:]))
    print(f"accuracy on the test images {result:.3f}")
    assert jax.jit is rlx.jit and result > 0.85
    return result


if __name__ == "__main__":
    main()
