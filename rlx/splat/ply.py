"""Splats as PLY files, in the layout that viewers and other trainers use.

A vertex has x y z, opacity (a logit), scale_0 to scale_2 (logarithms), rot_0 to rot_3 (w x y z), f_dc_0 to f_dc_2, and
f_rest_*, the other harmonics, channel by channel. Files are ascii, or binary in either byte order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import FileFormatError
from rlx.splat.scene import Splats, check_splats

__all__ = ["load_ply", "save_ply"]

_MOST_HEADER = 1 << 16
_MOST_PROPERTIES = 1000
_NAMES = {
    "char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4", "float": "f4",
    "double": "f8", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4",
    "float32": "f4", "float64": "f8",
}  # fmt: skip
_ORDERS = {"ascii": "=", "binary_little_endian": "<", "binary_big_endian": ">"}
_PLACE = ("x", "y", "z")
_ROTATION = tuple(f"rot_{n}" for n in range(4))
_SCALE = tuple(f"scale_{n}" for n in range(3))
_FLAT = tuple(f"f_dc_{n}" for n in range(3))


class _Element(NamedTuple):
    name: str
    count: int
    properties: list[tuple[str, str]]  # name, NumPy's name of the type


def load_ply(path: str | Path) -> Splats:
    """The splats in a PLY file, as float32 NumPy arrays.

    Raises FileFormatError for a file that is not of this kind: truncated, with missing properties, or with lists.

    >>> import tempfile, numpy as np
    >>> from pathlib import Path
    >>> from rlx.splat import init_from_points, load_ply, save_ply
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_ply(Path(folder) / "scene.ply", init_from_points(np.eye(3), np.ones((3, 3))))
    ...     load_ply(Path(folder) / "scene.ply").means.tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    data = Path(path).read_bytes()
    order, elements, start = _header(data, str(path))
    names = [element.name for element in elements]
    if "vertex" not in names:
        raise FileFormatError(f"{path} has no element vertex.", "Splats are the vertices of a PLY file.")
    read = _ascii_rows if order == "=" else _binary_rows
    return _splats(read(data, start, order, elements[: names.index("vertex") + 1], str(path)), str(path))


def _header(data: bytes, path: str) -> tuple[str, list[_Element], int]:
    """The byte order, the elements, and where their data begin."""
    head = data[:_MOST_HEADER]
    found = head.find(b"end_header")
    end = head.find(b"\n", found)
    if not head.startswith(b"ply") or found < 0 or end < 0:
        raise FileFormatError(f"{path} is not a PLY file.", "It starts with ply and has a line end_header.")
    order, elements = "", list[_Element]()
    for line in head[:found].decode("ascii", "replace").splitlines()[1:]:
        words = line.split()
        if not words or words[0] in ("comment", "obj_info"):
            continue
        if words[0] == "format" and len(words) == 3 and words[1] in _ORDERS:
            order = _ORDERS[words[1]]
        elif words[0] == "element" and len(words) == 3 and words[2].isdecimal() and len(words[2]) < 12:
            elements.append(_Element(words[1], int(words[2]), []))
        elif words[0] == "property" and elements:
            elements[-1].properties.append(_property(words, path))
        else:
            raise FileFormatError(f"{path} has a header line that PLY does not have: {line[:80]!r}.")
        if elements and len(elements[-1].properties) > _MOST_PROPERTIES:
            raise FileFormatError(f"{path} has more than {_MOST_PROPERTIES} properties.")
    if not order:
        raise FileFormatError(f"{path} has no line with its format.")
    return order, elements, end + 1


def _property(words: list[str], path: str) -> tuple[str, str]:
    if words[1:2] == ["list"]:
        raise FileFormatError(f"{path} has a list, {' '.join(words)[:80]!r}.", "Splats have properties of one number.")
    if len(words) != 3 or words[1] not in _NAMES:
        raise FileFormatError(f"{path} has a property of an unknown type: {' '.join(words)[:80]!r}.")
    return words[2], _NAMES[words[1]]


def _binary_rows(data: bytes, start: int, order: str, elements: list[_Element], path: str) -> dict[str, np.ndarray]:
    """The columns of the last element; elements before it are skipped."""
    for element in elements:
        dtype = _row_type(element, order, path)
        if element.count * dtype.itemsize > len(data) - start:
            raise FileFormatError(
                f"{path} is truncated: {element.count} rows of {element.name} have {dtype.itemsize} bytes each, and "
                f"{max(len(data) - start, 0)} bytes are left."
            )
        rows = np.frombuffer(data, dtype, element.count, start)
        start += element.count * dtype.itemsize
    return {name: rows[name].astype(np.float32) for name in rows.dtype.names or ()}


def _row_type(element: _Element, order: str, path: str) -> np.dtype:
    names = [name for name, _ in element.properties]
    if len(set(names)) != len(names):
        raise FileFormatError(f"{path} has a property of {element.name} twice.")
    return np.dtype([(name, order + kind) for name, kind in element.properties])


def _ascii_rows(data: bytes, start: int, order: str, elements: list[_Element], path: str) -> dict[str, np.ndarray]:
    lines = data[start:].decode("ascii", "replace").splitlines()
    element = elements[-1]
    first = sum(e.count for e in elements[:-1])
    rows = lines[first : first + element.count]
    width = len(_row_type(element, order, path).names or ())
    if len(rows) < element.count:
        raise FileFormatError(f"{path} is truncated: it has {len(rows)} of {element.count} rows of {element.name}.")
    words = [line.split() for line in rows]
    if any(len(row) != width for row in words):
        raise FileFormatError(f"{path} has a row of {element.name} that has not {width} numbers.")
    try:
        table = np.array(words, np.float32).reshape(element.count, width)
    except ValueError as error:
        raise FileFormatError(f"{path} has a row of {element.name} with a word that is not a number.") from error
    return {name: table[:, n] for n, (name, _) in enumerate(element.properties)}


def _splats(columns: dict[str, np.ndarray], path: str) -> Splats:
    needed = (*_PLACE, "opacity", *_SCALE, *_ROTATION, *_FLAT)
    missing = [name for name in needed if name not in columns]
    if missing:
        raise FileFormatError(
            f"{path} has no {', '.join(missing)}.", "A file of splats has these properties; a point cloud does not."
        )
    rest = [name for name in columns if name.startswith("f_rest_")]
    if len(rest) not in (0, 9, 24, 45) or any(f"f_rest_{n}" not in columns for n in range(len(rest))):
        raise FileFormatError(f"{path} has {len(rest)} properties f_rest_*.", "There are 0, 9, 24 or 45.")

    def table(names: Any) -> np.ndarray:
        return np.stack([columns[name] for name in names], -1)

    count = len(columns["x"])
    flat = table(_FLAT)[:, None]
    others = table([f"f_rest_{n}" for n in range(len(rest))]) if rest else np.zeros((count, 0), np.float32)
    harmonics = np.concatenate([flat, others.reshape(count, 3, len(rest) // 3).swapaxes(1, 2)], 1)
    return Splats(table(_PLACE), table(_ROTATION), table(_SCALE), columns["opacity"], harmonics)


def save_ply(path: str | Path, splats: Splats, *, format: str = "binary_little_endian") -> None:
    """Write splats to a PLY file: "binary_little_endian", "binary_big_endian" or "ascii".

    >>> import tempfile, numpy as np
    >>> from pathlib import Path
    >>> from rlx.splat import init_from_points, save_ply
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_ply(Path(folder) / "scene.ply", init_from_points(np.eye(3), np.ones((3, 3)), degree=0))
    ...     (Path(folder) / "scene.ply").read_bytes()[:3]
    b'ply'
    """
    if format not in _ORDERS:
        raise FileFormatError(f"save_ply got format={format!r}.", f"Use one of {', '.join(_ORDERS)}.")
    count = check_splats(splats)
    means, quats, log_scales, logits, harmonics = (np.asarray(a, np.float32) for a in splats)
    rest = harmonics[:, 1:].swapaxes(1, 2).reshape(count, -1)
    names = (*_PLACE, *_FLAT, *(f"f_rest_{n}" for n in range(rest.shape[1])), "opacity", *_SCALE, *_ROTATION)
    table = np.concatenate([means, harmonics[:, 0], rest, logits[:, None], log_scales, quats], 1)
    head = ["ply", f"format {format} 1.0", f"element vertex {count}", *(f"property float {n}" for n in names)]
    data = (
        "".join(" ".join(map(repr, row)) + "\n" for row in table.tolist()).encode()
        if format == "ascii"
        else table.astype(f"{_ORDERS[format]}f4").tobytes()
    )
    Path(path).write_bytes("\n".join([*head, "end_header", ""]).encode() + data)
