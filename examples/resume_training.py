"""Training that is interrupted and continues with the same bits.

A classifier of handwritten digits is trained for three epochs with `rlx.data.DataLoader`, whose batches two threads
prepare, and `rlx.CheckpointManager`, which saves every tenth step in the background. The first process stops in the
middle of an epoch. The second one restores the latest step, the optimiser's state and the position in the data, and
finishes. Its parameters equal those of a run without interruption, bit by bit. The example prints the saved steps and
the accuracy on the test images.
"""

import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import rlx
import rlx.numpy as jnp
from rlx.data import DataLoader, accuracy
from rlx.optim import adam

EPOCHS, STOP = 3, 68
optimizer = adam(3e-3)


class Digits:
    """A data set of images as vectors, and their labels."""

    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"image": self.images[index], "label": self.labels[index]}


def scores(params, images):
    """The scores of the ten classes."""
    return jnp.tanh(images @ params["first"]) @ params["second"]


def loss(params, batch):
    """Cross-entropy."""
    logarithms = rlx.nn.log_softmax(scores(params, batch["image"]))
    return -jnp.take_along_axis(logarithms, batch["label"][:, None], axis=1).mean()


@rlx.jit
def update(params, moments, batch):
    """One step: the new parameters and moments, and the loss."""
    value, gradients = rlx.value_and_grad(loss)(params, batch)
    updates, moments = optimizer.update(gradients, moments, params)
    return rlx.tree.map(lambda p, u: p + u, params, updates), moments, value


def train(data, directory, stop=None):
    """Train from the latest saved step on, up to the step `stop` or the end."""
    first, second = rlx.random.split(rlx.random.key(0))
    params = {"first": rlx.random.normal(first, (64, 32)) / 8, "second": rlx.random.normal(second, (32, 10)) / 6}
    loader = DataLoader(data, 50, key=1, workers=2)
    state = {"params": params, "moments": optimizer.init(params), "position": loader.state()}
    step = 0
    with rlx.CheckpointManager(directory, max_to_keep=2, best="loss", mode="min", save_interval_steps=10) as manager:
        if manager.latest_step() is not None:
            state = manager.restore(template=state)
            loader.restore(state["position"])
            step = manager.latest_step() + 1
            print(f"continuing at step {step}")
        params, moments = state["params"], state["moments"]
        for _ in range(loader.state()["epoch"], EPOCHS):
            for batch in loader:
                params, moments, value = update(params, moments, batch)
                state = {"params": params, "moments": moments, "position": loader.state()}
                manager.save(step, state, metrics={"loss": value})
                if step == stop:
                    return params
                step += 1
    print(f"saved steps {manager.all_steps()}, the best is {manager.best_step()}")
    return params


def main():
    """Interrupt, continue, and compare with a run that is not interrupted."""
    digits = load_digits()
    images = digits.data.astype(np.float32) / 16
    training, test = slice(0, 1500), slice(1500, None)
    data = Digits(images[training], digits.target[training].astype(np.int32))
    with tempfile.TemporaryDirectory() as folder:
        train(data, Path(folder) / "run", stop=STOP)
        resumed = train(data, Path(folder) / "run")
        whole = train(data, Path(folder) / "whole")
    for name in whole:
        np.testing.assert_array_equal(resumed[name], whole[name])
    result = float(accuracy(scores(resumed, images[test]), digits.target[test]))
    print(f"accuracy on the test images {result:.3f}")
    assert result > 0.8
    return result


if __name__ == "__main__":
    main()
