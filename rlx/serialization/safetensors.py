"""The safetensors format (https://huggingface.co/docs/safetensors): a JSON header, then the bytes of all arrays."""

from __future__ import annotations

import json
import struct
from itertools import pairwise
from reprlib import repr as brief
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from rlx import numpy as jnp
from rlx.errors import DtypeError
from rlx.serialization.contents import TEXTS, Broken, Contents, array_of, check_texts, parsed_object

__all__ = ["holds", "is_name", "read", "size", "write"]

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


class _HeaderEntry(NamedTuple):
    """The header's entry of one array, whose bytes are those from `start` to `stop`."""

    dtype: np.dtype
    shape: tuple[int, ...]
    start: int
    stop: int


def size(contents: Contents) -> int:
    """The number of bytes that `write` writes."""
    return len(_header(contents)) + sum(array.nbytes for array in contents.arrays.values())


def holds(dtype: np.dtype) -> bool:
    """Whether the format has a dtype."""
    return is_name(dtype.name)


def is_name(dtype: str) -> bool:
    """Whether the format has a dtype of this name."""
    return dtype in _NAMES


def write(file: BinaryIO, contents: Contents) -> None:
    """Write arrays and strings. Raises DtypeError, before anything is written, for a dtype that the format lacks."""
    file.write(_header(contents))
    for array in contents.arrays.values():
        file.write(np.ascontiguousarray(array).tobytes())


def _header(contents: Contents) -> bytes:
    header: dict[str, Any] = {TEXTS: contents.texts}
    start = 0
    for name, array in contents.arrays.items():
        if array.dtype.name not in _NAMES:
            raise DtypeError(f"safetensors have no {array.dtype} (the leaf {name!r}).", "Save to a .npz file.")
        end = start + array.nbytes
        header[name] = {"dtype": _NAMES[array.dtype.name], "shape": list(array.shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def read(data: bytes | memoryview) -> Contents:
    """The contents of a file of these bytes: arrays are views. Raises Broken for anything invalid."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(_HEADER_LIMIT, len(data) - 8):
        raise Broken("its header does not fit into it")
    header = parsed_object(bytes(data[8 : 8 + length]), "header")
    texts = check_texts(header.pop(TEXTS, {}))
    body = memoryview(data)[8 + length :]
    entries = {name: _entry(name, description) for name, description in header.items()}
    _check_layout([(e.start, e.stop) for e in entries.values()], len(body))
    arrays = {name: array_of(name, body[e.start : e.stop], e.dtype, e.shape) for name, e in entries.items()}
    return Contents(arrays, texts)


def _entry(name: str, description: Any) -> _HeaderEntry:
    wrong = Broken(f"its entry {name!r:.80} does not describe an array: {brief(description)}")
    if not isinstance(description, dict):
        raise wrong
    code, shape, offsets = (description.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(code, str) or code not in _CODES or not (_are_sizes(shape) and _are_sizes(offsets)):
        raise wrong
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise wrong
    return _HeaderEntry(np.dtype(jnp.dtype(_CODES[code])), tuple(shape), *offsets)


def _are_sizes(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(type(n) is int and n >= 0 for n in numbers)


def _check_layout(spans: list[tuple[int, int]], size: int) -> None:
    """Check that arrays are contiguous and fill the file, as the format requires."""
    placed = [(0, 0), *sorted(spans), (size, size)]
    if any(before[1] != after[0] for before, after in pairwise(placed)):
        raise Broken(f"its arrays are not contiguous in its {size} bytes")
