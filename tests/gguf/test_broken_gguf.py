"""Files that are broken: FileFormatError with file and byte, or a file that is whole; soon, and with little memory.

RLX_TEST_SEED, any text, draws other mutations; RLX_TEST_LONG=1 makes them ten times as many.
"""

from __future__ import annotations

import os
import random
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlx import gguf
from rlx.errors import FileFormatError

SEED = os.environ.get("RLX_TEST_SEED", "0")
MUTATIONS = 1_000_000 if os.environ.get("RLX_TEST_LONG", "0") != "0" else 100_000
PARTS = 2  # of the mutations of a kind, so that they are shared out
MEMORY = 4 << 20  # bytes that one of these files, none of which has more than 16 KiB, may take
SECONDS = 1.0


# ---------------------------------------------------------------- files by hand
def text(value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def pair(key: str | bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def tensor(name: str | bytes, dims: tuple[int, ...], kind: int = 0, offset: int = 0, rank: int | None = None) -> bytes:
    sizes = b"".join(struct.pack("<Q", n) for n in dims)
    return (
        text(name) + struct.pack("<I", len(dims) if rank is None else rank) + sizes + struct.pack("<IQ", kind, offset)
    )


def head(pairs: list[bytes], tensors: list[bytes], version: int = 3, counts: tuple[int, int] | None = None) -> bytes:
    numbers = counts or (len(tensors), len(pairs))
    return b"GGUF" + struct.pack("<IQQ", version, *numbers) + b"".join(pairs) + b"".join(tensors)


def whole(pairs: list[bytes] = [], tensors: list[bytes] = [], data: int = 1 << 12) -> bytes:  # noqa: B006
    start = head(pairs, tensors)
    return start + bytes(-len(start) % 32) + bytes(data)


def nested(depth: int) -> bytes:
    """The value of an array in an array in an array."""
    return struct.pack("<IQ", 9, 1) * (depth - 1) + struct.pack("<IQ", 4, 1) + struct.pack("<I", 5)


MANY = 2**60
ARRAY, STRING, U32 = 9, 8, 4
BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "it is empty"),
    "magic": (b"GGML" + whole()[4:], "instead of b'GGUF'"),
    "three bytes": (b"GGU", "instead of"),
    "no version": (b"GGUF", "the version has 4 bytes, and 0 are left"),
    "version 0": (head([], [], 0), "its version is 0"),
    "version 4": (head([], [], 4), "its version is 4"),
    "no counts": (whole()[:12], "number of tensors has 8 bytes"),
    "tensors": (head([], [], counts=(MANY, 0)) + bytes(99), "number of tensors is 1152921504606846976, more than"),
    "pairs": (head([], [], counts=(0, MANY)) + bytes(99), "number of metadata is 1152921504606846976, more than"),
    "one pair more": (head([], [], counts=(0, 1)) + bytes(12), "more than"),
    "long key": (whole([struct.pack("<Q", MANY) + bytes(20)]), "key of metadata 0 has 1152921504606846976 bytes"),
    "key in Latin 1": (whole([pair(b"\xff\xfe", U32, bytes(4))]), "key of metadata 0 is not UTF-8"),
    "kind 13": (whole([pair("a", 13, bytes(8))]), "'a' has the kind 13"),
    "key twice": (whole([pair("a", U32, bytes(4))] * 2), "'a' occur twice"),
    "long text": (whole([pair("a", STRING, struct.pack("<Q", MANY))]), "value of 'a' has"),
    "array of kind 13": (whole([pair("a", ARRAY, struct.pack("<IQ", 13, 1))]), "has the kind 13"),
    "long array": (whole([pair("a", ARRAY, struct.pack("<IQ", 12, MANY))]), "number of elements .* more than"),
    "long array of texts": (
        whole([pair("a", ARRAY, struct.pack("<IQ", STRING, MANY))]),
        "number of elements .* more than",
    ),
    "long array of arrays": (
        whole([pair("a", ARRAY, struct.pack("<IQ", ARRAY, MANY))]),
        "number of elements .* more than",
    ),
    "text in array": (
        whole([pair("a", ARRAY, struct.pack("<IQ", STRING, 2) + text("x") + struct.pack("<Q", MANY))]),
        "a string of .* extends past the end",
    ),
    "deep": (whole([pair("a", ARRAY, nested(9))]), "more than 8 deep"),
    "very deep": (whole([pair("a", ARRAY, nested(50_000))]), "more than 8 deep"),
    "alignment 0": (whole([pair("general.alignment", U32, struct.pack("<I", 0))]), "power of two"),
    "alignment 24": (whole([pair("general.alignment", U32, struct.pack("<I", 24))]), "power of two"),
    "alignment text": (whole([pair("general.alignment", STRING, text("32"))]), "power of two"),
    "alignment int": (whole([pair("general.alignment", 5, struct.pack("<i", 32))]), "power of two"),
    "name in Latin 1": (whole([], [tensor(b"\xff", (1,))]), "name of a tensor is not UTF-8"),
    "long name": (whole([], [struct.pack("<Q", MANY) + bytes(16)]), "name of a tensor has"),
    "rank 5": (whole([], [tensor("t", (1,) * 5)]), "has 5 dimensions"),
    "huge rank": (whole([], [tensor("t", (1,), rank=2**32 - 1)]), "has 4294967295 dimensions"),
    "overflow": (whole([], [tensor("t", (2**32, 2**32))]), "more elements than can be counted"),
    "overflow to zero": (whole([], [tensor("t", (2**62, 4, 0))]), "more elements than can be counted"),
    "empty and too large": (whole([], [tensor("t", (2**62, 0))]), "more elements than can be counted"),
    "removed type": (whole([], [tensor("t", (32,), 4)]), "of the type Q4_2, which was removed"),
    "unknown type": (whole([], [tensor("t", (32,), 99)]), "the unknown type 99"),
    "half a block": (whole([], [tensor("t", (48,), 2)]), "not whole blocks of Q4_0"),
    "half a block each row": (whole([], [tensor("t", (16, 2), 2)]), "not whole blocks of Q4_0"),
    "unaligned": (whole([], [tensor("t", (4,), offset=8)]), "not a multiple of 32"),
    "outside": (whole([], [tensor("t", (4,), offset=1 << 12)]), "ends 16 bytes past the end of the file"),
    "far outside": (whole([], [tensor("t", (4,), offset=2**64 - 32)]), "bytes past the end of the file"),
    "too large": (whole([], [tensor("t", (2**40,))]), "bytes past the end of the file"),
    "truncated": (whole([], [tensor("t", (1024,))])[:-1], "ends 1 bytes past the end of the file"),
    "overlap": (whole([], [tensor("t", (16,)), tensor("u", (16,), offset=32)]), "'t' and 'u' overlap"),
    "same place": (whole([], [tensor("t", (16,)), tensor("u", (16,))]), "overlap"),
    "tensor twice": (whole([], [tensor("t", (8,)), tensor("t", (8,), offset=32)]), "'t' occurs twice"),
}
BROKEN_VALUES: dict[str, tuple[bytes, str]] = {
    "text": (pair("a", STRING, text(b"\xc3")), "value of 'a' is not UTF-8"),
    "texts": (pair("a", ARRAY, struct.pack("<IQ", STRING, 2) + text("x") + text(b"\xff")), "string 1 of .* not UTF-8"),
    "bool": (pair("a", 7, b"\2"), "bool that is neither 0 nor 1"),
    "bools": (pair("a", ARRAY, struct.pack("<IQ", 7, 3) + b"\0\1\2"), "bool that is neither 0 nor 1"),
}


@pytest.mark.selected("all")
@pytest.mark.parametrize("name", sorted(BROKEN))
def test_broken_heads(tmp_path: Path, name: str) -> None:
    """The error names the file, what is wrong, and the byte."""
    data, message = BROKEN[name]
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    with pytest.raises(FileFormatError, match=message) as raised:
        gguf.GGUFFile(path)
    assert str(path) in str(raised.value) and (name == "empty" or "at byte" in str(raised.value))


@pytest.mark.selected("all")
@pytest.mark.parametrize("name", sorted(BROKEN_VALUES))
def test_broken_values(tmp_path: Path, name: str) -> None:
    """Values are read when they are asked for."""
    data, message = BROKEN_VALUES[name]
    path = tmp_path / "m.gguf"
    path.write_bytes(whole([data]))
    file = gguf.GGUFFile(path)
    with pytest.raises(FileFormatError, match=message):
        _ = file.metadata["a"]
    with pytest.raises(FileFormatError, match=message):
        gguf.describe(path)


def test_what_is_odd_and_whole_is_read(tmp_path: Path) -> None:
    """Eight arrays deep, scalars, empty tensors anywhere, gaps between tensors, bytes behind them."""
    tensors = [tensor("s", (), offset=64), tensor("e", (0, 3), offset=2**20), tensor("t", (8,), offset=1024)]
    path = tmp_path / "m.gguf"
    path.write_bytes(whole([pair("a", ARRAY, nested(8)), pair("", U32, bytes(4))], tensors))
    file = gguf.GGUFFile(path)
    assert file["s"].shape == () and file["s"].dequantize().item() == 0
    assert file["e"].numpy().shape == (3, 0) and file["t"].numpy().sum() == 0 and file.metadata[""] == 0
    value = file.metadata["a"]
    for _ in range(7):
        (value,) = value
    assert value.tolist() == [5] and file.metadata.kind("a") == "array[" * 8 + "uint32" + "]" * 8


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    """OSError, as of any file."""
    for path in (tmp_path / "none.gguf", tmp_path):
        with pytest.raises(OSError):
            gguf.GGUFFile(path)


# ---------------------------------------------------------------- mutations
def sample(path: Path, **options: Any) -> bytes:
    """A file with something of everything."""
    writer = gguf.GGUFWriter("llama", **options).add_metadata("a.nested", [[1, 2], ["x", "y"]])
    for key, value in {"model": "gpt2", "tokens": ["a", "b", "\u0120c"], "token_type": [1, 1, 3]}.items():
        writer.add_metadata(f"tokenizer.ggml.{key}", value)
    writer.add_metadata("tokenizer.ggml.bos_token_id", 1).add_metadata("a.flag", True).add_metadata("split.count", 1)
    for kind in ("F32", "Q4_0", "Q6_K", "I8"):
        writer.add_tensor(f"blk.{kind}", np.arange(512).reshape(2, 256) % 100, kind)
    writer.write(path)
    return path.read_bytes()


def flip(data: bytes, rng: random.Random) -> bytes:
    """Some bytes are others, most of them in the head."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        changed[rng.randrange(min(len(data), rng.choice((64, 700, len(data)))))] = rng.randrange(256)
    return bytes(changed)


def number(data: bytes, rng: random.Random) -> bytes:
    """A number of 32 or 64 bits is a special one."""
    width = rng.choice((4, 8))
    value = rng.choice(
        (0, 1, 2, 31, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1, rng.randrange(2**64))
    )
    place = rng.randrange(min(len(data), 700) - 8)
    return (
        data[:place] + (value % 2 ** (8 * width)).to_bytes(width, rng.choice(("little", "big"))) + data[place + width :]
    )


def cut(data: bytes, rng: random.Random) -> bytes:
    """The end is missing."""
    return data[: rng.randrange(min(len(data), rng.choice((64, 700, len(data)))))]


def splice(data: bytes, rng: random.Random) -> bytes:
    """A piece is there twice, is missing, or is another piece."""
    a, b, c = sorted(rng.randrange(900) for _ in range(3))
    return rng.choice((data[:b] + data[a:], data[:a] + data[b:], data[:a] + data[b:c] + data[a:b] + data[c:]))


KINDS: tuple[Callable[[bytes, random.Random], bytes], ...] = (flip, number, cut, splice)


def touch(path: Path) -> int:
    """Read all that a file has; the number of bytes."""
    file = gguf.GGUFFile(path)
    size = sum(len(str(file.metadata[key])) + len(file.metadata.kind(key)) for key in file.metadata)
    size += sum(int(t.raw.sum()) + t.size for t in file.values())
    if "tokenizer.ggml.model" in file.metadata:
        size += len(file.tokenizer.decode(range(len(file.tokenizer.tokens))))
    return size + len(gguf.describe(path))


@pytest.mark.thorough
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("mutation", KINDS, ids=lambda f: f.__name__)
def test_mutations(tmp_path: Path, mutation: Callable[[bytes, random.Random], bytes], part: int) -> None:
    """Read in full or refused by name, each within a second of this process."""
    rng = random.Random(f"{SEED} {mutation.__name__} {part}")
    options = ({}, {"byte_order": "big"}, {"version": 1}, {"version": 2, "alignment": 64})
    originals = [sample(tmp_path / "original.gguf", **o) for o in options]
    path = tmp_path / "m.gguf"
    outcomes, slowest = {True: 0, False: 0}, 0.0
    for _ in range(MUTATIONS // len(KINDS) // PARTS):
        path.unlink(missing_ok=True)
        path.write_bytes(mutation(rng.choice(originals), rng))
        start = time.process_time()
        try:
            touch(path)
            outcomes[True] += 1
        except FileFormatError as error:
            assert str(path) in str(error)
            outcomes[False] += 1
        slowest = max(slowest, time.process_time() - start)
    assert slowest <= SECONDS
    assert outcomes[False] > 0 and (outcomes[True] > 0 or mutation is cut)


def test_mutations_take_little_memory(tmp_path: Path) -> None:
    """Whatever their counts say."""
    rng = random.Random(SEED)
    original = sample(tmp_path / "original.gguf")
    path = tmp_path / "m.gguf"
    tracemalloc.start()
    try:
        for step in range(800):
            path.unlink(missing_ok=True)
            path.write_bytes(KINDS[step % 4](original, rng))
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            try:
                touch(path)
            except FileFormatError:
                pass
            assert tracemalloc.get_traced_memory()[1] - before < MEMORY
    finally:
        tracemalloc.stop()
