"""Printed programs run, and give the program that was printed."""

# annotations are the types of printed programs, not Python's
# ruff: noqa: F722, F821

import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
from primitive_cases import cases

import rlx
import rlx.numpy as jnp
from rlx.errors import RlxError
from rlx.ir.program import Equation, Literal, Program, Var
from rlx.ir.show import show_bindings, show_equation, show_lines, show_program
from rlx.ir.types import TensorType
from rlx.ir.verify import verify_program
from rlx.passes.pipeline import stages
from rlx.trace.primitive import registry
from rlx.trace.text import ops, program, program_from_text, tensor
from rlx.trace.tracing import trace_program


def reads_back(printed: Program) -> str:
    text = show_program(printed)
    found = program_from_text(text, show_bindings(printed))
    assert found == printed, text
    return text


@pytest.mark.parametrize("case", cases(), ids=repr)
def test_every_primitive_reads_back(case: Any) -> None:
    recorded, _ = trace_program(case.bind, case.types)
    verify_program(recorded, "hir")
    reads_back(recorded)
    optimised = stages(recorded)[-1].program
    verify_program(optimised)
    reads_back(optimised)


def test_what_a_page_looks_like() -> None:
    @program
    def scores(x: "float32[2,3]", y: "weak float32[3]"):
        return ops.reduce_sum(ops.multiply(x, 2.0), axes=(1,)), y

    lines = show_program(scores).splitlines()
    assert lines[0] == "from rlx.trace.text import *"
    assert 'def scores(x0: "float32[2,3]", x1: "weak float32[3]"):' in lines
    assert lines[-3].startswith("    v0 = ops.multiply(x0, 2.0)  # float32[2,3]  <program>:")
    assert lines[-1] == "    return (v1, x1)"


def test_the_users_line_is_there() -> None:
    traced = rlx.make_program(lambda x: jnp.sin(x))(1.0)
    assert f"test_show.py:{sys._getframe().f_lineno - 1}" in show_program(traced)


def test_regions_are_programs_of_their_own() -> None:
    def step(carry: Any, x: Any) -> Any:
        return carry * x, jnp.sum(x)

    traced = rlx.make_program(lambda c, xs: rlx.lax.scan(step, c, xs))(jnp.ones(3), jnp.ones((4, 3)))
    text = reads_back(traced)
    assert text.count("@program") == 2 and "body=" in text


def test_a_shared_region_is_written_once() -> None:
    @program
    def body(x: "float32[]"):
        return ops.sin(x)

    @program
    def main(i: "int32[]", x: "float32[]"):
        return ops.cond(i, x, branches=(body, body))

    assert reads_back(main).count("@program") == 2


def test_names_that_python_does_not_take() -> None:
    x = Var(TensorType((), np.dtype("f4")))
    for name in ("lambda", "a b", "", "3d", "x-y", "inf", "float32", 'quote"d'):
        reads_back(Program([x], [], [x], (), name))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "bfloat16", "float8_e4m3fn", "c8", "c16", "i1", "u8", "?"])
def test_literals_keep_their_bits(dtype: str) -> None:
    type = TensorType((), np.dtype(dtype))
    numbers: list[Any] = [0, 1, 2, 100]
    if type.dtype.kind not in "biu":
        numbers += [-0.0, 0.1, 1 / 3, np.inf, -np.inf, np.nan, 1e-45, 5e-324]
    if type.dtype.kind == "c":
        numbers += [complex(-0.0, np.inf), complex(np.nan, -0.0)]
    with np.errstate(all="ignore"):
        values = [np.asarray(n).astype(type.dtype) for n in numbers]
    if type.dtype.kind != "b":
        values.append(np.frombuffer(b"\xff" * type.dtype.itemsize, type.dtype).reshape(()))
    for value in values:
        for weak in (False, True):
            reads_back(Program([], [], [Literal(value, type.update(weak=weak))]))


def test_constants_small_and_large() -> None:
    small, large = np.float32([1, -0.0, np.nan]), np.arange(100.0)
    pairs = [(Var(TensorType(a.shape, a.dtype)), a) for a in (small, large)]
    shown = Program([], [], [v for v, _ in pairs], pairs)
    text = reads_back(shown)
    assert "constant: float64[100], 0.0 to 99.0" in text
    assert show_bindings(shown)["constant"] is large


def test_functions_are_free_names() -> None:
    def host(x: Any) -> Any:
        return x

    x, y = Var(tensor("float32[]")), Var(tensor("float32[]"))
    shown = Program([x], [Equation(registry["sin"], (x,), {"function": host}, (y,))], [y])
    assert "function=host" in show_program(shown)
    assert show_bindings(shown) == {"host": host}
    assert show_equation(shown, shown.equations[0]).startswith("v0 = ops.sin(x0, function=host)")


def test_text_runs_in_another_process() -> None:
    def energy(x: Any) -> Any:
        return jnp.sum(jnp.tanh(x) * x)

    traced = rlx.make_program(rlx.grad(energy))(jnp.ones(3))
    source = f"{show_program(traced)}\nprint({traced.name}.fingerprint)"
    found = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == repr(traced.fingerprint)


def test_types_as_text() -> None:
    for text in ("float32[]", "bfloat16[2,3]", "weak int32[0]", "bool[]", "float8_e5m2[1]", "complex64[3]"):
        assert repr(tensor(text)) == text
    with pytest.raises(RlxError, match="not the text of a tensor type"):
        tensor("float32")
    with pytest.raises(RlxError, match="contains no program"):
        program_from_text("1 + 1")


def chain(length: int) -> Program:
    """A deep program, built without tracing."""
    type = TensorType((3,), np.dtype("f4"))
    first = last = Var(type)
    equations = []
    for name in ("sin", "negative", "negative", "exp") * (length // 4):
        variable = Var(type)
        equations.append(Equation(registry[name], (last,), {}, (variable,)))
        last = variable
    return Program([first], equations, [last])


@pytest.mark.thorough
def test_deep_programs_take_linear_time_and_no_stack() -> None:
    short, deep = chain(10_000), chain(100_000)

    def seconds(deep: Program) -> float:
        start = time.process_time()
        optimised = stages(deep)[-1].program
        assert len(optimised.equations) == len(deep.equations) // 2
        assert len(deep.fingerprint) == 16
        assert len(show_lines(deep)) == len(deep.equations) + 1
        return time.process_time() - start

    seconds(chain(1000))
    assert seconds(deep) < 40 * seconds(short)
    short = chain(4000)
    reads_back(short)
