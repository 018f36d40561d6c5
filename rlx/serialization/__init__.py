"""Trees of arrays in files: safetensors (https://huggingface.co/docs/safetensors) and NumPy's .npz; never pickle."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from rlx.array import Array
from rlx.errors import FileFormatError, TreeMismatchError
from rlx.serialization import npz, safetensors, shards
from rlx.serialization.atomic import replace
from rlx.serialization.contents import Broken, Contents
from rlx.serialization.trees import arrays_of, contents_of, name_of, tree_of
from rlx.sharding.arrays import make_array_from_callback
from rlx.trace.flat import shared_array
from rlx.trees import tree

__all__ = ["load", "save"]


class _Format(NamedTuple):
    """How contents become a file, and a file's bytes contents; `read` raises Broken for other bytes."""

    title: str
    write: Callable[[BinaryIO, Contents], None]
    read: Callable[[bytes], Contents]


_FORMATS = {
    ".safetensors": _Format("safetensors file", safetensors.write, safetensors.read),
    ".npz": _Format(".npz file of arrays", npz.write, npz.read),
}


_FOLDER = ".shards"


def save(path: str | os.PathLike[str], value: Any) -> None:
    """Write a tree of arrays and numbers to a file, or with several processes to a folder.

    Args:
      path: where; ".safetensors" and ".npz" say which format. ".shards" is a folder that all processes, which all call
        this, can reach: each writes its part of the arrays that span processes, the first one all others.
      value: the tree. Its leaves are named by their path: {"layers": [{"w": ...}]} has the array "layers.0.w".

    Structures of dicts with texts as keys, lists, tuples and None are kept in the file; for others give `load` a tree
    of the same structure. Random keys are kept as their words.

    A file that was there is replaced when the new one, written beside it, is whole and on the disk: after any failure
    the old one is there as it was. The new one has its mode; a symbolic link goes on leading to it. The same holds of
    what is in a folder, where a process fails, too.

    Raises FileFormatError for another ending, InputTypeError for a leaf that is no array, DtypeError for complex128 in
    a safetensors file or a folder of them, CollectiveError where another process fails, TreeMismatchError where two
    leaves have one name or a name holds what none can, OSError where the file or its folder cannot be written.

    >>> import rlx, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "model.safetensors"
    ...     rlx.save(file, {"w": rlx.numpy.ones(2), "layers": [3.0]})
    ...     rlx.load(file)
    {'w': Array([1., 1.], dtype=float32), 'layers': [Array(3., dtype=float32)]}
    """
    target = Path(path)
    if target.suffix == _FOLDER:
        shards.write(target, value)
        return
    write = _format(target).write
    contents = contents_of(value)
    replace(target, lambda file: write(file, contents))


def load(path: str | os.PathLike[str], like: Any = None) -> Any:
    """Read a tree of arrays from a file, or a folder of shards.

    Args:
      path: a safetensors or .npz file, of rlx's or of anybody else's; or a folder that `save` has written.
      like: a tree of arrays (or ShapeDtypeStructs) whose structure the result has. Arrays of a folder lie as those
        lie, by their shardings, whoever has written it: each process reads what it needs. Others are whole.

    Returns the tree; without `like` that which was saved, or, where the file does not say, a dict of arrays by name.
    Nothing in the file is executed, and what its headers claim is checked before memory is taken for it: for an array
    as many bytes as it has in the file, or up to 1032 times as many where it is compressed, which is the most that
    compression reaches.

    Raises FileFormatError for every file that is broken or of another format (members of an archive that are no
    numbers included), TreeMismatchError where names, shapes or dtypes differ from those of `like`, OSError where the
    file cannot be read.

    >>> import rlx, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "model.npz"
    ...     rlx.save(file, (1.0, {"b": rlx.numpy.zeros(2)}))
    ...     rlx.load(file)[1]["b"].tolist()
    [0.0, 0.0]
    """
    source = Path(path)
    if source.suffix == _FOLDER:
        return _of_folder(source, like)
    title, _, read = _format(source)
    data = source.read_bytes()
    try:
        contents = read(data)
        arrays = arrays_of(contents)
        saved = arrays if like is not None else tree_of(contents, arrays)
    except Broken as broken:
        raise FileFormatError(f"{source} is no {title}: {broken}.") from None
    return saved if like is None else _matched(arrays, like)


def _of_folder(folder: Path, like: Any) -> Any:
    """As `load`, of a folder of shards."""
    divided: dict[str, Array] = {}
    try:
        found = shards.Shards(folder)
        for path, leaf in tree.leaves_with_path(like):
            name, sharding = name_of(path), getattr(leaf, "sharding", None)
            if name in found.entries and sharding is not None and getattr(leaf, "committed", True):
                entry = found.entries[name]
                if entry.shape == tuple(leaf.shape):  # _matched tells of others
                    read = partial(found.part, name)
                    divided[name] = make_array_from_callback(entry.shape, sharding, read, entry.dtype)
        whole = {name: found.part(name) for name in found.entries if name not in divided}
        arrays = arrays_of(Contents(whole, found.texts)) | divided
        saved = arrays if like is not None else tree_of(Contents(whole, found.texts), arrays)
    except Broken as broken:
        raise FileFormatError(f"{folder} is no folder of shards: {broken}.") from None
    return saved if like is None else _matched(arrays, like)


def _format(path: Path) -> _Format:
    if path.suffix not in _FORMATS:
        what = f"{path.name} ends in {path.suffix!r}."
        raise FileFormatError(what, "Files are called .safetensors or .npz, folders of shards .shards.")
    return _FORMATS[path.suffix]


def _matched(arrays: dict[str, Array], like: Any) -> Any:
    """The arrays in the structure of another tree."""
    wanted, treedef = tree.flatten_with_path(like)
    names = [name_of(path) for path, _ in wanted]
    if missing := sorted(set(names) - set(arrays)):
        raise TreeMismatchError(f"The file has no array called {missing[0]!r}.", _known(arrays))
    if unknown := sorted(set(arrays) - set(names)):
        raise TreeMismatchError(f"The tree has no place for the file's array {unknown[0]!r}.", _known(names))
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
        yield found


def _known(names: Iterable[str]) -> str:
    return f"There are: {', '.join(sorted(names)[:20])}."
