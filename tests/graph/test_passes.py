"""Passes: the runner and its checks, the standard passes, broadcasts, products, control flow, regions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_cases import random
from primitive_cases import cases_of, names

import rlx
import rlx.numpy as jnp
from rlx import lax, opt
from rlx.errors import RlxError, UnsupportedError, VerificationError
from rlx.fusion import FuseSharedInputMatMul
from rlx.graph import Graph
from rlx.graph.elementwise_regions import is_region
from rlx.ir.program import Equation, Program
from rlx.testing import assert_close
from rlx.trace.interpret import interpret


def program_of(function: Callable[..., Any], *args: Any) -> Program:
    return rlx.make_program(function)(*args)


def kinds(program: Program) -> list[str]:
    return [e.primitive.name for e in program.equations]


def same_bits(one: Program, other: Program, *args: Any) -> None:
    with rlx.scoped(disable_jit=True):  # op by op: compiled regions round otherwise
        results = interpret(one, args), interpret(other, args)
    for a, b in zip(*results, strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
        np.testing.assert_array_equal(
            np.signbit(np.asarray(a, np.float64)), np.signbit(np.asarray(b, np.float64))
        )


# ------------------------------------------------------------------ the runner
class SwapOperands:
    """A user's own pass: addition in the other order."""

    name = "swap"

    def run(self, program: Program) -> Program:
        def swapped(e: Equation) -> Equation:
            order = e.inputs[::-1] if e.primitive.name == "add" else e.inputs
            return Equation(e.primitive, order, e.params, e.outputs, e.origin)

        return program.replace(equations=map(swapped, program.equations))


def test_own_passes_run_and_are_watched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = program_of(lambda x, y: jnp.sin(x) + y, 1.0, 2.0)
    history: list[opt.PassStep] = []
    assert isinstance(SwapOperands(), opt.Pass)
    steps = [SwapOperands(), opt.DeadCodeElimination(), lambda p: p]
    found = opt.run_passes(program, steps, watch=history.append, dump=tmp_path, verbose=True)
    assert float(interpret(found, [1.0, 2.0])[0]) == float(np.float32(np.sin(np.float32(1)) + 2))
    assert [s.name for s in history] == ["swap", "dce", "<lambda>"] and [s.changed for s in history] == [
        True,
        False,
        False,
    ]
    assert "-" in history[0].diff and not history[1].diff and all(s.seconds >= 0 for s in history)
    assert sorted(p.name for p in tmp_path.iterdir())[:2] == ["00-swap.py", "01-dce.py"]
    assert "swap: 2 -> 2 equations" in capsys.readouterr().out


def test_a_wrong_pass_is_named() -> None:
    program = program_of(lambda x: jnp.sin(x) * 2.0, 1.0)

    def forgets(p: Program) -> Program:
        return p.replace(equations=p.equations[1:])

    def drops_outputs(p: Program) -> Program:
        return p.replace(outputs=())

    for wrong, text in (
        (forgets, "After the pass forgets"),
        (drops_outputs, "drops_outputs changed the output_types"),
    ):
        with pytest.raises(VerificationError, match=text):
            opt.run_passes(program, [wrong])
    assert opt.run_passes(program, [drops_outputs], verify=False).outputs == ()
    with pytest.raises(VerificationError, match="returned a int"):
        opt.run_passes(program, [lambda p: 3])
    with pytest.raises(RlxError, match="not a pass"):
        opt.run_passes(program, [7])


def test_graphs_and_modules_keep_their_kind_and_names() -> None:
    graph = Graph.trace(lambda w, x: (x * 1.0) @ w, random(3, 2), random(2, 3), params=["w"])
    module = rlx.GraphModule.from_graph(graph)
    slim = opt.simplify(graph)
    assert list(slim.params) == ["w"] and len(slim.program.equations) < len(graph.program.equations)
    assert opt.simplify(module).stage is rlx.GraphStage.HIR
    assert_close(slim(random(3, 2), random(2, 3)), random(2, 3) @ random(3, 2))


# ------------------------------------------------------------------ standard passes
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5], np.float32)


def test_standard_passes_shrink_and_keep_every_bit() -> None:
    def wasteful(x: Any) -> Any:
        doubled = jnp.negative(jnp.negative(x * 1.0))
        again = jnp.sin(x) + jnp.sin(x)
        jnp.cos(x)
        return doubled + again, jnp.where(x > 0, x, x)

    program = program_of(wasteful, SPECIAL)
    slim = opt.run_passes(program, opt.fusion_passes())
    assert len(slim.equations) < len(program.equations) / 2
    same_bits(program, slim, SPECIAL)


def test_sums_with_zero_stay() -> None:
    program = program_of(lambda x: x + 0.0, SPECIAL)
    assert kinds(opt.simplify(program)) == ["add"]  # -0.0 + 0.0 is 0.0
    halves = program_of(lambda x: (x - 0.0) * 1.0 / 2.0, SPECIAL)
    found = opt.run_passes(halves, [opt.AlgebraicSimplify()])
    assert kinds(found) == ["multiply"]
    same_bits(halves, found, SPECIAL)


def test_constants_are_folded_with_their_dtypes() -> None:
    table = np.arange(6, dtype=np.int64)
    program = program_of(lambda x: x + jnp.cumsum(jnp.asarray(table) * 2)[::-1], table)
    folded = opt.constant_folding(program)
    assert kinds(folded) == ["add"] and len(folded.constants) == 1
    same_bits(program, folded, table)
    kept = opt.run_passes(program, [opt.ConstantFolding(limit=8)])
    assert "multiply" in kinds(kept)
    points = np.linspace(-3, 3, 7).astype(np.float32)
    gelu = opt.inline(program_of(lambda: rlx.nn.gelu(jnp.asarray(points), approximate=False)))
    found = opt.constant_folding(gelu)
    assert kinds(gelu) and not kinds(found)
    same_bits(gelu, found)


def test_parameters_are_specialized_and_promoted() -> None:
    graph = Graph.trace(
        lambda w, b, x: jnp.tanh(w) * x + b, random(3), random(3, seed=1), random(3), params=["w", "b"]
    )
    fixed = opt.specialize_params(graph, {"w": random(3)})
    assert list(fixed.signature) == ["b", "x"] and list(fixed.params) == ["b"]
    values = random(3, seed=1), random(3, seed=2)
    assert_close(fixed(*values), graph(random(3), *values))
    folded = opt.constant_folding(fixed)
    assert "tanh" not in kinds(folded.program)
    assert_close(folded(*values), graph(random(3), *values))
    assert list(opt.promote_params_to_inputs(graph, ["w"]).params) == ["b"]
    assert not opt.promote_params_to_inputs(graph).params
    with pytest.raises(RlxError, match="no parameter 'z'"):
        opt.specialize_params(graph, {"z": 1})
    with pytest.raises(RlxError, match="cannot become"):
        opt.specialize_params(graph, {"w": np.ones(3)})
    step = opt.run_passes(graph.program, [opt.SpecializeParams({0: random(3)})])
    assert len(step.inputs) == 2


def test_graphs_are_inlined_into_graphs() -> None:
    inner = Graph.trace(lambda x: (x * 2, x + 1), random(3))
    outer = Graph("outer")
    double, more = opt.inline_into(inner, outer, outer.input("y", rlx.Shape([3])))
    outer.set_outputs([double - more])
    assert kinds(opt.inline(outer).program) == ["multiply", "add", "subtract"]
    assert_close(outer(random(3)), random(3) - 1)


@pytest.mark.parametrize("name", names())
def test_passes_keep_every_primitive(name: str) -> None:
    """On each sample: explicit broadcasts, regions and back, all operands known and folded."""
    for case in cases_of(name):
        program = rlx.make_program(case.bind)(*case.arrays)
        known = opt.SpecializeParams(dict(enumerate(case.arrays)))
        for steps in ([opt.LegalizeBroadcast()], [opt.MarkElementwiseRegions()], [opt.LowerDotGeneral()]):
            found = opt.run_passes(program, steps)
            same_results(program, case.arrays, found, case.arrays, exact=name != "dot_general")
        same_results(program, case.arrays, opt.run_passes(program, [known, opt.ConstantFolding()]), ())


def same_results(one: Program, given: Any, other: Program, more: Any, exact: bool = True) -> None:
    with rlx.scoped(disable_jit=True):
        results = interpret(one, given), interpret(other, more)
    for a, b in zip(*results, strict=True):
        first, second = np.asarray(a), np.asarray(b)
        assert (first.shape, first.dtype) == (second.shape, second.dtype)
        if exact:
            assert first.tobytes() == second.tobytes()
        else:
            assert_close(first, second)


# ------------------------------------------------------------------ broadcasts and products
@pytest.mark.parametrize(
    "shapes", [((2, 3), (3,)), ((2, 1), (1, 3)), ((), (2, 3)), ((2, 1, 1), (4, 3)), ((0, 3), (1, 3))]
)
def test_broadcasts_become_explicit(shapes: tuple[tuple[int, ...], ...]) -> None:
    x, y = random(*shapes[0]), random(*shapes[1], seed=1)
    program = program_of(lambda a, b: (a + b, jnp.where(a > b, a, 0.5), jnp.minimum(a, b)), x, y)
    legal = opt.run_passes(program, [opt.LegalizeBroadcast()])
    for e in legal.equations:
        if hasattr(e.primitive, "scalar"):
            assert {a.type.shape for a in e.inputs} == {e.outputs[0].type.shape}
    same_bits(program, legal, x, y)


@pytest.mark.parametrize(
    ("text", "left", "right"),
    [
        ("ij,jk->ik", (2, 3), (3, 4)),
        ("i,i->", (3,), (3,)),
        ("i,j->ij", (3,), (4,)),
        ("bij,bkj->bik", (2, 3, 4), (2, 5, 4)),
        ("aibj,jkab->abik", (2, 3, 4, 5), (5, 2, 2, 4)),
        ("ijk,kjl->il", (2, 3, 4), (4, 3, 5)),
        ("ij,jk->ik", (2, 0), (0, 4)),
    ],
)
def test_contractions_of_any_axes(text: str, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    x, y = random(*left), random(*right, seed=1)
    program = opt.inline(program_of(lambda a, b: jnp.einsum(text, a, b), x, y))
    expected = np.einsum(text, x, y)
    lowered = opt.run_passes(program, [opt.LowerDotGeneral()])
    products = [e for e in lowered.equations if e.primitive.name == "dot_general"]
    assert all(e.params["dimension_numbers"] == opt.LowerDotGeneral.CANONICAL for e in products)
    assert_close(interpret(lowered, [x, y])[0], expected, rtol=1e-5, atol=1e-5)
    sums = opt.legalize_or_rewrite_for_backend(program, set(opt.supported_for_target()) - {"dot_general"})
    assert "dot_general" not in kinds(sums)
    assert_close(interpret(sums, [x, y])[0], expected, rtol=1e-5, atol=1e-5)


def test_products_of_one_operand_are_joined() -> None:
    gate, up, out = random(3, 4), random(3, 5, seed=1), random(4, 2, seed=2)

    def function(x: Any, w: Any) -> Any:
        return jnp.tanh(x @ gate) @ out, x @ up, x @ w, w @ w

    x, w = random(2, 3, seed=3), random(3, 3, seed=4)
    program = opt.inline(program_of(function, x, w))
    for joining, products in ((FuseSharedInputMatMul(), 4), (FuseSharedInputMatMul(constants_only=False), 3)):
        joined = opt.run_passes(program, [joining, opt.ConstantFolding(), opt.DeadCodeElimination()])
        assert kinds(program).count("dot_general") == 5 and kinds(joined).count("dot_general") == products
        assert ("concatenate" in kinds(joined)) == (not joining.constants_only)
        for a, b in zip(interpret(program, [x, w]), interpret(joined, [x, w]), strict=True):
            assert_close(a, b, rtol=1e-5, atol=1e-6)


# ------------------------------------------------------------------ control flow
CONTROL = {"cond", "while_loop", "scan"}


def test_branches_become_selects() -> None:
    def chosen(index: Any, x: Any) -> Any:
        return lax.switch(index, [lambda v: (v, v * 2), lambda v: (jnp.log(v), -v), lambda v: (v * v, v)], x)

    x = np.array([1.0, -2.0], np.float32)
    program = opt.inline(program_of(chosen, np.int32(0), x))
    flat = opt.inline_if(program)
    assert "cond" in kinds(program) and not CONTROL & set(kinds(flat))
    for index in (-5, 0, 1, 2, 9):
        same_bits(program, flat, np.int32(index), x)


def test_loops_unroll_with_every_carry() -> None:
    def collatz(n: Any, scale: Any) -> Any:
        def step(state: Any) -> Any:
            value, count, total = state
            return jnp.where(value % 2 == 0, value // 2, 3 * value + 1), count + 1, total + value * scale

        return lax.while_loop(lambda state: state[0] > 1, step, (n, np.int32(0), np.float32(0)))

    program = opt.inline(program_of(collatz, np.int32(6), np.float32(0.5)))
    flat = opt.unroll_while(program, 10)
    assert not CONTROL & set(kinds(flat))
    for n in (1, 2, 6, 3):
        same_bits(program, flat, np.int32(n), np.float32(0.5))
    late = interpret(opt.unroll_while(program, 3), [np.int32(6), np.float32(0.5)])
    assert np.isnan(float(late[2]))  # it has not come to its end
    with pytest.raises(UnsupportedError, match="max_iterations"):
        opt.run_passes(program, [opt.LowerControlFlow()])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 3])
def test_scans_unroll(length: int, reverse: bool) -> None:
    def running(x: Any) -> Any:
        return lax.scan(
            lambda c, v: (c + v, lax.cond(c > 0, jnp.sin, jnp.cos, c)), np.float32(0), x, reverse=reverse
        )

    x = random(length)
    program = opt.inline(program_of(running, x))
    flat = opt.run_passes(program, [opt.LowerControlFlow()])
    assert not CONTROL & set(kinds(flat))
    same_bits(program, flat, x)
    if length == 3:
        with pytest.raises(UnsupportedError, match="3 steps"):
            opt.LowerControlFlow(max_length=2).run(program)
        only = opt.inline_if(program)
        assert "scan" in kinds(only) and not any("cond" in kinds(r) for r in only.regions())
        same_bits(program, only, x)


def test_effects_are_not_lowered() -> None:
    def talks(x: Any) -> Any:
        return lax.cond(x > 0, lambda v: (rlx.debug.print("{}", v), v)[1], lambda v: v, x)

    with pytest.raises(UnsupportedError, match="effect"):
        opt.inline_if(opt.inline(program_of(talks, np.float32(1))))


# ------------------------------------------------------------------ regions
def region_sizes(program: Program) -> list[int]:
    return [len(e.params["program"].equations) for e in program.equations if is_region(e)]


def test_regions_round_trip() -> None:
    def function(x: Any, y: Any, z: Any) -> Any:
        first = jnp.exp(x * y) + z
        return jnp.tanh(first @ first.T) * 2.0 - jnp.sum(first), jnp.where(first > 0, first, y[0])

    x, y, z = random(4, 4), random(4, 1, seed=1), np.float32(0.3)
    program = opt.inline(program_of(function, x, y, z))
    marked = opt.fuse_elementwise(program)
    assert sum(region_sizes(marked)) >= 5 and len(marked.equations) < len(program.equations)
    assert opt.fuse_elementwise(marked) == marked
    apart = opt.run_passes(marked, [opt.UnfuseElementwiseRegions()])
    assert sorted(kinds(apart)) == sorted(kinds(program))
    same_bits(program, marked, x, y, z)
    same_bits(program, apart, x, y, z)


def test_regions_are_cut_at_their_limit() -> None:
    def chain(x: Any) -> Any:
        for _ in range(33):
            x = jnp.sin(x)
        return x

    program = program_of(chain, random(3))
    assert region_sizes(opt.fuse_elementwise(program)) == [32]  # and one operation alone
    assert opt.run_passes(program, [opt.MarkElementwiseRegions()]) == opt.fuse_elementwise(program)
    assert region_sizes(opt.fuse_elementwise(program, 10)) == [10, 10, 10, 3]
    same_bits(program, opt.fuse_elementwise(program, 10), random(3))


@pytest.mark.parametrize("seed", range(8))
def test_regions_of_random_programs(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def function(x: Any) -> Any:
        values = [x]
        for _ in range(20):
            one, other = (values[int(rng.integers(len(values)))] for _ in range(2))
            values.append(
                [
                    lambda a, b: a + b,
                    lambda a, b: jnp.sin(a),
                    lambda a, b: a - jnp.sum(b),
                    lambda a, b: a[::-1] * b,
                ][int(rng.integers(4))](one, other)
            )
        return values[-1], values[int(rng.integers(20))]

    program = opt.inline(program_of(function, random(3)))
    for limit in (2, 3, 32):
        same_bits(program, opt.fuse_elementwise(program, limit), random(3))


def test_marked_programs_compile_and_differentiate() -> None:
    graph = opt.fuse_elementwise(Graph.trace(lambda x: jnp.sum(jnp.tanh(x * 2.0) * x), random(4)))
    x = random(4)
    slope = np.tanh(2 * x) + 2 * x * (1 - np.tanh(2 * x) ** 2)
    assert_close(rlx.grad(graph)(jnp.asarray(x)), slope, rtol=1e-5, atol=1e-6)
