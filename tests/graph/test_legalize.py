"""Legalisation: claims, common forms, dispatch policies, reports that equal what ran, readable errors."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from graph_cases import DEVICES, random

import rlx
import rlx.numpy as jnp
from rlx import lax, opt
from rlx.graph import Graph, Session
from rlx.graph.common_forms import COMMON_FORMS
from rlx.ir.program import Program
from rlx.ir.types import bits_of, is_float
from rlx.testing import assert_close
from rlx.trace.interpret import interpret
from rlx.trace.primitive import registry

ALL = opt.supported_for_target()


def counts(program: Program) -> dict[str, int]:
    found = Counter(e.primitive.name for e in program.equations)
    for region in program.regions():
        found.update(counts(region))
    return dict(found)


@pytest.mark.parametrize("name", sorted(COMMON_FORMS))
def test_common_forms_mean_the_same(name: str) -> None:
    primitive = registry[name]
    samples = list(primitive.samples())
    assert samples
    for sample in samples:
        arrays = [np.asarray(a) for a in sample.args]
        if any(is_float(a.dtype) and bits_of(a.dtype) < 8 for a in arrays):
            continue  # each step of a form rounds: with a mantissa of one bit little is left to compare
        program = rlx.make_program(lambda *values, p=sample.params: primitive(*values, **p))(*arrays)
        rewritten = opt.legalize_or_rewrite_for_backend(program, ALL - {name})
        assert name not in counts(rewritten)
        assert_close(interpret(rewritten, arrays)[0], interpret(program, arrays)[0])


def test_common_forms_of_special_values() -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, 1e30, -3.0], np.float32)
    for name in ("negative", "absolute", "tanh", "logistic", "rsqrt", "square"):
        program = rlx.make_program(lambda v, n=name: registry[n](v))(x)
        with np.errstate(all="ignore"):
            found = np.asarray(interpret(opt.rewrite_for_backend(program, ALL - {name}), [x])[0])
            expected = registry[name].reference(x)
        assert_close(found, expected)
        known = ~np.isnan(expected)
        assert np.array_equal(np.signbit(found[known]), np.signbit(expected[known])), name


def model() -> Graph:
    def function(w: Any, x: Any, flag: Any) -> Any:
        hidden = jnp.tanh(x @ w) - x
        return lax.cond(flag, lambda v: jnp.square(v), lambda v: lax.rsqrt(v * v + 1), hidden)

    return Graph.trace(function, random(3, 3), random(2, 3), np.bool_(True), params=["w"])


def expected_of_model(w: np.ndarray, x: np.ndarray, flag: bool) -> np.ndarray:
    hidden = np.tanh(x @ w) - x
    return hidden**2 if flag else 1 / np.sqrt(hidden * hidden + 1)


SMALL = ALL - {"tanh", "square", "rsqrt", "subtract", "dot_general", "cond", "integer_power"}


@pytest.mark.parametrize("device", DEVICES)
def test_the_report_equals_what_runs(device: str) -> None:
    graph = model()
    compiled = Session(device).compile(graph, supported_ops=SMALL)
    report = compiled.dispatch_report
    assert report is not None and report.compile_ready
    rewritten = report.kinds(opt.DispatchPath.REWRITTEN)
    assert rewritten["tanh"] == rewritten["cond"] == rewritten["dot_general"] == 1
    assert not report.kinds(opt.DispatchPath.UNSUPPORTED) and not report.kinds(opt.DispatchPath.COMMON)
    for flag in (True, False):
        w, x = random(3, 3), random(2, 3, seed=1)
        compiled.set_param("w", w)
        assert_close(
            compiled.run(x=x, flag=np.bool_(flag))[0], expected_of_model(w, x, flag), rtol=1e-5, atol=1e-6
        )
    program, again = opt.prepare_graph_for_backend_with_report(opt.inline(graph.program), SMALL)
    assert again.kinds(opt.DispatchPath.NATIVE) == counts(program)
    assert not set(counts(program)) - set(SMALL)
    made = {name for kernel in compiled.plan.kernels for name in kernel.label.split("+")} - {"..."}
    assert made and not made - set(SMALL)


def test_policies() -> None:
    program = rlx.make_program(lambda x: jnp.square(x) - lax.rsqrt(x))(random(3))
    force = opt.KernelDispatchPolicy
    common, report = opt.prepare_graph_for_backend_with_report(
        program, None, opt.KernelDispatchConfig(force.FORCE_COMMON)
    )
    assert set(report.kinds(opt.DispatchPath.COMMON)) >= {"square", "rsqrt", "subtract"}
    assert set(counts(common)) <= {"multiply", "add", "divide", "sqrt", "broadcast_in_dim", "negative"}
    config = opt.KernelDispatchConfig(force.FORCE_COMMON, force_native_kinds=frozenset({"rsqrt"}))
    assert counts(opt.rewrite_for_backend(program, None, config))["rsqrt"] == 1
    config = opt.KernelDispatchConfig(force_common_kinds=frozenset({"square"}))
    found = opt.rewrite_for_backend(program, ALL, config)
    assert "square" not in counts(found) and "rsqrt" in counts(found)
    both = opt.KernelDispatchConfig(
        force_common_kinds=frozenset({"square"}), force_native_kinds=frozenset({"square"})
    )
    assert "square" in counts(opt.rewrite_for_backend(program, ALL, both))  # native wins
    with pytest.raises(opt.LegalizeError):
        opt.legalize_or_rewrite_for_backend(
            program, ALL - {"square"}, opt.KernelDispatchConfig(force.FORCE_NATIVE)
        )
    native = opt.analyze_dispatch(program, ALL)
    assert isinstance(native, opt.KernelDispatchReport)
    assert opt.KindDispatchSummary("square", 1, opt.DispatchPath.NATIVE) in native.summaries
    assert native.kinds(opt.DispatchPath.NATIVE) == counts(program)
    x = np.abs(random(3)) + 1
    for one in (common, found):
        assert_close(interpret(one, [x])[0], x**2 - 1 / np.sqrt(x))


def test_what_cannot_be_rewritten_is_said_with_its_line() -> None:
    program = rlx.make_program(lambda x: rlx.lax.erf(jnp.tanh(x)))(random(3))
    with pytest.raises(opt.LegalizeError) as caught:
        opt.legalize_or_rewrite_for_backend(program, {"multiply", "tanh"})
    text = str(caught.value)
    assert "erf: 1 time, first at" in text and "test_legalize.py" in text and "no common form" in text
    assert [k.kind for k in caught.value.unsupported] == ["erf"]
    missing = opt.legalize_for_backend(program, {"tanh"})
    assert isinstance(missing[0], opt.UnsupportedKind) and missing[0].origin.file == __file__
    assert [(k.kind, k.count) for k in missing] == [("erf", 1)] and "erf" in opt.format_legalize_error(
        "toy", missing
    )
    with pytest.raises(
        opt.LegalizeError, match="tanh: 1 time.*its common form needs absolute, add, copysign"
    ):
        opt.legalize_or_rewrite_for_backend(program, {"tan", "erf"})  # its form needs more
    _, report = opt.prepare_graph_for_backend_with_report(program, {"tanh"})
    assert not report.compile_ready and "unsupported" in opt.format_dispatch_report(report)


def test_loops_are_bounded_by_the_config() -> None:
    program = opt.inline(
        rlx.make_program(lambda n: lax.while_loop(lambda v: v > 1, lambda v: v / 2, n))(np.float32(8))
    )
    flat = opt.legalize_or_rewrite_for_backend(
        program, ALL - {"while_loop"}, opt.KernelDispatchConfig(max_iterations=5)
    )
    assert "while_loop" not in counts(flat)
    assert float(interpret(flat, [np.float32(8)])[0]) == 1.0
    with pytest.raises(rlx.errors.UnsupportedError, match="max_iterations"):
        opt.legalize_or_rewrite_for_backend(program, ALL - {"while_loop"})


def test_own_forms_join_in(capsys: pytest.CaptureFixture[str]) -> None:
    @opt.common_form("erf")
    def _rough(x: Any) -> Any:
        return registry["tanh"](registry["multiply"](x, np.asarray(1.2, np.float32)))

    try:
        program = rlx.make_program(lambda x: rlx.lax.erf(x))(random(3))
        found, report = opt.prepare_graph_for_backend_with_report(program, {"tanh", "multiply"})
        assert report.compile_ready
        assert_close(interpret(found, [random(3)])[0], np.tanh(random(3) * np.float32(1.2)))
        opt.maybe_log_dispatch_report(report)
        assert not capsys.readouterr().err
        with rlx.scoped(explain=True):
            opt.maybe_log_dispatch_report(report)
        assert "rewritten" in capsys.readouterr().err
    finally:
        del COMMON_FORMS["erf"]


def test_small_questions() -> None:
    graph = Graph("views")
    x = graph.input("x", rlx.Shape([2, 3]))
    assert opt.is_pure_view(graph.transpose(x, (1, 0))) and not opt.is_pure_view(x + 1.0)
    assert (
        opt.supports_op((), "add") and opt.supports_op({"add"}, "add") and not opt.supports_op({"add"}, "sin")
    )
