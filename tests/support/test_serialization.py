"""Trees in files: what goes in comes out, and broken files are refused."""

from __future__ import annotations

import json
import struct
import tempfile
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlx
import rlx.numpy as jnp
from rlx import errors
from rlx.ir.types import supported_dtypes
from rlx.serialization import safetensors

DTYPES = sorted(dtype.name for dtype in supported_dtypes)
ENDINGS = (".safetensors", ".npz")


def same(a: Any, b: Any) -> None:
    """Equal trees: structure, dtypes, shapes, bits."""
    left, right = rlx.tree.flatten(a), rlx.tree.flatten(b)
    assert left[1] == right[1]
    for x, y in zip(left[0], right[0], strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_round_trip(tmp_path: Path, ending: str, dtype: str) -> None:
    """Of every dtype, but for those that safetensors lack."""
    if ending == ".safetensors" and dtype not in safetensors._NAMES:
        with pytest.raises(errors.DtypeError, match=f"no {dtype}"):
            rlx.save(tmp_path / f"t{ending}", jnp.ones(2, dtype))
        return
    x = rlx.numpy.arange(6).reshape(2, 3).astype(dtype)
    value = {"a": [x, (x[:, ::-1], None)], "file": x[0, 0], "empty": x[:0]}
    rlx.save(tmp_path / f"t{ending}", value)
    same(rlx.load(tmp_path / f"t{ending}"), value)
    same(rlx.load(tmp_path / f"t{ending}", like=value), value)


@pytest.mark.parametrize("ending", ENDINGS)
def test_other_nodes_need_a_tree_to_load_into(tmp_path: Path, ending: str) -> None:
    Pair = namedtuple("Pair", "x y")
    value = Pair(rlx.numpy.ones(2), {"key": rlx.numpy.zeros(3)})
    rlx.save(tmp_path / f"t{ending}", value)
    assert sorted(rlx.load(tmp_path / f"t{ending}"))[0] == "x"
    same(rlx.load(tmp_path / f"t{ending}", like=value), value)
    rlx.save(tmp_path / f"one{ending}", rlx.numpy.ones(2))
    same(rlx.load(tmp_path / f"one{ending}"), rlx.numpy.ones(2))


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("generator", ["threefry2x32", "rbg"])
def test_random_keys(tmp_path: Path, ending: str, generator: str) -> None:
    file = tmp_path / f"t{ending}"
    value = {"key": rlx.random.key(3, impl=generator), "more": rlx.random.split(rlx.random.key(4), (2, 3)), "x": 1.0}
    rlx.save(file, value)
    for found in (rlx.load(file), rlx.load(file, like=value)):
        for name in ("key", "more"):
            assert found[name].dtype == value[name].dtype and found[name].shape == value[name].shape
            assert (found[name] == value[name]).all()
    with pytest.raises(errors.TreeMismatchError):
        rlx.load(file, like=value | {"key": rlx.random.PRNGKey(3)})


@pytest.mark.parametrize("text", ['{"x": "threefry2x32"}', '{"x": "dice"}', '{"x": [1]}', "[]", "no JSON"])
def test_keys_that_are_none(tmp_path: Path, text: str) -> None:
    metadata = np.array(json.dumps({"rlx.keys": text}))
    np.savez(tmp_path / "t.npz", x=np.zeros(3, np.uint32), __metadata__=metadata)
    with pytest.raises(errors.FileFormatError):
        rlx.load(tmp_path / "t.npz")


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_tree_that_does_not_fit(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"t{ending}"
    rlx.save(file, {"a": np.ones(2)})
    for other in ({"a": np.ones(3)}, {"a": np.ones(2, "f4")}, {"b": np.ones(2)}, {}, {"a": np.ones(2), "b": 1.0}):
        with pytest.raises(errors.TreeMismatchError):
            rlx.load(file, like=other)


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(errors.FileFormatError, match="ends in"):
        rlx.save(tmp_path / "t.pickle", {})
    with pytest.raises(errors.DtypeError, match="complex128"):
        rlx.save(tmp_path / "t.safetensors", {"a": np.ones(2, complex)})
    with pytest.raises(errors.InputTypeError):
        rlx.save(tmp_path / "t.npz", {"a": "text"})
    for value in ({"a": {"b": 1}, "a.b": 2}, {"__metadata__": 1.0}, {"a\0b": 1.0}, {"\ud800": 1.0}):
        for ending in ENDINGS:
            with pytest.raises(errors.TreeMismatchError, match="called"):
                rlx.save(tmp_path / f"t{ending}", value)


@pytest.mark.thorough
@given(st.sets(st.text(max_size=6) | st.sampled_from(["a.npy", "__metadata__", "a/b", "..", "dtype:a"]), max_size=4))
def test_any_names(names: set[str]) -> None:
    """Keys are refused or come back."""
    value = {name: np.full(2, number, "f4") for number, name in enumerate(sorted(names))}
    with tempfile.TemporaryDirectory() as folder:
        for ending in ENDINGS:
            try:
                rlx.save(Path(folder) / f"t{ending}", value)
            except errors.TreeMismatchError:
                continue
            same(rlx.load(Path(folder) / f"t{ending}"), value)


def header(text: Any, body: bytes = b"\0" * 8) -> bytes:
    """A safetensors file of a header and a body."""
    encoded = text if isinstance(text, bytes) else json.dumps(text).encode()
    return struct.pack("<Q", len(encoded)) + encoded + body


def entry(**changes: Any) -> dict[str, Any]:
    """A header with one array of two float32, changed."""
    return {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}


BROKEN = {
    "empty": b"",
    "short": b"\x08\0\0",
    "huge header": struct.pack("<Q", 2**63) + b"{}",
    "no json": header(b"{nope"),
    "nested": header(b"[" * 100000),
    "a list": header([1]),
    "no entry": header({"a": 3}),
    "dtype": header(entry(dtype="O")),
    "dtype kind": header(entry(dtype=[1])),
    "shape": header(entry(shape=[3])),
    "negative": header(entry(shape=[-1, -2])),
    "boolean": header(entry(shape=[True, 2])),
    "huge shape": header(entry(shape=[2**62, 2**62])),
    "beyond": header(entry(data_offsets=[8, 16])),
    "backwards": header(entry(data_offsets=[8, 0])),
    "three offsets": header(entry(data_offsets=[0, 8, 8])),
    "structure": header(entry() | {"__metadata__": {"rlx.tree": '{"pickle": "a"}'}}),
    "structure text": header(entry() | {"__metadata__": {"rlx.tree": "{"}}),
    "structure name": header(entry() | {"__metadata__": {"rlx.tree": '"b"'}}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "t.safetensors"
    file.write_bytes(BROKEN[name])
    with pytest.raises(errors.FileFormatError):
        rlx.load(file)


def test_pickles_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "t.npz"
    np.savez(file, a=np.array([print], object))
    with pytest.raises(errors.FileFormatError):
        rlx.load(file)
    file.write_bytes(b"PK\x03\x04 no zip")
    with pytest.raises(errors.FileFormatError):
        rlx.load(file)
    np.save(tmp_path / "single.npy", np.ones(2))
    (tmp_path / "single.npy").rename(file)
    with pytest.raises(errors.FileFormatError):
        rlx.load(file)


def test_files_of_others(tmp_path: Path) -> None:
    (tmp_path / "t.safetensors").write_bytes(header(entry()))
    np.testing.assert_array_equal(rlx.load(tmp_path / "t.safetensors")["a"], [0, 0])
    np.savez(tmp_path / "t.npz", a=np.arange(3))
    np.testing.assert_array_equal(rlx.load(tmp_path / "t.npz")["a"], [0, 1, 2])


@pytest.mark.parametrize("name", ["model.safetensors", "model.npz", "model.shards"])
def test_some_arrays_are_read_without_the_rest(name: str, tmp_path: Path) -> None:
    """Keys among them."""
    tree = {"a": [np.arange(3.0), np.ones((2, 2), np.float32)], "key": rlx.random.key(3), "big": np.zeros(1000)}
    rlx.save(tmp_path / name, tree)
    found = rlx.load(tmp_path / name, names=["a.1", "key"])
    assert list(found) == ["a.1", "key"]
    assert np.array_equal(found["a.1"], tree["a"][1])
    assert np.array_equal(rlx.random.uniform(found["key"]), rlx.random.uniform(tree["key"]))
    assert np.array_equal(rlx.load(tmp_path / name, names="a.0")["a.0"], tree["a"][0])
    assert rlx.load(tmp_path / name, names=[]) == {}
    with pytest.raises(rlx.errors.TreeMismatchError, match="no array called 'b'"):
        rlx.load(tmp_path / name, names=["b"])
    with pytest.raises(rlx.errors.OptionError, match="both like and names"):
        rlx.load(tmp_path / name, like=tree, names=["key"])
