"""The device 'c' and rlx.export_c: compilers, the cache, kernels and plans against NumPy and the CPU, programs in C."""

from __future__ import annotations

import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import test_primitives
from c_loops import run_c
from loop_plans import load
from native_plans import run_python
from splat_scenes import splats_program
from test_emit import Random

import rlx
import rlx.numpy as jnp
from rlx import lax, nn
from rlx.backends import backend_named
from rlx.backends.c import compile as compile_module
from rlx.backends.c.compile import Compiler, compiler
from rlx.backends.c.dialect import CDialect
from rlx.backends.c.prelude import helpers_of
from rlx.backends.c.types import literal
from rlx.backends.cpu.runtime.store import CodeStore, StoreCounts
from rlx.backends.loops.program import function_of, unit_of_plan
from rlx.backends.reference.loops import run_loops
from rlx.ir.kernels import Access, Buffer, Instruction, Loops, Plan
from rlx.ir.kernels import Store as StoreTo
from rlx.passes.pipeline import lower_to_plan

try:
    compiler()
except rlx.errors.DeviceError as error:
    pytest.skip(str(error), allow_module_level=True)

COMPILE = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic")
generator = np.random.default_rng(0)
X = generator.normal(size=(6, 5)).astype("f4")
BIG = generator.normal(size=(300, 200)).astype("f4")


def close(one, other, tolerance):
    """Equal up to a part of the greatest number."""
    numbers = np.abs(np.asarray(other, "c16"))
    greatest = max(1.0, numbers[np.isfinite(numbers)].max(initial=0.0))
    np.testing.assert_allclose(
        np.asarray(one, "c16"), np.asarray(other, "c16"), rtol=tolerance, atol=tolerance * greatest
    )


def agree(f, *arguments, rtol=2e-5, **options):
    """The same on the CPU and in C, in shapes and dtypes too."""
    wanted = rlx.tree.leaves(rlx.jit(f, **options)(*arguments))
    found = rlx.tree.leaves(rlx.jit(f, device="c", **options)(*arguments))
    for one, other in zip(found, wanted, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        close(one, other, rtol)


def decay(carry, x):
    carry = carry * 0.9 + x
    return carry, (carry.sum(), x)


def mlp(parameters, x):
    hidden = jnp.tanh(x @ parameters["in"] + parameters["bias"])
    return jnp.mean(nn.softmax(hidden @ parameters["out"])[:, 0] ** 2)


PARAMETERS = {
    "in": generator.normal(size=(5, 12)).astype("f4"),
    "bias": generator.normal(size=12).astype("f4"),
    "out": generator.normal(size=(12, 9)).astype("f4"),
}


def backward(x):
    return lax.scan(lambda c, x: (c + x, c * x), x[0], x, reverse=True)


def products(x):
    stack = x[:24].reshape(4, 6, 200)
    return x @ x.T @ x, x.T @ x[:, 0], jnp.einsum("bij,bkj->bik", stack, stack)


def halves(x, y):
    return x * 1.5 + y.astype("float16"), jnp.exp(y), x > 0


def bits(x, y):
    """What C leaves undefined, or does otherwise."""
    return (
        x + y, x * y, -x, x // jnp.where(y == 0, 1, y), lax.div(x, y), lax.rem(x, y), lax.shift_left(x, y),
        lax.shift_right_arithmetic(x, y), lax.shift_right_logical(x, y), lax.population_count(x), lax.clz(x), abs(x),
        x < y, jnp.maximum(x, y), x ^ y, ~x,
    )  # fmt: skip


def edges_of(dtype):
    info = np.iinfo(dtype)
    numbers = [0, 1, 2, 7, info.max, info.min, info.max - 1, info.min + 1, 31, 63, info.bits, info.bits - 1]
    numbers += [] if info.min == 0 else [-1, -7]
    x, y = np.meshgrid(np.array(numbers, dtype), np.array(numbers, dtype))
    return x.ravel(), y.ravel()


def kalman(transition, seen, x, covariance, observations):
    """States that a Kalman filter finds, with their covariances."""
    noise = jnp.eye(len(observations[0]), dtype=x.dtype)

    def step(carry, z):
        x, covariance = carry
        x, covariance = transition @ x, transition @ covariance @ transition.T + 0.1 * jnp.eye(len(x), dtype=x.dtype)
        innovation = seen @ covariance @ seen.T + noise
        gain = jnp.linalg.solve(innovation, seen @ covariance).T
        x, covariance = x + gain @ (z - seen @ x), covariance - gain @ seen @ covariance
        return (x, covariance), (x, covariance)

    return lax.scan(step, (x, covariance), observations)[1]


def decomposed(x):
    """What is unique of factorisations and transforms, which exported programs have as loops."""
    square = x[:5] @ x[:5].T + jnp.eye(5, dtype=x.dtype)
    values, vectors = jnp.linalg.eigh(square)
    u, s, vh = jnp.linalg.svd(x, full_matrices=False)
    q, r = jnp.linalg.qr(x)
    return (
        jnp.linalg.cholesky(square), jnp.linalg.slogdet(square), jnp.linalg.inv(square), (vectors * values) @ vectors.T,
        (u * s) @ vh, jnp.linalg.lstsq(x, x[:, 0])[0], q @ r, jnp.fft.fft(x, n=7, axis=1), jnp.fft.irfft2(x * 1j),
    )  # fmt: skip


SYSTEM = [generator.normal(size=s).astype("f4") for s in ((4, 4), (2, 4), (4,), (30, 2))]
PROGRAMS = {
    "a Kalman filter": (kalman, SYSTEM[0] / 3, SYSTEM[1], SYSTEM[2], np.eye(4, dtype="f4"), SYSTEM[3]),
    "factorisations": (decomposed, X),
    "a gradient through a system": (rlx.grad(lambda x: jnp.linalg.solve(x[:5], x[:5, 0]).sum()), X + np.eye(6, 5)),
    "transforms of many lengths": (lambda x: [jnp.fft.rfft(x[:n, 0]) for n in (64, 97, 120, 134)], BIG),
    "gradient": (rlx.value_and_grad(mlp), PARAMETERS, X),
    "softmax": (lambda x: nn.softmax(x, axis=0) + x.sum(1, keepdims=True), X),
    "scan": (lambda x: lax.scan(decay, jnp.zeros(5), x), X),
    "scan's gradient": (rlx.grad(lambda x: (lax.scan(decay, jnp.zeros(5), x)[1][0] ** 2).sum()), X),
    "backward scan of complex": (backward, X + 1j * X[::-1]),
    "while": (lambda x: lax.while_loop(lambda c: c.sum() < 100.0, lambda c: c * 1.5 + 1, x), abs(X)),
    "splats": splats_program(1000, 64),
    "switch": (lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, lambda x: x * 2], x), np.int32(1), X),
    "sort": (lambda x: (jnp.sort(x), jnp.argsort(x, axis=0), lax.sort((jnp.round(x), x), num_keys=2)), X),
    "gather": (lambda x: x[np.array([1, 1, 3])].sum(1), X),
    "scatter": (rlx.grad(lambda x: (x[jnp.array([1, 1, 3])] ** 2).sum()), X),
    "products": (products, BIG),
    "random bits": (lambda: rlx.random.normal(rlx.random.key(3), (40,)),),
    "int32": (bits, *edges_of("i4")),
    "uint8": (bits, *edges_of("u1")),
    "int64": (bits, *edges_of("i8")),
    "halves": (halves, X.astype("f2"), X.astype(ml_dtypes.bfloat16)),
    "bools": (lambda x: (x > 0, (x > 0).any(0), (x > 0).all(1), jnp.cumsum(x > 0)), X),
    "empty": (lambda x: (x[:0].sum(0), x[:0], jnp.max(x[:0], axis=0, initial=2.0)), X),
    "nothing to compute": (lambda x: (x, 2.0, np.arange(3)), X),
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted({case.primitive.name for case in test_primitives.cases()}))
def test_a_primitive_computes_the_reference(name):
    test_primitives.check_compiled(backend_named("c"), test_primitives.cases_of(name))


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_on_the_device(name):
    function, *arguments = PROGRAMS[name]
    agree(function, *arguments)


@pytest.mark.parametrize("seed", range(0, 72, 3))
def test_random_kernels(seed):
    maker = Random(seed)
    kernel = maker.kernel()
    wanted, found = ([array.copy() for array in maker.arrays] for _ in range(2))
    with np.errstate(all="ignore"):
        run_loops(kernel, wanted)
    run_c(kernel, found)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.astype("f8"), other.astype("f8"), rtol=1e-4, atol=1e-4)


def test_what_the_host_runs_is_named_and_right():
    def f(x):
        root = rlx.scipy.linalg.sqrtm(x[:5] @ x[:5].T).real
        return root + rlx.scipy.special.hyp1f1(1.0, 2.0, x[:5]) + jnp.sort(x[:5] * 1j).imag

    agree(f, X, rtol=2e-3)
    with rlx.default_device("c"):
        host = rlx.inspect(f)(X).kernels.texts["host"].splitlines()
    assert "C has no confluent_hypergeometric" in host
    assert any("sqrt" in line for line in host)


def test_loops_with_steps_of_the_host_inside():
    agree(lambda x: lax.fori_loop(0, 3, lambda _, c: jnp.linalg.inv(c) + 1.0, x[:5]), X, rtol=1e-2)
    agree(lambda x: lax.fori_loop(0, 3, lambda _, c: jnp.linalg.cholesky(c @ c.T), x), np.eye(40) + 0.01, rtol=1e-5)


def test_long_sums_are_in_parts():
    """One sum after another would be off by more."""
    numbers = generator.uniform(size=1 << 20).astype("f4")
    total = rlx.jit(jnp.sum, device="c")(numbers)
    assert abs(float(total) / numbers.sum(dtype="f8") - 1) < 2e-6


def test_threads_share_an_executable():
    import concurrent.futures

    f = rlx.jit(lambda x: jnp.sort(x @ x.T).sum(0), device="c")
    inputs = [BIG + n for n in range(6)]
    wanted = [np.asarray(f(x)) for x in inputs]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = [np.asarray(r) for r in pool.map(f, inputs)]
    np.testing.assert_array_equal(found, wanted)


# ------------------------------------------------------------------ text
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_literals_are_exact(dtype):
    dtype = np.dtype(dtype)
    numbers = [0.0, -0.0, 0.5, 1e30, 5e-324, np.pi, -1 / 3, 1e-40, *generator.normal(size=50)]
    for x in np.array(numbers, dtype).tolist():
        text = literal(dtype, x).strip("()")
        text = text.removesuffix("f") if dtype == "f4" else text
        back = float.fromhex(text) if "x" in text else float(text)
        assert np.array(back, dtype).tobytes() == np.array(x, dtype).tobytes(), text
    for dtype, x in (("i4", -(2**31)), ("i8", -(2**63)), ("u8", 2**64 - 1), ("i1", -128), ("u4", 2**32 - 1)):
        text = literal(np.dtype(dtype), x)
        assert ("MIN" in text and x < -1000) or str(x) in text


def test_pointers_are_restrict_where_memory_is_apart():
    """A temporary that is written over another one is not."""

    def f(x):
        y = jnp.sort(x * 2)
        return jnp.sort(y + 1) - lax.rev(y, (0,))

    plan = lower_to_plan(rlx.make_program(f)(np.ones(100)))
    text = "\n".join(g.text for g in unit_of_plan(plan, CDialect(), "f").functions)
    heads = [line for line in text.splitlines() if line.startswith("static void") and "restrict" in line]
    assert heads
    x = Buffer(np.dtype("f4"), 8)
    kernel = Loops((8,), 1, (x,), (load(0, 1),), (StoreTo(0, Access(0, (1,))),))
    assert "restrict" not in function_of(kernel, CDialect()).text


def test_overlapping_temporaries_are_not_restrict():
    one, other, out = Buffer(np.dtype("f4"), 8), Buffer(np.dtype("f4"), 8), Buffer(np.dtype("f4"), 8, "output")
    x = Buffer(np.dtype("f4"), 8, "input")

    def step(source, target, op):
        twice = (load(0, 1), Instruction(op, (0, 0), np.dtype("f4")))
        return Loops((8,), 1, (source, target), twice, (StoreTo(1, Access(1, (1,))),))

    kernels = (step(x, one, "add"), step(one, other, "mul"), step(other, out, "sub"))
    for offset, count in ((0, 4), (64, 6)):
        plan = Plan((x,), (out,), (x, out, one, other), kernels, 128, {one: 0, other: offset})
        texts = [f.text for f in unit_of_plan(plan, CDialect(), "f").functions]
        assert "".join(texts).count("restrict") == count


def test_names_that_c_has_taken():
    def register(double, y1, exp, arena, row):
        with rlx.named_scope("main"):
            return jnp.exp(double) + y1 * exp + jnp.sin(arena) + jnp.sort(row)

    agree(register, *[X] * 5)


def test_helpers_come_before_what_calls_them():
    texts = helpers_of(["rlx_cast_float32_int8", "rlx_ndtri_float64"])
    seen = ""
    for text in texts:
        assert seen.count(text) == 0
        seen += text
    assert seen.index("double rlx_inverse_erf_float64(") < seen.index("double rlx_ndtri_float64(")


# ------------------------------------------------------------------ compilers
TEXT = "void answer(int *x) { *x = 42; }\n"


def test_code_is_kept_on_disk_and_checked(tmp_path):
    store = CodeStore(tmp_path, maker=compiler())
    assert store.address(b"key", "answer", lambda: TEXT)
    (file,) = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = CodeStore(tmp_path, maker=compiler())
    assert again.address(b"key", "answer", lambda: pytest.fail("compiled again"))
    assert again.statistics() == StoreCounts(0, 1, 0)
    data = bytearray(file.read_bytes())
    data[-200] ^= 1
    file.write_bytes(data)
    damaged = CodeStore(tmp_path, maker=compiler())
    damaged.address(b"key", "answer", lambda: TEXT)
    assert damaged.statistics() == StoreCounts(1, 0, 0)


def test_code_of_another_compiler_is_not_loaded(tmp_path):
    CodeStore(tmp_path, maker=compiler()).address(b"key", "answer", lambda: TEXT)
    other = CodeStore(tmp_path, maker=Compiler([*compiler().command, "-fwrapv"]))
    other.address(b"key", "answer", lambda: TEXT)
    assert other.statistics() == StoreCounts(1, 0, 0)


@pytest.mark.thorough
def test_a_second_process_calls_no_compiler(tmp_path):
    calls = tmp_path / "calls"
    wrapper = tmp_path / "wrapped cc"
    wrapper.write_text(f'#!/bin/sh\necho "$@" >> "{calls}"\nexec {compiler().command[0]} "$@"\n')
    wrapper.chmod(0o700)
    text = "import rlx, numpy as np; print(rlx.jit(lambda x: x * 2 + 1, device='c')(np.ones(3, 'f4')))"
    environment = {"CC": f"'{wrapper}'", "RLX_CACHE_DIR": str(tmp_path / "cache")}
    for expected in (1, 1):
        done = run_python(text, **environment)
        assert done.stdout == "[3. 3. 3.]\n", done.stderr
        assert calls.read_text().count("-o unit.so") == expected


@pytest.mark.parametrize(("chosen", "says"), [("", "none of cc, gcc and clang"), ("absent -O1", "names 'absent'")])
def test_no_compiler_is_said(monkeypatch, tmp_path, chosen, says):
    monkeypatch.setenv("CC", chosen)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(rlx.errors.DeviceError, match=says) as caught:
        compiler()
    assert "CC" in caught.value.instead


def test_what_is_no_compiler_is_said(monkeypatch):
    monkeypatch.setenv("CC", "false")
    with pytest.raises(rlx.errors.DeviceError, match="is not a C compiler"):
        compiler()


def test_what_a_compiler_refuses_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    wrong = "".join(f"int x{n} = nothing{n};\n" for n in range(40))
    with pytest.raises(rlx.errors.DeviceError, match="lines more") as caught:
        compiler().compile(wrong, "f")
    (kept,) = tmp_path.iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    assert (kept / "unit.c").read_text() == wrong and str(kept / "unit.c") in str(caught.value)
    shutil.rmtree(kept)
    compiler().compile(TEXT, "answer")
    assert not list(tmp_path.iterdir())


def test_an_interrupt_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(compile_module.subprocess, "run", interrupted)
    made = compiler()
    with pytest.raises(KeyboardInterrupt):
        made.compile(TEXT, "answer")
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------ programs in C
def flat(tree):
    return [np.asarray(x) for x in rlx.tree.leaves(tree)]


def memory_type(array):
    names = {"b": "uint8_t", "i": f"int{8 * array.itemsize}_t", "u": f"uint{8 * array.itemsize}_t"}
    if array.dtype.kind == "c":
        return "float" if array.itemsize == 8 else "double"
    if array.dtype.kind == "f" and array.itemsize > 2:
        return "float" if array.itemsize == 4 else "double"
    return names.get(array.dtype.kind, f"uint{8 * array.itemsize}_t")


def main_text(name, arguments, results, within):
    """A program that reads the arguments from a file, calls the function, and writes the results to another one."""
    lines = ["#include <stdio.h>", f'#include "{name}.h"', "int main(void) {", '    FILE *file = fopen("in", "rb");']
    names = []
    for n, array in enumerate((*arguments, *results)):
        names.append(f"a{n}")
        lines.append(f"    static union {{ double d; {memory_type(array)} of[{max(array.nbytes, 1)}]; }} s{n};")
        lines.append(f"    {memory_type(array)} *a{n} = s{n}.of;")
        if n < len(arguments):
            lines.append(f"    if (fread(a{n}, 1, {array.nbytes}, file) != {array.nbytes}) return 1;")
    if within:
        lines.append(f"    static union {{ double d; unsigned char of[{name.upper()}_ARENA_BYTES]; }} arena;")
    call = ", ".join((*names, *(["arena.of"] if within else [])))
    lines.append(f"    for (int n = 0; n < 2; ++n) {name}{'_in' if within else ''}({call});")
    lines += ["    fclose(file);", '    file = fopen("out", "wb");']
    lines += [f"    fwrite(a{len(arguments) + n}, 1, {r.nbytes}, file);" for n, r in enumerate(results)]
    return "\n".join([*lines, "    return fclose(file);", "}"]) + "\n"


def run_program(folder, function, arguments, flags=("-O2",), libraries=(), within=False, **options):
    """The results of an exported function, which a program in C calls twice."""
    files = rlx.export_c(function, *arguments, path=folder / "exported", **options)
    assert (folder / "exported.c").read_text() == files.source and (folder / "exported.h").read_text() == files.header
    taken, wanted = flat(arguments), flat(rlx.jit(function)(*arguments))
    (folder / "in").write_bytes(b"".join(np.ascontiguousarray(a).tobytes() for a in taken))
    (folder / "main.c").write_text(main_text("exported", taken, wanted, within))
    command = [*compiler().command, *COMPILE, *flags, "main.c", "exported.c", "-o", "program", *libraries, "-lm"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[:3000]
    done = subprocess.run(["./program"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:3000]
    data, found = (folder / "out").read_bytes(), []
    for array in wanted:
        part, data = data[: array.nbytes], data[array.nbytes :]
        found.append(np.frombuffer(part, array.dtype).reshape(array.shape))
    assert not data
    return found, wanted


def check_program(folder, name, **options):
    function, *arguments = PROGRAMS[name]
    found, wanted = run_program(folder, function, arguments, **options)
    for one, other in zip(found, wanted, strict=True):
        close(one, other, 2e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_exported_programs(tmp_path, name):
    check_program(tmp_path, name, within=name == "scan")


def sanitized():
    """Whether programs can be compiled with sanitizers here."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
        source = Path(folder) / "main.c"
        source.write_text("int main(void) { return 0; }\n")
        command = [*compiler().command, *flags, str(source), "-o", f"{folder}/program"]
        built = subprocess.run(command, capture_output=True).returncode == 0
        return built and subprocess.run([f"{folder}/program"], capture_output=True).returncode == 0


@pytest.mark.parametrize("name", ["gradient", "scan", "sort", "int32", "uint8", "int64", "halves", "products", "while"])
def test_exported_programs_under_sanitizers(tmp_path, name):
    if not sanitized():
        pytest.skip("this compiler has no sanitizers")
    flags = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    check_program(tmp_path, name, flags=flags)


def test_exported_conversions_under_sanitizers(tmp_path):
    """Floats of every width to integers of every width, and back."""
    if not sanitized():
        pytest.skip("this compiler has no sanitizers")
    names = ("f4", "f8", "f2", "bfloat16", "float8_e4m3fn", "float4_e2m1fn", "i1", "u1", "i4", "u8", "i8", "?", "int4")
    numbers = np.array([0.0, -0.0, 1.5, -2.5, 300.7, -300.7, 3e9, -3e9, 1e19, -1e19, np.inf, -np.inf, np.nan, 65520.0])

    def convert(x, n):
        return [y.astype(d) for y in (x, x.astype("f4"), x.astype("f2"), n) for d in names]

    flags = ("-O1", "-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all")
    integers = np.array([0, 1, -1, 127, -128, 2**31, 2**62, -(2**63)])
    found, wanted = run_program(tmp_path, convert, (numbers, integers), flags)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one.astype("f8"), other.astype("f8"), str(other.dtype))


def test_exported_products_by_blas(tmp_path):
    openblas = pytest.importorskip("scipy_openblas32")
    functions = [f"{letter}gemm" for letter in "sdcz"]
    flags = ["-O1", f"-I{openblas.get_include_dir()}", *(f"-Dcblas_{f}=scipy_cblas_{f}" for f in functions)]
    libraries = [f"-L{openblas.get_lib_dir()}", f"-l{openblas.get_library()}", f"-Wl,-rpath,{openblas.get_lib_dir()}"]

    def of_both(x, z):
        stack = x[:24].reshape(4, 6, 200)
        return x @ x.T, x.T @ x, x @ x[0], jnp.einsum("bij,bkj->bik", stack, stack), z @ z.T, (z.T @ z).astype("c16")

    z = BIG + 1j * BIG[::-1]
    found, wanted = run_program(tmp_path, of_both, (BIG, z), flags, libraries, blas=True)
    text = (tmp_path / "exported.c").read_text()
    assert all(f"cblas_{letter}gemm(" in text for letter in "sc")
    for one, other in zip(found, wanted, strict=True):
        close(one, other, 2e-5)


def test_c_plus_plus_reads_the_header(tmp_path):
    found = shutil.which("c++") or shutil.which("g++")
    if found is None:
        pytest.skip("no C++ compiler")
    rlx.export_c(lambda x: x + 1, X, path=tmp_path / "next")
    main = "int main() { static float x[30], y[30]; next(x, y); return y[3] != 1; }"
    (tmp_path / "main.cpp").write_text(f'#include "next.h"\n{main}\n')
    for command in (
        [*compiler().command, *COMPILE, "-c", "next.c", "-o", "next.o"],
        [found, "-Wall", "-Wextra", "-Werror", "-pedantic", "main.cpp", "next.o", "-o", "program"],
        ["./program"],
    ):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_the_header_says_what_is_what():
    tree = {"w */": X, "int": (np.ones(3, bool), X.astype(ml_dtypes.bfloat16))}

    def reverse(double, tree):
        return rlx.tree.map(lambda x: x[::-1], tree)

    header = rlx.export_c(reverse, np.ones(2), tree, name="exp").header
    assert "void exp_2(const double *double_2, const uint8_t *tree_int_0, const uint16_t *tree_int_1," in header
    assert "tree_w: float32[6, 5]  tree['w * /']" in header
    assert "#define EXP_2_TREE_W_SIZE 30" in header and "out_3: float32[6, 5]  result['w * /']" in header


def test_what_only_the_host_can_run_is_refused_by_name():
    def f(x):
        y = jnp.linalg.eigvals(x @ x.T).real + rlx.scipy.special.hyp1f1(1.0, 2.0, x @ x.T)
        return lax.fori_loop(0, 2, lambda _, c: rlx.pure_callback(np.sin, c, c), y)

    with pytest.raises(rlx.errors.UnsupportedError, match="eig, confluent_hypergeometric, callback to sin"):
        rlx.export_c(f, X)


def test_constants_are_part_of_the_text(tmp_path):
    table = generator.normal(size=(7, 3))
    numbers = np.array([np.inf, -np.inf, np.nan, -0.0, 5e-324])
    codes = X.astype(ml_dtypes.float8_e4m3fn)

    def look_up(i):
        return [jnp.asarray(x)[i] for x in (table, numbers, codes)]

    found, wanted = run_program(tmp_path, look_up, (np.array([4, 0, 2]),))
    for one, other in zip(found, wanted, strict=True):
        assert one.tobytes() == other.tobytes()


def test_random_numbers_are_the_same_bits(tmp_path):
    found, wanted = run_program(tmp_path, lambda x: rlx.random.bits(rlx.random.key(x), (33,)), (np.int32(5),))
    np.testing.assert_array_equal(found, wanted)


