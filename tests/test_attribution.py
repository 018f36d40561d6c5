"""Each equation names the kernels that compute it: compared with the plans, and with plans of changed programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import lax, nn
from rlx.explain.attribution import Attributed, KernelPart, attributed, parts_of
from rlx.ir.kernels import Contract, Library, Loops, Plan, Sort, nested_plans
from rlx.ir.plan_data import FORM, write_plan
from rlx.ir.program import Program
from rlx.passes.pipeline import lower_program
from rlx.profiling.timed_call import TimedCall
from rlx.trace.primitive import registry

X = np.linspace(-1.0, 1.0, 48 * 32, dtype=np.float32).reshape(48, 32)
SQUARE = np.eye(32, dtype=np.float32)
PARAMETERS = [np.ones((32, 24), "f4"), np.ones((24, 16), "f4"), np.ones((16, 5), "f4")]


def loss(parameters: Any, x: Any, y: Any) -> Any:
    h = jnp.tanh(x @ parameters[0])
    h = jnp.tanh(h @ parameters[1])
    return ((h @ parameters[2] - y) ** 2).mean()


def normalised(x: Any) -> Any:
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-6)


def scanned(x: Any) -> Any:
    return lax.scan(lambda carry, row: (jnp.tanh(carry * row + 1.0), carry.sum()), x[0], x)


def attention(x: Any) -> Any:
    return nn.softmax(x @ x.T * 0.25, axis=-1) @ x


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "gradient of a perceptron": (rlx.grad(loss), (PARAMETERS, X, np.ones((48, 5), "f4"))),
    "softmax": (lambda x: nn.softmax(x * 2.0, axis=1), (X,)),
    "gradient of softmax": (rlx.grad(lambda x: (nn.softmax(x, axis=1) ** 2).sum()), (X,)),
    "layer norm": (normalised, (X,)),
    "scan": (scanned, (X,)),
    "attention": (attention, (X,)),
    "gradient of attention": (rlx.grad(lambda x: attention(x).sum()), (X,)),
    "reductions": (lambda x: (x.sum(), jnp.tanh(x).max(0), (x * x).sum(1), jnp.cumsum(x + 1.0, axis=1)), (X,)),
    "a long sum": (lambda x: (jnp.tanh(x).sum(), jnp.tanh(x) + 1.0), (np.ones((2048, 256), "f4"),)),
    "sort": (lambda x: jnp.sort(normalised(x) * 2.0, axis=1)[:, ::-1] + 1.0, (X,)),
    "fft": (lambda x: jnp.fft.ifft(jnp.fft.fft(x) * 2.0).real, (X,)),
    "cond": (lambda x: lax.cond(x.sum() > 0, jnp.sin, lambda y: y * 2.0, x), (X,)),
    "updates": (lambda x, i: x.at[i + 1].add(2.0 * x[i - 1]), (X, np.arange(9))),
    "solve": (lambda a, x: jnp.linalg.solve(a + 1.0, x.T * 2.0), (SQUARE, X)),
}
PARTS = pytest.mark.parametrize("name", PROGRAMS)


@cache
def compiled(name: str) -> tuple[Program, Plan]:
    function, arguments = PROGRAMS[name]
    found = rlx.inspect(function)(*arguments)
    assert found.plan is not None
    return found.mir[-1].program, found.plan


def everything(rows: tuple[Attributed, ...]) -> Iterator[Attributed]:
    for row in rows:
        yield row
        for _, inner in row.regions:
            yield from everything(inner)


def every_part(plan: Plan, path: str = "") -> Iterator[KernelPart]:
    for part in parts_of(plan, path):
        yield part
        for inner in nested_plans(part.kernel):
            yield from every_part(inner, f"{part.path}.")


@PARTS
def test_no_kernel_is_an_orphan_and_no_equation_is_without_an_answer(name: str) -> None:
    program, plan = compiled(name)
    rows = list(everything(attributed(program, plan)))
    named = {id(part.kernel) for row in rows for part in row.parts}
    orphans = [part for part in every_part(plan) if id(part.kernel) not in named]
    # within a loop, a value that is carried on unchanged is copied, which no equation says
    assert all(isinstance(part.kernel, Loops) and len(part.kernel.instructions) == 1 for part in orphans)
    assert all((row.reason == "") == bool(row.parts) for row in rows)
    assert {row.reason for row in rows} <= {"", "view", "alias", "constant", "dropped"}


@PARTS
def test_products_sorts_and_routines_are_kernels_of_their_own(name: str) -> None:
    """A kernel of these kinds computes one equation, of its primitive, with its sizes."""
    for row in everything(attributed(*compiled(name))):
        for _, kernel, _ in row.parts:
            if isinstance(kernel, (Contract, Library, Sort)):
                assert len(kernel.equations) == 1
                assert row.equation.primitive.name in kernel.label.split("+")
        if row.equation.primitive.name == "dot_general":
            (product,) = [kernel for _, kernel, _ in row.parts if isinstance(kernel, Contract)]
            (m, k, n) = product.rows, product.depth, product.columns
            left, right = (variable.type for variable in row.equation.inputs)
            assert product.batches * m * n == row.equation.outputs[0].type.size
            sizes = sorted((product.batches * m * k, product.batches * k * n))
            assert sizes == sorted((left.size, right.size))  # the sides change places in another layout


def test_each_product_of_a_gradient_has_a_kernel_of_its_own() -> None:
    rows = attributed(*compiled("gradient of a perceptron"))
    products = [row for row in rows if row.equation.primitive.name == "dot_general"]
    paths = [part.path for row in products for part in row.parts if isinstance(part.kernel, Contract)]
    assert len(products) == 8 and len(set(paths)) == 8


# primitives of one cost, so that a plan keeps its kernels if one takes the other's place
_OTHERS = {"add": "subtract", "subtract": "add", "multiply": "add", "tanh": "exp", "exp": "tanh"}
_OTHERS |= {"reduce_sum": "reduce_max", "reduce_max": "reduce_sum", "sin": "cos", "divide": "add"}


def code(kernel: Any) -> object:
    """What a kernel computes, without the arrays that it works on."""
    if not isinstance(kernel, Loops):
        return type(kernel)
    told = ("constant", "reduce", "cumulate")
    steps = [(step.op, step.args, step.attribute if step.op in told else 0) for step in kernel.instructions]
    return steps, [(store.value, store.accumulate) for store in kernel.stores]


@PARTS
def test_only_the_kernels_of_an_equation_change_with_it(name: str) -> None:
    """Another operation in an equation's place changes the code of the kernels that it names, and no others."""
    program, _ = compiled(name)
    before = lower_program(program)
    rows, compared, possible = attributed(program, before), 0, 0
    for number, (equation, row) in enumerate(zip(program.equations, rows, strict=True)):
        other = _OTHERS.get(equation.primitive.name)
        if other is None:
            continue
        possible += 1
        made = equation.replace(primitive=registry[other])
        changed = program.replace(equations=(*program.equations[:number], made, *program.equations[number + 1 :]))
        after = lower_program(changed)
        pairs = list(zip(parts_of(before), parts_of(after), strict=False))
        if [p.path for p in parts_of(before)] != [p.path for p in parts_of(after)]:
            continue  # the changed program has other kernels
        differing = {old.path for old, new in pairs if code(old.kernel) != code(new.kernel)}
        assert differing == {part.path for part in row.parts}, (number, equation)
        compared += 1
    assert 2 * compared >= possible


def test_an_equation_that_two_kernels_compute_names_both() -> None:
    (row,) = [row for row in rlx.inspect(PROGRAMS["gradient of a perceptron"][0])(
        *PROGRAMS["gradient of a perceptron"][1]).dispatch if "ops.tanh(v0)" in row.equation]  # fmt: skip
    assert row.kernel.startswith("kernels ") and row.kernel.count(",") == 1


def test_reasons_for_equations_without_a_kernel() -> None:
    def f(x: Any) -> Any:
        y = lax.stop_gradient(jnp.sin(x))
        return y.T * jnp.arange(48.0), x[0] + jnp.full((32,), 3.0)

    rows = rlx.inspect(f)(X).dispatch
    reasons = {row.how for row in rows if not row.kernel and not row.reason}
    assert {"view", "alias"} <= reasons <= {"view", "alias", "constant"}, rows


def test_the_lines_of_a_shared_plan_are_those_of_each_program() -> None:
    """Equal programs share an executable; a profile of each names its own lines."""

    def first(x: Any) -> Any:
        return jnp.tanh(x) * 3.5

    def second(x: Any) -> Any:
        return jnp.tanh(x) * 3.5

    calls = [TimedCall(f, (X,), {}) for f in (first, second)]
    one, other = (call.steps[0].kernel for call in calls)
    assert one is other
    lines = [call.lines()[id(one)][0] for call in calls]
    assert [line.function for line in lines] == ["first", "second"]
    assert lines[0].line + 3 == lines[1].line


def test_a_plan_within_a_memory_limit_numbers_its_own_equations() -> None:
    def deep(x: Any) -> Any:
        for step in range(6):
            x = jnp.tanh(x @ SQUARE * (1.0 + step))
        return x.sum()

    plain = rlx.inspect(rlx.grad(deep))(X)
    limited = rlx.inspect(rlx.jit(rlx.grad(deep), memory_limit=plain.memory.arena * 3 // 4))(X)
    assert limited.stage("rematerialize") and limited.plan is not None
    program = limited.mir[-1].program
    assert max(n for part in parts_of(limited.plan) for n in part.kernel.equations) < len(program.equations)
    products = [row for row in attributed(program, limited.plan) if row.equation.primitive.name == "dot_general"]
    assert all(any(isinstance(p.kernel, Contract) for p in row.parts) for row in products)


def test_numbers_of_equations_do_not_reach_the_key_of_a_plan() -> None:
    """What is stored of a plan is the same for equal kernels of different programs."""
    plan = lower_program(compiled("softmax")[0])
    assert b"equations" not in write_plan(plan) and "equations" not in FORM and "unplaced" not in FORM


def test_traced_equations_that_passes_remove_name_the_pass() -> None:
    def f(x: Any) -> Any:
        unused = jnp.cos(x)  # noqa: F841
        return jnp.sin(x) * 2.0 + jnp.sin(x) + (x + 0.0) * (jnp.sqrt(jnp.float32(4.0)) * jnp.ones(()))

    rows = rlx.inspect(f)(X).dispatch
    removed = {row.equation.split("ops.")[1].split("(")[0]: row for row in rows if row.reason}
    assert removed["sin"].reason.startswith("cse: ") and removed["sin"].how == "dropped"
    assert removed["cos"].how == "dropped" and not removed["cos"].kernel
    assert {row.kernel for row in rows if "ops.sin" in row.equation} == {"kernel 0"}  # of the equal one
    assert {row.how for name, row in removed.items() if name in ("sqrt", "multiply")} == {"constant"}


def test_the_branches_of_a_conditional_have_kernels_of_their_own() -> None:
    found = rlx.inspect(lambda i, x: rlx.lax.switch(i, [jnp.sin, jnp.cos], x))(1, np.ones(3, np.float32))
    rows = str(found.dispatch).splitlines()
    assert any("kernel 0.branch0.0" in row and "sin" in row for row in rows)
    assert any("kernel 0.branch1.0" in row and "cos" in row for row in rows)
