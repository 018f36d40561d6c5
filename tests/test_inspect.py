"""rlx.inspect: every stage can be read, and the page says what happened."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx.config import scoped
from rlx.errors import VerificationError
from rlx.ir.show import show_bindings
from rlx.ir.verify import verify_program
from rlx.passes import pipeline
from rlx.passes.pipeline import Step, lower_program, lower_to_plan, passes, stages, steps
from rlx.trace.text import program_from_text

X = np.ones((8, 8), np.float32)
# steps that few programs have anything for
RARE = ("join_exchanges", "place_exchanges", "order_exchanges", "keys", "decompose_routines")


def loss(w: Any, x: Any) -> Any:
    h = jnp.tanh(x @ w)
    return jnp.sum(h * h * 1.0 - (-h))


def test_stages_are_programs_and_text() -> None:
    found = rlx.inspect(rlx.grad(loss))(X, X)
    assert [v.name for v in found.mir] == ["inline", *[step.name for step in passes]]
    for view in (found.hir, *found.mir):
        verify_program(view.program, "hir" if view is found.hir else "mir")
        assert program_from_text(view.text, show_bindings(view.program)) == view.program
    assert "test_inspect.py" in found.hir.text
    assert found.stage("cse").name == "cse"
    assert [v.name for v in found.stages] == ["hir", *[step.name for step in steps if step.name not in RARE]]
    assert "Loops" in found.stage("lower").text and "arena" in found.stage("place_temporaries").text
    with pytest.raises(TypeError, match="no program"):
        _ = found.stage("fuse").program


def test_every_step_is_verified(monkeypatch) -> None:
    """A step that breaks a rule is named: nests and plans are checked after each step, as programs are."""

    def without_an_input(step: Step) -> Any:
        return lambda form, context: replace(step.run(form, context), buffers=form.buffers[1:])

    def without_memory(step: Step) -> Any:
        return lambda form, context: replace(step.run(form, context), arena=0)

    program = rlx.make_program(lambda x: jnp.sort(jnp.sort(x) + 1.0))(X)
    with scoped(check=True):
        lower_program(stages(program)[-1].program)
        for name, function in (("stack_products", without_an_input), ("place_temporaries", without_memory)):
            with monkeypatch.context() as patch:
                patched = tuple(s._replace(run=function(s)) if s.name == name else s for s in pipeline.lowering)
                patch.setattr(pipeline, "lowering", patched)
                with pytest.raises(VerificationError, match=f"After the step {name}"):
                    lower_program(stages(program)[-1].program)


def test_diff() -> None:
    found = rlx.inspect(loss)(X, X)
    lines = found.diff("inline", "simplify").splitlines()
    assert lines[:2] == ["--- inline", "+++ simplify"]
    assert any(line.startswith("-") and "ops.negative" in line for line in lines)
    assert found.diff("cse", "cse") == ""


def test_plan_kernels_and_memory() -> None:
    found = rlx.inspect(rlx.jit(loss))(X, X)
    assert found.plan is not None
    assert found.plan.name in found.lir and "arena" in found.lir and "Plan(" in found.lir_source
    assert "for i" in found.kernels.loops
    assert "define" in found.kernels.llvm and found.kernels.assembly and found.kernels.plan
    memory = found.memory
    assert (memory.arguments, memory.outputs) == (512, 4) and "peak live" in str(memory) and "<svg" in memory.svg()
    assert memory.temporaries == found.plan.arena
    assert found.statistics.kernels["Contract"] == 1
    assert found.statistics.equations["dce"] <= found.statistics.equations["hir"]
    assert found.statistics.rules["multiply(x, 1) -> x"] >= 1
    assert found.statistics.work == found.work and found.work.flops >= 2 * 8**3 and found.work.transcendentals == 64
    assert found.statistics.bytes == found.work.bytes and "operations a byte" in str(found.statistics)
    assert found.fusion and "a matrix product makes it" in found.fusion


def test_kernels_that_run_in_row_tiles_can_be_read() -> None:
    x, w = np.ones((1024, 64), np.float32), np.ones((64, 64), np.float32)
    found = rlx.inspect(lambda x, w: jnp.tanh(x @ w) @ w)(x, w)
    assert found.plan is not None and [type(k).__name__ for k in found.plan.kernels] == ["RowTiles"]
    assert "tanh" in found.kernels.loops
    assert "define void @rlx_loops_" in found.kernels.llvm and "rlx_loops_" in found.kernels.assembly


def test_dispatch_has_a_row_for_each_equation() -> None:
    inner = rlx.jit(lambda x: jnp.sin(x) * 2)
    found = rlx.inspect(lambda w, x: inner(loss(w, x.T)))(X, X)
    rows = found.dispatch
    assert any(r.how == "inlined" for r in rows)
    assert [r.how for r in rows if "dot_general" in r.equation] == ["library"]
    removed = [r for r in rows if r.how in ("constant", "dropped") and r.reason]
    assert sum(r.how != "inlined" for r in rows) - len(removed) == len(found.mir[-1].program.equations)
    kernels = {r.kernel for r in rows if r.kernel}
    assert found.plan is not None and len(kernels) == len(found.plan.kernels)


def test_dispatch_goes_into_regions() -> None:
    def run(c: Any, xs: Any) -> Any:
        return rlx.lax.scan(lambda c, x: (jnp.tanh(c @ x), jnp.sum(c)), c, xs)

    rows = rlx.inspect(run)(X, np.ones((3, 8, 8), np.float32)).dispatch
    assert any("ops.tanh" in r.equation and ".body." in r.kernel for r in rows)


def test_pages() -> None:
    found = rlx.inspect(loss)(X, X)
    page = repr(found)
    for title in ("statistics", "program", "plan", "dispatch", "memory", "loops"):
        assert f"---- {title} " in page
    markup = found._repr_html_()  # an interactive page: see test_inspection_page.py
    assert markup.startswith("<iframe srcdoc=") and "<string>" not in markup


def test_long_sections_are_cut() -> None:
    def long(x: Any) -> Any:
        for _ in range(100):
            x = jnp.sin(x)
        return x

    assert "more lines" in repr(rlx.inspect(long)(X))


def test_nothing_to_compute() -> None:
    found = rlx.inspect(lambda x: x)(X)
    assert found.plan is None and found.lir == "nothing is computed"
    assert found.statistics.kernels == {} and found.memory.temporaries == 0
    assert repr(found) and found._repr_html_()


def test_shapes_are_enough() -> None:
    found = rlx.inspect(loss)(rlx.ShapeDtypeStruct((4, 2), "float32"), rlx.ShapeDtypeStruct((3, 4), "float32"))
    assert found.memory.arguments == (8 + 12) * 4


def test_dump(tmp_path: Path) -> None:
    traced = rlx.make_program(loss)(X, X)
    with scoped(dump=str(tmp_path)):
        lower_to_plan(traced)
    (folder,) = tmp_path.iterdir()
    assert folder.name.startswith("loss-")
    names = sorted(p.name for p in folder.iterdir())
    made = ["hir", *[step.name for step in steps if step.name not in RARE]]
    last = [step.name for step in passes][-1]
    suffixes = ["py" if number <= made.index(last) else "txt" for number in range(len(made))]
    written = [f"{n:02}-{name}.{suffix}" for n, (name, suffix) in enumerate(zip(made, suffixes, strict=True))]
    assert names == [*written, "fusion.txt", "plan.py", "plan.txt"]
    assert program_from_text((folder / "00-hir.py").read_text()) == traced
