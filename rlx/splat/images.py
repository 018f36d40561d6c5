"""Images of views, read by Pillow."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rlx.errors import FileFormatError, OptionError, UnsupportedError
from rlx.installation import install_command
from rlx.splat.colmap import ColmapImage
from rlx.splat.scene import View

__all__ = ["load_views"]


def load_views(images: Sequence[ColmapImage], folder: str | Path, *, downscale: int = 1) -> list[View]:
    """Views of the images of a reconstruction, whose files are in a folder.

    Args: images: of `load_colmap`. folder: of the files. downscale: the factor by which width and height are divided.

    Raises UnsupportedError without Pillow, FileFormatError for files that are missing or are no images, and
    OptionError for a factor that is not a positive integer.

    >>> from rlx.splat import load_views
    >>> load_views([], "images")
    []
    """
    if not isinstance(downscale, int) or downscale < 1:
        raise OptionError(f"load_views got downscale={downscale!r}.", "It is a positive integer.")
    try:
        pillow = importlib.import_module("PIL.Image")
    except ImportError as error:
        raise UnsupportedError("Pillow, which reads images, is not installed.", install_command("splat")) from error
    views = []
    for image in images:
        path = _inside(Path(folder), image.name)
        width, height = max(image.width // downscale, 1), max(image.height // downscale, 1)
        try:
            with pillow.open(path) as opened:
                size = opened.size
                if abs(size[0] * image.height - size[1] * image.width) > 2 * max(size):
                    raise FileFormatError(f"{path} has {size} pixels, and its camera {image.width} x {image.height}.")
                pixels = opened.convert("RGB").resize((width, height), pillow.Resampling.BOX)
        except (OSError, ValueError) as error:
            if isinstance(error, FileFormatError):
                raise
            raise FileFormatError(f"{path} is not an image that Pillow can read: {error}.") from error
        camera = image.camera
        across, down = width / image.width, height / image.height
        camera = camera._replace(
            fx=camera.fx * across, cx=camera.cx * across, fy=camera.fy * down, cy=camera.cy * down
        )
        views.append(View(camera, np.asarray(pixels, np.float32) / 255, image.name))
    return views


def _inside(folder: Path, name: str) -> Path:
    """A file in a folder. Raises FileFormatError for a name that leads out of it."""
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise FileFormatError(f"A reconstruction names the file {name!r}, which is outside of {folder}.")
    return path
