"""A page that trains a network on handwritten digits in the browser: `python examples/digits_web/build.py`.

The network, its augmentation, gradient and Adam step are those of examples/digits.py. They become WebAssembly modules
without imports. The folder examples/out/digits_web then contains the page and all that it needs; serve it with
`python -m http.server --directory examples/out/digits_web`. It needs the extra `wasm`.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np

import rlx
import rlx.numpy as jnp

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

import digits  # noqa: E402

FILES = ("index.html", "training.js")


def initial(seed):
    """The state before the first step: parameters, Adam's moments, and the number of steps."""
    parameters = digits.initial_parameters(rlx.random.key(seed))
    zeros = rlx.tree.map(jnp.zeros_like, parameters)
    return parameters, zeros, zeros, jnp.float32(0.0)


def step(state, images, labels):
    """A step on a batch, whose images are shifted by random pixels: another random key for each step."""
    key = rlx.random.fold_in(rlx.random.key(1), state[3].astype("uint32"))
    return digits.step(state, key, images / jnp.float32(16.0), labels)


def predict(parameters, images):
    """The digits in images."""
    return jnp.argmax(digits.logits(parameters, images / jnp.float32(16.0)), axis=1)


def batch_rows(number, count):
    """The rows of a batch: all images in an order that looks random, again and again. training.js does the same."""
    return [(number * digits.BATCH + row) * 967 % count for row in range(digits.BATCH)]


def main(folder=FOLDER.parent / "out" / "digits_web"):
    """Write the page; returns the bytes of each module."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    train_images, test_images, train_labels, test_labels = digits.load()
    state = rlx.eval_shape(initial, np.uint32(0))
    images = rlx.ShapeDtypeStruct((digits.BATCH, *train_images.shape[1:]), "float32")
    labels = rlx.ShapeDtypeStruct((digits.BATCH,), "int32")
    modules = {
        "initial": rlx.export_wasm(initial, np.uint32(0), path=folder / "initial", simd=False),
        "step": rlx.export_wasm(step, state, images, labels, path=folder / "step", donate_argnums=0),
        "predict": rlx.export_wasm(predict, state[0], test_images, path=folder / "predict"),
    }
    parts = [train_images * 16, train_labels, test_images * 16, test_labels]
    (folder / "digits.bin").write_bytes(b"".join(part.astype(np.uint8).tobytes() for part in parts))
    counts = {"train": len(train_images), "test": len(test_images)}
    counts |= {"pixels": train_images[0].size, "batch": digits.BATCH}
    (folder / "digits.json").write_text(json.dumps(counts))
    for file in FILES:
        shutil.copy(FOLDER / file, folder / file)
    sizes = {name: len(files.module) for name, files in modules.items()}
    print(", ".join(f"{name}.wasm: {size} bytes" for name, size in sizes.items()))
    print(f"python -m http.server --directory {folder}")
    return sizes


if __name__ == "__main__":
    main()
