"""Images as PNG files."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from rlx.errors import ShapeError

__all__ = ["save_png"]


def save_png(path: str | Path, image: Any) -> None:
    """Write an image (height, width, 3) with numbers from 0 to 1 as a PNG file; other numbers are clipped.

    >>> import tempfile, numpy as np
    >>> from pathlib import Path
    >>> from rlx.splat import save_png
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_png(Path(folder) / "red.png", np.ones((2, 2, 3)) * [1.0, 0.0, 0.0])
    ...     (Path(folder) / "red.png").read_bytes()[1:4]
    b'PNG'
    """
    pixels = np.asarray(image)
    if pixels.ndim != 3 or pixels.shape[2] != 3 or 0 in pixels.shape:
        raise ShapeError(f"save_png got an image of shape {pixels.shape}.", "It is (height, width, 3).")
    levels = np.rint(np.clip(np.nan_to_num(pixels), 0, 1) * 255).astype(np.uint8)
    height, width, _ = levels.shape
    # every row begins with the number of its filter, 0
    rows = np.concatenate([np.zeros((height, 1), np.uint8), levels.reshape(height, -1)], 1).tobytes()
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    Path(path).write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts))


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
