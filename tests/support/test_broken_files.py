"""rlx.load over files that are broken: FileFormatError or arrays, never another error, never much memory.

RLX_TEST_SEED, any text, adds mutations of that seed to those that are always tried.
"""

from __future__ import annotations

import inspect
import io
import json
import os
import pickle
import random
import struct
import sys
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx.errors import FileFormatError

SEEDS = sorted({"0", os.environ.get("RLX_TEST_SEED", "0")})
MUTATIONS = 700  # of each kind, for each seed
MEMORY = 8 << 20  # bytes that reading one of these files, none of which has more than 2 MiB, may take

Mutation = Callable[[bytes, random.Random], bytes]


# ------------------------------------------------------------- files
def sample() -> Any:
    """A tree with something of everything."""
    tree = {"w": jnp.ones((3, 4)), "l": [jnp.arange(5), (1.0, None)], "k": rlx.random.key(1)}
    tree |= {"b": jnp.ones(3, "bfloat16"), "f": jnp.ones(4, "float8_e5m2")}
    return tree | {"mask": jnp.arange(7) > 3, "empty": jnp.ones((0, 2))}


def npz(members: dict[str, Any], method: int = zipfile.ZIP_STORED) -> bytes:
    """An archive of members: bytes as they are, other values as .npy files, which pickle what is no number."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, value in members.items():
            content = io.BytesIO(value if isinstance(value, bytes) else b"")
            if not isinstance(value, bytes):
                np.lib.format.write_array(content, np.asarray(value), allow_pickle=True)
            archive.writestr(name if "." in name else f"{name}.npy", content.getvalue())
    return file.getvalue()


def members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def npy(shape: str, body: bytes = b"1234", descr: str = "'<f4'") -> bytes:
    """A .npy file whose header says anything."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header + b"\n" + body


def safetensors(header: Any, body: bytes = b"1234") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def one(**changes: Any) -> dict[str, Any]:
    """A header with one array of one float32, changed."""
    return {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **changes}}


def texts(value: Any) -> bytes:
    """A file of one array whose metadata are anything."""
    return safetensors(one() | {"__metadata__": value})


def noted(text: str, **arrays: Any) -> bytes:
    """An archive of arrays whose metadata are any text."""
    return npz({"__metadata__": np.array(text), "a": 1.0} | arrays)


# ------------------------------------------------------------- mutations
def cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data))]


def bytes_changed(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def bit_flipped(data: bytes, chance: random.Random) -> bytes:
    """Most often where headers are: in front, or at the end."""
    span = min(len(data), 700)
    at = chance.choice((chance.randrange(span), len(data) - 1 - chance.randrange(span), chance.randrange(len(data))))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def run_replaced(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + chance.randbytes(chance.randrange(8)) + data[at + chance.randrange(8) :]


def run_moved(data: bytes, chance: random.Random) -> bytes:
    """A part is there again somewhere else, in place of what was there or not."""
    start, at = chance.randrange(len(data)), chance.randrange(len(data))
    part = data[start : start + chance.randrange(1, 200)]
    return data[:at] + part + data[at + chance.choice((0, len(part))) :]


def number_replaced(data: bytes, chance: random.Random) -> bytes:
    """A field of 2, 4 or 8 bytes has an extreme value, or that of another place in the file."""
    width = chance.choice((2, 4, 8))
    at = chance.randrange(len(data))
    number = chance.choice((0, 1, len(data), len(data) - at, 2 ** (8 * width) - 1, 2 ** (8 * width - 1)))
    return data[:at] + number.to_bytes(8, "little")[:width] + data[at + width :]


RAW: tuple[Mutation, ...] = (cut, bytes_changed, bit_flipped, run_replaced, run_moved, number_replaced)


def member_changed(data: bytes, chance: random.Random) -> bytes:
    """A member of an archive is mutated, and the archive around it is sound."""
    found = members(data)
    name = chance.choice(sorted(found))
    found[name] = chance.choice((*RAW, header_changed))(found[name], chance)
    if chance.random() < 0.2:
        found[chance.choice(("w.npy", "__metadata__.npy", "x.npy", "x.txt", ".npy"))] = found.pop(name)
    return npz(found, chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))


def header_changed(data: bytes, chance: random.Random) -> bytes:
    """A number, a letter or a bracket in a .npy file's header is another one."""
    at = chance.randrange(10, min(len(data), 80))
    return data[:at] + chance.choice(ODD_TEXTS).encode() + data[at + chance.randrange(4) :]


ODD_TEXTS = ["", "-", "9" * 12, "9" * 30, "(" * 40, "[", "'", "O", "V", "None", ", ", "0,", "1,", "<U", "M8", "\\"]
ODD_VALUES: list[Any] = [0, 1, -1, 4, 2**31, 2**62, 2**70, 10**400, 1.5, None, True, "", "a", "F64", "BOOL", [], {}]
ODD_VALUES += [[0] * 70, [1] * 40, [0, 2**62], {"list": ["w"]}, '{"list": ["w", "w"]}', {"none": True}, [[[]]]]


def json_changed(data: bytes, chance: random.Random) -> bytes:
    """Some values in a safetensors file's header are others, or texts within them."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    for _ in range(chance.randrange(1, 3)):
        places = list(walked(header))
        container, key = chance.choice(places)
        container[key] = chance.choice((*ODD_VALUES, *(inner[at] for inner, at in places)))
        if chance.random() < 0.1 and isinstance(container, dict):
            container[chance.choice(("w", "__metadata__", "x"))] = container.pop(key)
    try:
        text = json.dumps(header).encode()
    except ValueError:  # a value within itself
        text = b"[" * chance.randrange(2000)
    return safetensors(text, data[8 + length :])


def walked(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) in a JSON value, down to some depth."""
    stack = [(value, 6)]
    while stack:
        container, depth = stack.pop()
        for key in list(container) if isinstance(container, dict) else range(len(container)):
            yield container, key
            if depth and isinstance(container[key], (dict, list)):
                stack.append((container[key], depth - 1))


def text_changed(data: bytes, chance: random.Random) -> bytes:
    """The header's text is mutated, and its length is right."""
    length = int.from_bytes(data[:8], "little")
    return safetensors(chance.choice(RAW)(data[8 : 8 + length], chance), data[8 + length :])


KINDS: dict[str, tuple[str, tuple[Mutation, ...]]] = {
    "safetensors": (".safetensors", RAW),
    "safetensors text": (".safetensors", (text_changed,)),
    "safetensors values": (".safetensors", (json_changed,)),
    "npz": (".npz", RAW),
    "npz members": (".npz", (member_changed,)),
}


# ------------------------------------------------------------- the tests
@contextmanager
def little_memory(data: bytes) -> Iterator[None]:
    """At no time much more memory is taken than before."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    yield
    taken = tracemalloc.get_traced_memory()[1] - before
    assert taken < MEMORY, f"{taken} bytes for a file of {len(data)}: {data!r}"


def loaded(file: Path, data: bytes) -> bool:
    """Whether a file of these bytes is one; all that it holds is looked at."""
    file.unlink(missing_ok=True)  # to write over a file takes long
    file.write_bytes(data)
    with little_memory(data):
        try:
            found = rlx.load(file)
        except FileFormatError as error:
            assert file.name in str(error)
            return False
        for leaf in rlx.tree.leaves(found):
            numbers = rlx.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, rlx.dtypes.prng_key) else leaf
            assert np.asarray(numbers).tobytes() is not None
        return True


@pytest.fixture(scope="module", autouse=True)
def _traced_memory() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.filterwarnings("ignore")  # NumPy and Python warn of some headers before they refuse them
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.selected(1)
def test_mutations(tmp_path: Path, kind: str, seed: str) -> None:
    ending, mutations = KINDS[kind]
    file = tmp_path / f"t{ending}"
    rlx.save(file, sample())
    data = file.read_bytes()
    chance = random.Random(f"{kind} {seed}")
    whole = 0
    for number in range(MUTATIONS):
        mutated = chance.choice(mutations)(data, chance)
        try:
            whole += loaded(file, mutated)
        except Exception as error:
            raise AssertionError(f"mutation {number} of seed {seed}: {mutated!r}") from error
    assert 0 < whole < MUTATIONS / 2


def test_mutations_within_a_deep_call_stack(tmp_path: Path) -> None:
    """Where little of the stack is left, nesting is refused as elsewhere."""
    nested = '"a"'
    for _ in range(300):
        nested = f'{{"list": [{nested}]}}'
    data = texts({"rlx.tree": nested})

    def down(depth: int) -> bool:
        return down(depth - 1) if depth else loaded(tmp_path / "t.safetensors", data)

    room = sys.getrecursionlimit() - len(inspect.stack())
    assert loaded(tmp_path / "t.safetensors", data)
    assert not down(room - 250)


def deflated_twice_over() -> bytes:
    """Two members of an archive share their bytes."""
    data = npz({"a": np.zeros(1000), "b": np.zeros(1000)}, zipfile.ZIP_DEFLATED)
    directory = data.rindex(b"PK\1\2")
    return data[: directory + 42] + bytes(4) + data[directory + 46 :]


def claimed(size: int, count: int = 1000) -> bytes:
    """An archive whose directory says that its member has `size` bytes."""
    data = npz({"a": np.zeros(count)}, zipfile.ZIP_DEFLATED)
    directory = data.rindex(b"PK\1\2")
    return data[: directory + 24] + struct.pack("<I", size) + data[directory + 28 :]


def encrypted() -> bytes:
    data = npz({"a": np.ones(3)})
    directory = data.rindex(b"PK\1\2")
    return data[: directory + 8] + b"\1\0" + data[directory + 10 :]


def both(*names: str) -> bytes:
    """An archive of members of these names."""
    file = io.BytesIO()
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, npy("()"))
    return file.getvalue()


def nested(depth: int, leaf: str) -> str:
    return '{"list": [' * depth + leaf + "]}" * depth


two = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
other = {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}
REFUSED: dict[str, bytes] = {
    # safetensors: shapes and sizes
    "a shape of 2**80": safetensors(one(shape=[2**40, 2**40])),
    "none of 2**62": safetensors(one(shape=[0, 2**62], data_offsets=[0, 0]), b""),
    "none of 2**70": safetensors(one(shape=[0, 2**70], data_offsets=[0, 0]), b""),
    "none of 10**4000": safetensors(one(shape=[0, 10**4000], data_offsets=[0, 0]), b""),
    "a hundred axes": safetensors(one(shape=[0] * 100, data_offsets=[0, 0]), b""),
    "seventy axes": safetensors(one(shape=[1] * 70)),
    "a hundred thousand axes": safetensors(one(shape=[1] * 100_000)),
    "four hundred huge axes": safetensors(one(shape=[10**4000] * 400)),
    "a digit too many": safetensors(b'{"a":{"dtype":"F32","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,4]}}'),
    "a true shape": safetensors(one(shape=[True])),
    "a shape of floats": safetensors(one(shape=[1.0])),
    "4 TB": safetensors(one(shape=[10**12], data_offsets=[0, 4 * 10**12])),
    "a bool of 5": safetensors(one(dtype="BOOL", shape=[4]), b"\0\1\5\0"),
    # safetensors: where arrays lie
    "overlapping": safetensors({"a": two, "b": two}),
    "overlapping in part": safetensors({"a": two, "b": two | {"data_offsets": [2, 6]}}, b"123456"),
    "a gap": safetensors({"a": two, "b": other | {"data_offsets": [6, 10]}}, b"1234567890"),
    "a gap in front": safetensors({"b": other}, b"12345678"),
    "bytes behind": safetensors(one(), b"12345678"),
    "too few bytes": safetensors(one(), b"123"),
    # safetensors: names and texts
    "two of one name": safetensors(json.dumps({"a": two, "b": other}).replace("b", "a").encode(), b"12345678"),
    "a key twice": safetensors(json.dumps(one()).replace('"shape"', '"shape": [1], "shape"').encode()),
    "two texts of one name": safetensors(b'{"__metadata__": {"x": "1", "x": "2"}}', b""),
    "a header in UTF-16": safetensors(json.dumps(one()).encode("utf-16")),
    "a header in Latin-1": safetensors(json.dumps(one()).replace("a", "\xe4").encode("latin-1")),
    "a header of brackets": safetensors(b"[" * 100_000 + b"]" * 100_000),
    "a header of braces": safetensors(b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "a description of brackets": safetensors(b'{"a":' + b"[" * 900 + b"]" * 900 + b"}"),
    "metadata of 5": texts(5),
    "metadata of a list": texts([1]),
    "metadata of null": texts(None),
    "metadata of a text": texts("x"),
    "a tree of 5": texts({"rlx.tree": 5}),
    "a tree of null": texts({"rlx.tree": None}),
    "a tree of another array": texts({"rlx.tree": '"b"'}),
    "a tree of an array twice": texts({"rlx.tree": '{"list": ["a", "a"]}'}),
    "a tree without the array": texts({"rlx.tree": '{"none": true}'}),
    "a tree of one name twice": texts({"rlx.tree": '{"dict": {"x": "a", "x": {"none": true}}}'}),
    "a tree too deep for JSON": texts({"rlx.tree": nested(5000, '"a"')}),
    "a broken tree that is deep": texts({"rlx.tree": nested(100, "[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]")}),
    "keys of 5": texts({"rlx.keys": 5}),
    "keys of a list": texts({"rlx.keys": "[]"}),
    "keys of another generator": texts({"rlx.keys": '{"a":"nope"}'}),
    "keys of no generator": texts({"rlx.keys": '{"a":[1]}'}),
    "keys of another array": texts({"rlx.keys": '{"b":"threefry2x32"}'}),
    # archives: texts
    "npz metadata of a list": noted("[1]"),
    "npz metadata of 5": noted("5"),
    "npz metadata of null": noted("null"),
    "npz metadata of brackets": noted("[" * 100_000),
    "npz metadata of numbers": npz({"__metadata__": np.arange(3), "a": 1.0}),
    "npz metadata that are no letters": npz({"__metadata__": npy("()", b"\xff" * 8, "'<U2'")}),
    "npz metadata cut": npz({"__metadata__": npy("()", b"{\0\0\0", "'<U2'")}),
    "a text of a number": noted('{"rlx.tree": 5}'),
    "a dtype of a list": noted('{"dtype:a":["x"]}'),
    "a dtype of an object": noted('{"dtype:a":{}}'),
    "a dtype of other bytes": noted('{"dtype:a":"bfloat16"}'),
    "a dtype of other words": noted('{"dtype:a":"bfloat16"}', a=np.ones(3, "u1")),
    "a dtype of floats": noted('{"dtype:a":"bfloat16"}', a=np.ones(3, "f2")),
    "a dtype that NumPy has": noted('{"dtype:a":"float64"}', a=np.ones(3, "u8")),
    "a dtype of no array": noted('{"dtype:b":"bfloat16"}'),
    # archives: members
    "objects": npz({"a": np.array([print], object)}),
    "letters": npz({"a": np.array(["s"])}),
    "bytes": npz({"a": np.array([b"s"])}),
    "records": npz({"a": np.zeros(3, [("x", "f4")])}),
    "dates": npz({"a": np.array(["2020"], "M8[D]")}),
    "long doubles": npz({"a": npy("(1,)", bytes(16), "'<f16'")}),
    "no array": npz({"a.txt": b"hello"}),
    "an empty member": npz({"a.npy": b""}),
    "a member of 4 TB": npz({"a.npy": npy("(1000000000000,)")}),
    "a member of 2.4 GB": npz({"a.npy": npy("(600000000,)")}),
    "a member of -1": npz({"a.npy": npy("(-1,)")}),
    "a member of -1 by -1": npz({"a.npy": npy("(-1, -1)")}),
    "a member of no tuple": npz({"a.npy": npy("1")}),
    "a member of text": npz({"a.npy": npy("('1',)")}),
    "a member of seventy axes": npz({"a.npy": npy("(" + "1, " * 70 + ")")}),
    "a member that is shorter": npz({"a.npy": npy("(2,)")}),
    "a member that is longer": npz({"a.npy": npy("(1,)", b"12345678")}),
    "a member of bools": npz({"a.npy": npy("(4,)", b"\0\1\2\1", "'|b1'")}),
    "a header of 60,000 bytes": npz({"a.npy": npy("(1,)" + " " * 60_000)}),
    "a header of minus signs": npz({"a.npy": npy("(" + "-" * 9000 + "1,)")}),
    "a header of brackets in npy": npz({"a.npy": npy("[" * 4000)}),
    "a dtype in a dtype": npz({"a.npy": npy("(1,)", b"1234", "[('a'," * 900 + "'<f4'" + ")]" * 900)}),
    "a name twice": both("a.npy", "a.npy"),
    "a name with and without its ending": both("a.npy", "a"),
    # archives: the archive
    "bzip2": npz({"a": np.zeros(1000)}, zipfile.ZIP_BZIP2),
    "LZMA": npz({"a": np.zeros(1000)}, zipfile.ZIP_LZMA),
    "encrypted": encrypted(),
    "members that share their bytes": deflated_twice_over(),
    "a member that claims 4 GB": claimed(2**32 - 2),
    "a member that claims less": claimed(100),
    "a member that claims nothing": claimed(0),
    "a member that claims one more": claimed(8129),
    "a pickle": pickle.dumps(os.system),
}
TAKEN: dict[str, bytes] = {
    "no array in no dimension": safetensors(one(shape=[2**40, 0, 2**18], data_offsets=[0, 0]), b""),
    "sixty-four axes": safetensors(one(shape=[1] * 64)),
    "in another order": safetensors({"b": other, "a": two}, b"12345678"),
    "not aligned": safetensors(json.dumps(one()).encode() + b" "),
    "a deep tree": texts({"rlx.tree": nested(100, '"a"')}),
    "npz": npz({"a": 1.0}),
    "nothing": npz({}),
    "compressed as far as it goes": npz({"a": np.zeros(100_000)}, zipfile.ZIP_DEFLATED),
    "big endian": npz({"a": np.ones(3, ">f4")}),
    "big letters": npz({"__metadata__": npy("()", "{}".encode("utf-32-be"), "'>U2'"), "a": 1.0}),
    "by columns": npz({"a": np.asfortranarray(np.arange(6.0).reshape(2, 3))}),
    "a byte behind a comment": npz({"a": 1.0})[:-2] + b"\3\0abc",
    "bytes before the archive": b"#!/bin/sh\n" + npz({"a": 1.0}),
}


def ending_of(data: bytes) -> str:
    """Archives and pickles are called .npz here."""
    return ".npz" if b"PK\5\6" in data or data.startswith(b"\x80") else ".safetensors"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.selected("all")
@pytest.mark.parametrize("name", REFUSED)
def test_crafted_files_are_refused(tmp_path: Path, name: str) -> None:
    assert not loaded(tmp_path / f"t{ending_of(REFUSED[name])}", REFUSED[name])


@pytest.mark.selected("all")
@pytest.mark.parametrize("name", TAKEN)
def test_crafted_files_that_are_sound(tmp_path: Path, name: str) -> None:
    assert loaded(tmp_path / f"t{ending_of(TAKEN[name])}", TAKEN[name])


def test_what_sound_files_hold(tmp_path: Path) -> None:
    """Byte order, order in memory and alignment are the file's affair."""
    for name, expected in (("big endian", np.ones(3, "f4")), ("by columns", np.arange(6.0).reshape(2, 3))):
        (tmp_path / "t.npz").write_bytes(TAKEN[name])
        found = rlx.load(tmp_path / "t.npz")["a"]
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    for name in ("in another order", "not aligned"):
        (tmp_path / "t.safetensors").write_bytes(TAKEN[name])
        found = np.asarray(rlx.load(tmp_path / "t.safetensors")["a"])
        assert found.tobytes() == b"1234" and found.flags.aligned


def test_a_bomb_of_many_members(tmp_path: Path) -> None:
    """Compressed zeros take what they need, and what lies about its size takes nothing."""
    data = npz({f"a{n}": np.zeros(1 << 20, "u1") for n in range(3)}, zipfile.ZIP_DEFLATED)
    assert loaded(tmp_path / "t.npz", data) and len(data) < 5000
    short = bytearray(data)
    short[data.rindex(b"PK\1\2") + 24 : data.rindex(b"PK\1\2") + 28] = struct.pack("<I", 1 << 16)
    assert not loaded(tmp_path / "t.npz", bytes(short))
