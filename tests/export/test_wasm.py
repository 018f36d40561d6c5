"""rlx.export_wasm: modules run by wasmtime, Node and a browser. `make test-wasm` installs what they need."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from served import dom_of

import rlx
import rlx.numpy as jnp
from rlx import lax, nn, optim

WANTED = os.environ.get("RLX_TEST_WASM") == "1"
runs = pytest.mark.skipif(not WANTED, reason="`make test-wasm` runs it")
generator = np.random.default_rng(0)
IMAGES = generator.normal(size=(4, 8, 8, 1)).astype("f4")
LABELS = np.array([0, 2, 1, 2], "i4")
NETWORK = {
    "kernel": generator.normal(size=(3, 3, 1, 4)).astype("f4"),
    "weight": generator.normal(size=(64, 3)).astype("f4") * np.float32(0.1),
    "bias": np.zeros(3, "f4"),
}
X = generator.normal(size=(6, 5)).astype("f4")


def scores(network: Any, images: Any) -> Any:
    hidden = lax.conv_general_dilated(
        images, network["kernel"], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return nn.relu(hidden).reshape(images.shape[0], -1) @ network["weight"] + network["bias"]


def loss(network: Any, images: Any, labels: Any) -> Any:
    return -jnp.mean(jnp.take_along_axis(nn.log_softmax(scores(network, images)), labels[:, None], 1))


def train(network: Any, images: Any, labels: Any) -> Any:
    value, gradient = rlx.value_and_grad(loss)(network, images, labels)
    return rlx.tree.map(lambda w, g: w - 0.05 * g, network, gradient), value


def mixed(x: Any, n: Any, z: Any, h: Any) -> Any:
    return {"flag": x > 0, "n": n * n, "z": z * z, "h": h + h, "sorted": jnp.sort(x, axis=1)}


MIXED = (X, np.arange(5, dtype="i8") - 2, (X[0] + 1j * X[1]).astype("c8"), X[2].astype(ml_dtypes.bfloat16))
PROGRAMS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "scores": (scores, (NETWORK, IMAGES)),
    "train": (train, (NETWORK, IMAGES, LABELS)),
    "mixed": (mixed, MIXED),
    "gradient of softmax": (rlx.grad(lambda x: jnp.sum(nn.softmax(x) ** 2)), (X,)),
    "loop": (lambda x: lax.fori_loop(0, 7, lambda i, c: jnp.sin(c) + i * 0.1, x), (X,)),
    "solve": (lambda x: jnp.linalg.solve(x.T @ x + jnp.eye(5, dtype="f4"), x.T), (X,)),
    "special": (lambda x: rlx.scipy.special.gammaln(jnp.abs(x) + 1) + rlx.scipy.special.erfinv(x / 10), (X,)),
    "float64": (lambda x: jnp.cumsum(jnp.exp(x), axis=0), (X.astype("f8"),)),
}


def flat(values: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in rlx.tree.leaves(values)]


class Module:
    """A module in wasmtime, with memory for its arguments and results behind its own."""

    def __init__(self, data: bytes, name: str) -> None:
        self.wasmtime: Any = importlib.import_module("wasmtime")
        self.store = self.wasmtime.Store()
        module = self.wasmtime.Module(self.store.engine, data)
        assert not module.imports
        self.exports = self.wasmtime.Instance(self.store, module, []).exports(self.store)
        self.exports["_initialize"](self.store)
        self.function, self.memory = self.exports[name], self.exports["memory"]

    def __call__(self, arguments: list[np.ndarray], results: list[np.ndarray]) -> list[np.ndarray]:
        end, places = self.exports["__heap_base"].value(self.store), []
        for array in (*arguments, *results):
            end = -(-end // 16) * 16
            places.append(end)
            end += array.nbytes
        missing = end - self.memory.data_len(self.store)
        if missing > 0:
            self.memory.grow(self.store, -(-missing // 65536))
        for array, place in zip(arguments, places, strict=False):
            self.memory.write(self.store, np.ascontiguousarray(array).tobytes(), place)
        self.function(self.store, *places)
        return [
            np.frombuffer(self.memory.read(self.store, place, place + a.nbytes), a.dtype).reshape(a.shape)
            for a, place in zip(results, places[len(arguments) :], strict=True)
        ]


def close(found: Any, wanted: Any) -> None:
    if wanted.dtype.kind in "biu":
        np.testing.assert_array_equal(found, wanted)
    else:
        kind = "c16" if wanted.dtype.kind == "c" else "f8"
        np.testing.assert_allclose(np.asarray(found, kind), np.asarray(wanted, kind), rtol=3e-5, atol=3e-6)


@runs
@pytest.mark.parametrize("simd", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_modules_compute_what_rlx_computes(name: str, simd: bool) -> None:
    function, arguments = PROGRAMS[name]
    files = rlx.export_wasm(function, *arguments, name="f", simd=simd)
    wanted = flat(rlx.jit(function)(*arguments))
    for found, array in zip(Module(files.module, "f")(flat(arguments), wanted), wanted, strict=True):
        close(found, array)


@runs
def test_a_training_step_is_small() -> None:
    """A network's forward pass in 2 KB, its training step in 5, with Adam in 8."""
    adam = optim.adam(1e-2)

    def adam_step(network: Any, state: Any, images: Any, labels: Any) -> Any:
        updates, state = adam.update(rlx.grad(loss)(network, images, labels), state, network)
        return optim.apply_updates(network, updates), state

    forward = rlx.export_wasm(scores, NETWORK, IMAGES, simd=False)
    step = rlx.export_wasm(train, NETWORK, IMAGES, LABELS, simd=False, donate_argnums=0)
    both = (NETWORK, adam.init(NETWORK))
    larger = rlx.export_wasm(adam_step, *both, IMAGES, LABELS, simd=False, donate_argnums=(0, 1))
    assert len(forward.module) < 2_000 and len(step.module) < 5_000 and len(larger.module) < 8_000


@runs
def test_products_use_vectors() -> None:
    """The instruction f32x4.mul, 0xE6 after the prefix of vectors, as a LEB128 number."""
    square = np.ones((64, 64), "f4")
    for simd in (True, False):
        module = rlx.export_wasm(lambda x, y: x @ y, square, square, simd=simd).module
        assert (b"\xfd\xe6\x01" in module) == simd


@runs
def test_parameters_are_part_of_a_module() -> None:
    files = rlx.export_wasm(scores, IMAGES, params=NETWORK, name="f")
    (found,) = Module(files.module, "f")([IMAGES], [np.empty((4, 3), "f4")])
    close(found, np.asarray(rlx.jit(scores)(NETWORK, IMAGES)))


SCRIPT = """
import {{ leaves, load }} from "./net.js";
const values = {values};
const {{ call, arrays }} = await load();
const losses = [];
for (let n = 0; n < 20; ++n) losses.push(call(values).out[0]);
let mistakes = [];
for (const wrong of [{{ nothing: [1] }}, {{ labels: [1, 2] }}])
  try {{ call(wrong); }} catch (error) {{ mistakes.push(error.message); }}
console.log(JSON.stringify({{ losses, bias: Array.from(arrays.network_bias), mistakes, leaves: leaves.length }}));
"""


@runs
def test_node_trains_with_the_module(tmp_path: Path) -> None:
    """The parameters stay in the module's memory; wrong arguments are named."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed")
    rlx.export_wasm(train, NETWORK, IMAGES, LABELS, path=tmp_path / "net.wasm", donate_argnums=0)
    values = {"images": IMAGES.ravel().tolist(), "labels": LABELS.tolist()}
    start = {f"network_{k}": v.ravel().tolist() for k, v in NETWORK.items()}
    text = SCRIPT.format(values=json.dumps(values)).replace(
        "const losses", f"call({json.dumps(start | values)});\nconst losses"
    )
    (tmp_path / "run.mjs").write_text(text)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    done = subprocess.run([node, "run.mjs"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    network, losses = NETWORK, []
    for _ in range(21):
        network, value = rlx.jit(train)(network, IMAGES, LABELS)
        losses.append(float(value))
    np.testing.assert_allclose(found["losses"], losses[1:], rtol=1e-4)
    np.testing.assert_allclose(found["bias"], network["bias"], rtol=1e-3, atol=1e-5)
    assert found["mistakes"][0].startswith("net has no argument nothing; it has network_bias")
    assert found["mistakes"][1] == "labels has 4 elements; 2 were passed."
    assert losses[-1] < losses[0] and found["leaves"] == 6


@runs
def test_types_are_typescript(tmp_path: Path) -> None:
    files = rlx.export_wasm(mixed, *MIXED, name="mixed")
    assert "  n: BigInt64Array;" in files.types and "  z: Float32Array;" in files.types
    assert "/** result['flag'], bool[6, 5] */" in files.types
    assert not {"NAME", "FILE", "LEAVES", "ARRAYS"} & set(files.javascript.split() + files.types.split())


@runs
def test_a_browser_shows_the_page(tmp_path: Path) -> None:
    rlx.export_wasm(lambda x: x * 2, X, path=tmp_path / "double")
    shown = dom_of(tmp_path, "double.html")
    assert 'data-ready="yes"' in shown and "x: float32[6, 5]" in shown


# ------------------------------------------------------------------ without a compiler for WebAssembly
def test_without_a_compiler_the_error_says_how_to_install_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ziglang", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(rlx.errors.DeviceError, match=r"ziglang is not installed(.|\n)*wasm"):
        rlx.export_wasm(jnp.sin, X)


def test_a_compiler_that_fails_is_quoted() -> None:
    failing = [sys.executable, "-c", "import sys; print('no such target', file=sys.stderr); sys.exit(1)"]
    with pytest.raises(rlx.errors.DeviceError, match="could not compile sine for WebAssembly:\nno such target"):
        rlx.export_wasm(jnp.sin, X, name="sine", compiler=failing)
    with pytest.raises(rlx.errors.DeviceError, match="cannot be started"):
        rlx.export_wasm(jnp.sin, X, compiler=["/nowhere/clang"])


def test_memory_beyond_four_gibibytes_is_refused() -> None:
    with pytest.raises(rlx.errors.UnsupportedError, match=r"needs 8.0 GiB of memory, and WebAssembly has 4 GiB"):
        rlx.export_wasm(lambda x: x + 1, rlx.ShapeDtypeStruct((2**30,), "float32"))


def test_host_steps_are_refused_by_name() -> None:
    with pytest.raises(rlx.errors.UnsupportedError, match="eig"):
        rlx.export_wasm(lambda x: jnp.linalg.eigvals(x @ x.T).real, X)
