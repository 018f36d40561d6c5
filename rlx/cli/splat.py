"""rlx splat: train a scene of Gaussian splats, or show one."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from rlx.cli.mistakes import FINE, Mistake, told
from rlx.errors import did_you_mean
from rlx.splat import Densification, fit, init_from_points, load_colmap, load_ply, load_views, save_ply, viewer_page

__all__ = ["add_options", "splat"]

ACTIONS = {"train": "from a folder with a COLMAP reconstruction and images", "view": "a PLY file, as a page"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `rlx splat`."""
    parser.add_argument("action", metavar="train|view", help="; ".join(f"{k}: {v}" for k, v in ACTIONS.items()))
    parser.add_argument("path", metavar="PATH", help="the folder, or the file")
    parser.add_argument("--output", help="the file to write: scene.ply in the folder, or FILE.html by default")
    parser.add_argument("--steps", type=int, default=7000, help="train: steps (7000)")
    parser.add_argument("--downscale", type=int, default=1, help="train: divide the sides of images by this (1)")
    parser.add_argument("--degree", type=int, default=3, help="train: degree of the harmonics, from 0 to 3 (3)")
    parser.add_argument("--images", help="train: the folder of the images; FOLDER/images by default")
    parser.add_argument("--y-up", action="store_true", help="view: the scene's y axis points up")


def splat(options: argparse.Namespace) -> int:
    """Train, or write a page."""
    if options.action not in ACTIONS:
        near = did_you_mean(options.action, ACTIONS)
        raise Mistake(f"rlx splat has no action {options.action}.", near or f"Write {', '.join(ACTIONS)}.")
    path = Path(options.path)
    if options.action == "train" and not path.is_dir():
        raise Mistake(f"There is no folder {path}.", "Name a folder with a COLMAP reconstruction and images.")
    if options.action == "view" and not path.is_file():
        raise Mistake(f"There is no file {path}.", "Name a PLY file with splats.")
    with told(str(path)):
        return _train(path, options) if options.action == "train" else _view(path, options)


def _train(folder: Path, options: argparse.Namespace) -> int:
    if options.steps < 1:
        raise Mistake(f"--steps is {options.steps}.", "It is a positive number.")
    found = load_colmap(folder)
    views = load_views(found.images, options.images or folder / "images", downscale=options.downscale)
    print(f"{len(views)} views, {len(found.points)} points")
    started = time.perf_counter()

    def progress(step: int, loss: float, count: int) -> None:
        if step % max(options.steps // 20, 1) == 0 or step == options.steps:
            seconds = time.perf_counter() - started
            print(f"step {step}  loss {loss:.4f}  {count} splats  {seconds:.0f} s", flush=True)

    scene = init_from_points(found.points, found.colors, degree=options.degree)
    fitted = fit(scene, views, options.steps, densification=Densification(), progress=progress)
    output = Path(options.output or folder / "scene.ply")
    save_ply(output, fitted.splats)
    loss = np.mean(fitted.losses[-50:])
    print(f"{len(fitted.splats.means)} splats: {output}; mean loss of the last steps {loss:.4f}")
    return FINE


def _view(path: Path, options: argparse.Namespace) -> int:
    scene = load_ply(path)
    output = Path(options.output or path.with_suffix(".html"))
    output.write_text(viewer_page(scene, path.name, up=1.0 if options.y_up else -1.0), encoding="utf-8")
    print(f"{len(scene.means)} splats: open {output} in a browser")
    return FINE
