"""The file of an exported function: a zip archive with uncompressed members, which are never unpacked.

    manifest.json        versions, functions, their trees and types; size and checksum of every other member
    0.mir, 1.mir, ...    programs as text: the function, its derivative, its second derivative
    weights.safetensors  arrays that the programs refer to; mapped, so that unread arrays take no memory
    native/*/*.o         object code, one folder per processor and compiler version

Members begin at multiples of 64 bytes. A reader checks names, offsets and checksums before it uses anything.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, NamedTuple

from rlx.serialization.contents import Broken, parsed_object
from rlx.version import __version__

__all__ = ["FORMAT", "MANIFEST", "ArchiveMember", "read_archive", "write_archive"]

MANIFEST = "manifest.json"
FORMAT = "rlx.exported"
VERSION = (1, 1)  # (incompatible change, addition)
ALIGNMENT = 64
MOST_MEMBERS = 100_000
MOST_MANIFEST = 1 << 26
_MEMBER = re.compile(r"[A-Za-z0-9_\-]+(/[A-Za-z0-9_\-]+)*\.[a-z0-9]+")
_PADDING = 0xD935  # the ID of an empty extra field, as in Android's zipalign
_LOCAL = struct.Struct("<4s5H3I2H")
_ZIP64_EXTRA = 20


class ArchiveMember(NamedTuple):
    """A part of a file: its size in bytes, and the function that writes it."""

    size: int
    write: Callable[[BinaryIO], None]

    @classmethod
    def of(cls, data: bytes) -> ArchiveMember:
        """A part from its bytes."""
        return cls(len(data), lambda file: _write(file, data))


def _write(file: BinaryIO, data: bytes) -> None:
    file.write(data)


class _Hashing(io.RawIOBase):
    """Forwards writes to a file and computes their checksum."""

    def __init__(self, file: Any) -> None:
        self.file = file
        self.digest = hashlib.blake2b(digest_size=32)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return self.file.write(data)


def write_archive(file: BinaryIO, manifest: Mapping[str, Any], members: Mapping[str, ArchiveMember]) -> None:
    """Write a file: its members, then the manifest with their checksums."""
    listed: dict[str, Any] = {}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, member in members.items():
            with _open(archive, file, name, member.size) as inside:
                hashing: Any = _Hashing(inside)
                member.write(hashing)
            listed[name] = {"bytes": member.size, "blake2b": hashing.digest.hexdigest()}
        head = {"format": FORMAT, "version": list(VERSION), "rlx": __version__}
        text = json.dumps({**head, **manifest, "members": listed}, indent=1).encode()
        with _open(archive, file, MANIFEST, len(text)) as inside:
            inside.write(text)


def _open(archive: zipfile.ZipFile, file: BinaryIO, name: str, size: int) -> Any:
    """A member to write to, with its bytes aligned."""
    info = zipfile.ZipInfo(name)  # dated 1980: equal programs give equal files
    info.file_size = size
    wide = _ZIP64_EXTRA if size * 1.05 > zipfile.ZIP64_LIMIT else 0
    start = file.tell() + _LOCAL.size + len(name.encode()) + wide + 4
    info.extra = struct.pack("<HH", _PADDING, -start % ALIGNMENT) + bytes(-start % ALIGNMENT)
    return archive.open(info, "w")


# ------------------------------------------------------------------ reading
def read_archive(data: memoryview) -> tuple[dict[str, Any], dict[str, memoryview]]:
    """The manifest of a file and its members. Raises Broken unless the file is valid."""
    members = _members(data)
    if MANIFEST not in members:
        raise Broken("it has no manifest")
    if len(members[MANIFEST]) > MOST_MANIFEST:
        raise Broken("its manifest is too large")
    manifest = parsed_object(bytes(members.pop(MANIFEST)), "manifest")
    _check_version(manifest)
    listed = manifest.get("members")
    if not isinstance(listed, dict) or listed.keys() != members.keys():
        raise Broken("its manifest does not match its members")
    for name, body in members.items():
        entry = listed[name] if isinstance(listed[name], dict) else {}
        if entry.get("bytes") != len(body):
            raise Broken(f"its member {name} has {len(body)} bytes and not {entry.get('bytes')!r:.20}")
        if entry.get("blake2b") != hashlib.blake2b(body, digest_size=32).hexdigest():
            raise Broken(f"the checksum of its member {name} is wrong: it has been changed or damaged")
    return manifest, members


def _check_version(manifest: Mapping[str, Any]) -> None:
    if manifest.get("format") != FORMAT:
        raise Broken(f"it is a file of {manifest.get('format')!r:.40}")
    version = manifest.get("version")
    if not (isinstance(version, list) and len(version) == 2 and all(type(n) is int for n in version)):
        raise Broken("its manifest has no version")
    if version[0] != VERSION[0]:
        found = f"it has version {version[0]} of the format, this rlx reads {VERSION[0]}"
        raise Broken(f"{found} (it was written by rlx {manifest.get('rlx')!r:.20})")


def _members(data: memoryview) -> dict[str, memoryview]:
    """The bytes of every member, without a copy."""
    found: dict[str, memoryview] = {}
    for info in _listed(data):
        name = info.filename
        if not _MEMBER.fullmatch(name):
            raise Broken(f"it has a member called {name!r:.80}, which is not a valid name")
        if name in found:
            raise Broken(f"it has two members called {name}")
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            raise Broken(f"its member {name} is compressed or encrypted")
        body = _body(data, info)
        if name == MANIFEST and zlib.crc32(body) != info.CRC:
            raise Broken("the checksum of its manifest is wrong: it has been changed or damaged")
        found[name] = body
    return found


def _listed(data: memoryview) -> list[zipfile.ZipInfo]:
    reason = ""
    try:
        with zipfile.ZipFile(_Bytes(data)) as archive:
            listed = archive.infolist()
        if len(listed) <= MOST_MEMBERS:
            return listed
        reason = f"it has {len(listed)} members"
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError, EOFError, struct.error, IndexError) as error:
        reason = f"it is not an archive, or is truncated ({error})"
    raise Broken(reason)


def _body(data: memoryview, info: zipfile.ZipInfo) -> memoryview:
    """The bytes of a member, after its local header; of the header only the lengths matter."""
    start = info.header_offset
    if start < 0 or start + _LOCAL.size > len(data):
        raise Broken(f"its member {info.filename} is outside the file")
    signature, *_, name, extra = _LOCAL.unpack_from(data, start)
    begin = start + _LOCAL.size + name + extra
    if signature != b"PK\3\4" or begin + info.file_size > len(data) or info.file_size != info.compress_size:
        raise Broken(f"its member {info.filename} is outside the file")
    return data[begin : begin + info.file_size]


class _Bytes(io.RawIOBase):
    """A file that reads memory without a copy."""

    def __init__(self, data: memoryview) -> None:
        self.data, self.at = data, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        base = (0, self.at, len(self.data))[whence]
        if base + offset < 0:
            raise ValueError("before the beginning")
        self.at = base + offset
        return self.at

    def tell(self) -> int:
        return self.at

    def read(self, size: int = -1) -> bytes:
        stop = len(self.data) if size is None or size < 0 else self.at + size
        found = bytes(self.data[self.at : stop])
        self.at += len(found)
        return found
