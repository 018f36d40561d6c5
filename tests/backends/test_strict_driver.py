"""What a real driver refuses, on one that is none: options of compilers, addresses, calls after a failure, names."""

from __future__ import annotations

import gc
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cupy_signatures
import ml_dtypes
import numpy as np
import pytest
from cupy_signatures import NUMBERS, READ, SIGNATURES, TOLD, lines
from fake_cupy import ILLEGAL_ADDRESS, FakeCupy, installed
from gpu_texts import PROGRAMS, plan_of
from kernel_texts import kernel_texts

import rlx
import rlx.nn as nn
import rlx.numpy as jnp
from rlx import backends
from rlx.backends.cuda import nvrtc
from rlx.backends.cuda.failures import device_error
from rlx.backends.cuda.handles import Handle
from rlx.backends.gpu import dlpack
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.program import DeviceProgram
from rlx.backends.rocm import hiprtc
from rlx.backends.rocm.dialect import HipDialect
from rlx.errors import DeviceError, RlxError
from rlx.installation import install_command

pytestmark = pytest.mark.selected(10_000)  # the rows of its tables check different things, and are quick
CUDA = 2  # of DLPack's devices
X = np.arange(12, dtype=np.float32).reshape(3, 4)
HALF = np.dtype(ml_dtypes.bfloat16)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCupy]:
    """A driver with one device."""
    yield from installed(monkeypatch, FakeCupy())


# ------------------------------------------------------------------ options
def test_options_of_programs_are_those_of_rlx(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing before, behind or between them: a later option would win over rlx's own."""
    own = {"cuda": nvrtc.options("sm_90"), "rocm": hiprtc.options("gfx90a")}
    for device, options in own.items():
        for fake in installed(monkeypatch, FakeCupy(is_hip=device == "rocm")):
            rlx.jit(lambda x: jnp.tanh(x) @ x.T, device=device)(X)
            rlx.jit(jnp.sort, device=device)(X)
            assert set(fake.compiler.options) == {options}
    assert "--ftz=false" in own["cuda"] and "-fno-gpu-flush-denormals-to-zero" in own["rocm"]


def test_shown_code_is_compiled_as_what_runs(cupy: FakeCupy) -> None:
    f = rlx.jit(jnp.tanh, device="cuda")
    f(X)
    rlx.inspect(f)(X).kernels.texts["ptx"]
    assert len(cupy.compiler.options) >= 2 and len(set(cupy.compiler.options)) == 1


def test_headers_are_found_for_kernels_of_users_only(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc.COMPILER, "_headers", lambda: ["/cuda/include"])
    text = '#include <cuda_fp16.h>\nextern "C" __global__ void twice(float *y, const float *x) { y[0] = 2 * x[0]; }'
    rlx.jit(lambda x: rlx.cuda_call(text, "twice", x, x, grid=2, block=64) + 1, device="cuda")(X)
    assert {*cupy.compiler.options} == {nvrtc.options("sm_90"), (*nvrtc.options("sm_90"), "-I/cuda/include")}


def test_code_is_kept_on_disk(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """By text, options and architecture; texts with headers are compiled again, since those may change."""
    monkeypatch.setattr("rlx.backends.gpu.runtime_compiler.user_folder", lambda: tmp_path / "native")
    tmp_path.chmod(0o700)
    for _ in range(2):
        nvrtc.code_of.cache_clear()
        assert nvrtc.code_of("sm_90").of("a text").endswith(b"sm_90\na text")
    assert len(cupy.compiler.options) == 1
    nvrtc.code_of("sm_80").of("a text")
    monkeypatch.setattr(nvrtc.COMPILER, "_headers", lambda: ["/cuda/include"])
    for _ in range(2):
        nvrtc.code_of("sm_90").of("#include <cuda_fp16.h>")
    assert len(cupy.compiler.options) == 4


def test_a_missing_compiler(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    command = re.escape(install_command("cuda"))
    for compiler, lesson in ((nvrtc.COMPILER, f"libnvrtc.*{command}"), (hiprtc.COMPILER, "libhiprtc.*ROCM_HOME")):
        with monkeypatch.context() as changes:
            vars(compiler).pop("_library", None)
            changes.setattr(compiler, "_paths", lambda: ["/nowhere/lib.so"])
            assert not compiler.present
            with pytest.raises(DeviceError, match=f"(?s){lesson}"):
                compiler.compile("", "sm_90", (), ())
    vars(nvrtc.COMPILER)["_library"] = cupy.compiler


def test_texts_for_hip_declare_their_types() -> None:
    """hiprtc's header has them in a namespace of its own only, and a program includes nothing else."""
    declared = set(re.findall(r"(\w+_t);", HipDialect().program_head("").partition("#ifdef __HIPCC_RTC__")[2]))
    for name in ("flat map", "scatters", "causal attention", "random bits"):
        source = DeviceProgram(plan_of(*PROGRAMS[name]), HipDialect("gfx942"), Limits()).source
        assert set(re.findall(r"\bu?int\d+_t\b", source)) <= declared and "#include" not in source
        assert "#pragma clang force_cuda_host_device" in source


# ------------------------------------------------------------------ addresses
class Misaligned:
    """An array of another library that begins some bytes behind the beginning of a block."""

    def __init__(self, cupy: FakeCupy, array: np.ndarray, ahead: int) -> None:
        runtime = cupy.cuda.runtime
        self.memory = Handle(runtime.malloc(array.nbytes + ahead), runtime.free)
        self.pointer, self.shape, self.dtype = self.memory.ptr + ahead, array.shape, array.dtype
        cupy.at(self.pointer, array.nbytes)[:] = array.reshape(-1).view(np.uint8)


class ByDLPack(Misaligned):
    """Lent by DLPack; `inside`: the offset is told beside the address."""

    inside = False

    def __dlpack_device__(self) -> tuple[int, int]:
        return (CUDA, 0)

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, copy: Any = None) -> Any:
        begin, offset = (self.memory.ptr, self.pointer - self.memory.ptr) if self.inside else (self.pointer, 0)
        return dlpack.lend(self, begin, offset, self.shape, self.dtype, (CUDA, 0), max_version)


class ByOffset(ByDLPack):
    """As torch lends views."""

    inside = True


class ByInterface(Misaligned):
    """Described by CUDA's array interface."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        data = (self.pointer, False)
        return {"shape": self.shape, "typestr": "<f4", "data": data, "version": 3, "strides": None}


@pytest.mark.parametrize("kind", [ByDLPack, ByOffset, ByInterface])
@pytest.mark.parametrize("ahead", [4, 8, 12, 16, 256])
def test_borrowed_memory_is_copied_where_kernels_cannot_load_it(kind: type, ahead: int, cupy: FakeCupy) -> None:
    given = kind(cupy, X, ahead)
    x = jnp.from_dlpack(given)
    assert (x.storage().pointer == given.pointer) == (ahead % 16 == 0) and x.storage().pointer % 16 == 0
    np.testing.assert_array_equal(np.asarray(x), X)
    if ahead % 16:
        with pytest.raises(BufferError, match="not a multiple of 16 bytes"):
            jnp.from_dlpack(given, copy=False)
    else:
        assert jnp.from_dlpack(given, copy=False).storage().pointer == given.pointer


def test_attention_over_borrowed_memory(cupy: FakeCupy) -> None:
    """Its kernels load 16 bytes at once, and do not look at addresses: the driver of these tests does."""
    q = np.zeros((1, 64, 4, 64), HALF)
    f = rlx.jit(lambda q: nn.dot_product_attention(q, q, q))
    f(jnp.from_dlpack(ByDLPack(cupy, q, 2)))
    assert any(text.aligned for source in cupy.sources for text in kernel_texts(source).values())


def test_the_driver_refuses_misaligned_addresses(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlx.backends.gpu.memory._ALIGNED", 1)
    f = rlx.jit(lambda q: nn.dot_product_attention(q, q, q))
    with pytest.raises(AssertionError, match=r"loads \d+ bytes at"):
        f(jnp.from_dlpack(ByDLPack(cupy, np.zeros((1, 64, 4, 64), HALF), 2)))


def test_parts_of_arrays_that_loops_go_over(cupy: FakeCupy) -> None:
    """Steps of a loop begin anywhere in its inputs."""
    x = np.zeros((3, 1 << 17 | 1), np.float32)
    rlx.jit(lambda x: rlx.lax.scan(lambda c, r: (c + jnp.tanh(r), jnp.exp(r)), x[0], x), device="cuda")(x)
    q = np.zeros((3, 1, 65, 3, 24), HALF)
    attend = rlx.jit(lambda q: rlx.lax.scan(lambda c, q: (c, nn.dot_product_attention(q, q, q)), 0, q), device="cuda")
    attend(q)


# ------------------------------------------------------------------ failures of the device
def program(x: Any) -> Any:
    """Launches, products, a routine, and values that are read."""
    y = jnp.sort(jnp.tanh(x) @ x.T, axis=1)
    return jnp.fft.fft(y + 1j), y.sum()


def used(given: Any) -> None:
    """All that a program does with a device, and waits for. given: an array of another library."""
    x = rlx.device_put(X, "cuda")
    f = rlx.jit(program)
    for _ in range(3):
        z, total = f(x)
        z.block_until_ready()
    float(total)
    (jnp.from_dlpack(given) + 1).block_until_ready()
    with rlx.default_device("cuda"):
        np.asarray(jnp.ones(3) * 2)
    backends.memory_named("cuda").synchronize()


def calls_of(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many calls of CuPy `used` makes."""
    for cupy in installed(monkeypatch, FakeCupy()):
        given, before = ByDLPack(cupy, X, 0), cupy.calls
        used(given)
        return cupy.calls - before
    raise AssertionError


@pytest.mark.parametrize("apart", [pytest.param(1, marks=pytest.mark.thorough), 23])
def test_a_device_that_fails_at_any_call(apart: int, monkeypatch: pytest.MonkeyPatch, recwarn: Any) -> None:
    """Only errors of rlx's come of it, nothing is waited for, and memory can be cleared."""
    count = calls_of(monkeypatch)
    assert count > 60
    for number in range(1, count, apart):  # the last call destroys an event, whose errors nothing waits for
        for cupy in installed(monkeypatch, FakeCupy()):
            given = ByDLPack(cupy, X, 0)
            cupy.lose_at = cupy.calls + number
            with pytest.raises(RlxError) as caught:
                used(given)
            assert "illegal memory access" in str(caught.value), number
            backends.memory_named("cuda").clear_pool()
            gc.collect()
    assert not recwarn.list, [str(w.message) for w in recwarn.list]


def test_results_of_a_device_that_has_failed(cupy: FakeCupy) -> None:
    """They are ready at once, so that loops over is_ready end, and each who waits gets the error with the line."""
    x = rlx.device_put(X, "cuda")
    y = rlx.jit(lambda x: jnp.sin(x) + 1)(x)
    assert not y.is_ready()
    cupy.lose()
    assert y.is_ready()
    for wait in (y.block_until_ready, lambda: np.asarray(y), y.block_until_ready):
        with pytest.raises(DeviceError, match="(?s)illegal memory access.*test_strict_driver.py.*start a new one"):
            wait()
    with pytest.raises(DeviceError, match="illegal memory access"):
        backends.memory_named("cuda").synchronize()


IN_A_PROCESS = """
import sys
sys.path[:0] = [{tests!r}, {here!r}]
import numpy as np, pytest, rlx, rlx.numpy as jnp
from fake_cupy import FakeCupy, installed
drivers = installed(pytest.MonkeyPatch(), FakeCupy())
cupy = next(drivers)
x = rlx.device_put(np.ones((64, 64), np.float32), "cuda")
y = rlx.jit(lambda x: jnp.sin(x) @ x)(x)
cupy.lose()
try:
    y.block_until_ready()
except rlx.errors.DeviceError as error:
    print("start a new one" in str(error))
"""


@pytest.mark.thorough
def test_a_process_whose_device_has_failed_ends() -> None:
    """Without words of the garbage collector's: the driver refuses to take memory, events and code back."""
    here = Path(__file__).resolve().parent
    text = IN_A_PROCESS.format(tests=str(here.parent), here=str(here))
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_lent_memory_is_given_back_after_a_failure(cupy: FakeCupy) -> None:
    released = []
    given = ByDLPack(cupy, X, 0)
    for order in ("before", "behind"):
        lent = dlpack.Lent(given.pointer, 0, X.shape, X.dtype, lambda order=order: released.append(order))
        pool = backends.memory_named("cuda").pool
        if order == "behind":
            cupy.lose()
        pool.release(lent.release)
        pool._collect()
    assert released == ["before", "behind"]
    rlx.clear_caches()


def test_memory_goes_with_its_last_reference_only(cupy: FakeCupy) -> None:
    """Garbage hands its blocks to the pool, which would give out memory that the driver has back."""
    for _ in range(3):
        x = rlx.device_put(X, "cuda")
        cycle = [x]
        cycle.append(cycle)
        del x, cycle
        gc.collect()
        again = rlx.device_put(X, "cuda")
        np.testing.assert_array_equal(np.asarray(again), X)
    assert cupy.used == backends.memory_named("cuda").pool_bytes()


# ------------------------------------------------------------------ errors of CuPy's
class NVRTCError(RuntimeError):
    """CuPy's."""


@pytest.mark.parametrize(
    ("error", "name", "remedy"),
    [
        (RuntimeError("Failed to find CUDA headers. pip install cupy-cuda13x[ctk]"), "cuda", install_command("cuda")),
        (RuntimeError("Failed to auto-detect ROCm root directory"), "rocm", "set ROCM_HOME"),
        (FileNotFoundError(2, "No such file or directory", "hipcc"), "rocm", "set ROCM_HOME"),
        (ImportError("libcusolver.so.12: cannot open shared object file"), "cuda", install_command("cuda")),
        (RuntimeError('Failure finding "libcublas.so.13"'), "cuda", install_command("cuda")),
        (NVRTCError("NVRTC_ERROR_COMPILATION"), "cuda", "the CPU runs the program"),
        (RuntimeError("CUSOLVER_STATUS_INTERNAL_ERROR"), "cuda", "the CPU runs the program"),
    ],
)
def test_errors_have_a_remedy(error: Exception, name: str, remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a routine of a library raises them."""
    found = device_error(error, name, "GPUs", "eigh")
    assert isinstance(found, DeviceError) and remedy in str(found) and str(error) in str(found)
    for cupy in installed(monkeypatch, FakeCupy(is_hip=name == "rocm")):

        def refused(*_: Any, **__: Any) -> Any:
            raise error

        cupy.linalg.eigh = refused
        with pytest.raises(DeviceError, match=re.escape(remedy)) as caught:
            rlx.jit(jnp.linalg.eigh, device=name)(np.eye(3, dtype=np.float32))
        assert "eigh" in str(caught.value) and "test_strict_driver.py" in str(caught.value)


def test_an_error_of_cupys_own_import(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        """Imported by name; CuPy raises so where a library of CUDA's is missing."""

        def find_spec(self, name: str, *_: Any) -> None:
            if name == "cupy":
                raise ImportError("CuPy is not correctly installed: libcudart.so.13")

    for _ in installed(monkeypatch, FakeCupy()):
        with monkeypatch.context() as changes:
            changes.delitem(sys.modules, "cupy")
            changes.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
            with pytest.raises(DeviceError, match="(?s)CuPy's import: CuPy is not correctly installed.*rlx"):
                rlx.device_put(X, "cuda")


# ------------------------------------------------------------------ the table of names
@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("cuda.function.Module.load", (None, "text")), ("cuda.runtime.malloc", (-1,)),
        ("cuda.nccl.NcclCommunicator", (2, (1,) * 128, 0)), ("cuda.runtime.free", (1.5,)),
        ("cuda.function.Function.__call__", (None, [1], (1,), ())), ("cuda.runtime.free", (1, 2)),
    ],
)  # fmt: skip
def test_fakes_refuse_what_cupy_refuses(path: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, OverflowError)):
        cupy_signatures.strict(path, lambda *_: None)(*arguments)


def told(found: Any) -> str:
    """The parameters that a built module tells of a function."""
    name, first = found.__name__, (found.__doc__ or "").partition("\n")[0]
    if re.match(rf"[\w.]*\b{name}\(", first):
        return first[first.index("(") :]
    parameters = inspect.signature(found).parameters.values()
    return str(inspect.Signature([p.replace(annotation=p.empty) for p in parameters]))


@pytest.mark.parametrize("path", lines(TOLD))
def test_the_table_is_cupys(path: str) -> None:
    """Where CuPy's wheel is installed, with or without a GPU."""
    cupy = pytest.importorskip("cupy")
    if path.startswith("cuda.nccl") and not importlib.import_module("cupy.cuda.nccl").available:
        pytest.skip("NCCL is not installed")
    found = cupy
    for name in path.split("."):
        found = getattr(found, name)
    assert told(found) == SIGNATURES[path]


def test_numbers_are_cupys() -> None:
    cupy = pytest.importorskip("cupy")
    assert {name: getattr(cupy.cuda.runtime, name) for name in NUMBERS} == NUMBERS
    assert issubclass(cupy.cuda.runtime.CUDARuntimeError, RuntimeError)
    assert issubclass(cupy.cuda.compiler.CompileException, Exception)
    assert lines(READ) and ILLEGAL_ADDRESS == 700
