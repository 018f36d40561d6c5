"""Writing folders of shards by several processes: which process writes each block, and agreeing on the end.

The index names the files and is replaced atomically: until all blocks are on the disk, the folder has its last save.
"""

from __future__ import annotations

import errno
import hashlib
import platform
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlx.config import seconds_of
from rlx.errors import CollectiveError
from rlx.ir.collectives import Exchange, communicator, exchange
from rlx.serialization import safetensors
from rlx.serialization.atomic import create, replace
from rlx.serialization.contents import Broken, Contents
from rlx.serialization.locks import FolderLock, note_of
from rlx.serialization.shards import (
    CHECKSUM,
    INDEX,
    ShardBlock,
    ShardEntry,
    Shards,
    box_of,
    checksum,
    files_of,
    index_text,
)
from rlx.serialization.trees import contents_of, name_of
from rlx.trace.spanning import is_spanning, local_of
from rlx.trees import tree

__all__ = ["SavedTree", "in_all", "text_of_first", "tree_to_save", "write", "write_tree"]

LONGEST_SAVE = 3600.0  # seconds
LARGEST_BLOCK = 1 << 28  # bytes
SHARED = 1 << 20  # bytes of a block from which on processes share the writing of arrays that all of them have
_THREADS = 4  # for checksums
_LONGEST_TEXT = 128  # bytes
_SEEN = 10.0  # seconds until all hosts see a new file of a common folder
# between two meetings of processes that write
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.5


class _Piece(NamedTuple):
    """A block, the part of the array that contains it, and the ranks that have it."""

    array: str
    start: tuple[int, ...]
    shape: tuple[int, ...]
    part: tuple[int, ...]
    holders: tuple[int, ...]
    number: int
    nbytes: int


class SavedTree(NamedTuple):
    """The tree to save: arrays that processes divide, and this process's part of all arrays."""

    contents: Contents
    spanning: dict[str, Any]

    def data(self, piece: _Piece) -> np.ndarray:
        """The elements of a block that this process has."""
        if piece.array in self.spanning:
            x = self.spanning[piece.array]
            found = next(p.data for p in x.addressable_shards if box_of(p.index, x.shape)[0] == piece.part)
            array = np.asarray(found)
        else:
            array = self.contents.arrays[piece.array]
        spans = zip(piece.start, piece.part, piece.shape, strict=True)
        return array[tuple(slice(a - b, a - b + n) for a, b, n in spans)]


def write(folder: Path, value: Any) -> None:
    """Write a tree that processes divide. All processes call it.

    Raises OSError in a process that cannot write, CollectiveError in the others.
    """
    write_tree(folder, tree_to_save(value))


def tree_to_save(value: Any, copy: bool = False) -> SavedTree:
    """The contents of a folder of shards; with `copy`, of the arrays' values at this moment."""
    leaves, treedef = tree.flatten(value)
    own_parts = [local_of(x) if is_spanning(x) else x for x in leaves]
    contents = contents_of(tree.unflatten(treedef, own_parts))
    if copy:
        contents = contents._replace(arrays={name: array.copy() for name, array in contents.arrays.items()})
    spanning = {name_of(path): x for path, x in tree.leaves_with_path(value) if is_spanning(x)}
    return SavedTree(contents, spanning)


def write_tree(folder: Path, saved: SavedTree) -> None:
    """As `write`, for contents that `tree_to_save` has collected."""
    token = text_of_first(secrets.token_hex(8), "save")
    rank = communicator().rank
    locks: list[FolderLock] = []

    def lock() -> None:
        if rank == 0:
            folder.mkdir(exist_ok=True)
            locks.append(FolderLock(folder, token))

    try:
        in_all("the lock of the folder", lock)
        in_all("the folder of rank 0", lambda: _check_same(folder, token))
        _write_locked(folder, saved, token, locks[0].before if locks else "")
    finally:
        for held in locks:
            held.release(finished=_left(folder, token) <= _named(folder))


def _check_same(folder: Path, token: str) -> None:
    """Raises FileNotFoundError if this is not the folder that the first process has locked.

    A network's file system may show the lock late.
    """
    end = time.monotonic() + _SEEN
    while note_of(folder) != token:
        if time.monotonic() > end:
            what = f"This is not the folder on {platform.node()} that rank 0 saves to"
            raise FileNotFoundError(errno.ENOENT, what, str(folder))
        time.sleep(_FIRST_PAUSE)


def text_of_first(text: str, place: str) -> str:
    """The first process's text of up to 128 bytes, in all processes. place: the point of the program."""
    own = np.zeros(_LONGEST_TEXT, np.uint8)
    own[: len(text.encode())] = np.frombuffer(text.encode(), np.uint8)
    return _gathered(own, place)[0].tobytes().rstrip(b"\0").decode()


def _write_locked(folder: Path, saved: SavedTree, token: str, left: str) -> None:
    """Write blocks and index. left: the token of a writer that was killed."""
    rank = communicator().rank
    pieces = _assigned(_pieces(saved))
    own = [(piece, saved.data(piece)) for writer, piece in pieces if writer == rank]
    file = folder / _file(token, rank)
    sums: list[str] = []

    def write_blocks() -> None:
        sums.extend(_checksums([array for _, array in own]))
        # wide elements first, so that all are aligned when the file is mapped
        ordered = sorted(own, key=lambda pair: -pair[1].dtype.itemsize)
        if own:
            arrays = {_name(piece): array for piece, array in ordered}
            create(file, lambda opened: safetensors.write(opened, Contents(arrays, {})))

    in_all("its blocks", write_blocks, undo=lambda: file.unlink(missing_ok=True))
    entries = _entries(saved, pieces, _gathered_sums(pieces, sums), token)

    def write_index() -> None:
        if rank == 0:
            before = _named(folder) | _left(folder, left)
            text = index_text(saved.contents.texts, entries)
            replace(folder / INDEX, lambda opened: _put(opened, text))
            _remove(folder, before - files_of(entries))

    def remove_blocks() -> None:
        if rank == 0:
            _remove(folder, _left(folder, token) - _named(folder))

    in_all("the index", write_index, undo=remove_blocks)


def _file(token: str, rank: int) -> str:
    return f"blocks-{token}-{rank}.safetensors"


def _name(piece: _Piece) -> str:
    return f"{piece.array}#{piece.number}"


def _put(file: Any, text: bytes) -> None:
    file.write(text)


def _named(folder: Path) -> set[str]:
    """The files that the index names, which only owners of the lock have written."""
    with suppress(Broken, OSError):
        return files_of(Shards(folder).entries)
    return set()


def _left(folder: Path, token: str) -> set[str]:
    """The files of a writer that was killed."""
    return {file.name for file in folder.glob(_file(token, 0).replace("-0.", "-*."))} if token.isalnum() else set()


def _remove(folder: Path, files: set[str]) -> None:
    for name in files:
        with suppress(OSError):  # it stays, and the index does not name it
            (folder / name).unlink()


# ------------------------------------------------------------- assigning blocks
def _pieces(saved: SavedTree) -> list[_Piece]:
    """The blocks of all arrays: first arrays that processes divide, in the same order in all processes."""
    found: list[_Piece] = []
    for name, x in saved.spanning.items():
        holders: dict[tuple[int, ...], dict[int, None]] = {}
        shapes: dict[tuple[int, ...], tuple[int, ...]] = {}
        for device, index in x._sharding.devices_indices_map(x.shape).items():
            start, shapes[start] = box_of(index, x.shape)
            holders.setdefault(start, {})[device.process_index] = None
        parts = [(start, shapes[start], tuple(ranks)) for start, ranks in holders.items()]
        found += _cut(name, parts, x.dtype.itemsize, LARGEST_BLOCK)
    size = communicator().size
    for name, array in saved.contents.arrays.items():
        if name not in saved.spanning:
            part = ((0,) * array.ndim, array.shape, (0,))
            found += _cut(name, [part], array.itemsize, min(LARGEST_BLOCK, max(SHARED, -(-array.nbytes // size))))
    return _shared(saved, found)


def _cut(
    name: str, parts: Sequence[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]], itemsize: int, most: int
) -> list[_Piece]:
    """Blocks of up to `most` bytes, if the first axis that is longer than 1 has enough elements."""
    found: list[_Piece] = []
    for part, shape, holders in parts:
        nbytes = int(np.prod(shape, dtype=object)) * itemsize
        axis = next((axis for axis, n in enumerate(shape) if n > 1), None)
        count = 1 if axis is None else min(shape[axis], max(1, -(-nbytes // most)))
        for number in range(count):
            start, own = list(part), list(shape)
            if axis is not None:
                low, high = (shape[axis] * n // count for n in (number, number + 1))
                start[axis], own[axis] = part[axis] + low, high - low
            size = int(np.prod(own, dtype=object)) * itemsize
            found.append(_Piece(name, tuple(start), tuple(own), part, holders, len(found), size))
    return found


def _shared(saved: SavedTree, pieces: list[_Piece]) -> list[_Piece]:
    """The blocks, where any process may write the blocks of large arrays that are equal in all processes.

    The first process has the saved values of other arrays that are not divided.
    """
    large = {p.array for p in pieces if p.array not in saved.spanning and p.nbytes >= SHARED}
    size = communicator().size
    if size == 1 or not _all_equal(repr(pieces)) or not large:
        return pieces
    candidates = [piece for piece in pieces if piece.array in large]
    data, sums = [saved.data(piece) for piece in candidates], list[str]()
    in_all("checksums", lambda: sums.extend(_checksums(data)))
    rows = _gathered(_as_bytes(sums), "checksums")
    unequal = {p.array for p, same in zip(candidates, (rows == rows[0]).all((0, 2)), strict=True) if not same}
    everybody = tuple(range(size))
    found = [p._replace(holders=everybody) if p.array in large - unequal else p for p in pieces]
    return sorted(found, key=lambda piece: len(piece.holders))


def _assigned(pieces: Sequence[_Piece]) -> list[tuple[int, _Piece]]:
    """The rank that writes each block: among ranks that have it, the one with the fewest bytes."""
    load = dict.fromkeys(range(communicator().size), 0)
    found = []
    for piece in pieces:
        writer = min(piece.holders, key=lambda rank: (load[rank], rank))
        load[writer] += piece.nbytes
        found.append((writer, piece))
    return found


# ------------------------------------------------------------- checksums
def _checksums(arrays: Sequence[np.ndarray]) -> list[str]:
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(checksum, arrays))


def _as_bytes(sums: Sequence[str]) -> np.ndarray:
    return np.frombuffer(bytes.fromhex("".join(sums)), np.uint8).reshape(len(sums), CHECKSUM)


def _gathered_sums(pieces: Sequence[tuple[int, _Piece]], own: Sequence[str]) -> list[str]:
    """The checksums of all blocks, in the first process only. Each writer computes its own blocks' checksums."""
    counts = _gathered(np.array([len(own)]), "its number of blocks")[:, 0]
    table = np.zeros((int(counts.max()), CHECKSUM), np.uint8)
    table[: len(own)] = _as_bytes(own)
    rows = [iter(row) for row in _gathered(table, "checksums of its blocks")]
    return [next(rows[writer]).tobytes().hex() for writer, _ in pieces] if communicator().rank == 0 else []


def _entries(
    saved: SavedTree, pieces: Sequence[tuple[int, _Piece]], sums: Sequence[str], token: str
) -> dict[str, ShardEntry]:
    """The entries of the index; empty in processes that do not write it."""
    blocks: dict[str, list[ShardBlock]] = {}
    for (writer, piece), found in zip(pieces, sums, strict=False):
        block = ShardBlock(piece.start, piece.shape, _file(token, writer), _name(piece), found)
        blocks.setdefault(piece.array, []).append(block)
    shapes = {name: (array.dtype, array.shape) for name, array in saved.contents.arrays.items()}
    shapes |= {name: (saved.contents.arrays[name].dtype, x.shape) for name, x in saved.spanning.items()}
    return {name: ShardEntry(*shapes[name], tuple(found)) for name, found in blocks.items()}


# ------------------------------------------------------------- agreeing
def _gathered(array: np.ndarray, place: str) -> np.ndarray:
    """The arrays of all processes, in the order of ranks. place: the point of the program."""
    what = Exchange("all_gather", "world", communicator().size)
    out = np.empty(what.result(array.shape), array.dtype)
    exchange(what, what.mark(array.shape, array.dtype, place.encode()), np.ascontiguousarray(array), out)
    return out


def _all_equal(text: str) -> bool:
    rows = _gathered(np.frombuffer(hashlib.blake2b(text.encode()).digest(), np.uint8), "layout")
    return bool((rows == rows[0]).all())


_DONE, _FAILED, _WORKING, _LATE = range(4)


class _WritingThread:
    """Work in a separate thread, while this one tells the other processes that this process is alive."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.failure: BaseException | None = None
        self._work, self._end = work, time.monotonic() + longest_save()
        self._thread = threading.Thread(target=self._run, name="rlx.save", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.failure = error

    def state(self, seconds: float) -> int:
        """The state of the work after some seconds, or earlier if it is done."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            return _LATE if time.monotonic() > self._end else _WORKING
        return _DONE if self.failure is None else _FAILED


def longest_save() -> float:
    """The number of seconds that a process may write: RLX_SAVE_TIMEOUT, or an hour."""
    return seconds_of("RLX_SAVE_TIMEOUT", LONGEST_SAVE)


def in_all(what: str, work: Callable[[], None], undo: Callable[[], None] = lambda: None) -> None:
    """Do something in all processes, which wait for each other as long as all of them are alive.

    If one of them fails, all undo it; the process that failed raises its error, the others CollectiveError. Nothing is
    undone if the state of the others is unknown.
    """
    if communicator().size == 1:
        _or_undo(work, undo)
        return
    doing, pause = _WritingThread(work), _FIRST_PAUSE
    while True:
        states = _gathered(np.array([doing.state(pause)], np.uint8), what)[:, 0]
        pause = min(2 * pause, _LONGEST_PAUSE)
        if (states == _LATE).any():
            raise CollectiveError(
                f"{_ranks(states == _LATE)} took more than {longest_save():g} s for {what}, so that nothing is saved.",
                "Check the disk of that rank; if it only needs longer, set RLX_SAVE_TIMEOUT to more seconds.",
            )
        if not (states == _WORKING).any():
            break
    if not states.any():
        return
    undo()
    _gathered(np.zeros(1, np.uint8), "undone")
    if doing.failure is not None:
        raise doing.failure
    raise CollectiveError(
        f"{_ranks(states == _FAILED)} could not write {what}, so that nothing is saved.",
        "The previous save is unchanged; look at the error of that rank.",
    )


def _or_undo(work: Callable[[], None], undo: Callable[[], None]) -> None:
    try:
        work()
    except Exception:
        undo()
        raise


def _ranks(which: np.ndarray) -> str:
    return f"Rank {', '.join(map(str, np.flatnonzero(which)))}"
