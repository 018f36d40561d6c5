"""The command line: what is printed, exit codes, and that a mistake is said in a line or two."""

from __future__ import annotations

import doctest
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.backends.cpu.runtime.store import user_folder
from rlx.bench import parity, percentile
from rlx.cli import main
from rlx.cli.doctor import Check, checks
from rlx.cli.mistakes import Mistake, told
from rlx.cli.output import as_json, duration, short_path, show_source, status_word
from rlx.cli.requirements import Requirement, allows, requirements
from rlx.cli.type_text import DTYPES, arguments_of
from rlx.errors import bytes_text
from rlx.ir.types import supported_dtypes
from rlx.settings import SETTINGS

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "command_line.md"
MODEL = """
from dataclasses import dataclass
import rlx
import rlx.numpy as jnp
from rlx.numpy import tanh
from helper import scale

print("the file is run")

def normalise(x):
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-6)

@rlx.jit
def layer(w, x):
    return {"y": tanh(x @ w), "s": scale * x.sum(), "n": [x.shape[0] + x[0, 0] * 0]}

@rlx.jit(static_argnums=1)
def power(x, n):
    assert isinstance(n, int)
    return x**n

def wrong(x):
    return x.sum()

def wrong_numpy(x):
    return x.sum() + 1

def other_shape(x):
    return x * 2

def other_shape_numpy(x):
    return [x * 2, x]

def gradient(x):
    return rlx.grad(lambda y: jnp.sum(y**2))(x)

gradient_of_sum = rlx.grad(lambda x: x.sum())

@rlx.custom_jvp
def with_rule(x):
    return x

with_rule.defjvp(lambda p, t: (p[0], t[0]))

def until(x):
    return rlx.lax.while_loop(lambda v: v.sum() < 10, lambda v: v + 1, x)

def shapes(x):
    return x + jnp.ones(3)

def index(x):
    return [1][3]

class Net:
    @staticmethod
    def apply(parameters, x):
        return parameters["w"] * x

@dataclass
class Settings:
    rate: float = 0.1

constant = 3
"""

Rlx = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Rlx:
    """Run a command in a folder with model.py and helper.py; -> exit code, standard output, standard error."""
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "helper.py").write_text("scale = 2.0\n")
    (tmp_path / "broken.py").write_text("def f(x:\n")
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit('no data')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RLX_TRACEBACK", raising=False)
    monkeypatch.delitem(sys.modules, "helper", raising=False)

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(words)
        return (code, *capsys.readouterr())

    return run


def data(found: tuple[int, str, str]) -> Any:
    return json.loads(found[1])


# ------------------------------------------------------------------ types
def f(shape: tuple[int, ...], dtype: str = "float32") -> rlx.ShapeDtypeStruct:
    return rlx.ShapeDtypeStruct(shape, dtype)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("f32[64,32] i32[]", [f((64, 32)), f((), "int32")]),
        ("float32[ 64 , 32 ],i32[]", [f((64, 32)), f((), "int32")]),
        ("bf16[8] bool[0] c64[1] u8[2,] f8_e4m3fn[3] i4[2]", [
            f((8,), "bfloat16"), f((0,), "bool"), f((1,), "complex64"), f((2,), "uint8"),
            f((3,), DTYPES["float8_e4m3fn"]), f((2,), DTYPES["int4"]),
        ]),
        ("(f32[3], (f64[], ())) 0.1", [(f((3,)), (f((), "float64"), ())), 0.1]),
        ("[f32[3] f32[4]] {w: f32[3], 'b c': [1, -2e3]}", [[f((3,)), f((4,))], {"w": f((3,)), "b c": [1, -2000.0]}]),
        ("+3 .5 True None 'mean' \"a b\"", [3, 0.5, True, None, "mean", "a b"]),
    ],
)  # fmt: skip
def test_types(text: str, expected: list[Any]) -> None:
    found = arguments_of(text)
    assert found == expected
    assert list(map(type, found)) == list(map(type, expected))


def test_every_dtype_has_its_name_and_a_short_one() -> None:
    for dtype in supported_dtypes:
        assert DTYPES[dtype.name] == dtype
    assert len(DTYPES) == 2 * len(supported_dtypes) - 1  # bool is short
    assert DTYPES["bf16"].name == "bfloat16" and DTYPES["c128"].name == "complex128"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("f33[2]", "no dtype f33"),
        ("flaot32[2]", "Did you mean float32?"),
        ("f32", "write f32[] for a scalar"),
        ("key[]", "rlx.random.key(0)"),
        ("f32[2", "from [2 on|nothing belongs to|end before|dtype without"),
        ("f32[x]", "has a size x"),
        ("f32[-1]", "has a size -1"),
        ("f32[1,,2]", "a comma too many"),
        ("f32[²]", "has a size"),
        ("f32[" + "9" * 30 + "]", "has a size"),
        ("f32[" + ",".join(["1"] * 65) + "]", "64 axes"),
        ("f32[9999999999,9999999999]", "2**63"),
        ("(f32[2]", "end before a ')'"),
        ("f32[2])", "nothing belongs to"),
        ("{w f32[2]}", "no name with a colon"),
        ("{w:", "end before a '}'"),
        ("{w", "no name with a colon"),
        ("f32[2];", "from ; on"),
        ("3x", "from 3x on"),
        ("(" * 17 + ")" * 17, "more than 16 brackets"),
        ("1 " * 1001, "more than 1000 types"),
        ("1 " * 6000, "12000 characters"),
    ],
)
def test_types_that_cannot_be_read(text: str, what: str) -> None:
    with pytest.raises(Mistake) as caught:
        arguments_of(text)
    said = str(caught.value)
    assert any(part.lower() in said.lower() for part in what.split("|")), said
    assert len(said) < 300 and said.count("\n") <= 1
    assert caught.value.code == 2


# ------------------------------------------------------------------ mistakes
@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("inspct model.py:normalise", "There is no command inspct.\nDid you mean inspect?"),
        (
            "frobnicate",
            "There are: bench, cache, calibrate, doctor, explain, export, generate, gguf, info, inspect, launch",
        ),
        ("--json", "rlx has no option --json."),
        ("--vers", "Did you mean --version?"),
        ("inspect", "required: FILE:FUNCTION"),
        ("inspect model.py", "model.py names no function"),
        ("inspect model.py:", "names no function"),
        ("inspect model.py:3", "3 is no name of a function"),
        ("inspect modl.py:normalise", "There is no file modl.py.\nDid you mean model.py?"),
        ("inspect nowhere/model.py:f", "There is no file nowhere/model.py."),
        ("inspect ./:f", "is a folder"),
        ("inspect nomodule:f", "There is no module nomodule."),
        ("inspect no.module:f", "There is no module no.module"),
        ("inspect math:sin", "math is no module of Python source."),
        ("inspect broken.py:f", "broken.py cannot be read as Python"),
        ("inspect leaves.py:f", "leaves.py:f raised SystemExit: no data"),
        ("inspect model.py:normalize --args f32[2,2]", "Did you mean normalise?"),
        ("inspect model.py:Net.aply --args f32[2,2]", "Net has no function aply.\nDid you mean apply?"),
        ("inspect model.py:constant", "constant is no function, but int."),
        ("inspect model.py:normalise", "cannot be called with 0 arguments"),
        ("inspect model.py:normalise --args f32[2]", "axis"),
        ("inspect model.py:shapes --args f32[2]", "float32[2] and float32[3].\n  at model.py:"),
        ("inspect model.py:index --args f32[2]", "raised IndexError: list index out of range\n  at model.py:"),
        ("inspect model.py:normalise --args f32[2,2] --stge dce", "has no option --stge.\nDid you mean --stage?"),
        ("inspect model.py:normalise f32[2,2]", "has no place for f32[2,2]."),
        ("inspect model.py:normalise --args f32[2,2] --stage simplfy", "Did you mean simplify?"),
        ("inspect model.py:normalise --args f32[2,2] --stage x", "There are: hir, inline"),
        ("inspect model.py:normalise --args f32[2,2] --diff hir", "hir is the first stage"),
        ("inspect model.py:normalise --args f32[2,2] --kernels asembly", "Did you mean assembly?"),
        ("inspect model.py:normalise --args f32[2,2] --stage dce --diff dce", "not allowed with"),
        ("bench model.py:normalise --args f32[2,2] --rounds 0", "--rounds is 0."),
        ("bench model.py:normalise --args f32[2,2] --rounds x", "invalid int value"),
        ("bench model.py:normalise --args f32[2,2] --seed -1", "--seed is -1."),
        ("bench model.py:normalise --args f32[2,2] --against numy", "Did you mean numpy?"),
        ("bench model.py:normalise --args f32[2,2] --against jaxlib", "There are: jax, torch, torch.compile, numpy."),
        ("bench model.py:gradient --args f32[2] --against numpy", "write gradient_numpy"),
        ("bench model.py:until --args f32[2] --against numpy", "nothing in the place of rlx.lax.while_loop.\n"),
        ("bench model.py:gradient_of_sum --args f32[2] --against numpy", "write gradient_of_sum_numpy"),
        ("bench model.py:wrong --args f32[99999999999,9999]", "no memory"),
        ("cache", "required"),
        ("cache list", "rlx cache has no action list"),
        ("cache clea", "Did you mean clear?"),
    ],
)
def test_a_mistake_is_a_line_or_two(command: Rlx, words: str, what: str) -> None:
    code, printed, said = command(*words.split())
    assert code == 2
    assert what in (said if "--json" not in words else json.loads(printed)["error"])
    assert "Traceback" not in said + printed
    assert said.count("\n") <= 5, said


def test_a_device_that_is_not_there(command: Rlx, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names no line where the function has none to do with it; the doctor finds it, too."""
    monkeypatch.setenv("RLX_DEVICE", "abacus")
    with rlx.scoped(device="abacus"):
        code, _, said = command("inspect", "model.py:normalise", "--args", "f32[2,2]")
        assert code == 2 and said.startswith("rlx: There is no device 'abacus'") and "  at " not in said
        code, text, _ = command("doctor")
    assert code == 1
    assert "failed   devices: There is no device 'abacus'" in text
    assert "failed   first process: rlx.errors.DeviceError: There is no device 'abacus'" in text


def test_a_mistake_as_json(command: Rlx) -> None:
    found = command("inspect", "model.py:normalize", "--args", "f32[2,2]", "--json")
    assert found[0] == 2
    assert data(found) == {"error": "model.py has no function normalize.", "instead": "Did you mean normalise?"}


def test_the_whole_traceback_for_who_asks(command: Rlx, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_TRACEBACK", "full")
    with pytest.raises(IndexError):
        command("inspect", "model.py:index", "--args", "f32[2]")


def test_a_fault_of_rlx_is_no_mistake_of_the_user(command: Rlx, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception that is no lesson and comes from inside: exit code 1, and how to see more."""

    def fault(function: Any) -> Any:
        return exec(compile("assert False, 'inside'", str(Path(rlx.__file__).parent / "inside.py"), "exec"))

    monkeypatch.setattr(rlx, "inspect", fault, raising=False)
    code, _, said = command("inspect", "model.py:normalise", "--args", "f32[2,2]")
    assert code == 1 and "AssertionError: inside" in said and "RLX_TRACEBACK=full" in said


# ------------------------------------------------------------------ inspect
def test_inspect(command: Rlx) -> None:
    code, page, _ = command("inspect", "model.py:normalise", "--args", "f32[64,32]")
    assert code == 0 and "kernels: 1 Loops" in page and "model.py:11" in page
    assert page.startswith("the file is run\nnormalise(float32[64,32])")
    for form, part in (("loops", "for i in range"), ("llvm", "define"), ("assembly", "ret"), ("plan", "Plan")):
        code, text, _ = command("inspect", "model.py:normalise", "--args", "f32[64,32]", "--kernels", form)
        assert code == 0 and part in text
    code, text, _ = command("inspect", "model:normalise", "--args", "f32[64,32]", "--stage", "lower")
    assert code == 0 and "Loops" in text
    code, text, _ = command("inspect", "model.py:normalise", "--args", "f32[64,32]", "--diff", "simplify")
    assert code == 0 and "--- fold\n+++ simplify" in text


def test_inspect_as_data(command: Rlx) -> None:
    found = command("inspect", "model.py:layer", "--args", "f32[32,16]", "--args", "f32[64,32]", "--json")
    told = data(found)  # what the file prints is not in it
    assert "the file is run" in found[2]
    assert told["inputs"] == ["float32[32,16]", "float32[64,32]"] and len(told["outputs"]) == 3
    assert told["kernels"]["Contract"] == 1 and told["work"]["flops"] > 2 * 64 * 32 * 16
    assert [s["name"] for s in told["stages"]][:2] == ["hir", "inline"]
    assert told["memory"]["arguments"] == 4 * (32 * 16 + 64 * 32)
    assert {"equation", "how", "kernel", "reason"} == set(told["dispatch"][0])
    stage = data(command("inspect", "model.py:Net.apply", "--args", "{w: f32[3]} f32[3]", "--stage", "hir", "--json"))
    assert stage["stage"] == "hir" and "multiply" in stage["text"]
    assert data(command("inspect", "model.py:power", "--args", "f32[3] 2", "--json"))["inputs"] == ["float32[3]"]


def test_a_module_of_a_package(command: Rlx, tmp_path: Path) -> None:
    package = tmp_path / "library"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "parts.py").write_text("def double(x):\n    return x + x\n")
    (package / "whole.py").write_text("from .parts import double\n\ndef f(x):\n    return double(x)\n")
    assert command("inspect", "library.whole:f", "--args", "f32[3]")[0] == 0
    assert sys.path[0] != str(tmp_path)
    assert command("bench", "library.whole:f", "--args", "f32[3]", "--against", "numpy", "--rounds", "1")[0] == 0


# ------------------------------------------------------------------ bench
def test_bench_against_jax_and_numpy(command: Rlx) -> None:
    words = ["model.py:layer", "--args", "f64[32,16] f64[64,32]", "--against", "jax,numpy", "--rounds", "2", "--json"]
    found = command("bench", *words)
    told = data(found)
    assert found[0] == 0
    ours, jax, numpy = told["libraries"]
    assert (ours["library"], jax["library"], numpy["library"]) == ("rlx", "jax", "numpy")
    for row in (jax, numpy):
        assert row["parity"]["holds"] and row["parity"]["error"] < 1e-12 and row["parity"]["allowed"] < 1e-10
    for row in told["libraries"]:
        assert 0 < row["p50_seconds"] <= row["p95_seconds"] and row["calls"] >= 2
        work = told["work"]
        operations = work["flops"] + work["transcendentals"]
        assert row["gflops"] == pytest.approx(operations / row["p50_seconds"] / 1e9)
        moved = work["bytes_read"] + work["bytes_written"]
        assert row["gigabytes_per_second"] == pytest.approx(moved / row["p50_seconds"] / 1e9)
    assert work["flops"] >= 2 * 64 * 32 * 16 and "parity" not in ours
    code, table, _ = command("bench", *words[:-1])
    assert code == 0 and re.search(r"^numpy .* ok \(\d", table, re.MULTILINE)


@pytest.mark.parametrize(("function", "why"), [("wrong", "> 2e-04"), ("other_shape", "2 arrays instead of 1")])
@pytest.mark.selected(1)
def test_bench_fails_where_results_differ(command: Rlx, function: str, why: str) -> None:
    words = [f"model.py:{function}", "--args", "f32[5]", "--against", "numpy", "--rounds", "1"]
    code, table, _ = command("bench", *words)
    assert code == 1 and "failed: " in table and why in table
    found = command("bench", *words, "--json")
    assert found[0] == 1 and not data(found)["libraries"][1]["parity"]["holds"]


def test_bench_alone_and_of_unknown_work(command: Rlx) -> None:
    told = data(command("bench", "model.py:until", "--args", "i32[3]", "--rounds", "1", "--json"))
    assert not told["work"]["exact"] and told["libraries"][0]["gflops"] is None
    code, table, _ = command("bench", "model.py:until", "--args", "i32[3]", "--rounds", "1")
    assert code == 0 and " - " in table


def test_bench_with_a_library_that_is_not_there(command: Rlx, monkeypatch: pytest.MonkeyPatch) -> None:
    found = __import__("importlib.util").util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *a: None if name == "torch" else found(name, *a))
    code, _, said = command("bench", "model.py:normalise", "--args", "f32[2,2]", "--against", "numpy,torch")
    assert code == 2 and said == "rlx: torch is not installed.\npip install torch, or leave it out of --against.\n"


def test_bench_against_torch_runs_its_names(command: Rlx, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is run with torch in the place of rlx.numpy; a stand-in with NumPy's arrays is torch here."""

    class Tensor(np.ndarray):
        dtype_name = "float32"

        def detach(self) -> Tensor:
            return self

        cpu = detach

        def numpy(self) -> np.ndarray:
            return np.asarray(self)

    torch = ModuleType("torch")
    vars(torch).update({name: getattr(np, name) for name in ("sqrt", "tanh", "mean")})
    called: list[str] = []
    vars(torch).update(
        Tensor=Tensor, bfloat16="bfloat16", from_numpy=lambda x: x.view(Tensor),
        set_num_threads=lambda count: called.append(f"{count} threads"),
        compile=lambda function: called.append("compile") or function,
    )  # fmt: skip
    torch.__spec__ = __import__("importlib.machinery").machinery.ModuleSpec("torch", None)
    monkeypatch.setitem(sys.modules, "torch", torch)
    words = ["--args", "f32[4,8]", "--against", "torch,torch.compile", "--rounds", "1", "--json"]
    found = command("bench", "model.py:normalise", *words)
    assert found[0] == 0, found
    assert [row["library"] for row in data(found)["libraries"]] == ["rlx", "torch", "torch.compile"]
    assert called.count("compile") == 1 and f"{rlx.get_num_threads()} threads" in called


def test_parity() -> None:
    one, nan, infinite = np.ones(4, np.float32), np.array([1, np.nan]), np.array([1, np.inf])
    assert parity([one], [one * np.float32(1 + 1e-5)]).holds
    assert not parity([one], [one * np.float32(1 + 1e-3)]).holds
    assert parity([one.astype(np.float64)], [one]).holds  # the narrower dtype counts
    assert parity([nan], [nan]).holds and not parity([nan], [np.ones(2)]).holds
    assert parity([infinite], [infinite]).holds and not parity([infinite], [-infinite]).holds
    assert not parity([infinite], [nan]).holds
    assert parity([np.arange(3)], [np.arange(3)]).holds and not parity([np.arange(3)], [np.arange(3) + 1]).holds
    assert parity([np.zeros(0), one], [np.zeros(0), one]).holds
    assert parity([one, one], [one]).difference == "1 arrays instead of 2"
    assert parity([one], [np.ones(3)]).difference == "shape (3,) instead of (4,)"
    assert not parity([one, one], [one, one * 2]).holds and not parity([one * 2, one], [one, one]).holds
    assert not parity([np.ones(2) * 1j], [np.ones(2)]).holds
    assert not parity([np.zeros(2)], [np.ones(2)]).holds
    assert parity([], []).holds


def test_percentiles() -> None:
    values = [float(n) for n in range(1, 101)]
    assert percentile(values, 0.5) == 50 and percentile(values, 0.95) == 95
    assert percentile([3.0], 0.5) == percentile([3.0], 0.95) == 3.0


# ------------------------------------------------------------------ info, doctor
def test_info(command: Rlx) -> None:
    code, text, _ = command("info")
    assert code == 0 and re.search(rf"^rlx: +{re.escape(rlx.__version__)}$", text, re.MULTILINE)
    assert all(f"\n{state} devices:\n" in text for state in ("usable", "installable", "impossible"))
    assert re.search(r"^  cpu$", text, re.MULTILINE)
    told = data(command("info", "--json"))
    assert "cpu" in told["device_states"]["usable"]
    assert told["numpy"] == np.__version__ and told["threads"] == rlx.get_num_threads()
    assert {"numba", "llvmlite", "scipy"} <= set(told["packages"]) and "cpu" in told["devices"]
    for line in (rlx.print_environment_info(return_string=True) or "").splitlines():
        assert re.match(r"\w+", line)[0] in told  # type: ignore[index]


@pytest.mark.thorough
def test_doctor(command: Rlx, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_NUM_THREAD", "1")
    found = command("doctor", "--json")
    told = data(found)
    assert found[0] == 0 and told["ok"], told
    by_name: dict[str, list[dict[str, str]]] = {}
    for check in told["checks"]:
        by_name.setdefault(check["name"], []).append(check)
    expected = {"python", "numpy", "numba", "scipy", "settings", "compiler", "cache", "threads", "device cpu"}
    assert expected | {"matrix products", "first process", "next process"} <= set(by_name)
    misspelt = by_name["settings"][0]
    assert misspelt["status"] == "warning" and "RLX_NUM_THREAD" in misspelt["seen"]
    assert misspelt["instead"] == "Did you mean RLX_NUM_THREADS?"
    assert "LLVM" in by_name["compiler"][0]["seen"] and "first call" in by_name["first process"][0]["seen"]
    assert "read from the cache" in by_name["next process"][0]["seen"]


def quick_checks(monkeypatch: pytest.MonkeyPatch) -> dict[str, Check]:
    """The checks without those that start processes."""
    monkeypatch.setattr("rlx.cli.doctor._kernels", lambda: iter(()))
    return {check.name: check for check in checks()}


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_doctor_on_a_folder_that_others_can_write(
    command: Rlx, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "shared" / "native"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    monkeypatch.setenv("RLX_CACHE_DIR", str(folder.parent))
    found = quick_checks(monkeypatch)["cache"]
    assert found.status == "failed" and "can be written by other users" in found.seen
    assert "RLX_CACHE_DIR" in found.instead
    code, printed, said = command("doctor")
    assert code == 1 and "failed   cache" in printed and "1 failed" in printed
    code, _, said = command("cache", "size")
    assert code == 1 and "can be written by other users" in said


def test_doctor_finds_what_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wrong = [Requirement("numpy", ">=99"), Requirement("no-such-package", ">=1"), Requirement("python", "<3")]
    monkeypatch.setattr("rlx.cli.doctor.requirements", lambda: wrong)
    monkeypatch.setenv("RLX_CACHE", "0")
    monkeypatch.setenv("RLX_DEBUG_NANS", "1")
    monkeypatch.setattr("rlx.cli.doctor.rlx.get_num_threads", lambda: 100_000)
    monkeypatch.setattr("rlx.cli.doctor.rlx.numpy.matmul", lambda x, y: x @ y + 1)
    found = quick_checks(monkeypatch)
    statuses = {name: found[name].status for name in ("numpy", "no-such-package", "python", "cache", "threads")}
    assert statuses == {
        "numpy": "warning", "no-such-package": "failed", "python": "warning", "cache": "warning", "threads": "warning",
    }  # fmt: skip
    assert found["matrix products"].status == "failed"
    assert found["no-such-package"].instead == 'pip install "no-such-package>=1"'
    monkeypatch.setattr("rlx.cli.doctor.rlx.devices", lambda: [rlx.Device("tpu")])
    assert "tpu" in quick_checks(monkeypatch)["devices"].seen


def test_doctor_knows_every_setting() -> None:
    table = re.findall(r"^\| `(RLX_\w+)`", (ROOT / "docs" / "settings.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(SETTINGS) == sorted(table)


def test_requirements() -> None:
    found = {r.name: r.versions for r in requirements()}
    assert found["python"] == ">=3.11,<3.15" and {"numpy", "scipy", "numba"} <= set(found)
    assert "jax" not in found and "mlx" not in found
    assert allows(found["numpy"], np.__version__)
    assert allows(">=2.1,<3", "2.1") and not allows(">=2.1,<3", "3.0.0") and not allows(">=2.1,<3", "2.0.9")
    assert allows("<=2", "2.0") and allows("!=2", "2.1") and not allows("!=2.0", "2") and allows(">1,==2", "2.0.0")
    assert allows("", "1")


# ------------------------------------------------------------------ cache
def test_cache(command: Rlx, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "kept"))
    assert data(command("cache", "size", "--json"))["files"] == 0
    assert not (tmp_path / "kept").exists()  # looking makes no folder
    folder = user_folder()
    assert folder is not None
    folder.mkdir(parents=True, mode=0o700)
    ours = [folder / f"{'a' * 48}.o", folder / f".{'b' * 48}.12ab", folder.parent / f"peaks-{'c' * 24}.json"]
    others = [folder / "notes.txt", folder / "a.o", folder.parent / "peaks.json", folder.parent / f"{'a' * 48}.o"]
    for path in (*ours, *others):
        path.write_bytes(b"12345")
        path.chmod(0o600)
    (folder / f"{'d' * 48}.o").symlink_to(tmp_path / "model.py")
    told = data(command("cache", "ls", "--json"))
    assert told["files"] == 3 and told["bytes"] == 15 and not told["removed"]
    assert sorted(row["path"] for row in told["list"]) == sorted(map(str, ours))
    code, text, _ = command("cache", "ls")
    assert code == 0 and "peaks-" in text and "notes.txt" not in text and "3 files, 15 B, in " in text
    code, text, _ = command("cache", "clear")
    assert code == 0 and text.startswith("removed 3 files, 15 B")
    assert not any(path.exists() for path in ours) and all(path.exists() for path in others)
    assert (tmp_path / "model.py").exists()
    assert command("cache", "size")[1].startswith("0 files, 0 B")
    monkeypatch.setenv("RLX_CACHE", "0")
    assert command("cache", "size")[0] == 2


def test_cache_holds_what_a_process_compiled(command: Rlx, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The files listed are those that a compiling process writes."""
    environment = {**os.environ, "RLX_CACHE_DIR": str(tmp_path / "kept"), "PYTHONPATH": str(ROOT)}
    code = "import rlx; rlx.jit(lambda x: x * 2 + 1)(rlx.numpy.ones(9))"
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "kept"))
    written = {str(p) for p in (tmp_path / "kept").rglob("*") if p.is_file()}
    assert written and {row["path"] for row in data(command("cache", "ls", "--json"))["list"]} == written


# ------------------------------------------------------------------ the whole
@pytest.mark.thorough
def test_as_a_process(tmp_path: Path) -> None:
    """python -m rlx, its exit code, and a reader that stops reading."""
    (tmp_path / "model.py").write_text("def f(x):\n    return x.sum()\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    start = [sys.executable, "-m", "rlx"]
    words = ["inspect", "model.py:f", "--args", "f32[8]", "--kernels", "llvm"]
    reader = subprocess.Popen([*start, *words], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=-1)
    assert reader.stdout is not None and reader.stderr is not None
    reader.stdout.close()
    assert reader.stderr.read() == b"" and reader.wait() == 0
    reader.stderr.close()
    words[1:] = ["model.py:g"]
    done = subprocess.run([*start, *words], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "rlx: model.py has no function g.\nIt has: f.\n")
    environment["RLX_NUM_THREADS"] = "many"
    done = subprocess.run([*start, "doctor"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("rlx: RLX_NUM_THREADS must be a positive integer")


def test_import_rlx_loads_no_command_line() -> None:
    code = "import sys, rlx; sys.exit(any(name.startswith('rlx.cli') or name == 'argparse' for name in sys.modules))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0
    importing = re.compile(r"(from|import) rlx\.cli")
    assert not [
        path
        for path in (ROOT / "rlx").rglob("*.py")
        if path.parent.name != "cli" and path.name != "__main__.py" and importing.search(path.read_text("utf-8"))
    ]


def test_help_and_version(command: Rlx) -> None:
    assert command("--version")[:2] == (0, f"rlx {rlx.__version__}\n")
    code, text, _ = command()
    assert code == 0 and all(name in text for name in ("info", "doctor", "inspect", "bench", "cache"))
    for name in ("info", "doctor", "inspect", "bench", "cache"):
        code, text, _ = command(name, "--help")
        assert code == 0 and "--json" in text


def test_what_is_printed() -> None:
    assert as_json({"a": (1, float("nan"), np.float32(2.0), Path("x"), True, None)}) == as_json(
        {"a": [1, None, 2.0, "x", True, None]}
    )
    assert (bytes_text(0), bytes_text(1023), bytes_text(2**41)) == ("0 B", "1023 B", "2.0 TiB")
    assert (duration(100.0), duration(0.5), duration(1e-9)) == ("100 s", "500 ms", "0.00100 us")
    assert short_path(os.path.expanduser("~/x/y")) == str(Path("~/x/y")) and short_path("/nowhere/x") == "/nowhere/x"
    assert status_word("ok") == "ok      "


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With rich on a terminal source is coloured; elsewhere it is plain."""
    shown: list[Any] = []

    class Console:
        def __init__(self, **options: Any) -> None: ...

        def print(self, what: Any, **options: Any) -> None:
            shown.append(what)

    rich, console, syntax = (ModuleType(name) for name in ("rich", "rich.console", "rich.syntax"))
    vars(console)["Console"] = Console
    vars(syntax)["Syntax"] = lambda text, language, **options: (text, language)
    for module in (rich, console, syntax):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr("rlx.cli.output._rich_there", lambda: True)
    show_source("x = 1", "python")
    assert capsys.readouterr().out == "x = 1\n" and not shown
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show_source("x = 1", "python")
    assert shown == [("x = 1", "python")]
    monkeypatch.setenv("NO_COLOR", "1")
    show_source("x = 1", "python")
    assert len(shown) == 1


def examples(page: Path) -> list[tuple[str, str]]:
    """(command, output) of each `$ rlx` in the console blocks of a page."""
    blocks = re.findall(r"^```console\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [(c, o) for block in blocks for c, o in re.findall(r"^\$ rlx (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)]


@pytest.mark.parametrize("page", [PAGE, ROOT / "README.md"], ids=lambda page: page.name)
@pytest.mark.selected(1)
def test_examples_of_the_documents(command: Rlx, tmp_path: Path, page: Path) -> None:
    """Commands print what the page says; `...` stands for what is not the same everywhere."""
    model = re.search(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert model is not None
    (tmp_path / "model.py").write_text(model[1])
    found = examples(page)
    assert len(found) >= 2
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for words, expected in found:
        code, printed, said = command(*shlex.split(words))
        assert doctest.OutputChecker().check_output(expected, printed + said, flags), (words, code, printed + said)


@pytest.mark.parametrize(
    ("form", "ends", "word"),
    [
        ("c", [".c", ".h"], "void normalise("),
        ("numba", [".py"], "def normalise("),
        ("stablehlo", [".mlir"], "stablehlo."),
        ("wgsl", [".wgsl", ".json", ".js"], "@compute"),
    ],
)
def test_export_writes_other_formats(command: Rlx, tmp_path: Path, form: str, ends: list[str], word: str) -> None:
    found = command("export", "model.py:normalise", "--args", "f32[8,32]", "--to", form, "--json")
    assert found[0] == 0, found[2]
    files = [Path(file["path"]) for file in data(found)["files"]]
    assert [file.suffix for file in files] == ends
    assert word in (tmp_path / files[0]).read_text()


@pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler")
def test_export_writes_wheels(command: Rlx, tmp_path: Path) -> None:
    found = command("export", "model.py:normalise", "--args", "f32[8,32]", "--to", "wheel", "-o", "net.whl", "--json")
    assert found[0] == 0, found[2]
    (file,) = data(found)["files"]
    assert file["path"].startswith("net-0.1.0-py3-none-") and (tmp_path / file["path"]).stat().st_size == file["bytes"]


def test_export_writes_firmware(command: Rlx, tmp_path: Path) -> None:
    told = ("export", "model.py:normalise", "--args", "f32[8,32]", "--to")
    code, _, said = command(*told, "cortexm", "--cpu", "generic", "-o", str(tmp_path / "firmware"))
    assert code == 0, said
    assert {"Makefile", "main.c", "normalise.c", "report.json"} <= {p.name for p in (tmp_path / "firmware").iterdir()}
    code, _, said = command(*told, "c", "--cpu", "generic")
    assert code == 2 and "--cpu does not apply to --to c" in said
    code, _, said = command(*told, "cortexm", "--cpu", "cortex-m5")
    assert code != 0 and "no processor 'cortex-m5'" in said


def test_export_to_source_code_takes_sizes_that_are_numbers(command: Rlx, tmp_path: Path) -> None:
    code, _, said = command("export", "model.py:normalise", "--args", "f32[batch,32]", "--to", "numba")
    assert code == 2 and "batch" in said
    code, _, said = command("export", "model.py:normalise", "--args", "f32[batch,32]", "--to", "c")
    assert code == 0 and "void normalise(int64_t batch, " in (tmp_path / "normalise.h").read_text(), said
    code, _, said = command("export", "model.py:normalise", "--args", "f32[8,32]", "--to", "c", "--vjp-order", "1")
    assert code == 2 and "do not apply to --to c" in said


def test_a_reader_that_has_read_enough_is_no_mistake() -> None:
    with pytest.raises(BrokenPipeError), told("x"):
        raise BrokenPipeError
