"""NumPy's .npz format: a ZIP archive with a .npy file for each array. Pickles are never read."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from itertools import pairwise
from typing import BinaryIO, NamedTuple

import numpy as np

from rlx.ir.types import supported_dtypes
from rlx.serialization.contents import TEXTS, Broken, Contents, array_of, check_texts, parsed_object

__all__ = ["read", "write"]

_DTYPE = "dtype:"  # before an array's name: the text that says which of the numbers that NumPy lacks it holds
_OWN = {dtype.name: dtype for dtype in supported_dtypes if dtype.isbuiltin != 1}  # those numbers
_MOST = 1032  # no byte of a deflated text stands for more bytes than this
_ALLOWED_FLAGS = 0x080E  # how hard it was compressed, sizes behind the data, names in UTF-8; not encrypted or patched
_LOCAL_HEADER = 30  # bytes before a member's name
_NPY_HEADER = 10_100  # bytes; NumPy reads headers of up to 10,000


class _Npy(NamedTuple):
    """A .npy file: what its header says, and the bytes behind it."""

    dtype: np.dtype
    shape: tuple[int, ...]
    fortran: bool
    body: memoryview


def write(file: BinaryIO, contents: Contents) -> None:
    """Write arrays and texts, not compressed."""
    own = {name: array.dtype for name, array in contents.arrays.items() if array.dtype.name in _OWN}
    texts = contents.texts | {_DTYPE + name: dtype.name for name, dtype in own.items()}
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in contents.arrays.items():
            _write_member(archive, name, array.view(f"u{array.dtype.itemsize}") if name in own else array)
        _write_member(archive, TEXTS, np.array(json.dumps(texts)))


def _write_member(archive: zipfile.ZipFile, name: str, array: np.ndarray) -> None:
    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
        np.lib.format.write_array(file, array, allow_pickle=False)


def read(data: bytes) -> Contents:
    """What a file of these bytes holds: arrays are views of them where they can. Raises Broken for anything odd."""
    members = _members(data)
    texts = _texts(members.pop(TEXTS)) if TEXTS in members else {}
    arrays = {name: _array(name, npy) for name, npy in members.items()}
    for key, dtype in [(key, dtype) for key, dtype in texts.items() if key.startswith(_DTYPE)]:
        name = key.removeprefix(_DTYPE)
        arrays[name] = _as_own(name, arrays.get(name), dtype)
    return Contents(arrays, texts)


# ------------------------------------------------------------- the archive
def _members(data: bytes) -> dict[str, _Npy]:
    infos = _directory(data)
    spans = {info: _span(data, info) for info in infos}
    if any(before[1] > after[0] for before, after in pairwise(sorted(spans.values()))):
        raise Broken("its members overlap")
    members: dict[str, _Npy] = {}
    for info, (_, stop) in spans.items():
        name = info.filename.removesuffix(".npy")
        if name in members:
            raise Broken(f"the name {name!r:.80} is there twice")
        members[name] = _npy(name, _unpacked(info, memoryview(data)[stop - info.compress_size : stop]))
    return members


def _directory(data: bytes) -> list[zipfile.ZipInfo]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return archive.infolist()
    except Exception as error:  # over bytes that are no archive, zipfile raises what its parts happen to raise
        raise Broken(f"it is no archive ({error!s:.80})") from None


def _span(data: bytes, info: zipfile.ZipInfo) -> tuple[int, int]:
    """Where a member starts and stops: its header, its name, then `compress_size` bytes."""
    start = info.header_offset
    header = data[start : start + _LOCAL_HEADER] if start >= 0 else b""
    if len(header) < _LOCAL_HEADER or not header.startswith(b"PK\3\4"):
        raise Broken(f"its member {info.filename!r:.80} is not where the directory says")
    names = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    stop = start + _LOCAL_HEADER + names + info.compress_size
    if stop > len(data):
        raise Broken(f"its member {info.filename!r:.80} does not fit into it")
    return start, stop


def _unpacked(info: zipfile.ZipInfo, packed: memoryview) -> memoryview:
    """A member's bytes, which are those that the directory counted and summed."""
    wrong = Broken(f"its member {info.filename!r:.80} is damaged, or packed in a way that NumPy does not know")
    if info.flag_bits & ~_ALLOWED_FLAGS:
        raise wrong
    if info.compress_type == zipfile.ZIP_STORED:
        found = packed
    elif info.compress_type == zipfile.ZIP_DEFLATED and info.file_size <= _MOST * len(packed):
        found = memoryview(_inflated(packed, info.file_size))
    else:
        raise wrong
    if len(found) != info.file_size or zlib.crc32(found) != info.CRC:
        raise wrong
    return found


def _inflated(packed: memoryview, size: int) -> bytes:
    """The text of a deflated one; b"" for what is none of `size` bytes, of which no more than those are made."""
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        found = stream.decompress(packed, size + 1)  # one more: the end of the stream is read, too
    except zlib.error:
        return b""
    return found if stream.eof else b""


# ------------------------------------------------------------- its members
def _npy(name: str, content: memoryview) -> _Npy:
    """Raises Broken for what is no .npy file."""
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    file = io.BytesIO(content[:_NPY_HEADER])
    try:
        shape, fortran, dtype = readers[np.lib.format.read_magic(file)](file)
    except Exception as error:  # a header is a Python literal: reading a broken one raises almost anything
        raise Broken(f"its member {name!r:.80} is no array ({error!s:.80})") from None
    return _Npy(dtype, shape, fortran, content[file.tell() :])


def _array(name: str, npy: _Npy) -> np.ndarray:
    if npy.dtype.kind not in "biufc" or npy.dtype.newbyteorder("=") not in supported_dtypes:
        raise Broken(f"its array {name!r:.80} is of dtype {npy.dtype.str}, which rlx does not have")
    if npy.fortran:
        return array_of(name, npy.body, npy.dtype, npy.shape[::-1]).T
    return array_of(name, npy.body, npy.dtype, npy.shape)


def _as_own(name: str, array: np.ndarray | None, dtype: str) -> np.ndarray:
    """An array of bytes or words as numbers that NumPy lacks."""
    own = _OWN.get(dtype)
    if array is None or own is None or array.dtype != np.dtype(f"u{own.itemsize}"):
        raise Broken(f"it says that {name!r:.80} is of dtype {dtype!r:.80}")
    return array.view(own)


def _texts(npy: _Npy) -> dict[str, str]:
    """The texts, which are an array of one JSON text, in UTF-32."""
    if npy.dtype.kind != "U" or npy.shape != () or npy.dtype.itemsize != len(npy.body):
        raise Broken(f"its {TEXTS} are no text")
    try:
        text = str(npy.body, "utf-32-be" if npy.dtype.str.startswith(">") else "utf-32-le")
    except UnicodeDecodeError:
        raise Broken(f"its {TEXTS} are no text") from None
    return check_texts(parsed_object(text.rstrip("\0"), TEXTS))
