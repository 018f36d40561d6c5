"""Trees of arrays in files: safetensors (https://huggingface.co/docs/safetensors) and NumPy's .npz; never pickle."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from rlx.array import Array
from rlx.errors import FileFormatError, InputTypeError, OptionError, TreeMismatchError, describe
from rlx.ir.collectives import communicator
from rlx.offered_names import offer_names
from rlx.serialization import npz, safetensors, shard_writing, shards
from rlx.serialization.atomic import replace
from rlx.serialization.contents import Broken, Contents
from rlx.serialization.trees import arrays_of, contents_of, name_of, only, tree_of
from rlx.sharding.arrays import make_array_from_callback
from rlx.sharding.partition import resharded
from rlx.sharding.shardings import NamedSharding
from rlx.sharding.spec import PartitionSpec
from rlx.sharding.trees import placed
from rlx.trace.flat import shared_array
from rlx.trace.spanning import is_spanning
from rlx.trees import tree

__all__ = ["load", "save"]

offer_names(globals())


class _Format(NamedTuple):
    """Writing contents to a file, and reading them from its bytes; `read` raises Broken for other bytes."""

    title: str
    write: Callable[[BinaryIO, Contents], None]
    read: Callable[[Any], Contents]


_FORMATS = {
    ".safetensors": _Format("safetensors file", safetensors.write, safetensors.read),
    ".npz": _Format(".npz file of arrays", npz.write, npz.read),
}


_FOLDER = ".shards"
_TRIES = 100  # attempts to read a folder that others write at the same time


def save(path: str | os.PathLike[str], value: Any) -> None:
    """Write a tree of arrays and numbers to a file, or with several processes to a folder.

    Args:
      path: the file; ".safetensors" or ".npz" selects the format. ".shards" is a folder that all processes must be able
        to access, and all must call this: each writes its part of the arrays that span processes, and they share the
        writing of large arrays that are equal in all of them. The first process writes its own copy of other arrays.
        With arrays that span processes, all must call this for a file as well: each gathers them, and the first
        process writes.
      value: the tree. Its leaves are named by their path: {"layers": [{"w": ...}]} has the array "layers.0.w".

    Structures of dicts with string keys, lists, tuples and None are stored in the file; for others pass `load` a tree
    of the same structure. Random keys are stored as their words.

    An existing file is replaced when the new one, written next to it, is complete and on the disk: after any failure
    the old file is unchanged. The new one gets its mode; a symbolic link still leads to it. A folder keeps its
    last save if a process fails. Processes wait for each other for RLX_SAVE_TIMEOUT seconds (3600).

    Raises FileFormatError for another extension, InputTypeError for a leaf that is not an array, DtypeError for
    complex128 in a safetensors file or a folder, CollectiveError if another process fails, TreeMismatchError if two
    leaves have one name or a name cannot be stored, OSError if the file or its folder cannot be written, and
    its subclass BlockingIOError while another program saves to the folder.

    >>> import rlx, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "model.safetensors"
    ...     rlx.save(file, {"w": rlx.numpy.ones(2), "layers": [3.0]})
    ...     rlx.load(file)
    {'w': Array([1., 1.], dtype=float32), 'layers': [Array(3., dtype=float32)]}
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InputTypeError(f"save got {describe(path)} as path.", "Write rlx.save(path, value): the path is first.")
    target = Path(path)
    if target.suffix == _FOLDER:
        shard_writing.write(target, value)
        return
    write = _format(target).write
    contents = contents_of(tree.map(_gathered, value))

    def replaced() -> None:
        replace(target, lambda file: write(file, contents))

    if any(is_spanning(x) for x in tree.leaves(value)):
        shard_writing.in_all("the file", replaced if communicator().rank == 0 else lambda: None)
    else:
        replaced()


def _gathered(x: Any) -> Any:
    """All of an array that processes divide; other values unchanged."""
    return resharded(x, NamedSharding(x.sharding.mesh, PartitionSpec())) if is_spanning(x) else x


def load(path: str | os.PathLike[str], like: Any = None, *, names: Iterable[str] | None = None) -> Any:
    """Read a tree of arrays from a file, or a folder of shards.

    Args:
      path: a safetensors or .npz file, written by rlx or another program; or a folder that `save` has written.
      like: a tree of arrays (or ShapeDtypeStructs) with the structure of the result. Arrays get the shardings of its
        leaves, whichever processes wrote them. Each process reads its parts of a folder, and all of a file.
      names: read these arrays alone, such as "layers.0.weight", and return a dict of them. Of a safetensors file and a
        folder, the bytes of the others are not read; a .npz file is read as a whole.

    Returns the tree; without `like` the saved tree, or a dict of arrays by name if the file has no structure.
    Nothing in the file is executed, and its headers are checked before memory is allocated: for each array at most
    its bytes in the file, or 1032 times their number if they are compressed, the maximum of the compression.

    Raises FileFormatError for every file that is broken or of another format (also for members of an archive that are
    not numbers) and for blocks of a folder with wrong checksums, TreeMismatchError if names, shapes or dtypes differ
    from `like`, OSError if the file cannot be read.

    >>> import rlx, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "model.npz"
    ...     rlx.save(file, (1.0, {"b": rlx.numpy.zeros(2)}))
    ...     rlx.load(file)[1]["b"].tolist()
    [0.0, 0.0]
    """
    source = Path(path)
    if names is not None:
        if like is not None:
            raise OptionError("load got both like and names.", "names= gives a dict of arrays by name.")
        return _of_names(source, [names] if isinstance(names, str) else list(names))
    if source.suffix == _FOLDER:
        return _of_folder(source, like)
    title, _, read = _format(source)
    data = source.read_bytes()
    try:
        contents = read(data)
        arrays = arrays_of(contents)
        saved = arrays if like is not None else tree_of(contents, arrays)
    except Broken as broken:
        raise FileFormatError(f"{source} is not a {title}: {broken}.") from None
    return saved if like is None else _matched(arrays, like)


def _of_names(source: Path, names: list[str]) -> dict[str, Array]:
    """Some of the arrays of a file or folder, by name."""
    kind = "folder of shards" if source.suffix == _FOLDER else _format(source).title
    try:
        if source.suffix == _FOLDER:
            found = shards.Shards(source)
            known, texts, part = set(found.entries), found.texts, found.part
        else:
            contents = _format(source).read(_mapped(source) if source.suffix == ".safetensors" else source.read_bytes())
            known, texts, part = set(contents.arrays), contents.texts, lambda name: contents.arrays[name].copy()
        if unknown := sorted(set(names) - known):
            raise TreeMismatchError(f"The file has no array called {unknown[0]!r}.", _known(known))
        return arrays_of(only(Contents({name: part(name) for name in names}, texts)))
    except Broken as broken:
        raise FileFormatError(f"{source} is not a {kind}: {broken}.") from None


def _mapped(source: Path) -> memoryview:
    """The bytes of a file, read on access; empty if it is."""
    with source.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:  # an empty file cannot be mapped
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _of_folder(folder: Path, like: Any) -> Any:
    """As `load`, for a folder of shards. If a writer replaces files meanwhile, the new index is read."""
    try:
        for _ in range(_TRIES):
            found = shards.Shards(folder)
            try:
                return _of_shards(found, like)
            except FileNotFoundError:
                if shards.index_of(folder) == found.index:
                    raise
    except Broken as broken:
        raise FileFormatError(f"{folder} is not a folder of shards: {broken}.") from None
    raise FileFormatError(f"{folder} was replaced {_TRIES} times while it was read.", "Load it between two saves.")


def _of_shards(found: shards.Shards, like: Any) -> Any:
    divided: dict[str, Array] = {}
    for path, leaf in tree.leaves_with_path(like):
        name, sharding = name_of(path), getattr(leaf, "sharding", None)
        if name in found.entries and sharding is not None and getattr(leaf, "committed", True):
            entry = found.entries[name]
            if entry.shape == tuple(leaf.shape):  # _matched reports other shapes
                read = partial(found.part, name)
                divided[name] = make_array_from_callback(entry.shape, sharding, read, entry.dtype)
    whole = {name: found.part(name) for name in found.entries if name not in divided}
    arrays = arrays_of(Contents(whole, found.texts)) | divided
    return _matched(arrays, like) if like is not None else tree_of(Contents(whole, found.texts), arrays)


def _format(path: Path) -> _Format:
    if path.suffix not in _FORMATS:
        what = f"{path.name} ends in {path.suffix!r}."
        raise FileFormatError(what, "Files must end in .safetensors or .npz, folders of shards in .shards.")
    return _FORMATS[path.suffix]


def _matched(arrays: dict[str, Array], like: Any) -> Any:
    """The arrays as a tree with the structure of another one."""
    wanted, treedef = tree.flatten_with_path(like)
    names = [name_of(path) for path, _ in wanted]
    if missing := sorted(set(names) - set(arrays)):
        raise TreeMismatchError(f"The file has no array called {missing[0]!r}.", _known(arrays))
    if unknown := sorted(set(arrays) - set(names)):
        raise TreeMismatchError(f"The tree has no leaf for the file's array {unknown[0]!r}.", _known(names))
    return tree.unflatten(treedef, list(_checked(arrays, names, [leaf for _, leaf in wanted])))


def _checked(arrays: dict[str, Array], names: list[str], leaves: list[Any]) -> Iterator[Any]:
    for name, leaf in zip(names, leaves, strict=True):
        found, expected = arrays[name], leaf if hasattr(leaf, "dtype") else shared_array(leaf)
        if found.shape != tuple(expected.shape) or found.dtype != expected.dtype:
            raise TreeMismatchError(
                f"The file's array {name!r} is {found.dtype}{list(found.shape)}, the tree's leaf"
                f" {expected.dtype}{list(expected.shape)}.",
                "Load without like=, and convert.",
            )
        sharding = getattr(leaf, "sharding", None)
        yield placed(found, sharding) if isinstance(sharding, NamedSharding) and sharding.num_devices > 1 else found


def _known(names: Iterable[str]) -> str:
    return f"There are: {', '.join(sorted(names)[:20])}."
