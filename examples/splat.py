"""A scene of Gaussian splats trained from eight views of a synthetic object.

The object is a torus of coloured splats. Eight cameras around it see it; the training starts with random grey points
and knows the images and cameras only. The program prints the loss, checks that images of cameras between the eight
have improved by more than 10 decibels, and writes these images, true and trained side by side, as PNG files.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from rlx.splat import Camera, Densification, Splats, View, fit, init_from_points, psnr, save_png, training_optimizer

SIZE, VIEWS = 64, 8
BACKGROUND = 1.0


def torus(count=400, seed=0):
    """Splats on a torus; the colour is the direction from its centre."""
    rng = np.random.default_rng(seed)
    around, across = rng.uniform(0, 2 * np.pi, (2, count))
    radius = 1.0 + 0.4 * np.cos(across)
    means = np.stack([radius * np.cos(around), 0.4 * np.sin(across), radius * np.sin(around)], -1)
    scene = init_from_points(means, 0.5 + 0.4 * np.sin(2 * means), degree=0)
    return scene._replace(log_scales=np.full_like(scene.log_scales, np.log(0.12)), logits=np.full(count, 2.0, "f4"))


def camera(turn, height=1.0):
    """A camera on a circle around the object; turn 1 is a full circle."""
    angle = 2 * np.pi * turn
    eye = (3.2 * np.sin(angle), height, -3.2 * np.cos(angle))
    return Camera.look_at(eye, (0.0, 0.0, 0.0), fov_y=50.0, width=SIZE, height=SIZE)


def views(scene, turns, height=1.0):
    """Images of a scene from several sides."""
    cameras = [camera(turn, height) for turn in turns]
    return [View(c, np.asarray(scene.render(c, SIZE, SIZE, background=BACKGROUND).rgb)) for c in cameras]


def start(count=300, seed=1):
    """Grey splats at random places."""
    rng = np.random.default_rng(seed)
    return init_from_points(rng.uniform(-1.3, 1.3, (count, 3)) * [1, 0.5, 1], np.full((count, 3), 0.5), degree=0)


def quality(scene: Splats, held_out):
    """The mean PSNR of images of the scene."""
    return float(np.mean([psnr(np.asarray(scene.render(v.camera, SIZE, SIZE, background=BACKGROUND).rgb), v.image)
                          for v in held_out]))  # fmt: skip


def main(folder=None, steps=500):
    """Train, check, write; -> PSNR of held-out views in decibels."""
    truth = torus()
    seen = views(truth, np.arange(VIEWS) / VIEWS)
    held_out = views(truth, (np.arange(VIEWS) + 0.5) / VIEWS, height=0.8)
    first = start()
    before = quality(first, held_out)

    def progress(step, loss, count):
        if step % 100 == 0:
            print(f"step {step:4d}  loss {loss:.4f}  {count} splats")

    fitted = fit(
        first, seen, steps, training_optimizer(3.5, steps, rate=8.0), background=BACKGROUND, progress=progress,
        densification=Densification(start=100, stop=350, every=50, most=1500, reset=10_000),
    )  # fmt: skip
    after = quality(fitted.splats, held_out)
    print(f"held-out views: {before:.1f} dB before, {after:.1f} dB after")
    folder = Path(tempfile.mkdtemp() if folder is None else folder)
    folder.mkdir(parents=True, exist_ok=True)
    for number, view in enumerate(held_out):
        found = np.asarray(fitted.splats.render(view.camera, SIZE, SIZE, background=BACKGROUND).rgb)
        save_png(folder / f"view_{number}.png", np.concatenate([view.image, found], 1))
    print(f"true and trained images: {folder}")
    least = (10, 28) if steps >= 500 else (4, 17)
    assert after > before + least[0] and after > least[1], "the training has not converged"
    return after


if __name__ == "__main__":
    main(*sys.argv[1:2])
