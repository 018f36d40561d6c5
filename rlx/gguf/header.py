"""The header of one file, its metadata and the position of its tensors, checked against the file's size."""

from __future__ import annotations

import math
import mmap
import os
import struct
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import FileFormatError, did_you_mean
from rlx.gguf.cursor import ARRAY, KINDS, ORDERS, Cursor
from rlx.gguf.types import LAYOUTS, REMOVED, StorageType

__all__ = ["ALIGNMENT", "MAGIC", "Header", "Metadata", "Place", "read_header"]

MAGIC = b"GGUF"
ALIGNMENT = 32  # unless the file specifies another
MAX_RANK = 4
_LARGEST = 2**63 - 1


class Place(NamedTuple):
    """A tensor's description in a file; `start`: the offset of its bytes."""

    name: str
    shape: tuple[int, ...]
    kind: StorageType
    start: int
    nbytes: int


class Metadata(Mapping[str, Any]):
    """The metadata of a file, by key; a value is read on access.

    Numbers and strings are Python's, arrays of numbers are NumPy arrays, arrays of strings or of arrays are lists.

    >>> import tempfile, pathlib
    >>> from rlx import gguf
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "m.gguf"
    ...     gguf.GGUFWriter("llama").add_metadata("llama.block_count", 2).write(path)
    ...     metadata = gguf.GGUFFile(path).metadata
    ...     metadata["llama.block_count"], metadata.kind("llama.block_count")
    (2, 'uint32')
    """

    def __init__(self, cursor: Cursor, places: dict[str, tuple[int, int]]) -> None:
        self._cursor, self._places, self._known = cursor, places, dict[str, Any]()

    def __getitem__(self, key: str) -> Any:
        if key not in self._known:
            kind, start = self._place(key)
            self._known[key] = self._cursor.at(start).value(kind, f"the value of {key!r:.80}")
        return self._known[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default; does not search for similar keys."""
        return self[key] if key in self else default

    def __repr__(self) -> str:
        return f"Metadata({len(self)} keys)"

    def kind(self, key: str) -> str:
        """The kind of a value in the file: "uint32", "string", "array[float32]", ...

        >>> from rlx import gguf
        >>> gguf.Metadata.kind.__name__
        'kind'
        """
        kind, start = self._place(key)
        return self._kind_text(kind, self._cursor.at(start))

    def length(self, key: str) -> int | None:
        """The number of elements of an array, without reading them; None for other values.

        >>> from rlx import gguf
        >>> gguf.Metadata.length.__name__
        'length'
        """
        kind, start = self._place(key)
        return self._cursor.at(start).array_head("it")[1] if kind == ARRAY else None

    def _kind_text(self, kind: int, cursor: Cursor) -> str:
        if kind != ARRAY:
            return KINDS[kind].name
        items, count = cursor.array_head("it")
        inner = "array" if items == ARRAY and not count else self._kind_text(items, cursor)
        return f"array[{inner}]"

    def _place(self, key: str) -> tuple[int, int]:
        if key not in self._places:
            near = did_you_mean(str(key), self._places)
            raise KeyError(f"{os.fspath(self._cursor.path)} has no metadata {key!r:.80}. {near}".rstrip())
        return self._places[key]


class Header(NamedTuple):
    """The header of one file; `data`: its bytes, mapped."""

    path: Path
    version: int
    order: str
    alignment: int
    metadata: Metadata
    tensors: tuple[Place, ...]
    data: memoryview


def mapped(path: Path) -> memoryview:
    """The bytes of a file, read on access. Raises FileFormatError for an empty file."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            raise FileFormatError(f"{path} is not a GGUF file: it is empty.", "Download or write the file again.")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def read_header(path: Path) -> Header:
    """Read the header of a file. Raises FileFormatError, with the byte, if it is invalid."""
    data = mapped(path)
    cursor = _opened(data, path)
    tensors = cursor.bounded("number of tensors", 3 * 4 + cursor.count_size)
    pairs = cursor.bounded("number of metadata", 5 + cursor.count_size)
    metadata = Metadata(cursor.at(0), _pairs(cursor, pairs))
    alignment = _alignment(cursor, metadata)
    described = [_described(cursor) for _ in range(tensors)]
    start = -(-cursor.place // alignment) * alignment
    places = tuple(_placed(cursor, start, alignment, *fields) for fields in described)
    _check_layout(cursor, places, [fields[0] for fields in described])
    order = "big" if cursor.order == ">" else "little"
    return Header(path, cursor.version, order, alignment, metadata, places, data)


def _opened(data: memoryview, path: Path) -> Cursor:
    """A cursor after magic and version, in the byte order of the version."""
    cursor = Cursor(data, path, "<", 3)
    if bytes(data[:4]) != MAGIC:
        cursor.refuse(f"it begins with {bytes(data[:4])!r} instead of {MAGIC!r}")
    cursor.need(4, "the magic number")
    start = cursor.need(4, "the version")
    for order in ORDERS:
        (version,) = struct.unpack_from(order + "I", data, start)
        if 1 <= version <= 3:
            return Cursor(data, path, order, version, cursor.place)
    return cursor.refuse(f"its version is {struct.unpack_from('<I', data, start)[0]}; 1, 2 and 3 are known", start)


def _pairs(cursor: Cursor, count: int) -> dict[str, tuple[int, int]]:
    """Kind and position of every value, by key."""
    found: dict[str, tuple[int, int]] = {}
    for number in range(count):
        start = cursor.place
        key = cursor.text(f"the key of metadata {number}")
        if key in found:
            cursor.refuse(f"the metadata {key!r:.80} occur twice", start)
        what = f"the value of {key!r:.80}"
        kind = cursor.kind(what)
        found[key] = kind, cursor.place
        cursor.skip(kind, what)
    return found


def _alignment(cursor: Cursor, metadata: Metadata) -> int:
    key = "general.alignment"
    if key not in metadata:
        return ALIGNMENT
    value = metadata[key]
    if metadata.kind(key) != "uint32" or value == 0 or value & (value - 1):
        cursor.refuse(f"{key} is {value!r:.40} ({metadata.kind(key)}) instead of a power of two (uint32)")
    return value


_Fields = tuple[int, str, tuple[int, ...], int, int]  # position, name, sizes innermost first, type, offset


def _described(cursor: Cursor) -> _Fields:
    start = cursor.place
    name = cursor.text("the name of a tensor")
    what = f"the tensor {name!r:.80}"
    rank = cursor.word(f"the rank of {what}")
    if rank > MAX_RANK:
        cursor.refuse(f"{what} has {rank} dimensions, but at most {MAX_RANK} are allowed", start)
    sizes = tuple(cursor.count(f"a size of {what}") for _ in range(rank))
    return start, name, sizes, cursor.word(f"the type of {what}"), cursor.long(f"the offset of {what}")


def _placed(
    cursor: Cursor, data: int, alignment: int, at: int, name: str, sizes: tuple[int, ...], number: int, offset: int
) -> Place:
    what = f"the tensor {name!r:.80}"
    if number in REMOVED:
        cursor.refuse(f"{what} is of the type {REMOVED[number]}, which was removed from the format", at)
    if number not in LAYOUTS:
        cursor.refuse(f"{what} has the unknown type {number}", at)
    kind = StorageType(number)
    block = LAYOUTS[kind]
    if 8 * math.prod(n or 1 for n in sizes) > _LARGEST:  # NumPy's bound, for any dtype; it ignores zeros
        cursor.refuse(f"{what} has more elements than can be counted", at)
    if (sizes[0] if sizes else 1) % block.elements:
        cursor.refuse(f"the rows of {what} are not whole blocks of {kind.name}", at)
    nbytes = math.prod(sizes) // block.elements * block.nbytes
    if offset % alignment:
        cursor.refuse(f"{what} is at {offset}, which is not a multiple of {alignment}", at)
    if data + offset + nbytes > cursor.size and nbytes:
        cursor.refuse(f"{what} ends {data + offset + nbytes - cursor.size} bytes past the end of the file", at)
    return Place(name, sizes[::-1], kind, data + offset, nbytes)


def _check_layout(cursor: Cursor, places: tuple[Place, ...], starts: list[int]) -> None:
    """Check that names are unique and that tensors do not overlap."""
    seen: set[str] = set()
    for place, at in zip(places, starts, strict=True):
        if place.name in seen:
            cursor.refuse(f"the tensor {place.name!r:.80} occurs twice", at)
        seen.add(place.name)
    for before, after in pairwise(sorted((p for p in places if p.nbytes), key=lambda p: p.start)):
        if before.start + before.nbytes > after.start:
            cursor.refuse(f"the tensors {before.name!r:.80} and {after.name!r:.80} overlap", after.start)


def bytes_of(header: Header, place: Place) -> np.ndarray:
    """The bytes of a tensor as stored in the file, read on access."""
    if not place.nbytes:
        return np.zeros(0, np.uint8)
    return np.frombuffer(header.data[place.start : place.start + place.nbytes], np.uint8)
