"""The device wgpu: every primitive, strategies, loops, narrow numbers, what WebGPU alone has, exported functions.

`make test-wgpu` runs this, on Mesa's Vulkan driver for processors if there is no GPU (Debian: mesa-vulkan-drivers).
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

wanted = os.environ.get("RLX_TEST_WGPU") == "1"
pytestmark = [] if wanted else pytest.mark.thorough
wgpu: Any = pytest.importorskip("wgpu", reason="wgpu is not installed: make test-wgpu")

import test_primitives  # noqa: E402
from every_loop import PROGRAMS as LOOPS  # noqa: E402
from every_strategy import PROGRAMS as STRATEGIES  # noqa: E402
from primitive_cases import cases, cases_of  # noqa: E402
from trainings import losses  # noqa: E402

import rlx  # noqa: E402
import rlx.nn as nn  # noqa: E402
import rlx.numpy as jnp  # noqa: E402
from rlx import lax  # noqa: E402
from rlx.backends import backend_named  # noqa: E402
from rlx.backends.gpu.limits import Limits  # noqa: E402
from rlx.backends.wgpu import WgpuBackend, engine  # noqa: E402
from rlx.backends.wgpu.helpers import Features  # noqa: E402
from rlx.errors import DeviceError, DtypeError, UnsupportedError  # noqa: E402


@pytest.fixture(scope="module")
def device() -> WgpuBackend:
    """The backend, or a reason why there is none."""
    found = backend_named("wgpu")
    assert isinstance(found, WgpuBackend)
    if not found.engine.present:
        if wanted:
            engine.adapters()
        pytest.skip("wgpu finds no adapter")
    return found


@pytest.fixture
def backend(device: WgpuBackend) -> Iterator[WgpuBackend]:
    """The backend, with its own limits afterwards."""
    limits = device.engine.limits
    yield device
    device.engine.limits = limits


@pytest.fixture(scope="module")
def plain(device: WgpuBackend) -> WgpuBackend:
    """A backend whose adapter has nothing beyond WebGPU."""
    del device
    found = WgpuBackend()
    found.engine.features = Features()
    return found


def agree(function: Any, *arguments: Any, exact: bool = False) -> None:
    """The device's results are the CPU's."""
    expected = rlx.tree.leaves(rlx.jit(function, device="cpu")(*arguments))
    found = rlx.tree.leaves(rlx.jit(function, device="wgpu")(*arguments))
    for x, y in zip(expected, found, strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape
        wide = [np.asarray(v).astype("complex128" if jnp.iscomplexobj(v) else "float64") for v in (y, x)]
        size = 1 if exact else max(1.0, float(np.abs(wide[1][np.isfinite(wide[1])]).max(initial=0)))
        np.testing.assert_allclose(*(w / size for w in wide), rtol=0 if exact else 5e-5, atol=0 if exact else 1e-5)


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Normal numbers."""
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(dtype)


def texts(function: Any, *arguments: Any) -> dict[str, str]:
    """What the device shows of a program."""
    return rlx.inspect(rlx.jit(function, device="wgpu"))(*arguments).kernels.texts


# ------------------------------------------------------------------ every primitive
NAMES = sorted({c.primitive.name for c in cases()})


@pytest.mark.parametrize("name", NAMES)
def test_a_primitive_computes_the_reference(name: str, device: WgpuBackend) -> None:
    chosen = [case for case in cases_of(name) if test_primitives.is_claimed(case, device)]
    test_primitives.check_compiled(device, chosen)


@pytest.mark.parametrize("name", NAMES)
def test_a_primitive_computes_the_reference_on_webgpu_alone(name: str, plain: WgpuBackend) -> None:
    """Without numbers of 64 bits, with a product and a sum that are rounded apart."""
    chosen = [case for case in cases_of(name) if test_primitives.is_claimed(case, plain)]
    test_primitives.check_compiled(plain, chosen[:5])


EDGES = [name for name, dtype in test_primitives.edge_primitives() if dtype == "f4"]


@pytest.mark.parametrize("name", EDGES)
def test_functions_at_the_edges(name: str, device: WgpuBackend) -> None:
    """Infinities, NaN, zeros of both signs: NaN is tested by bits."""
    primitive: Any = test_primitives.registry[name]
    arrays = test_primitives.edge_arrays(primitive, "f4")
    params = primitive.sample_params[0] if name != "bitcast" else {"dtype": np.dtype("u4")}
    with np.errstate(all="ignore"):
        expected = primitive.reference(*arrays, **params)
    (found,) = test_primitives.run_lowered(device, lambda *xs: [primitive.bind(*xs, **params)], arrays)
    tolerance = test_primitives.compiled_tolerance(np.dtype(expected.dtype))
    test_primitives.assert_close(found, expected, tolerance, max(tolerance * 1e-30, 1.2e-38 if tolerance else 0))


# ------------------------------------------------------------------ windows
@pytest.fixture(scope="module")
def windowed(device: WgpuBackend) -> WgpuBackend:
    """A backend whose device binds 512 bytes at once, and checks that."""
    del device
    found = WgpuBackend()
    found.engine.window = 512
    assert found.engine._device.limits["max-storage-buffer-binding-size"] == 512
    return found


def windows_bound(backend: WgpuBackend) -> int:
    """The most windows that pipelines of a backend have had."""
    return max(text.count("var<storage, read_write>") for text, _, _ in backend.engine._pipelines)


def check_cases(backend: WgpuBackend, chosen: list[Any]) -> None:
    """Check cases, except those that need more bindings than the adapter has."""
    for case in chosen:
        try:
            test_primitives.check_compiled(backend, [case])
        except DeviceError as error:
            assert "max-storage-buffers-per-shader-stage" in str(error)


@pytest.mark.parametrize("name", NAMES)
def test_a_primitive_computes_the_reference_in_windows(name: str, windowed: WgpuBackend) -> None:
    chosen = [case for case in cases_of(name) if test_primitives.is_claimed(case, windowed)]
    check_cases(windowed, chosen[:3])


WIDE: dict[str, Any] = {
    "elements": lambda x: jnp.sin(x) * x + 1.0,
    "rows": lambda x: x - x.max(1, keepdims=True),
    "columns": lambda x: jnp.transpose(x) * 2.0,
    "sort": lambda x: jnp.sort(x.ravel()),
    "product": lambda x: x @ x.T,
    "bytes": lambda x: (x * 50).astype("int8"),
    "halves": lambda x: x.astype("float16"),
    "pairs": lambda x: x.astype("float64") * 2.0,
    "truths": lambda x: x > 0,
    "gather": lambda x: x.ravel()[(jnp.abs(x.ravel()) * 200).astype(int) % 800],
    "sums of floats": lambda x: jnp.zeros(400).at[(jnp.abs(x.ravel()) * 99).astype(int) % 400].add(x.ravel()),
    "sums of bytes": lambda x: jnp.zeros(800, "int8").at[(jnp.abs(x.ravel()) * 99).astype(int) % 800].add(1),
    "sums of pairs": lambda x: jnp.zeros(400, "int64").at[(jnp.abs(x.ravel()) * 99).astype(int) % 400].add(1),
    "parts": lambda x: lax.dynamic_update_slice(x, x[:3, :3], (5, 7)),
    "loop": lambda x: lax.scan(lambda c, r: (c * 0.5 + r, c), x[0], x),
}


@pytest.mark.parametrize("name", WIDE)
def test_arrays_of_many_windows(name: str, windowed: WgpuBackend) -> None:
    """Elements, parts of words, pairs of words and atomic updates on both sides of a window's end."""
    x = numbers(30, 29)
    (found, expected) = (
        test_primitives.run_lowered(backend, lambda x: rlx.tree.leaves(WIDE[name](x)), [x])
        for backend in (windowed, backend_named("cpu"))
    )
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.astype("float64"), b.astype("float64"), rtol=2e-5, atol=1e-5)
    assert windows_bound(windowed) >= 7


def test_more_windows_than_bindings_are_refused(windowed: WgpuBackend) -> None:
    with pytest.raises(DeviceError, match="max-storage-buffers-per-shader-stage"):
        test_primitives.run_lowered(windowed, lambda x: [x + 1.0], [numbers(5000)])


# ------------------------------------------------------------------ users' kernels
SCALED = """@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read_write> z: array<u32>;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> factor: array<f32>;
@compute @workgroup_size(32, 2)
fn scaled(@builtin(global_invocation_id) at: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = at.x + at.y * 32u * groups.x;
    if (i < arrayLength(&y)) {
        y[i] = factor[0] * x[i];
        z[i] = i + arrayLength(&x);
    }
}
"""


def scaled(x: Any, factor: Any) -> Any:
    """Two results of a kernel."""
    types = rlx.ShapeDtypeStruct(x.shape, "float32"), rlx.ShapeDtypeStruct(x.shape, "uint32")
    return rlx.wgpu_call(SCALED, "scaled", types, x, factor, grid=(2, 1))


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("length", [128, 100, 1, 0])
def test_users_kernels_run_between_rlxs(length: int) -> None:
    x = numbers(length)

    def f(x: Any, factor: Any) -> Any:
        y, z = scaled(jnp.sin(x), factor + 1.0)
        return y * 2.0, z, jnp.cos(x)

    y, z, cosines = rlx.jit(f, device="wgpu")(x, np.float32(2))
    np.testing.assert_allclose(y, 6 * np.sin(x), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(z, np.arange(length) + length)
    np.testing.assert_allclose(cosines, np.cos(x), rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("device")
def test_users_kernels_in_batches_loops_and_derivatives() -> None:
    x = numbers(3, 5, 100)
    outer = rlx.vmap(rlx.vmap(lambda x, k: scaled(x, k)[0], in_axes=(0, None)), in_axes=(0, 0))
    k = np.array([1, 2, 3], np.float32)
    np.testing.assert_allclose(rlx.jit(outer, device="wgpu")(x, k), x * k[:, None, None], rtol=1e-6)

    @rlx.custom_vjp
    def halved(x: Any) -> Any:
        return scaled(x, jnp.float32(0.5))[0]

    halved.defvjp(lambda x: (halved(x), None), lambda _, ct: (scaled(ct, jnp.float32(0.5))[0],))
    looped = lambda x: lax.fori_loop(0, 3, lambda _, c: halved(c), x)  # noqa: E731
    np.testing.assert_allclose(rlx.jit(looped, device="wgpu")(x[0, 0]), x[0, 0] / 8, rtol=1e-6)
    slope = rlx.jit(rlx.grad(lambda x: (halved(x) ** 2).sum()), device="wgpu")(x[0, 0])
    np.testing.assert_allclose(slope, x[0, 0] / 2, rtol=1e-6)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(
    ("text", "name", "said"),
    [("fn broken( {", "broken", "parsing error"), (SCALED, "missing", "missing"), (SCALED, "scaled", "Storage class")],
)
def test_mistakes_in_users_kernels(text: str, name: str, said: str) -> None:
    call = lambda x: rlx.wgpu_call(text, name, x, x, grid=1)  # noqa: E731
    with pytest.raises(DeviceError, match=f"(?s){said}.*binding"):
        rlx.jit(call, device="wgpu")(numbers(64))
    with pytest.raises(DeviceError, match="host"):
        rlx.jit(call, device="cpu")(numbers(64))


def test_grids_that_webgpu_lacks_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="65,535"):
        rlx.wgpu_call(SCALED, "scaled", numbers(1), numbers(1), numbers(1), grid=(1, 70000))


def test_programs_with_equal_kernels_share_pipelines(device: WgpuBackend, monkeypatch: Any) -> None:
    f = lambda x: jnp.sin(x) * 3.25  # noqa: E731
    rlx.jit(f, device="wgpu")(numbers(40))
    held = {**device.engine._pipelines}
    made = device.compile(rlx.inspect(f)(numbers(40)).plan)
    assert made is not None and held == device.engine._pipelines
    monkeypatch.setattr(engine, "_MOST_PIPELINES", 2)
    rlx.jit(lambda x: jnp.cos(x) * 4.5, device="wgpu")(numbers(41))
    assert len(device.engine._pipelines) == 2
    agree(f, numbers(40))


# ------------------------------------------------------------------ programs
@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.usefixtures("device")
def test_each_strategy_computes_what_the_cpu_does(name: str) -> None:
    function, *arguments = STRATEGIES[name]
    agree(function, *arguments)


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.usefixtures("device")
def test_loops_that_the_host_drives_or_a_group_runs(name: str) -> None:
    function, *arguments = LOOPS[name]
    agree(function, *arguments)


_SMOOTH = ("vectors", "tiles", "rows", "scans", "products", "attention", "matrices")
DERIVED: dict[str, tuple[Any, ...]] = {name: STRATEGIES[name] for name in _SMOOTH} | {
    "last writes": (lambda v: jnp.zeros(11).at[np.arange(130) % 11].set(v), numbers(130)),
    "scan": (lambda x: lax.scan(lambda c, r: (jnp.tanh(c + r), c), x[0], x)[1], numbers(7, 5)),
}


def total(function: Any) -> Any:
    """A number that depends on all results."""
    return lambda *xs: sum((jnp.sin(y) ** 2).sum() for y in rlx.tree.leaves(function(*xs)))


@pytest.mark.parametrize("name", DERIVED)
@pytest.mark.usefixtures("device")
def test_gradients_and_batches(name: str) -> None:
    function, *arguments = DERIVED[name]
    agree(rlx.grad(total(function)), *arguments)
    agree(rlx.vmap(function), *[np.stack([a, a[::-1]]) for a in arguments])


@pytest.mark.parametrize("dtype", "float32 int32 uint32 float64 int64 int8 uint16 float16 bfloat16 bool".split())
@pytest.mark.usefixtures("device")
def test_points_that_meet(dtype: str) -> None:
    """Memory combines them, whatever their width."""
    x = (np.arange(1, 3001) % (3000 if np.dtype(dtype).itemsize > 2 else 3)).astype(dtype)
    index = (np.arange(3000) * 7919 % 13).astype(np.int32)

    def scattered(x: Any, index: Any) -> Any:
        zeros = jnp.zeros(13, dtype)
        return zeros.at[index].add(x), zeros.at[index].max(x), zeros.at[index].min(x)

    assert "atomic items" in texts(scattered, x, index)["launches"]
    agree(scattered, x, index, exact=True)  # whole numbers: any order gives the same sum


@pytest.mark.parametrize("dtype", ["int8", "bool", "float16", "int4"])
def test_items_of_a_word_do_not_disturb_one_another(dtype: str, backend: WgpuBackend) -> None:
    """Slices of three bytes each, which loops of the host copy and kernels write."""
    backend.engine.limits = replace(backend.engine.limits, loop_work=0)
    x = (np.arange(51).reshape(17, 3) % 5).astype(rlx.numpy.dtype(dtype))

    def steps(x: Any) -> Any:
        return lax.scan(lambda c, r: (jnp.where(r > c, r, c), c), x[0], x)

    assert "host queues each step" in texts(steps, x)["host"]
    agree(steps, x, exact=True)


def test_grids_beyond_one_dimension(backend: WgpuBackend) -> None:
    backend.engine.limits = replace(backend.engine.limits, group=32)
    x = np.arange(65537 * 32 + 5, dtype=np.int32)
    assert "65538 x 32" in texts(lambda x: x * 2 + 1, x)["launches"]
    agree(lambda x: x * 2 + 1, x, exact=True)


@pytest.mark.usefixtures("device")
def test_the_digits_are_learnt_as_on_the_cpu() -> None:
    np.testing.assert_allclose(losses("wgpu", 3, "digits"), losses("cpu", 3, "digits"), atol=1e-3)


@pytest.mark.usefixtures("device")
def test_kernels_are_timed() -> None:
    profile = rlx.profile(rlx.jit(lambda x: jnp.sort(jnp.sin(x)) @ x, device="wgpu"))(numbers(300))
    assert "sort" in str(profile)


# ------------------------------------------------------------------ one device, many names
@pytest.mark.usefixtures("device")
def test_names_of_one_device() -> None:
    x = rlx.device_put(np.ones(3, np.float32), "gpu")
    for name in ("wgpu", "gpu", "webgpu", "wgpu:0"):
        assert rlx.jit(lambda x: x + 1, device=name)(x).device == x.device == rlx.devices("wgpu")[0]
    with pytest.raises(DeviceError, match="DirectX") if sys.platform != "win32" else pytest.MonkeyPatch.context():
        backend_named("directx")


# ------------------------------------------------------------------ what goes wrong
def test_programs_are_shown_without_an_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Any:
        raise DeviceError("wgpu finds no adapter here.", "Install a driver.")

    monkeypatch.setattr(engine, "adapters", none)
    alone = WgpuBackend()
    assert not alone.engine.present and alone.units == ()
    plan = rlx.passes.pipeline.lower_to_plan(rlx.make_program(nn.softmax)(numbers(5, 300)), None, alone.lowering)
    assert "fn " in alone.compile(plan).texts()["wgsl"] and np.dtype("float64") not in alone.claims.dtypes
    with pytest.raises(DeviceError, match="no adapter"):
        alone.memory.put(np.ones(3))


def test_dtypes_that_the_adapter_lacks_are_refused_by_name(plain: WgpuBackend, monkeypatch: Any) -> None:
    monkeypatch.setattr("rlx.backends._loaded", {"wgpu": plain, "cpu": backend_named("cpu")})
    with pytest.raises(DtypeError, match="'wgpu' has no float64"):
        rlx.jit(lambda x: x + 1, device="wgpu")(np.ones(3))


def test_a_buffer_that_the_adapter_lacks_is_refused(device: WgpuBackend) -> None:
    cap = device.engine._adapter.limits["max-buffer-size"]
    with pytest.raises(DeviceError, match="max-buffer-size"):
        device.engine.allocate(cap + 256)


def test_mistakes_in_a_kernel_name_it(device: WgpuBackend) -> None:
    source = "// kernel wrong: a\n// code\n@compute @workgroup_size(1)\nfn wrong() { a_put32(0u, 1); undefined(); }"
    with pytest.raises(DeviceError, match="'wrong'"):
        device.engine.kernels({"wrong": source})


def test_loops_that_the_driver_would_cut(backend: WgpuBackend) -> None:
    """llvmpipe ends them silently: the host drives loops, and a kernel is refused."""
    backend.engine.limits = replace(backend.engine.limits, turns=100)
    long = numbers(150)
    agree(lambda x: lax.scan(lambda c, r: (jnp.sin(c + r), c), x[0], x), long)
    agree(lambda x: lax.while_loop(lambda s: s[0] < 150, lambda s: (s[0] + 1, s[1] * 0.9 + 1), (0, x)), long)
    backend.engine.limits = replace(backend.engine.limits, turns=5)
    with pytest.raises(DeviceError, match="iterations") as caught:
        rlx.jit(lambda x: x.sum(0), device="wgpu")(numbers(900, 3))
    assert "test_wgpu.py" in str(caught.value)


def test_a_process_ends_while_work_is_queued() -> None:
    script = "import rlx, numpy as np; f = rlx.jit(lambda x: x @ x, device='wgpu'); f(np.ones((300, 300), 'f4'))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0 and "Error" not in done.stderr.replace("DeviceError: wgpu finds", ""), done.stderr


def test_other_libraries_cannot_read_its_memory(device: WgpuBackend) -> None:
    x = rlx.device_put(np.ones(3, np.float32), "wgpu")
    with pytest.raises(BufferError, match="np.asarray"):
        x.__dlpack__()
    del device


# ------------------------------------------------------------------ exported functions
W, X = numbers(5, 7), numbers(20, 5)


def exported(w: Any, x: Any) -> Any:
    """A product, running sums, a loop, a sort, narrow results; and a value that it captures."""
    h = jnp.tanh(x @ w) + jnp.arange(7, dtype="float32")
    _, steps = lax.scan(lambda c, r: (jnp.sin(c + r), c), h[0], jnp.cumsum(h, 0))
    return nn.softmax(h).sum(0), jnp.argsort(x, 1).astype("int8"), h > 0.5, steps


def run_without_rlx(files: Any, *arrays: np.ndarray) -> list[np.ndarray]:
    """The results of exported files, on a device with the limits that WebGPU guarantees."""
    described = json.loads(files.launches)
    device = wgpu.gpu.request_adapter_sync().request_device_sync()
    usage = wgpu.BufferUsage
    memory = device.create_buffer(size=described["bytes"], usage=usage.STORAGE | usage.COPY_SRC | usage.COPY_DST)
    given = [(p["start"], a.tobytes()) for p, a in zip(described["inputs"], arrays, strict=True)]
    for start, data in [*given, *((c["start"], base64.b64decode(c["data"])) for c in described["constants"])]:
        device.queue.write_buffer(memory, start, data + bytes(-len(data) % 4))
    kernels = {text.split(":")[0]: f"// kernel {text}" for text in files.wgsl.split("// kernel ")[1:]}
    encoder = device.create_command_encoder()
    launched = encoder.begin_compute_pass()
    visible, kinds = wgpu.ShaderStage.COMPUTE, ["uniform", "storage"]
    entries = [{"binding": n, "visibility": visible, "buffer": {"type": kind}} for n, kind in enumerate(kinds)]
    layout = device.create_bind_group_layout(entries=entries)
    whole = device.create_pipeline_layout(bind_group_layouts=[layout])
    for launch in described["launches"]:
        module = device.create_shader_module(code=kernels[launch["kernel"]])
        sizes = device.create_buffer_with_data(data=np.array(launch["sizes"], np.uint32), usage=usage.UNIFORM)
        bound = [{"binding": n, "resource": {"buffer": b}} for n, b in enumerate([sizes, memory])]
        stage = {"module": module, "entry_point": launch["kernel"]}
        launched.set_pipeline(device.create_compute_pipeline(layout=whole, compute=stage))
        launched.set_bind_group(0, device.create_bind_group(layout=layout, entries=bound))
        launched.dispatch_workgroups(*launch["grid"])
    launched.end()
    device.queue.submit([encoder.finish()])
    results = []
    for place in described["outputs"]:
        data = device.queue.read_buffer(memory, place["start"], -(-place["bytes"] // 4) * 4)
        found = np.frombuffer(data, np.uint8)[: place["bytes"]].view(place["dtype"])
        results.append(found.reshape(place["shape"]))
    return results


@pytest.mark.usefixtures("device")
def test_exported_functions_run_without_rlx(tmp_path: Path) -> None:
    files = rlx.export_wgsl(exported, W, X, path=tmp_path / "step")
    assert [(tmp_path / f"step{end}").read_text() for end in (".wgsl", ".json", ".js")] == list(files)
    for found, expected in zip(run_without_rlx(files, W, X), exported(*map(jnp.asarray, (W, X))), strict=True):
        np.testing.assert_allclose(found.astype("f8"), np.asarray(expected).astype("f8"), rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("device")
def test_gradients_are_exported() -> None:
    loss = rlx.grad(lambda w, x: (jnp.tanh(x @ w) ** 2).mean())
    (found,) = run_without_rlx(rlx.export_wgsl(loss, W, X), W, X)
    np.testing.assert_allclose(found, loss(W, X), rtol=1e-4, atol=1e-6)


def test_functions_that_need_the_host_are_not_exported() -> None:
    x = rlx.ShapeDtypeStruct((3,), "float32")
    with pytest.raises(UnsupportedError, match="needs the host"):
        rlx.export_wgsl(lambda x: lax.lgamma(x), x)
    with pytest.raises(DtypeError, match="float64"):
        rlx.export_wgsl(lambda x: x + 1, rlx.ShapeDtypeStruct((3,), "float64"))
    with pytest.raises(UnsupportedError, match="bindings"):
        rlx.export_wgsl(lambda x: x + 1, rlx.ShapeDtypeStruct((1 << 26,), "float32"))


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: apt-get install chromium)")
def test_exported_functions_run_in_a_browser(tmp_path: Path) -> None:
    """Chromium's WebGPU, on SwiftShader: it refuses what wgpu lets pass, such as two writable bindings of a buffer."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-wgpu")
    page = tmp_path / "page.html"
    page.write_text("<!doctype html>")  # a file is a secure context
    files = rlx.export_wgsl(exported, W, X)
    run = """async ([wgsl, launches, javascript, w, x]) => {
        const RlxFunction = new Function(javascript + "; return RlxFunction;")();
        const f = await RlxFunction.create(wgsl, JSON.parse(launches));
        await f.run(new Float32Array(w), new Float32Array(x));
        const results = await f.run(new Float32Array(w), new Float32Array(x));
        return results.map((a) => [...a]);
    }"""
    options = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"]
    options += ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=options)
        opened = browser.new_page()
        opened.goto(page.as_uri())
        found = opened.evaluate(run, [*files, W.ravel().tolist(), X.ravel().tolist()])
        browser.close()
    for got, expected in zip(found, exported(*map(jnp.asarray, (W, X))), strict=True):
        np.testing.assert_allclose(got, np.asarray(expected).ravel().astype("f8"), rtol=1e-4, atol=1e-4)


def test_the_script_is_short() -> None:
    files = rlx.export_wgsl(lambda x: x + 1, rlx.ShapeDtypeStruct((3,), "float32"))
    assert len(files.javascript.splitlines()) < 100 and Limits().group == 256
