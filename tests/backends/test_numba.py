"""The numba device: programs compiled from Python text, the text itself, and modules that run without rlx."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numba
import numpy as np
import pytest
from loop_plans import run_slowly
from primitive_cases import cases
from python_loops import run_python
from special_samples import DRAWS, drawn
from test_emit import Random

import rlx
import rlx.numpy as jnp
from rlx import lax, nn
from rlx.backends.loops.program import SourceUnit
from rlx.backends.loops.straight_line import CONVERSIONS, ELEMENTARY
from rlx.backends.numba import compile as numba_compile
from rlx.backends.numba.helper_names import HELPER_NAMES
from rlx.backends.numba.helpers import header, helpers_text
from rlx.errors import UnsupportedError
from rlx.ir.scalar import SPECIAL

generator = np.random.default_rng(0)
X = generator.normal(size=(6, 5)).astype(np.float32)
BIG = generator.normal(size=(400, 700)).astype(np.float32)


def step(carry: Any, x: Any) -> Any:
    return carry * 0.9 + x, (carry.sum(), x)


def scanned(x: Any) -> Any:
    return lax.scan(step, jnp.zeros(5, x.dtype), x)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "elementwise": (lambda x: jnp.exp(x) * 2 + jnp.sin(x) / 3, (X,)),
    "softmax": (nn.softmax, (X,)),
    "select by a select": (lambda x: jnp.where(jnp.where(x > 1, x < 3, x < -1), x / 3, -x), (X,)),
    "parallel": (lambda x: (nn.softmax(x) + x.sum(0), x.sum()), (BIG,)),
    "scan": (scanned, (X,)),
    "scan of complex numbers": (scanned, ((X + 1j * X).astype(np.complex64),)),
    "gradient of a scan": (rlx.grad(lambda x: (scanned(x)[1][0] ** 2).sum()), (X,)),
    "while": (lambda x: lax.while_loop(lambda c: c.sum() < 100.0, lambda c: c * 1.5 + 1, x), (abs(X),)),
    "switch": (lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, lambda x: x * 2], x), (np.int32(7), X)),
    "host step in a loop": (lambda x: lax.fori_loop(0, 3, lambda i, c: jnp.linalg.inv(c) + i, x[:5]), (X,)),
    "gather and scatter": (lambda x: x.at[np.array([1, 1, 3])].add(x[np.array([0, 2, 5])]), (X,)),
    "narrow floats": (lambda x: (x.astype(ml_dtypes.bfloat16) * 3).astype("f2").sum(0), (X,)),
    "random bits": (lambda key: rlx.random.normal(rlx.random.wrap_key_data(key), (50,)), (np.array([1, 2], "u4"),)),
    "matrix products": (
        lambda x, y: (x @ y, x.T @ x, x[:, :20] @ y[:20], jnp.einsum("bij,kj->bik", jnp.stack([x, 2 * x]), x)),
        (BIG[:60, :50], BIG[:50, :40].copy()),
    ),
    "complex products": (lambda x: x @ x.conj().T, ((BIG[:40, :30] * (1 + 2j)).astype(np.complex128),)),
    "products added up": (
        lambda x, y: lax.fori_loop(0, 3, lambda i, c: c + x @ y, x),
        (BIG[:40, :40], BIG[40:80, :40]),
    ),
    "sort": (lambda x: (jnp.sort(x, 1), jnp.argsort(x, 0, stable=True), lax.sort((jnp.round(x), x), num_keys=2)), (X,)),
}


def compare(program: Callable[..., Any], args: tuple[Any, ...], rtol: float = 2e-5, **tolerance: float) -> None:
    """The program computes the same on both devices."""
    expected = rlx.tree.leaves(rlx.jit(program)(*args))
    found = rlx.tree.leaves(rlx.jit(program, device="numba")(*args))
    for want, got in zip(expected, found, strict=True):
        assert want.dtype == got.dtype
        want, got = (np.asarray(v) for v in (want, got))
        np.testing.assert_allclose(got, want, rtol=rtol, atol=tolerance.get("atol", 2e-5))


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.selected(1)
def test_programs_compute_what_they_do_on_the_cpu(name: str) -> None:
    compare(*PROGRAMS[name])


@pytest.mark.parametrize("seed", range(0, 72, 9))
def test_random_kernels_compiled_by_numba(seed: int) -> None:
    maker = Random(seed)
    kernel = maker.kernel()
    expected, actual = ([array.copy() for array in maker.arrays] for _ in range(2))
    with np.errstate(all="ignore"):
        run_slowly(kernel, expected)
    run_python(kernel, actual, compiled=True)
    for got, wanted in zip(actual, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


SORTED = ["f4", "f8", ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, "i1", "u8", "?", ml_dtypes.int4]


@pytest.mark.parametrize("dtype", SORTED, ids=str)
def test_sorts_are_stable(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN is last, -0 equals 0, and equal keys keep their order."""
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    x = (generator.normal(size=(3, 17)) * 3).astype(dtype)
    if np.dtype(dtype).kind == "f":
        x[0, :9] = [3.0, -0.0, np.nan, 0.0, -np.inf, 1.0, 0.0, np.nan, 1.0]
    compare(lambda x: (jnp.sort(x), jnp.argsort(x, stable=True)), (x,))


# ------------------------------------------------------------------ what is compiled
def units(program: Callable[..., Any], *args: Any) -> tuple[SourceUnit, ...]:
    with rlx.default_device("numba"):
        return rlx.inspect(program)(*args).executable.units  # type: ignore[union-attr]


def test_registers_keep_their_dtypes() -> None:
    """Neither a literal nor an index makes float32 numbers wider: the machine would compute float64."""
    (unit,) = units(lambda x: jnp.where(x > 0.5, x * 2 + 1, nn.softmax(x)) + jnp.arange(5, dtype=x.dtype), X)
    (text,) = numba_compile._entry(unit, False).inspect_llvm().values()
    assert "fmul float" in text or "fmul <" in text
    assert "fpext" not in text and "fptrunc" not in text


def test_loops_are_vector_loops() -> None:
    """Elementary functions, sums and extrema run in vector registers, rows of several operands, too."""
    (unit,) = units(lambda x: jnp.tanh(x) + jnp.exp(x).sum(1, keepdims=True) + x.max(1, keepdims=True), BIG[:8])
    (text,) = numba_compile._entry(unit, False).inspect_llvm().values()
    assert "reduce.fmaximum" in text or "fcmp" in text
    assert "x float> @llvm.fma" in text and "call float @expf" not in text


def test_equal_kernels_are_compiled_once() -> None:
    def program(scale: float) -> Callable[..., Any]:
        return lambda x: jnp.cumsum(jnp.sort(jnp.sin(x) * 3)) * scale

    units(program(2.5), X[0])
    before = dict(numba_compile._compiled)
    units(program(2.5), X[0])
    assert numba_compile._compiled == before
    units(program(7.5), X[0])
    fresh = [made for key, made in numba_compile._compiled.items() if key not in before]
    assert len(fresh) == 2  # the last product, and the plan's function
    assert fresh[-1].py_func.__name__ == "plan"


def test_helpers_are_complete() -> None:
    """Every helper's text holds all that it calls."""
    for name in sorted(HELPER_NAMES):
        if name in SPECIAL or name.startswith("llvm") or name.endswith("_version"):
            continue
        wanted = [name, *(f"{name}_{d}" for d in ("float32", "float64") if name in ELEMENTARY)]
        text = helpers_text(wanted)
        namespace: dict[str, Any] = {}
        exec(f"{header(text)}\n{text}", namespace)
        assert callable(namespace[name])
    assert all(helpers_text([name]).startswith(f"@njit\ndef {name}(x):") for name in sorted(CONVERSIONS))


# ------------------------------------------------------------------ the text
def test_the_text_is_the_same_on_every_device() -> None:
    def loops(device: str) -> str:
        with rlx.default_device(device):
            return str(rlx.inspect(lambda x: lax.scan(step, jnp.zeros(5), nn.softmax(x)))(X).kernels.loops)

    text = loops("cpu")
    assert text == loops("numba") == loops("reference")
    assert "def scan_step(" in text and "for step in range(6):" in text
    assert "# x0: float32[30], out0: float32[30]" in text


def test_the_text_is_short() -> None:
    """Values that are read once stand where they are read; numbers say their dtype where Numba needs it."""
    text = rlx.inspect(lambda x, y: jnp.exp(jnp.where(x > 0.5, y * 2, x)) + 1)(X, X[0]).kernels.loops
    assert "            c[5 * i + j] = exp(b[j] * np.float32(2.0) if v0 > 0.5 else v0) + np.float32(1.0)" in text


def test_steps_of_the_host_are_comments() -> None:
    text = rlx.inspect(lambda x: jnp.linalg.inv(jnp.exp(x)) + 1)(X[:5]).kernels.loops
    assert "# here the host runs inv" in text or "# here the host runs" in text
    assert text.index("exp(") < text.index("# here the host runs") < text.rindex("def ")


# ------------------------------------------------------------------ the interpreter, threads, forks
def run_code(code: str, *options: str, **environment: str) -> str:
    """What a fresh interpreter prints, which must end well and warn of nothing."""
    done = subprocess.run(
        [sys.executable, *options, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True, text=True, timeout=240, env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_without_jit_kernels_can_be_stepped_through() -> None:
    code = """
    import linecache, sys
    import numpy as np, rlx, rlx.numpy as jnp
    f = rlx.jit(lambda x: jnp.log(x) / x.sum() + jnp.where(x > 2, 1 / x, 7), device="numba")
    seen = {}
    def trace(frame, event, argument):
        name = frame.f_code.co_filename
        if name.startswith("<rlx numba") and "a" in frame.f_locals:
            seen[linecache.getline(name, frame.f_lineno).strip()] = dict(frame.f_locals)
        return trace
    sys.settrace(trace)
    x = np.array([-1.0, 0.0, 1.0, 4.0], np.float32)
    result = f(x)
    sys.settrace(None)
    with np.errstate(all="ignore"):
        expected = np.log(x) / x.sum() + np.where(x > 2, 1 / x, np.float32(7))
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    assert result.dtype == np.float32
    (line,) = [line for line in seen if "log(" in line and " / " in line]
    assert seen[line]["i"] == 3, seen
    print(line)
    """
    assert "log(" in run_code(code, NUMBA_DISABLE_JIT="1")


def test_threads_may_call_at_the_same_time() -> None:
    f = rlx.jit(lambda x: nn.softmax(x) + x.sum(0), device="numba")
    expected, failures = np.asarray(f(BIG)), []

    def call() -> None:
        for _ in range(5):
            failures.extend([1] * (not np.array_equal(np.asarray(f(BIG)), expected)))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.fixture
def _threads() -> Iterator[None]:
    before = rlx.get_num_threads()
    yield
    rlx.set_num_threads(before)


@pytest.mark.usefixtures("_threads")
def test_the_number_of_threads_is_rlx_s() -> None:
    seen = []
    with numba_compile._threads.running():
        seen.append(numba.get_num_threads())
    rlx.set_num_threads(1)
    before = numba.get_num_threads()
    with numba_compile._threads.running():
        seen.append(numba.get_num_threads())
    assert seen[1] == 1 and seen[0] >= 1 and numba.get_num_threads() == before


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_computes() -> None:
    """GNU OpenMP ends a process that is forked from one with its threads: the child must not use them."""
    code = """
    import os, warnings
    import numpy as np, rlx
    from rlx import nn
    x = np.random.default_rng(0).normal(size=(400, 700)).astype(np.float32)
    f = rlx.jit(lambda x: nn.softmax(x) + x.sum(0), device="numba")
    expected = np.asarray(f(x))
    warnings.simplefilter("ignore", DeprecationWarning)
    child = os.fork()
    if not child:
        os._exit(0 if np.allclose(np.asarray(f(x)), expected, atol=1e-6) else 1)
    print(os.waitpid(child, 0)[1])
    """
    assert run_code(code).split() == ["0"]


# ------------------------------------------------------------------ modules
WEIGHTS = generator.normal(size=(40, 3)).astype(np.float32)


def loss(params: Any, x: Any, scale: Any) -> Any:
    hidden = jnp.tanh(x @ params["w"] + params["b"])
    return scale * jnp.mean((hidden @ WEIGHTS[:4]) ** 2) + (WEIGHTS * hidden.sum()).mean()


PARAMS = {"w": generator.normal(size=(5, 4)).astype(np.float32), "b": np.ones(4, np.float32)}
ISOLATED = """
import sys
class Refused:
    def find_spec(self, name, *rest):
        if name.split(".")[0] in ("rlx", "scipy", "ml_dtypes", "optree"):
            raise ImportError(name)
sys.meta_path.insert(0, Refused())
"""


@pytest.mark.thorough
def test_a_gradient_is_shipped_without_rlx(tmp_path: Path) -> None:
    """Its module runs where neither rlx nor SciPy can be imported, called from a user's own compiled function."""
    gradient, data = rlx.value_and_grad(loss), (PARAMS, X, 2.0)
    source = rlx.export_numba(gradient, *data, path=tmp_path / "shipped.py")
    assert (tmp_path / "shipped.py").read_text() == source
    assert "np.frombuffer(base64" in source and "rlx." not in source.split('"""')[2]
    np.savez(tmp_path / "given.npz", w=PARAMS["w"], b=PARAMS["b"], x=X)
    code = f"""{ISOLATED}
sys.path.insert(0, {str(tmp_path)!r})
import numba, numpy as np, shipped

@numba.njit
def descend(b, w, x, steps):
    for _ in range(steps):
        value, db, dw = shipped.loss(b, w, x, 2.0)
        b, w = b - np.float32(0.1) * db, w - np.float32(0.1) * dw
    return value, b, w

given = np.load({str(tmp_path / "given.npz")!r})
value, b, w = descend(given["b"], given["w"], given["x"], 3)
np.savez({str(tmp_path / "found.npz")!r}, value=value, b=b, w=w)
try:
    shipped.loss(given["b"], given["w"], given["x"][:5], 2.0)
except ValueError as error:
    print(error)
"""
    assert run_code(code, "-I").strip() == "x is float32[6, 5]"
    params = PARAMS
    for _ in range(3):
        value, change = gradient(params, X, np.float32(2.0))
        params = rlx.tree.map(lambda p, d: p - np.float32(0.1) * d, params, change)
    found = np.load(tmp_path / "found.npz")
    np.testing.assert_allclose(found["value"], value, rtol=1e-5)
    np.testing.assert_allclose(found["w"], params["w"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["b"], params["b"], rtol=1e-4, atol=1e-5)


def run_module(source: str, name: str, *args: Any) -> Any:
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    return namespace[name](*args)


def test_modules_have_scalars_bools_and_complex_numbers() -> None:
    def mixed(z: Any, flag: Any, n: Any) -> Any:
        return {"z": z * 2j, "all": jnp.where(flag, n, 0).sum(), "same": z}

    z = (X + 1j).astype(np.complex64)
    args = (z, X > 0, np.int32(5))
    types = [rlx.ShapeDtypeStruct(np.shape(a), a.dtype) for a in args]
    total, same, product = run_module(rlx.export_numba(mixed, *types), "mixed", *args)
    assert np.asarray(total).shape == () and total == 5 * (X > 0).sum()
    np.testing.assert_array_equal(same, z)
    np.testing.assert_allclose(product, z * 2j, rtol=1e-6)


def test_modules_have_linear_systems_and_transforms(monkeypatch: pytest.MonkeyPatch) -> None:
    """As loops, which the interpreter runs here: compiling takes seconds."""

    def solved(x: Any) -> Any:
        square = x @ x.T + jnp.eye(6)
        values, vectors = jnp.linalg.eigh(square)
        return jnp.linalg.solve(square, x), jnp.linalg.cholesky(square), (vectors * values) @ vectors.T, jnp.fft.fft(x)

    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    x = X.astype(np.float64)
    for found, wanted in zip(run_module(rlx.export_numba(solved, x), "solved", x), solved(x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.thorough
def test_modules_compile_a_linear_system() -> None:
    def solved(a: Any, b: Any) -> Any:
        return jnp.linalg.solve(a, b)

    a, b = X[:5].astype(np.float64), X[5].astype(np.float64)
    found = run_module(rlx.export_numba(solved, a, b), "solved", a, b)
    np.testing.assert_allclose(found, np.linalg.solve(a, b), rtol=1e-10)


def test_modules_have_gamma_functions() -> None:
    def gammas(x: Any) -> Any:
        return rlx.scipy.special.gammaln(x), rlx.scipy.special.gamma(x)

    x = np.array([0.5, 3.0, -1.5, 0.0, 200.0, -2.0])
    found = run_module(rlx.export_numba(gammas, x), "gammas", x)
    for got, want in zip(found, gammas(x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_names_of_modules_do_not_clash() -> None:
    """With those of kernels, of helper functions, and of Python."""

    def add(exp: Any, add: Any, np: Any) -> Any:
        return jnp.exp(exp) + add * np

    x = X[0]
    found = run_module(rlx.export_numba(add, x, x, x), "add", x, x, x)
    np.testing.assert_allclose(found, np.exp(x) + x * x, rtol=1e-6)
    assert "def exp_2(" in rlx.export_numba(lambda x: jnp.exp(x), x, name="exp")


@pytest.mark.thorough
def test_special_functions_are_shipped() -> None:
    """All that have code, each with the functions that it calls: SciPy's values."""
    functions = {c.primitive.name: c.primitive for c in cases()}
    given = {name: drawn(name, 50) for name in DRAWS if name in functions}

    def every(*arrays: Any) -> list[Any]:
        rest = iter(arrays)
        return [functions[name].bind(*(next(rest) for _ in given[name])) for name in given]

    flat = [x for arrays in given.values() for x in arrays]
    found = run_module(rlx.export_numba(every, *flat), "every", *flat)
    for (name, arrays), values in zip(given.items(), found, strict=True):
        np.testing.assert_allclose(values, SPECIAL[name].evaluate(*arrays), rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(
    ("function", "missing"),
    [
        (lambda x: jnp.linalg.eigvals(x), "eig"),
        (lambda x: lax.fori_loop(0, 2, lambda i, c: c + rlx.scipy.linalg.sqrtm(c).real, x), "sqrt"),
        (lambda x: rlx.scipy.special.hyp1f1(x, x, x), "confluent_hypergeometric"),
        (lambda x: rlx.pure_callback(np.sin, x, x), "callback to sin"),
        (lambda x: x.astype(jnp.bfloat16), "arrays of bfloat16"),
    ],
)
def test_what_cannot_be_shipped_is_said_by_name(function: Callable[..., Any], missing: str) -> None:
    with pytest.raises(UnsupportedError, match=missing):
        rlx.export_numba(function, X[:5])
