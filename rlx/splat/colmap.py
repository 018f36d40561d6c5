"""Cameras and points that COLMAP has reconstructed: cameras, images and points3D, as text or binary files."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import FileFormatError, UnsupportedError
from rlx.splat.camera import Camera
from rlx.splat.projection import rotation_matrices

__all__ = ["ColmapImage", "ColmapScene", "load_colmap"]

_MOST_NAME = 4096
_MOST_SIZE = 1 << 20  # pixels of a side
# models by their number: name, parameters, and how many of them are focal lengths
_MODELS = {
    0: ("SIMPLE_PINHOLE", 3, 1),
    1: ("PINHOLE", 4, 2),
    2: ("SIMPLE_RADIAL", 4, 1),
    3: ("RADIAL", 5, 1),
    4: ("OPENCV", 8, 2),
    5: ("OPENCV_FISHEYE", 8, 2),
    6: ("FULL_OPENCV", 12, 2),
    7: ("FOV", 5, 2),
    8: ("SIMPLE_RADIAL_FISHEYE", 4, 1),
    9: ("RADIAL_FISHEYE", 5, 1),
    10: ("THIN_PRISM_FISHEYE", 12, 2),
}
_NUMBERS = {name: number for number, (name, _, _) in _MODELS.items()}


class ColmapImage(NamedTuple):
    """The camera of an image. name: the image's file.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from rlx.splat import load_colmap
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     base = Path(folder)
    ...     _ = (base / "cameras.txt").write_text("1 PINHOLE 80 60 50 50 40 30")
    ...     _ = (base / "images.txt").write_text("1 1 0 0 0 0 0 4 1 front.jpg")
    ...     _ = (base / "points3D.txt").write_text("1 0 0 0 255 255 255 0.5")
    ...     scene = load_colmap(base)
    >>> scene.images[0].name, scene.images[0].width
    ('front.jpg', 80)
    """

    camera: Camera
    width: int
    height: int
    name: str


class ColmapScene(NamedTuple):
    """images: sorted by name. points: (N, 3). colors: (N, 3), from 0 to 1.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from rlx.splat import load_colmap
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     base = Path(folder)
    ...     _ = (base / "cameras.txt").write_text("1 PINHOLE 80 60 50 50 40 30")
    ...     _ = (base / "images.txt").write_text("1 1 0 0 0 0 0 4 1 front.jpg")
    ...     _ = (base / "points3D.txt").write_text("1 0 0 0 255 255 255 0.5")
    ...     scene = load_colmap(base)
    >>> scene.points.tolist()
    [[0.0, 0.0, 0.0]]
    """

    images: tuple[ColmapImage, ...]
    points: np.ndarray
    colors: np.ndarray


class _Lens(NamedTuple):
    focal: tuple[float, float]
    centre: tuple[float, float]
    size: tuple[int, int]


class _Reader:
    """Numbers of a binary file, in order, within its bounds."""

    def __init__(self, path: Path) -> None:
        self.path, self.data, self.at = path, path.read_bytes(), 0

    def numbers(self, layout: str) -> tuple[Any, ...]:
        """Numbers by the layout's letters (see struct), little endian."""
        size = struct.calcsize("<" + layout)
        self.need(size)
        found = struct.unpack_from("<" + layout, self.data, self.at)
        self.at += size
        return found

    def need(self, size: int) -> None:
        if size > len(self.data) - self.at:
            raise FileFormatError(f"{self.path} is truncated: {size} bytes are missing at byte {self.at}.")

    def skip(self, count: int, size: int) -> None:
        self.need(count * size)
        self.at += count * size

    def count(self, least: int) -> int:
        """A number of items that have at least `least` bytes each."""
        (count,) = self.numbers("Q")
        self.need(count * least)
        return count

    def name(self) -> str:
        end = self.data.find(b"\0", self.at, self.at + _MOST_NAME)
        if end < 0:
            raise FileFormatError(f"{self.path} has a name without an end at byte {self.at}.")
        found = self.data[self.at : end].decode("utf-8", "replace")
        self.at = end + 1
        return found


def load_colmap(folder: str | Path) -> ColmapScene:
    """The reconstruction in a folder with cameras, images and points3D, or in its subfolder sparse/0 or sparse.

    Raises FileFormatError for missing, truncated or malformed files, and UnsupportedError for distorted cameras.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from rlx.splat import load_colmap
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     base = Path(folder)
    ...     _ = (base / "cameras.txt").write_text("1 PINHOLE 80 60 50 50 40 30")
    ...     _ = (base / "images.txt").write_text("1 1 0 0 0 0 0 4 1 front.jpg")
    ...     _ = (base / "points3D.txt").write_text("1 0 0 0 255 255 255 0.5")
    ...     scene = load_colmap(base)
    >>> len(scene.images)
    1
    """
    base = _base(Path(folder))
    suffix = ".bin" if (base / "cameras.bin").exists() else ".txt"
    lenses = dict((_lenses_of_binary if suffix == ".bin" else _lenses_of_text)(base / f"cameras{suffix}"))
    poses = (_poses_of_binary if suffix == ".bin" else _poses_of_text)(base / f"images{suffix}")
    images = []
    for quat, translation, lens, name in poses:
        if lens not in lenses:
            raise FileFormatError(f"{base / f'images{suffix}'} names camera {lens}, which is not in cameras{suffix}.")
        images.append(_image(quat, translation, lenses[lens], name, base))
    read = _points_of_binary if suffix == ".bin" else _points_of_text
    rows = list(read(base / f"points3D{suffix}"))
    table = np.array(rows, np.float64).reshape(-1, 6)
    return ColmapScene(
        tuple(sorted(images, key=lambda image: image.name)),
        table[:, :3].astype(np.float32),
        (table[:, 3:] / 255).astype(np.float32),
    )


def _base(folder: Path) -> Path:
    for base in (folder, folder / "sparse" / "0", folder / "sparse"):
        for suffix in (".bin", ".txt"):
            if all((base / f"{name}{suffix}").is_file() for name in ("cameras", "images", "points3D")):
                return base
    raise FileFormatError(
        f"{folder} has no COLMAP reconstruction.",
        "It has cameras, images and points3D with the suffix .bin or .txt, or such a folder sparse/0.",
    )


def _image(quat: Any, translation: Any, lens: _Lens, name: str, base: Path) -> ColmapImage:
    if not np.all(np.isfinite([*quat, *translation])) or not np.any(quat):
        raise FileFormatError(f"{base} has an image {name!r} whose rotation or position is not a number.")
    rotation = np.asarray(rotation_matrices(np.asarray(quat, np.float64)))
    numbers = (np.asarray(x, np.float32) for x in (rotation, translation, *lens.focal, *lens.centre))
    return ColmapImage(Camera(*numbers), *lens.size, name)


def _lens(path: Path, model: int, width: int, height: int, numbers: tuple[float, ...]) -> _Lens:
    name, _, focal = _MODELS[model]
    if not (0 < width <= _MOST_SIZE and 0 < height <= _MOST_SIZE) or not np.all(np.isfinite(numbers)):
        raise FileFormatError(f"{path} has a camera of {width} x {height} pixels with {numbers}.")
    if min(numbers[:focal]) <= 0:
        raise FileFormatError(f"{path} has a camera with a focal length of {min(numbers[:focal])}.")
    if any(numbers[focal + 2 :]) or "FISHEYE" in name or name == "FOV":
        raise UnsupportedError(
            f"{path} has a distorted camera: {name} with {numbers[focal + 2 :]}.",
            "Splats are drawn by pinhole cameras: run `colmap image_undistorter` first.",
        )
    return _Lens((numbers[0], numbers[focal - 1]), (numbers[focal], numbers[focal + 1]), (width, height))


# ------------------------------------------------------------- binary files
def _lenses_of_binary(path: Path) -> Iterator[tuple[int, _Lens]]:
    reader = _Reader(path)
    for _ in range(reader.count(24)):
        number, model, width, height = reader.numbers("iiQQ")
        if model not in _MODELS:
            raise FileFormatError(f"{path} has a camera of the unknown model {model}.")
        yield number, _lens(path, model, width, height, reader.numbers("d" * _MODELS[model][1]))


def _poses_of_binary(path: Path) -> Iterator[tuple[Any, Any, int, str]]:
    reader = _Reader(path)
    for _ in range(reader.count(64)):
        _, *numbers, lens = reader.numbers("i7di")
        name = reader.name()
        reader.skip(reader.count(24), 24)
        yield numbers[:4], numbers[4:], lens, name


def _points_of_binary(path: Path) -> Iterator[tuple[float, ...]]:
    reader = _Reader(path)
    for _ in range(reader.count(51)):
        _, x, y, z, red, green, blue, _ = reader.numbers("Q3d3Bd")
        reader.skip(reader.count(8), 8)
        yield x, y, z, red, green, blue


# ------------------------------------------------------------- text files
def _rows(path: Path) -> list[list[str]]:
    """The words of the lines that are not comments; empty lines have none."""
    lines = path.read_text("utf-8", "replace").splitlines()
    return [line.split() for line in lines if not line.startswith("#")]


def _numbers(path: Path, words: list[str], kind: type = float) -> list[Any]:
    try:
        return [kind(word) for word in words]
    except ValueError as error:
        shown = " ".join(words)[:80]
        raise FileFormatError(f"{path} has a line with a word that is not a number: {shown!r}.") from error


def _lenses_of_text(path: Path) -> Iterator[tuple[int, _Lens]]:
    for words in filter(None, _rows(path)):
        if len(words) < 4 or words[1] not in _NUMBERS:
            raise FileFormatError(f"{path} has a camera of an unknown model: {' '.join(words)[:80]!r}.")
        model = _NUMBERS[words[1]]
        number, width, height = _numbers(path, [words[0], *words[2:4]], int)
        parameters = tuple(_numbers(path, words[4:]))
        if len(parameters) != _MODELS[model][1]:
            raise FileFormatError(f"{path} has a camera {words[1]} with {len(parameters)} parameters.")
        yield number, _lens(path, model, width, height, parameters)


def _poses_of_text(path: Path) -> Iterator[tuple[Any, Any, int, str]]:
    """Two lines for each image; the second has the points that it shows, and may be empty."""
    rows = _rows(path)
    while rows and not rows[-1]:
        rows.pop()
    for words in rows[::2]:
        if len(words) < 10:
            raise FileFormatError(f"{path} has an image with too few numbers: {' '.join(words)[:80]!r}.")
        numbers = _numbers(path, words[1:8])
        (lens,) = _numbers(path, words[8:9], int)
        yield numbers[:4], numbers[4:], lens, " ".join(words[9:])


def _points_of_text(path: Path) -> Iterator[tuple[float, ...]]:
    for words in filter(None, _rows(path)):
        if len(words) < 8:
            raise FileFormatError(f"{path} has a point with too few numbers: {' '.join(words)[:80]!r}.")
        x, y, z, red, green, blue = _numbers(path, words[1:7])
        yield x, y, z, red, green, blue
