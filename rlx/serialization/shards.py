"""Trees in a folder that several processes write and read: blocks of arrays in safetensors files, and an index.

The index, which is replaced whole, names the files: until all blocks are on the disk the folder holds what it held.
"""

from __future__ import annotations

import json
import mmap
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from reprlib import repr as brief
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from rlx import numpy as jnp
from rlx.errors import CollectiveError
from rlx.ir.collectives import Exchange, communicator, exchange
from rlx.serialization import safetensors
from rlx.serialization.atomic import replace
from rlx.serialization.contents import MAX_RANK, Broken, Contents, check_texts, parsed_object
from rlx.serialization.trees import contents_of, name_of
from rlx.trace.spanning import SpanningArray
from rlx.trees import tree

__all__ = ["INDEX", "Shards", "write"]

INDEX = "index.json"


class Block(NamedTuple):
    """A part of an array: where in the array it starts, its shape, the file that has it, and its name there."""

    start: tuple[int, ...]
    shape: tuple[int, ...]
    file: str
    name: str

    @property
    def box(self) -> tuple[slice, ...]:
        """Where in the array it is."""
        return tuple(slice(at, at + n) for at, n in zip(self.start, self.shape, strict=True))


class Entry(NamedTuple):
    """What the index says of an array."""

    dtype: np.dtype
    shape: tuple[int, ...]
    blocks: tuple[Block, ...]


# ------------------------------------------------------------- writing
def write(folder: Path, value: Any) -> None:
    """Write a tree, of which each process has its part. All processes call it.

    Raises OSError in a process that cannot write, CollectiveError in the others.
    """
    leaves, treedef = tree.flatten(value)
    own_parts = [x.local if isinstance(x, SpanningArray) else x for x in leaves]
    contents = contents_of(tree.unflatten(treedef, own_parts))
    spanning = {name_of(path): x for path, x in tree.leaves_with_path(value) if isinstance(x, SpanningArray)}
    token = bytes(_gathered(np.frombuffer(secrets.token_bytes(8), np.uint8), "save")[0]).hex()
    entries = {name: _entry(name, array, spanning.get(name), token) for name, array in contents.arrays.items()}
    rank = communicator().rank
    own = _file(token, rank)
    files = sorted({block.file for entry in entries.values() for block in entry.blocks})

    def write_blocks() -> None:
        folder.mkdir(exist_ok=True)
        if own in files:
            arrays = dict(_own_blocks(own, contents, spanning, entries))
            replace(folder / own, lambda file: safetensors.write(file, Contents(arrays, {})))

    def write_index() -> None:
        if rank == 0:
            index = {"texts": contents.texts, "arrays": {name: _described(entry) for name, entry in entries.items()}}
            replace(folder / INDEX, lambda file: _put(file, json.dumps(index).encode()))

    _in_all("its blocks", write_blocks, undo=lambda: (folder / own).unlink(missing_ok=True))
    _in_all("the index", write_index, undo=lambda: None)
    if rank == 0:
        for file in folder.glob("*.safetensors"):
            if file.name not in files:
                with suppress(OSError):  # it stays, and nobody reads it
                    file.unlink()


def _file(token: str, rank: int) -> str:
    return f"blocks-{token}-{rank}.safetensors"


def _put(file: BinaryIO, text: bytes) -> None:
    file.write(text)


def _entry(name: str, array: np.ndarray, spanning: SpanningArray | None, token: str) -> Entry:
    """What the index says of an array: of one that processes divide the first copy of each part, or all of it."""
    if spanning is None:
        block = Block((0,) * array.ndim, array.shape, _file(token, 0), f"{name}#0")
        return Entry(array.dtype, array.shape, (block,))
    found: dict[tuple[int, ...], Block] = {}
    for device, index in spanning._sharding.devices_indices_map(spanning.shape).items():
        start, shape = _box(index, spanning.shape)
        found.setdefault(start, Block(start, shape, _file(token, device.process_index), f"{name}#{len(found)}"))
    return Entry(array.dtype, spanning.shape, tuple(found.values()))


def _box(index: Sequence[slice], shape: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Where the part with an index starts, and its shape."""
    bounds = [part.indices(n)[:2] for part, n in zip(index, shape, strict=True)]
    return tuple(a for a, _ in bounds), tuple(b - a for a, b in bounds)


def _own_blocks(
    own: str, contents: Contents, spanning: dict[str, SpanningArray], entries: dict[str, Entry]
) -> Iterator[tuple[str, np.ndarray]]:
    """The blocks that this process writes, those of wide elements first, so that all lie where the file maps them."""
    order = sorted(contents.arrays, key=lambda name: -contents.arrays[name].dtype.itemsize)
    for name in order:
        mine = [block for block in entries[name].blocks if block.file == own]
        if name not in spanning:
            yield from ((block.name, contents.arrays[name]) for block in mine)
            continue
        x: Any = spanning[name]
        parts = {_box(part.index, x.shape)[0]: part.data for part in x.addressable_shards}
        yield from ((block.name, np.asarray(parts[block.start])) for block in mine)


def _described(entry: Entry) -> dict[str, Any]:
    blocks = [{"start": b.start, "shape": b.shape, "file": b.file, "name": b.name} for b in entry.blocks]
    return {"dtype": entry.dtype.name, "shape": entry.shape, "blocks": blocks}


# ------------------------------------------------------------- agreeing
def _gathered(array: np.ndarray, place: str) -> np.ndarray:
    """The arrays of all processes, in the order of ranks. place: where in the program."""
    what = Exchange("all_gather", "world", communicator().size)
    out = np.empty(what.result(array.shape), array.dtype)
    exchange(what, what.mark(array.shape, array.dtype, place.encode()), array, out)
    return out


def _in_all(what: str, write: Callable[[], None], undo: Callable[[], None]) -> None:
    """Write something in all processes. Where one of them fails, all undo it; that one raises its error, the others
    CollectiveError. Nothing is undone where it is not known how the others fare."""
    failure: Exception | None = None
    try:
        write()
    except Exception as error:
        failure = error
    failed = np.flatnonzero(_gathered(np.array([failure is not None]), what)[:, 0])
    if not len(failed):
        return
    undo()
    if failure is not None:
        raise failure
    raise CollectiveError(
        f"Rank {', '.join(map(str, failed))} could not write {what}, so that nothing is saved.",
        "What was there before is there still; look at the error of that rank.",
    )


# ------------------------------------------------------------- reading
class Shards:
    """What a folder holds. Files are mapped: only what is asked for is read. Raises Broken for anything odd.

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
        index = parsed_object((folder / INDEX).read_bytes(), INDEX)
        self.texts = check_texts(index.get("texts"))
        arrays = index.get("arrays")
        if not isinstance(arrays, dict):
            raise Broken(f"its {INDEX} names no arrays")
        self.entries = {name: _read_entry(name, description) for name, description in arrays.items()}
        self._files: dict[str, dict[str, np.ndarray]] = {}

    def part(self, name: str, index: Sequence[slice] | None = None) -> np.ndarray:
        """The part of an array with an index; all of it for None."""
        entry = self.entries[name]
        start, shape = _box([slice(None)] * len(entry.shape) if index is None else index, entry.shape)
        pieces = []
        for block in entry.blocks:
            low = [max(a, b) for a, b in zip(start, block.start, strict=True)]
            ends = zip(start, shape, block.start, block.shape, strict=True)
            high = [min(a + n, b + m) for a, n, b, m in ends]
            if all(a < b for a, b in zip(low, high, strict=True)):
                there = tuple(slice(a - at, b - at) for a, b, at in zip(low, high, block.start, strict=True))
                here = tuple(slice(a - at, b - at) for a, b, at in zip(low, high, start, strict=True))
                pieces.append((here, self._block(entry, block)[there]))
        found = np.empty(shape, entry.dtype)  # the files have as many bytes
        for here, piece in pieces:
            found[here] = piece
        return found

    def _block(self, entry: Entry, block: Block) -> np.ndarray:
        if block.file not in self._files:
            with open(self._folder / block.file, "rb") as file:
                if not os.fstat(file.fileno()).st_size:  # which cannot be mapped
                    raise Broken(f"its file {block.file} is empty")
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._files[block.file] = safetensors.read(memoryview(mapped)).arrays
        found = self._files[block.file].get(block.name)
        if found is None or found.shape != block.shape or found.dtype != entry.dtype:
            raise Broken(f"its file {block.file} has no {entry.dtype}{list(block.shape)} called {block.name!r:.80}")
        return found


def _read_entry(name: str, description: Any) -> Entry:
    wrong = Broken(f"its {INDEX} describes no array {name!r:.80}: {brief(description)}")
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
        start, size, file, own = (block.get(key) for key in ("start", "shape", "file", "name"))
        if not (_are_sizes(start) and _are_sizes(size) and isinstance(file, str) and isinstance(own, str)):
            raise wrong
        inside = len(start) == len(size) == len(shape)
        if not inside or any(a + n > d for a, n, d in zip(start, size, shape, strict=True)):
            raise wrong
        if Path(file).name != file or not file.endswith(".safetensors"):
            raise Broken(f"its {INDEX} names the file {file!r:.80}, which is none of its folder")
        found.append(Block(tuple(start), tuple(size), file, own))
    if sum(prod(block.shape) for block in found) != prod(shape) or _overlap(found):
        raise Broken(f"its {INDEX} has other blocks than those that make up the array {name!r:.80}")
    return Entry(np.dtype(jnp.dtype(dtype)), tuple(shape), tuple(found))


def _overlap(blocks: Sequence[Block]) -> bool:
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
