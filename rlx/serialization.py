"""Trees of arrays in files: safetensors (https://huggingface.co/docs/safetensors) and NumPy's .npz; never pickle."""

from __future__ import annotations

import json
import math
import os
import struct
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlx import numpy as jnp
from rlx import tree
from rlx.array import Array, KeyArray
from rlx.errors import DtypeError, FileFormatError, TreeMismatchError
from rlx.ir.extended import KEY_DTYPES
from rlx.ir.types import is_key
from rlx.trace.flat import as_array, shared_array
from rlx.tree_keys import keystr

__all__ = ["load", "save"]

STRUCTURE = "rlx.tree"  # the metadata entry that holds the tree's structure
KEYS = "rlx.keys"  # the metadata entry that says which arrays are the words of random keys, and of which generator
ROOT = "value"  # the name of a tree that is one leaf
_HEADER_LIMIT = 100 * 2**20  # the format's own bound on the header, in bytes
_CODES = {
    "BOOL": "bool",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
}
_NAMES = {dtype: code for code, dtype in _CODES.items()}


class Contents(NamedTuple):
    """What a file holds: arrays by name, and texts by name."""

    arrays: dict[str, np.ndarray]
    texts: dict[str, str]


# ------------------------------------------------------------- trees and names
def _name(path: Iterable[Any]) -> str:
    return keystr(path, simple=True, separator=".") or ROOT


def _described(value: Any, path: tuple[str, ...] = ()) -> Any:
    """A tree of dicts, lists, tuples and None as JSON, leaves as their names; ValueError for other nodes."""
    if value is None:
        return {"none": True}
    if isinstance(value, dict) and type(value) is dict and all(isinstance(k, str) for k in value):
        return {"dict": {k: _described(v, (*path, k)) for k, v in value.items()}}
    if type(value) in (list, tuple):
        parts = [_described(v, (*path, str(i))) for i, v in enumerate(value)]
        return {type(value).__name__: parts}
    if not tree.is_leaf_type(value):
        raise ValueError
    return ".".join(path) or ROOT


def _rebuilt(description: Any, arrays: dict[str, Any]) -> Any:
    """The tree of a description. Raises FileFormatError for what is none."""
    if isinstance(description, str) and description in arrays:
        return arrays[description]
    if isinstance(description, dict) and len(description) == 1:
        ((kind, parts),) = description.items()
        if kind == "none":
            return None
        if kind == "dict" and isinstance(parts, dict):
            return {k: _rebuilt(v, arrays) for k, v in parts.items()}
        if kind in ("list", "tuple") and isinstance(parts, list):
            found = [_rebuilt(v, arrays) for v in parts]
            return found if kind == "list" else tuple(found)
    raise FileFormatError(f"The file's {STRUCTURE} entry describes no tree of its arrays: {description!r:.60}.")


def _named(value: Any) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for path, leaf in tree.leaves_with_path(value):
        name = _name(path)
        if name in named:
            raise TreeMismatchError(f"Two leaves of the tree are called {name!r}.", "Rename one of the keys.")
        named[name] = shared_array(leaf, f"the leaf {name!r}")
    return named


def _contents(value: Any) -> Contents:
    """A tree as what a file holds."""
    named = _named(value)
    keys = {name: array.dtype for name, array in named.items() if is_key(array.dtype)}
    arrays = {name: np.asarray(array) for name, array in named.items() if name not in keys}
    arrays |= {name: dtype.words_of(named[name].numpy()) for name, dtype in keys.items()}
    texts = {KEYS: json.dumps({name: dtype.generator for name, dtype in keys.items()})} if keys else {}
    try:
        texts[STRUCTURE] = json.dumps(_described(value))
    except ValueError:
        pass  # only `like` says into what to load
    return Contents({name: arrays[name] for name in named}, texts)


def _arrays(contents: Contents) -> dict[str, Array]:
    """The arrays of a file, keys among them. Raises FileFormatError for words that are none of the generator."""
    texts = contents.texts if isinstance(contents.texts, dict) else {}
    try:
        generators = json.loads(texts.get(KEYS, "{}"))
    except (TypeError, ValueError, RecursionError):
        generators = None
    if not isinstance(generators, dict):
        raise FileFormatError(f"The file's {KEYS} entry is no JSON object.")
    return {name: _array_or_keys(name, array, generators.get(name)) for name, array in contents.arrays.items()}


def _array_or_keys(name: str, array: np.ndarray, generator: Any) -> Array:
    if generator is None:
        return jnp.asarray(array)
    dtype = KEY_DTYPES.get(generator) if isinstance(generator, str) else None
    if dtype is None or array.dtype != np.uint32 or array.shape[-1:] != (dtype.words,):
        raise FileFormatError(f"The file's array {name!r} holds no keys of the generator {generator!r:.40}.")
    return KeyArray(dtype.records_of(array))


# ------------------------------------------------------------- safetensors
def _write_safetensors(path: Path, contents: Contents) -> None:
    header: dict[str, Any] = {"__metadata__": contents.texts}
    start = 0
    for name, array in contents.arrays.items():
        if array.dtype.name not in _NAMES:
            raise DtypeError(f"safetensors have no {array.dtype} (the leaf {name!r}).", "Save to a file called .npz.")
        end = start + array.nbytes
        header[name] = {
            "dtype": _NAMES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [start, end],
        }
        start = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in contents.arrays.values():
            file.write(np.ascontiguousarray(array).tobytes())


def _read_safetensors(path: Path) -> Contents:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(_HEADER_LIMIT, len(data) - 8):
        raise FileFormatError(f"{path} is no safetensors file: its header does not fit into it.")
    try:
        header = json.loads(data[8 : 8 + length])
    except (ValueError, RecursionError):
        raise FileFormatError(f"{path} is no safetensors file: its header is no JSON.") from None
    if not isinstance(header, dict):
        raise FileFormatError(f"{path} is no safetensors file: its header is no object.")
    texts = header.pop("__metadata__", {})
    body = memoryview(data)[8 + length :]
    return Contents({name: _array(name, entry, body) for name, entry in header.items()}, texts)


def _array(name: str, entry: Any, body: memoryview) -> np.ndarray:
    """One array. Raises FileFormatError unless its entry says exactly which bytes it has."""
    wrong = FileFormatError(f"The entry {name!r} of the file describes no array: {entry!r:.80}.")
    if not isinstance(entry, dict) or not isinstance(entry.get("dtype"), str) or entry["dtype"] not in _CODES:
        raise wrong
    shape, offsets = entry.get("shape"), entry.get("data_offsets")
    for numbers in (shape, offsets):
        if not isinstance(numbers, list) or not all(type(n) is int and n >= 0 for n in numbers):
            raise wrong
    dtype = np.dtype(jnp.dtype(_CODES[entry["dtype"]]))
    if len(offsets) != 2 or not offsets[0] <= offsets[1] <= len(body):
        raise wrong
    if math.prod(shape) * dtype.itemsize != offsets[1] - offsets[0]:
        raise wrong
    return np.frombuffer(body[offsets[0] : offsets[1]], dtype).reshape(shape)


# ------------------------------------------------------------- npz
def _write_npz(path: Path, contents: Contents) -> None:
    texts = dict(contents.texts)
    plain = {}
    for name, array in contents.arrays.items():
        own = array.dtype.kind == "V"  # NumPy's files know nothing of the small floats
        plain[name] = array.view(f"u{array.dtype.itemsize}") if own else array
        if own:
            texts[f"dtype:{name}"] = array.dtype.name
    plain["__metadata__"] = np.array(json.dumps(texts))
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in plain.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


def _read_npz(path: Path) -> Contents:
    try:
        if not zipfile.is_zipfile(path):
            raise ValueError("it is no archive")
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
            texts = json.loads(str(arrays.pop("__metadata__", "{}")))
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise FileFormatError(f"{path} is no .npz file of arrays: {error}") from None
    for name, dtype in [(k[6:], v) for k, v in texts.items() if k.startswith("dtype:")]:
        if name not in arrays or dtype not in _CODES.values():
            raise FileFormatError(f"{path} says that {name!r} is of dtype {dtype!r}.")
        arrays[name] = arrays[name].view(jnp.dtype(dtype))
    return Contents(arrays, texts)


# ------------------------------------------------------------- the public functions
def save(path: str | os.PathLike[str], value: Any) -> None:
    """Write a tree of arrays and numbers to a file.

    Args:
      path: where; ".safetensors" and ".npz" say which format.
      value: the tree. Its leaves are named by their path: {"layers": [{"w": ...}]} has the array "layers.0.w".

    Structures of dicts with texts as keys, lists, tuples and None are kept in the file; for others give `load` a tree
    of the same structure. Random keys are kept as their words. Raises FileFormatError for another ending,
    InputTypeError for a leaf that is no array, DtypeError for complex128 in a safetensors file.

    >>> import rlx, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "model.safetensors"
    ...     rlx.save(file, {"w": rlx.numpy.ones(2), "layers": [3.0]})
    ...     rlx.load(file)
    {'w': Array([1., 1.], dtype=float32), 'layers': [Array(3., dtype=float32)]}
    """
    target = Path(path)
    write = _format(target)[0]
    write(target, _contents(value))


def load(path: str | os.PathLike[str], like: Any = None) -> Any:
    """Read a tree of arrays from a file.

    Args:
      path: a safetensors or .npz file, of rlx's or of anybody else's.
      like: a tree of arrays (or ShapeDtypeStructs) whose structure the result has.

    Returns the tree; without `like` that which was saved, or, where the file does not say, a dict of arrays by name.
    Nothing in the file is executed, and nothing is allocated that the file does not hold. Raises FileFormatError for a
    broken file, TreeMismatchError where names, shapes or dtypes differ from those of `like`.

    >>> import rlx, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "model.npz"
    ...     rlx.save(file, (1.0, {"b": rlx.numpy.zeros(2)}))
    ...     rlx.load(file)[1]["b"].tolist()
    [0.0, 0.0]
    """
    source = Path(path)
    contents = _format(source)[1](source)
    arrays = _arrays(contents)
    if like is not None:
        return _matched(arrays, like)
    structure = contents.texts.get(STRUCTURE) if isinstance(contents.texts, dict) else None
    if not isinstance(structure, str):
        return arrays
    try:
        return _rebuilt(json.loads(structure), arrays)
    except (ValueError, RecursionError):
        raise FileFormatError(f"{source}: its {STRUCTURE} entry is no JSON.") from None


def _format(path: Path) -> Any:
    formats = {".safetensors": (_write_safetensors, _read_safetensors), ".npz": (_write_npz, _read_npz)}
    if path.suffix not in formats:
        raise FileFormatError(f"{path.name} ends in {path.suffix!r}.", "Files are called .safetensors or .npz.")
    return formats[path.suffix]


def _matched(arrays: dict[str, Array], like: Any) -> Any:
    """The arrays in the structure of another tree."""
    wanted, treedef = tree.flatten_with_path(like)
    names = [_name(path) for path, _ in wanted]
    if missing := sorted(set(names) - set(arrays)):
        raise TreeMismatchError(f"The file has no array called {missing[0]!r}.", _known(arrays))
    if unknown := sorted(set(arrays) - set(names)):
        raise TreeMismatchError(f"The tree has no place for the file's array {unknown[0]!r}.", _known(names))
    return tree.unflatten(treedef, list(_checked(arrays, names, [leaf for _, leaf in wanted])))


def _checked(arrays: dict[str, Array], names: list[str], leaves: list[Any]) -> Iterator[Any]:
    for name, leaf in zip(names, leaves, strict=True):
        found, expected = arrays[name], leaf if hasattr(leaf, "dtype") else as_array(leaf)
        if found.shape != tuple(expected.shape) or found.dtype != expected.dtype:
            raise TreeMismatchError(
                f"The file's array {name!r} is {found.dtype}{list(found.shape)}, the tree's leaf"
                f" {expected.dtype}{list(expected.shape)}.",
                "Load without like=, and convert.",
            )
        yield found


def _known(names: Iterable[str]) -> str:
    return f"There are: {', '.join(sorted(names)[:20])}."
