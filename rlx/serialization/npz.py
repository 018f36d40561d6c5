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

_DTYPE = "dtype:"  # before an array's name: the string with the dtype of an array whose dtype NumPy lacks
_OWN = {dtype.name: dtype for dtype in supported_dtypes if dtype.isbuiltin != 1}  # those dtypes
_MOST = 1032  # the most bytes that one byte of deflated data can expand to
_ALLOWED_FLAGS = 0x080E  # compression level, sizes after the data, names in UTF-8; not encrypted or patched
_LOCAL_HEADER = 30  # bytes before a member's name
_NPY_HEADER = 10_100  # bytes; NumPy reads headers of up to 10,000


class _Npy(NamedTuple):
    """A .npy file: its header's fields, and the bytes after the header."""

    dtype: np.dtype
    shape: tuple[int, ...]
    fortran: bool
    body: memoryview


def write(file: BinaryIO, contents: Contents) -> None:
    """Write arrays and strings, uncompressed."""
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
    """The contents of a file of these bytes: arrays are views if possible. Raises Broken for anything invalid."""
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
            raise Broken(f"the name {name!r:.80} occurs twice")
        members[name] = _npy(name, _unpacked(info, memoryview(data)[stop - info.compress_size : stop]))
    return members


def _directory(data: bytes) -> list[zipfile.ZipInfo]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return archive.infolist()
    except Exception as error:  # zipfile raises various errors over bytes that are not an archive
        raise Broken(f"it is not an archive ({error!s:.80})") from None


def _span(data: bytes, info: zipfile.ZipInfo) -> tuple[int, int]:
    """The start and stop of a member: its header, its name, then `compress_size` bytes."""
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
    """A member's bytes, with the size and checksum of the directory."""
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
    """Inflated data; b"" unless its size is `size`. At most one byte more is produced."""
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        found = stream.decompress(packed, size + 1)  # one more byte: this also reads the end of the stream
    except zlib.error:
        return b""
    return found if stream.eof else b""


# ------------------------------------------------------------- its members
def _npy(name: str, content: memoryview) -> _Npy:
    """Parse a .npy file. Raises Broken if it is not one."""
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    file = io.BytesIO(content[:_NPY_HEADER])
    try:
        shape, fortran, dtype = readers[np.lib.format.read_magic(file)](file)
    except Exception as error:  # a header is a Python literal: reading a broken one raises almost anything
        raise Broken(f"its member {name!r:.80} is not an array ({error!s:.80})") from None
    return _Npy(dtype, shape, fortran, content[file.tell() :])


def _array(name: str, npy: _Npy) -> np.ndarray:
    if npy.dtype.kind not in "biufc" or npy.dtype.newbyteorder("=") not in supported_dtypes:
        raise Broken(f"its array {name!r:.80} is of dtype {npy.dtype.str}, which rlx does not have")
    if npy.fortran:
        return array_of(name, npy.body, npy.dtype, npy.shape[::-1]).T
    return array_of(name, npy.body, npy.dtype, npy.shape)


def _as_own(name: str, array: np.ndarray | None, dtype: str) -> np.ndarray:
    """An array of bytes or words as numbers of a dtype that NumPy lacks."""
    own = _OWN.get(dtype)
    if array is None or own is None or array.dtype != np.dtype(f"u{own.itemsize}"):
        raise Broken(f"it claims that {name!r:.80} is of dtype {dtype!r:.80}")
    return array.view(own)


def _texts(npy: _Npy) -> dict[str, str]:
    """The strings, which are stored as an array of one JSON string, in UTF-32."""
    if npy.dtype.kind != "U" or npy.shape != () or npy.dtype.itemsize != len(npy.body):
        raise Broken(f"its {TEXTS} are not a string")
    try:
        text = str(npy.body, "utf-32-be" if npy.dtype.str.startswith(">") else "utf-32-le")
    except UnicodeDecodeError:
        raise Broken(f"its {TEXTS} are not a string") from None
    return check_texts(parsed_object(text.rstrip("\0"), TEXTS))
