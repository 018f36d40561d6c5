"""One C file for all machines: benchmark programs, their gradients and a training step, on several processors.

`make test-portable` installs the compiler. qemu-user and nm are used if they are installed, and have to be with
RLX_REQUIRE_TOOLS=1. Node runs modules without imports (test_wasm.py); its experimental WASI crashes at times.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from benchmarks import programs as benchmarks
from rlx.backends.c.compile import FLAGS, compiler

pytestmark = [
    pytest.mark.skipif(os.environ.get("RLX_TEST_PORTABLE") != "1", reason="`make test-portable` runs it"),
    pytest.mark.selected("all"),
]
REQUIRED = os.environ.get("RLX_REQUIRE_TOOLS") == "1"
ZIG = (sys.executable, "-m", "ziglang", "cc")
SHIPPED = ("-std=c99", "-ffp-contract=off", "-fno-math-errno", "-fno-strict-aliasing", "-Werror")
SANITIZERS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
MEMORY = frozenset({"memcpy", "memmove", "memset"})
# the largest error, in units of the last place of an array's largest number
ULPS = 32


class Target(NamedTuple):
    """A compiler with options, and the command that runs its programs; both may be missing."""

    compile: Sequence[str]
    run: Sequence[str] = ()
    tools: Sequence[str] = ()


WASMTIME = """
import sys, wasmtime
engine = wasmtime.Engine()
linker, store = wasmtime.Linker(engine), wasmtime.Store(engine)
linker.define_wasi()
settings = wasmtime.WasiConfig()
settings.stdin_file, settings.stdout_file = "in", "out"
store.set_wasi(settings)
linker.instantiate(store, wasmtime.Module.from_file(engine, sys.argv[1])).exports(store)["_start"](store)
"""
TARGETS = {
    "gcc": Target(("cc", "-O2")),
    "sanitizers": Target(("cc", *SANITIZERS)),
    "clang": Target((*ZIG, "-O2", "-fno-sanitize=all")),
    "wasmtime": Target((*ZIG, "-target", "wasm32-wasi", "-O2", "-msimd128"), (sys.executable, "-c", WASMTIME)),
    "aarch64": Target((*ZIG, "-target", "aarch64-linux-musl", "-static", "-O2"), ("qemu-aarch64",), ("qemu-aarch64",)),
    "riscv64": Target((*ZIG, "-target", "riscv64-linux-musl", "-static", "-O1"), ("qemu-riscv64",), ("qemu-riscv64",)),
}


# ------------------------------------------------------------------ programs
def small(size: int) -> int:
    """A twelfth of a large size."""
    return size if size < 64 else max(8, size // 12)


def reduced(build: Callable[..., Any]) -> Any:
    """A benchmark on smaller arrays, which are made by the functions that are replaced here."""
    normal, one_hot, mlp = benchmarks.normal, benchmarks.one_hot, benchmarks._mlp

    def fewer(generator: Any, *shape: int, scale: float = 1.0) -> np.ndarray:
        return normal(generator, *map(small, shape), scale=scale)

    with (
        mock.patch.object(benchmarks, "normal", fewer),
        mock.patch.object(benchmarks, "one_hot", lambda g, count, classes: one_hot(g, small(count), classes)),
        mock.patch.object(benchmarks, "_mlp", lambda g, sizes: mlp(g, tuple(map(small, sizes)))),
    ):
        return build(rlx, np.random.default_rng(0))


def trained_before(step: Any, arguments: tuple[Any, ...]) -> Any:
    """A step of Adam with moments: from zero it divides gradients by their magnitudes, also where they are tiny."""
    (layers, mean, square, count), *batch = arguments
    return step, ((layers, mean, rlx.tree.map(lambda s: s + np.float32(0.01), square), count + np.float32(3)), *batch)


# programs whose sizes belong to their functions
WHOLE: dict[str, Callable[..., Any]] = {
    "mlp_adam_step": lambda J, g: trained_before(*benchmarks.perceptron(J, g, examples=4)),
    "transformer_gradient": lambda J, g: benchmarks.transformer(J, g, layers=1, sequences=1),
    "hessian_vector_product": benchmarks.hessian_vector_product,
    "nbody_forces": benchmarks.nbody_forces,
    "sparse_jacobian": benchmarks.sparse_jacobian,
    "segment_sum": benchmarks.segment_sum,
}


def program_of(name: str) -> Any:
    if name in WHOLE:
        return WHOLE[name](rlx, np.random.default_rng(0))
    return reduced(next(p.build for p in benchmarks.programs if p.name == name))


def is_real(x: Any) -> bool:
    return np.asarray(x).dtype.kind == "f"


def gradient_of(function: Any, arguments: tuple[Any, ...]) -> Any:
    """The gradient of the sum of squares of the results, for the leaves of the arguments that are real."""
    leaves, structure = rlx.tree.flatten(arguments)
    moving = [number for number, leaf in enumerate(leaves) if is_real(leaf)]

    def total(active: Any, *leaves: Any) -> Any:
        given = list(leaves)
        for number, value in zip(moving, active, strict=True):
            given[number] = value
        results = rlx.tree.leaves(function(*rlx.tree.unflatten(structure, given)))
        return sum(jnp.sum(jnp.square(x)) for x in results if jnp.issubdtype(x.dtype, jnp.floating))

    return lambda *leaves: rlx.grad(total)([leaves[number] for number in moving], *leaves), tuple(leaves)


FORWARD = [p.name for p in benchmarks.programs]
TWICE = re.compile("gradient|step|hessian|jacobian|random|argsort|dispatch|nbody")
BACKWARD = [name for name in FORWARD if not TWICE.search(name)]


@dataclass
class Built:
    """The sources of all programs in a folder, and what they have to compute."""

    folder: Path
    names: list[str]
    wanted: list[list[np.ndarray]]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("portable")
    cases = [(name, *program_of(name)) for name in FORWARD]
    cases += [(f"gradient_of_{name}", *gradient_of(*program_of(name))) for name in BACKWARD]
    wanted, data = [], []
    calls, heads = [], ["#include <stdio.h>", "#include <stdlib.h>"]
    for name, function, arguments in cases:
        rlx.export_c(function, *arguments, path=folder / f"f_{name}")
        inputs = [np.ascontiguousarray(leaf) for leaf in rlx.tree.leaves(rlx.tree.map(jnp.asarray, arguments))]
        results = [np.asarray(leaf) for leaf in rlx.tree.leaves(rlx.jit(function)(*arguments))]
        heads.append(f'#include "f_{name}.h"')
        calls.append(call_text(f"f_{name}", inputs, results))
        data += [array.tobytes() for array in inputs]
        wanted.append(results)
    main = [*heads, READ, "int main(void) {", *calls, "    return 0;", "}"]
    (folder / "main.c").write_text("\n".join(main) + "\n")
    (folder / "in").write_bytes(b"".join(data))
    return Built(folder, [name for name, _, _ in cases], wanted)


READ = """
static void *taken(size_t bytes, int filled) {
    void *memory = malloc(bytes + 1);
    if (memory == NULL || (filled && fread(memory, 1, bytes, stdin) != bytes)) exit(2);
    return memory;
}
"""


def call_text(name: str, inputs: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> str:
    """Reads arguments, calls a function, and writes its results."""
    arrays = [*((array, 1) for array in inputs), *((array, 0) for array in results)]
    lines = [f"void *a{n} = taken({array.nbytes}, {filled});" for n, (array, filled) in enumerate(arrays)]
    lines.append(f"{name}({', '.join(f'a{n}' for n in range(len(arrays)))});")
    outputs = range(len(inputs), len(arrays))
    lines += [f"fwrite(a{n}, 1, {arrays[n][0].nbytes}, stdout);" for n in outputs]
    lines += [f"free(a{n});" for n in range(len(arrays))]
    return "\n".join(["    {", *(f"        {line}" for line in lines), "    }"])


# ------------------------------------------------------------------ targets
def unavailable(target: Target) -> str:
    """Why a target cannot be used here; nothing if it can."""
    needed = {tool for tool in (target.compile[0], *target.tools) if shutil.which(tool) is None}
    modules = {"ziglang"} if target.compile[: len(ZIG)] == ZIG else set()
    modules |= {"wasmtime"} if WASMTIME in target.run else set()
    missing = [*sorted(needed), *(m for m in sorted(modules) if importlib.util.find_spec(m) is None)]
    return f"not installed: {', '.join(missing)}" if missing else ""


def require(reason: str) -> None:
    if reason and REQUIRED:
        pytest.fail(f"{reason}, and RLX_REQUIRE_TOOLS is 1")
    if reason:
        pytest.skip(reason)


def outputs(folder: Path, name: str, target: Target) -> bytes:
    """What the programs write on a target."""
    sources = [file.name for file in sorted(folder.glob("*.c"))]
    command = [*target.compile, *SHIPPED, *sources, "-o", f"program_{name}", "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]
    with (folder / "in").open("rb") as data, (folder / "out").open("wb") as out:
        run = subprocess.run(
            [*target.run, f"./program_{name}"], cwd=folder, stdin=data, stdout=out, stderr=subprocess.PIPE, check=False
        )
    assert run.returncode == 0, run.stderr[:3000]
    return (folder / "out").read_bytes()


def split(data: bytes, wanted: Sequence[Sequence[np.ndarray]]) -> Iterator[list[np.ndarray]]:
    at = 0
    for arrays in wanted:
        found = []
        for array in arrays:
            found.append(np.frombuffer(data, array.dtype, array.size, at).reshape(array.shape))
            at += array.nbytes
        yield found
    assert at == len(data)


def error_of(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest error in units of the last place of the largest number; integers have to be equal."""
    if wanted.dtype.kind != "f":
        return 0.0 if np.array_equal(found, wanted) else np.inf
    scale = float(np.abs(wanted).max(initial=0.0)) or 1.0
    error = float(np.abs(found.astype("f8") - wanted.astype("f8")).max(initial=0.0))
    return error / scale / float(np.finfo(wanted.dtype).eps)


@pytest.mark.parametrize("name", TARGETS)
def test_programs_compute_the_same_everywhere(built: Built, name: str) -> None:
    require(unavailable(TARGETS[name]))
    data = outputs(built.folder, name, TARGETS[name])
    errors = {
        program: max(map(error_of, found, wanted), default=0.0)
        for program, found, wanted in zip(built.names, split(data, built.wanted), built.wanted, strict=True)
    }
    print(f"{name}: largest error {max(errors.values()):.1f} ulp of {max(errors, key=errors.__getitem__)}")
    assert {program: error for program, error in errors.items() if not error <= ULPS} == {}


def test_products_on_arm_use_vectors(built: Built) -> None:
    """Tiles of products become multiplications of four numbers by one, without calls of fmaf."""
    require(unavailable(TARGETS["clang"]))
    command = [*ZIG, "-target", "aarch64-linux-musl", "-O2", *SHIPPED, "-Wno-unused-command-line-argument"]
    subprocess.run([*command, "-S", "f_matrix_product.c", "-o", "product.s"], cwd=built.folder, check=True)
    text = (built.folder / "product.s").read_text()
    assert len(re.findall(r"fmla\s+v\d+\.4s", text)) >= 16 and "fmaf" not in text


def test_objects_need_only_libm(built: Built) -> None:
    """Symbols of the object files: two functions each, and functions of the mathematical library and memory."""
    require("" if shutil.which("nm") else "not installed: nm")
    sources = [f"f_{name}.c" for name in built.names]
    command = [*compiler().command, *(f for f in FLAGS if f != "-shared"), "-c", *sources]
    subprocess.run(command, cwd=built.folder, check=True)
    objects = [source.replace(".c", ".o") for source in sources]
    listed = subprocess.run(["nm", *objects], cwd=built.folder, capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"^\s+U (\w+)$", listed, re.MULTILINE)) - MEMORY - {"_GLOBAL_OFFSET_TABLE_"}
    both = "a?(sin|cos|tan)h?|exp2?|expm1|log(1p|2)?|sqrt|cbrt|pow|fabs|fma|sincos|ceil|floor|rint|erfc?"
    mathematics = re.compile(f"({both})f?")
    assert {symbol for symbol in needed if not mathematics.fullmatch(symbol)} == set()
    defined = re.findall(r"^\w+ T (\w+)$", listed, re.MULTILINE)
    assert sorted(defined) == sorted(f"f_{name}{end}" for name in built.names for end in ("", "_in"))
