"""Files of exported functions: what is in them, object code, mapped arrays, and everything that can be wrong."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import re
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx.errors import FileFormatError, UnsupportedError
from rlx.export.program_text import Unreadable, evaluate_size, read_program
from rlx.serialization.safetensors import read

DATA = Path(__file__).parent / "data"
FIRST = DATA / "network-1.0.rlx"  # written by the first version: it has to be readable for ever


def network(weights: Any, x: Any) -> Any:
    """A perceptron with a constant, a loop and several results."""
    scale = jnp.asarray(np.linspace(0.5, 1.5, 20, dtype=np.float32))
    hidden = jnp.tanh(x @ weights["w"] + weights["b"]) * scale
    total, steps = rlx.lax.scan(lambda c, row: (c + row, row.sum()), jnp.zeros(20, np.float32), hidden)
    return {"total": total, "steps": steps}


def arguments(rows: int = 5) -> tuple[Any, Any]:
    """Arguments of the network."""
    generator = np.random.default_rng(0)
    weights = {"w": generator.standard_normal((3, 20)).astype(np.float32), "b": np.zeros(20, np.float32)}
    return weights, generator.standard_normal((rows, 3)).astype(np.float32)


def exported() -> Any:
    """The network for any number of rows."""
    weights, x = arguments()
    return rlx.export(network)(weights, rlx.ShapeDtypeStruct((*rlx.export.symbolic_shape("rows"), 3), x.dtype))


@pytest.fixture(scope="module")
def saved() -> bytes:
    """A file's bytes."""
    return bytes(exported().serialize(vjp_order=1))


def members(data: bytes) -> dict[str, bytes]:
    """What is in an archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def packed(parts: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """An archive of any members."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return file.getvalue()


def with_manifest(data: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """The file with another manifest; members keep their checksums."""
    parts = members(data)
    manifest = json.loads(parts["manifest.json"])
    change(manifest)
    return packed({**parts, "manifest.json": json.dumps(manifest).encode()})


# ------------------------------------------------------------------ what is in a file
def test_a_file_is_readable_by_others(saved: bytes) -> None:
    """A zip of JSON, text and safetensors, aligned; no pickle."""
    parts = members(saved)
    assert set(parts) == {"manifest.json", "0.mir", "1.mir", "weights.safetensors"}
    manifest = json.loads(parts["manifest.json"])
    assert manifest["format"] == "rlx.exported" and manifest["version"] == [1, 1]
    assert "def network" in parts["0.mir"].decode() and "rows" in parts["0.mir"].decode()
    weights = read(parts["weights.safetensors"]).arrays
    assert len(weights) == 1, "the derivative's constant is the function's"
    with zipfile.ZipFile(io.BytesIO(saved)) as archive:
        for info in archive.infolist():
            name, extra = struct.unpack_from("<HH", saved, info.header_offset + 26)
            assert (info.header_offset + 30 + name + extra) % 64 == 0


def test_equal_programs_are_equal_files() -> None:
    """No time, no path, no address is in a file."""
    assert exported().serialize() == exported().serialize()


def test_a_file_of_the_first_version() -> None:
    """What was written once is read for ever, derivative included. Written by this file as a script."""
    loaded = rlx.load_exported(FIRST)
    weights, x = arguments(7)
    for name, value in rlx.jit(network)(weights, x).items():
        np.testing.assert_allclose(loaded(weights, x)[name], value, rtol=1e-5, atol=1e-6)
    found = rlx.grad(lambda w: loaded(w, x)["steps"].sum())(weights)
    expected = rlx.grad(lambda w: network(w, x)["steps"].sum())(weights)
    np.testing.assert_allclose(found["w"], expected["w"], rtol=1e-5, atol=1e-6)


def test_additions_of_a_later_version_are_read(saved: bytes) -> None:
    """A larger second number: unknown entries are ignored."""

    def later(manifest: dict[str, Any]) -> None:
        manifest["version"] = [1, 9]
        manifest["functions"][0]["colour"] = "blue"

    loaded = rlx.export.deserialize(with_manifest(saved, later))
    assert loaded(*arguments())["steps"].shape == (5,)


@pytest.mark.thorough
def test_arrays_are_mapped(tmp_path: Path) -> None:
    """Sixty-four megabytes in a file that nobody reads cost no memory; and they are not written to."""
    large = jnp.asarray(np.ones((1 << 24,), np.float32))
    path = tmp_path / "large.rlx"
    rlx.export(lambda x: (x * 2.0, large))(1.0).save(path)
    loaded = rlx.load_exported(path)
    (constant,) = loaded._functions[0].constants.values()
    assert not constant.numpy().flags.owndata and not constant.numpy().flags.writeable
    doubled, found = loaded(3.0)
    assert float(doubled) == 6.0 and np.asarray(found)[-1] == 1.0


def test_saving_replaces_whole(tmp_path: Path) -> None:
    """A loaded function lives on when its file is replaced."""
    path = tmp_path / "f.rlx"
    constant = jnp.asarray(np.arange(50.0))
    rlx.export(lambda x: x + constant)(1.0).save(path)
    loaded = rlx.load_exported(path)
    rlx.export(lambda x: x)(1.0).save(path)
    assert float(loaded(1.0)[-1]) == 50.0 and float(rlx.load_exported(path)(1.0)) == 1.0


# ------------------------------------------------------------------ object code
ALONE = """
import sys, numpy as np, rlx
from rlx.backends.cpu.runtime.store import statistics
from rlx.passes import pipeline
loaded = rlx.load_exported(sys.argv[1], trust=sys.argv[2] == "trust")
lowered = []
def count(*given, **how):
    lowered.append(1)
    return lower(*given, **how)
lower, pipeline.lower_program = pipeline.lower_program, count
print([float(np.sum(x)) for x in loaded(np.ones((4, 3), np.float32), np.ones((3, 2), np.float32))])
print(statistics().compiled, len(lowered))
"""


def in_another_process(path: Path, trust: bool, **variables: str) -> tuple[str, int, int]:
    """What a process without a cache gets, how often it compiles kernels, and how many programs it lowers."""
    environment = {**os.environ, "RLX_CACHE": "0", **variables}
    command = [sys.executable, "-c", ALONE, str(path), "trust" if trust else "no"]
    lines = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    compiled, lowered = map(int, lines[1].split())
    return lines[0], compiled, lowered


START = """
import gc, sys, numpy as np, rlx
gc.collect()
full = []
gc.callbacks.append(lambda phase, info: full.append(1) if phase == "start" and info["generation"] == 2 else None)
loaded = rlx.load_exported(sys.argv[1], trust=True)
print(len(full), gc.isenabled(), float(loaded(np.ones(3, np.float32))))
print(*sorted({"jax", "rlx.stablehlo.writing", "rlx.nn", "rlx.scipy", "rlx.onnx", "numba"} & sys.modules.keys()))
gc.disable()
rlx.scipy, rlx.profile
print(gc.isenabled())
"""


@pytest.mark.thorough
def test_the_first_result_needs_little(tmp_path: Path) -> None:
    """No collection of garbage looks through all that was imported, and what only others need is not loaded."""
    path = tmp_path / "f.rlx"
    rlx.export(lambda x: jnp.tanh(x).sum())(np.zeros(3, np.float32)).save(path, object_code=True)
    lines = subprocess.run(
        [sys.executable, "-c", START, str(path)], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    collections, enabled, value = lines[0].split()
    assert (int(collections), enabled) == (0, "True")
    assert abs(float(value) - 3 * np.tanh(1.0)) < 1e-6
    assert lines[1:] == ["", "False"]


@pytest.mark.thorough
def test_object_code_is_used_if_trusted(tmp_path: Path) -> None:
    """With it nothing is lowered or compiled; without trust, or of another processor, all is, to the same result."""

    def function(x: Any, w: Any) -> Any:
        return jnp.tanh(x @ w).sum(axis=0), jnp.sort(jnp.exp(x), axis=0), jnp.cumsum(x)

    path, plain = tmp_path / "f.rlx", tmp_path / "plain.rlx"
    made = rlx.export(function)(np.ones((4, 3), np.float32), np.ones((3, 2), np.float32))
    made.save(path, object_code=True)
    made.save(plain)
    trusted, *made_anew = in_another_process(path, True)
    assert made_anew == [0, 0]
    untrusted, compiled, lowered = in_another_process(path, False)
    assert compiled > 0 and lowered == 1 and untrusted == trusted
    # a plan is for a number of threads
    threads, _, lowered = in_another_process(path, True, RLX_NUM_THREADS="3")
    assert lowered == 1 and threads == trusted
    # damaged object code is not run, as damaged plans: both are made again
    parts = members(path.read_bytes())
    for name in [n for n in parts if n.startswith("native/")]:
        parts[name] = parts[name][:-1] + bytes([parts[name][-1] ^ 1])
    manifest = json.loads(parts.pop("manifest.json"))
    for name, entry in manifest["members"].items():
        entry["blake2b"] = hashlib.blake2b(parts[name], digest_size=32).hexdigest()
    path.write_bytes(packed({**parts, "manifest.json": json.dumps(manifest).encode()}))
    found, compiled, lowered = in_another_process(path, True)
    assert found == trusted and compiled > 0 and lowered == 1


def test_object_code_needs_sizes(tmp_path: Path) -> None:
    """A program for all sizes has none."""
    with pytest.raises(UnsupportedError, match="sizes"):
        exported().save(tmp_path / "f.rlx", object_code=True)


# ------------------------------------------------------------------ broken files
def refused(data: bytes) -> str:
    """What is said of a file."""
    with pytest.raises(FileFormatError) as caught:
        loaded = rlx.export.deserialize(data)
        loaded.program(**dict.fromkeys(loaded._functions[0].names, 3))
    return str(caught.value)


def with_sizes(data: bytes, more: int) -> bytes:
    """The file with another compressed size of its first member in the directory at its end."""
    at = data.index(b"PK\1\2")
    (size,) = struct.unpack_from("<I", data, at + 20)
    return data[: at + 20] + struct.pack("<I", size + more) + data[at + 24 :]


BROKEN: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda d: b"", "not an archive"),
    "foreign": (lambda d: b"\x89PNG" + d[:100], "not an archive"),
    "cut off": (lambda d: d[: len(d) // 2], "not an archive"),
    "no manifest": (lambda d: packed({"0.mir": b""}), "no manifest"),
    "another format": (lambda d: with_manifest(d, lambda m: m.update(format="other")), "other"),
    "newer": (lambda d: with_manifest(d, lambda m: m.update(version=[2, 0])), "version 2"),
    "no version": (lambda d: with_manifest(d, lambda m: m.pop("version")), "no version"),
    "no functions": (lambda d: with_manifest(d, lambda m: m.update(functions=[])), "0 functions"),
    "no constants": (lambda d: with_manifest(d, lambda m: m["functions"][0].pop("constants")), "constants"),
    "an array that is not there": (
        lambda d: with_manifest(d, lambda m: m["functions"][0]["constants"].update(c="no")), "no array",
    ),
    "another tree": (lambda d: with_manifest(d, lambda m: m["functions"][0].update(in_tree=None)), "leaves"),
    "an unknown node": (
        lambda d: with_manifest(d, lambda m: m["functions"][0].update(out_tree={"node": ["a", ""]})), "'a'",
    ),
    "an unknown dtype": (
        lambda d: with_manifest(d, lambda m: m["functions"][0]["in_avals"][0].update(dtype="float7")), "float7",
    ),
    "a size that is code": (
        lambda d: with_manifest(d, lambda m: m["functions"][0]["in_avals"][0].update(shape=["f()"])), "size",
    ),
    "a negative size": (
        lambda d: with_manifest(d, lambda m: m["functions"][0]["in_avals"][0].update(shape=[-1])), "negative",
    ),
    "a checksum": (lambda d: packed({**members(d), "0.mir": members(d)["0.mir"] + b"#"}), "bytes"),
    "a changed text": (
        lambda d: packed({**members(d), "0.mir": members(d)["0.mir"].replace(b"tanh", b"sinh")}), "checksum",
    ),
    "a path": (lambda d: packed({**members(d), "../../evil.mir": b""}), "not a valid name"),
    "an absolute path": (lambda d: packed({**members(d), "/etc/evil.mir": b""}), "not a valid name"),
    "compressed": (lambda d: packed(members(d), zipfile.ZIP_DEFLATED), "compressed"),
    "two sizes of one member": (lambda d: with_sizes(d, 1), "is outside"),
    "one more member": (lambda d: packed({**members(d), "extra.bin": b"1"}), "does not match its members"),
    "no object": (lambda d: packed({**members(d), "manifest.json": b"[]"}), "manifest"),
}  # fmt: skip


@pytest.mark.selected("all")
@pytest.mark.parametrize("name", BROKEN)
def test_broken_files(name: str, saved: bytes) -> None:
    """Each kind of damage has a message that says what it is."""
    change, words = BROKEN[name]
    assert words in refused(change(saved))


ONE = '@program\ndef f(x0: "float32[3]"):\n    '
TEXTS = {
    "import os": "no program",
    "import no_such_module\n\n\n@program\ndef f():\n    return ()": "no_such_module",
    ONE + "v0 = __import__('os').system('true')\n    return (v0,)": "something else",
    ONE + "v0 = ops.sin(open('x'))\n    return (v0,)": "not called",
    ONE + "v0 = ops.nothing(x0)\n    return (v0,)": "'nothing'",
    ONE + "v0 = ops.sin(x0, x0)\n    return (v0,)": "too many",
    ONE + "v0 = ops.sin(x0, axis=1)\n    return (v0,)": "axis",
    ONE + "v0 = ops.add(x0, array([1, 2], 'float32'))\n    return (v0,)": "float32[2]",
    ONE + "v0 = ops.reshape(x0, shape=(2, 2))\n    return (v0,)": "shape",
    ONE + "v0 = ops.sin(**x0)\n    return (v0,)": "spreads",
    ONE + "pass": "not an equation",
    ONE + "v0 = ops.sin(x0)": "returns nothing",
    ONE + "v0, v1 = ops.sin(x0)\n    return (v0,)": "names",
    ONE.replace("32", "99") + "return (x0,)": "float99",
    ONE.replace("3]", "9" * 20 + "]") + "return (x0,)": "",
    "@program\ndef f(x0):\n    return (x0,)": "no type",
    "@program\ndef f():\n    return (y,)": "'y'",
    "@program\ndef f(*x):\n    return ()": "parameters",
    "@other\ndef f():\n    return ()": "not a program",
    "from subprocess import Popen\n@program\ndef f():\n    return ()": "class of parameters",
    "from rlx.errors import RlxError\n@program\ndef f():\n    return ()": "class of parameters",
    "def f(:": "invalid syntax",
    "(" * 500 + ")" * 500: "",
}


@pytest.mark.selected("all")
@pytest.mark.parametrize("text", TEXTS)
def test_texts_that_are_no_programs(text: str) -> None:
    """Nothing but the vocabulary of programs means anything; nothing is run."""
    with pytest.raises(Unreadable) as caught:
        read_program(text, {})
    assert TEXTS[text] in str(caught.value)


def test_sizes_are_arithmetic() -> None:
    """Expressions of sizes, and nothing else."""
    assert evaluate_size("2*b - b//3 + b % 4", {"b": 7}) == 15
    for wrong in ("b", "1.5", "__import__('os')", "2**b", "b.bit_length()", "[1]", "b b", "1 / 0", "1 // 0"):
        with pytest.raises((Unreadable, ZeroDivisionError)):
            evaluate_size(wrong, {"c": 1})


def test_mutated_files(saved: bytes) -> None:
    """Bytes changed, left out, doubled and moved: each is refused as a broken file, or changes nothing that counts."""
    generator = random.Random(os.environ.get("RLX_TEST_SEED", "0"))
    weights, x = arguments()
    expected = rlx.jit(network)(weights, x)["total"]
    refusals = 0
    for _ in range(300):
        data = bytearray(saved)
        for _ in range(generator.choice((1, 1, 1, 2, 5))):
            at = generator.randrange(len(data))
            kind = generator.randrange(4)
            if kind == 0:
                data[at] ^= 1 << generator.randrange(8)
            elif kind == 1:
                del data[at : at + generator.choice((1, 7, 300))]
            elif kind == 2:
                data[at:at] = data[at : at + generator.choice((1, 9, 200))]
            else:
                data[at] = generator.randrange(256)
        try:
            loaded = rlx.export.deserialize(data)
        except FileFormatError:
            refusals += 1
            continue
        np.testing.assert_allclose(loaded(weights, x)["total"], expected, rtol=1e-5, atol=1e-6)
    assert refusals > 200


def test_mutated_texts(saved: bytes) -> None:
    """Words of a text exchanged, left out and changed: it is read as some program or refused, and nothing else."""
    generator = random.Random(os.environ.get("RLX_TEST_SEED", "1"))
    text = members(saved)["0.mir"].decode()
    constants = exported()._functions[0].constants
    words = re.split(r"(\W)", text)
    refusals = 0
    for _ in range(300):
        changed = list(words)
        for _ in range(generator.choice((1, 1, 2, 4))):
            at, other = generator.randrange(len(changed)), generator.randrange(len(changed))
            kind = generator.randrange(3)
            changed[at] = ("", changed[other], str(generator.choice((-1, 0, 7, 10**9, 10**30))))[kind]
        try:
            read_program("".join(changed), constants, {"rows": 3})
        except Unreadable:
            refusals += 1
    assert refusals > 100


if __name__ == "__main__":
    exported().save(FIRST, vjp_order=1)
