"""Folders that several processes write and read: blocks of arrays in safetensors files, and an index that names them.

The index has a checksum for each block, and one for itself. `shard_writing` writes folders.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import sys
from collections.abc import Sequence
from math import prod
from pathlib import Path
from reprlib import repr as brief
from typing import Any, NamedTuple

import numpy as np

from rlx import numpy as jnp
from rlx.serialization import safetensors
from rlx.serialization.contents import MAX_RANK, Broken, check_texts, parsed_object

__all__ = ["INDEX", "ShardBlock", "ShardEntry", "Shards", "box_of", "checksum", "files_of", "index_of", "index_text"]

INDEX = "index.json"
CHECKSUM = 16  # bytes


class ShardBlock(NamedTuple):
    """A part of an array: its start in the array, its shape, its file, its name there, and its checksum.

    The checksum is "" in folders from before there were checksums.
    """

    start: tuple[int, ...]
    shape: tuple[int, ...]
    file: str
    name: str
    checksum: str = ""


class ShardEntry(NamedTuple):
    """The index's entry of an array."""

    dtype: np.dtype
    shape: tuple[int, ...]
    blocks: tuple[ShardBlock, ...]


def checksum(array: np.ndarray) -> str:
    """BLAKE2b of an array's bytes in a file."""
    found: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return hashlib.blake2b(found, digest_size=CHECKSUM).hexdigest()


def box_of(index: Sequence[slice], shape: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The start and shape of the part with an index."""
    bounds = [part.indices(n)[:2] for part, n in zip(index, shape, strict=True)]
    return tuple(a for a, _ in bounds), tuple(b - a for a, b in bounds)


def files_of(entries: dict[str, ShardEntry]) -> set[str]:
    """The names of the files that contain the blocks."""
    return {block.file for entry in entries.values() for block in entry.blocks}


def index_of(folder: Path) -> bytes:
    """The content of a folder's index file."""
    return (folder / INDEX).read_bytes()


def index_text(texts: dict[str, str], entries: dict[str, ShardEntry]) -> bytes:
    """The index of a folder."""
    arrays = {name: _described(entry) for name, entry in entries.items()}
    index = {"texts": texts, "arrays": arrays}
    return json.dumps({**index, "blake2b": _index_checksum(index)}).encode()


def _described(entry: ShardEntry) -> dict[str, Any]:
    blocks = [
        {"start": b.start, "shape": b.shape, "file": b.file, "name": b.name, "blake2b": b.checksum}
        for b in entry.blocks
    ]
    return {"dtype": entry.dtype.name, "shape": entry.shape, "blocks": blocks}


def _index_checksum(index: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(index, sort_keys=True).encode(), digest_size=CHECKSUM).hexdigest()


class Shards:
    """The arrays of a folder. Files are mapped: only requested blocks are read and compared with their checksums.

    Raises Broken for anything invalid, FileNotFoundError for a missing file.

    >>> import rlx, tempfile, pathlib
    >>> from rlx.serialization.shards import Shards
    >>> with tempfile.TemporaryDirectory() as root:
    ...     folder = pathlib.Path(root) / "model.shards"
    ...     rlx.save(folder, {"w": rlx.numpy.arange(4.0)})
    ...     Shards(folder).part("w", (slice(1, 3),)).tolist()
    [1.0, 2.0]
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.index = index_of(folder)
        index = parsed_object(self.index, INDEX)
        if index.pop("blake2b", said := object()) not in (said, _index_checksum(index)):
            raise Broken(f"its {INDEX} differs from the saved one")
        self.texts = check_texts(index.get("texts"))
        arrays = index.get("arrays")
        if not isinstance(arrays, dict):
            raise Broken(f"its {INDEX} names no arrays")
        self.entries = {name: _read_entry(name, description) for name, description in arrays.items()}
        self._files: dict[str, dict[str, np.ndarray]] = {}
        self._checked: set[ShardBlock] = set()  # blocks whose bytes are the saved ones

    def part(self, name: str, index: Sequence[slice] | None = None) -> np.ndarray:
        """The part of an array with an index; the whole array for None."""
        entry = self.entries[name]
        start, shape = box_of([slice(None)] * len(entry.shape) if index is None else index, entry.shape)
        pieces = []
        for block in entry.blocks:
            low = [max(a, b) for a, b in zip(start, block.start, strict=True)]
            ends = zip(start, shape, block.start, block.shape, strict=True)
            high = [min(a + n, b + m) for a, n, b, m in ends]
            if all(a < b for a, b in zip(low, high, strict=True)):
                there = tuple(slice(a - at, b - at) for a, b, at in zip(low, high, block.start, strict=True))
                here = tuple(slice(a - at, b - at) for a, b, at in zip(low, high, start, strict=True))
                pieces.append((here, self._block(entry, block)[there]))
        found = np.empty(shape, entry.dtype)  # the files have as many bytes as this allocates
        for here, piece in pieces:
            found[here] = piece
        return found

    def _block(self, entry: ShardEntry, block: ShardBlock) -> np.ndarray:
        if block.file not in self._files:
            with open(self._folder / block.file, "rb") as file:
                if not os.fstat(file.fileno()).st_size:  # an empty file cannot be mapped
                    raise Broken(f"its file {block.file} is empty")
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            try:
                self._files[block.file] = safetensors.read(memoryview(mapped)).arrays
            except Broken as broken:
                raise Broken(f"its file {block.file} is damaged: {broken}") from None
        found = self._files[block.file].get(block.name)
        if found is None or found.shape != block.shape or found.dtype != entry.dtype:
            raise Broken(f"its file {block.file} has no {entry.dtype}{list(block.shape)} called {block.name!r:.80}")
        if block not in self._checked:
            if block.checksum not in ("", checksum(found)):
                raise Broken(f"its file {block.file} differs from the saved {block.name!r:.80}")
            self._checked.add(block)
        return found


def _read_entry(name: str, description: Any) -> ShardEntry:
    wrong = Broken(f"its {INDEX} does not describe an array {name!r:.80}: {brief(description)}")
    if not isinstance(description, dict):
        raise wrong
    dtype, shape, blocks = (description.get(key) for key in ("dtype", "shape", "blocks"))
    if not isinstance(dtype, str) or not safetensors.is_name(dtype) or not _are_sizes(shape):
        raise wrong
    if len(shape) > MAX_RANK or prod(n or 1 for n in shape) * jnp.dtype(dtype).itemsize > sys.maxsize:
        raise wrong
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise wrong
    found = []
    for block in blocks:
        start, size = block.get("start"), block.get("shape")
        file, own, digest = block.get("file"), block.get("name"), block.get("blake2b", "")
        if not (_are_sizes(start) and _are_sizes(size) and all(isinstance(text, str) for text in (file, own, digest))):
            raise wrong
        inside = len(start) == len(size) == len(shape)
        if not inside or any(a + n > d for a, n, d in zip(start, size, shape, strict=True)):
            raise wrong
        if Path(file).name != file or not file.endswith(".safetensors"):
            raise Broken(f"its {INDEX} names the file {file!r:.80}, which is not in its folder")
        found.append(ShardBlock(tuple(start), tuple(size), file, own, digest))
    if sum(prod(block.shape) for block in found) != prod(shape) or _overlap(found):
        raise Broken(f"the blocks in its {INDEX} are not exactly those of the array {name!r:.80}")
    return ShardEntry(np.dtype(jnp.dtype(dtype)), tuple(shape), tuple(found))


def _overlap(blocks: Sequence[ShardBlock]) -> bool:
    """Whether two blocks, none of them empty, have an element in common."""
    boxes = [(block.start, block.shape) for block in blocks if prod(block.shape)]
    if len(boxes) < 2 or not boxes[0][0]:
        return len(boxes) > 1
    low = np.array([start for start, _ in boxes])
    high = low + np.array([shape for _, shape in boxes])
    meet = np.ones((len(boxes), len(boxes)), bool)
    for axis in range(low.shape[1]):
        meet &= (low[:, None, axis] < high[None, :, axis]) & (low[None, :, axis] < high[:, None, axis])
    return bool(meet.sum() > len(boxes))


def _are_sizes(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(type(n) is int and 0 <= n < 2**63 for n in numbers)
