"""Loops as one launch, run by the interpreter: of one group, and of groups that wait for one another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from interpreted import InterpretedProgram
from test_interpreted import DEVICES, SMALL, check, flat, numbers, plan_of

import rlx
import rlx.nn as nn
import rlx.numpy as jnp
from rlx import lax
from rlx.backends.gpu.limits import LaunchCosts
from rlx.backends.wgpu.dialect import WgslDialect
from rlx.backends.wgpu.helpers import Features
from rlx.code.checking import check_code
from rlx.code.faults import CodeFault
from rlx.code.running import run_code
from rlx.code.tree import (
    Array,
    Barrier,
    Block,
    Coordinate,
    Declare,
    Exchange,
    Expression,
    ForLoop,
    FreeLoop,
    If,
    Number,
    Register,
    Statement,
    View,
    Write,
    blocks_of,
    index,
    statements_in,
)
from rlx.config import scoped

LIMITS = {
    "one group": replace(SMALL, loop_work=1 << 30),
    "groups": replace(SMALL, tile=4, together=3, loop_work=0, costs=LaunchCosts(barrier=0.0)),
}


def counted(function: Any, steps: int) -> Any:
    """The function, repeated in a loop that a condition ends."""
    return lambda x: lax.while_loop(lambda s: s[0] < steps, lambda s: (s[0] + 1, function(s[1])), (0, x))


PROGRAMS: dict[str, tuple[Any, ...]] = {
    "rows and columns": (
        lambda x: lax.scan(lambda c, r: (nn.softmax(c.T + r) * 9, (c.sum(0), c.max())), x[0], x, reverse=True),
        numbers(3, 12, 12),
    ),
    "an odd number of steps": (counted(lambda c: c.T * 0.9 + 1, 3), numbers(9, 9)),
    "an even number of steps": (counted(lambda c: c.T * 0.9 + 1, 2), numbers(9, 9)),
    "no steps": (counted(lambda c: c + 1, 0), numbers(70)),
    "products until values are small": (
        lambda w, x: lax.while_loop(
            lambda s: (s[1] * s[1]).sum() > 1e-3, lambda s: (s[0] + 1, jnp.tanh(s[1] @ w) / 30), (0, x)
        ),
        numbers(18, 18), numbers(10, 18),
    ),
    "branches": (
        lambda x: lax.scan(
            lambda c, i: (lax.switch(i % 3, [jnp.sin, lambda r: r.sum() - r, lambda r: r[::-1]], c + 1), c[i]),
            x, jnp.arange(4),
        ),
        numbers(70),
    ),
    "loops in loops": (
        lambda x: lax.scan(
            lambda c, n: (lax.fori_loop(0, n, lambda i, d: jnp.roll(d.T, i) * 0.9 + d, c), c[n]), x, jnp.arange(3)
        ),
        numbers(8, 8),
    ),
    "carries in place": (
        lambda x, i: lax.fori_loop(0, 3, lambda n, c: c.at[i].set(c[n] + x), x),
        numbers(70), (np.arange(70) * 7 % 50).astype("int32"),
    ),
    "complex and narrow": (
        counted(lambda c: (c[0].conj() * (0.9 + 0.1j), c[1] * 2, ~c[2]), 3),
        (numbers(70) + 1j * numbers(70), numbers(70).astype("float16"), numbers(70) > 0),
    ),
    "several reductions": (
        counted(lambda c: (c[0] / c[0].sum(1, keepdims=True), c[1] + c[1].max()), 2),
        (abs(numbers(3, 60)), np.arange(60).reshape(1, 60)),
    ),
}  # fmt: skip


def of_program(name: str) -> tuple[Any, list[np.ndarray]]:
    """The plan of a program, and its flat arguments."""
    function, *arguments = PROGRAMS[name]
    return plan_of(function, *arguments), flat(tuple(map(np.asarray, rlx.tree.leaves(arguments))))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.selected(60)
def test_loops_compute_the_reference_without_races(name: str, limits: str, device: str) -> None:
    with scoped(check=True):
        ran = check(*of_program(name), DEVICES[device](), LIMITS[limits]).ran
    assert {"one group": "loop", "groups": "loop of groups"}[limits] in ran
    assert not any(kernel.startswith("reference") for kernel in ran), ran


@pytest.mark.thorough
@pytest.mark.parametrize("name", PROGRAMS)
def test_loops_without_pointers_copy_what_they_carry(name: str) -> None:
    with scoped(check=True):
        program = check(*of_program(name), WgslDialect(Features(longs=True, doubles=True)), LIMITS["one group"])
    assert "loop" in program.ran
    steps = [step for found in program.program.steps.values() for step in found]
    assert not any(isinstance(s, Exchange) for step in steps for s in statements_in(step.code))


# ------------------------------------------------------------------ barriers
def is_shared(statement: Statement) -> bool:
    """Whether a statement is a barrier of all groups."""
    return isinstance(statement, Barrier) and statement.scope == "launch"


def without(block: Block, barrier: Barrier) -> Block:
    """The block without one of its barriers, found by identity, and without the count that it awaits."""
    made: list[Statement] = []
    for statement in block:
        if statement is barrier:
            made.pop()
        elif isinstance(statement, If):
            branches = (without(part, barrier) for part in blocks_of(statement))
            made.append(If(statement.condition, *branches))
        elif isinstance(statement, (ForLoop, FreeLoop)):
            made.append(replace(statement, body=without(statement.body, barrier)))
        else:
            made.append(statement)
    return tuple(made)


@pytest.mark.parametrize("device", ["opencl", "sm_90", "gfx942"])
def test_races_are_found_without_a_barrier_of_the_launch(device: str) -> None:
    """Each barrier but the last one, at the loop's end, is needed."""
    plan, inputs = of_program("products until values are small")
    program = InterpretedProgram(plan, DEVICES[device](), LIMITS["groups"])
    ((kernel, (start, loop)),) = [(k, steps) for k, steps in program.program.steps.items() if steps[-1].together]
    *needed, last = filter(is_shared, statements_in(loop.code))
    assert len(needed) == 4
    for barrier in needed:
        program.program.steps[kernel] = [start, replace(loop, code=without(loop.code, barrier))]
        with pytest.raises(CodeFault, match="without a barrier in between"):
            program.run(inputs)
    program.program.steps[kernel] = [start, replace(loop, code=without(loop.code, last))]
    program.run(inputs)


ITEM, GROUP = (Coordinate(np.dtype(np.uint32), of) for of in ("item", "group"))
BYTES, COUNT = Array("bytes", np.dtype(np.uint8)), Array("count", np.dtype(np.uint32), "device", (1,))
ALL = Barrier("launch", COUNT, Number(COUNT.dtype, 2))


def launched(*statements: Statement) -> np.ndarray:
    """The bytes that code leaves, of two groups of two items; the first ones count arrivals."""
    memory = np.zeros(16, np.uint8)
    view = View(COUNT, BYTES, Number(np.dtype(np.int64), 0))
    run_code((view, *statements), {"bytes": memory}, groups=2, items=2)
    return memory


def view(name: str, offset: Expression | int, size: int = 4) -> View:
    """A view of elements of 16 bits."""
    return View(Array(name, np.dtype(np.uint16), "device", (size,)), BYTES, index(offset, np.dtype(np.int64)))


def test_views_are_places_in_bytes_that_exchange() -> None:
    left, right = view("left", 4, 2), view("right", 8, 2)
    number = Number(np.dtype(np.uint16), 257)
    store = If((ITEM + GROUP).equals(0), (Write(left.array, (index(1),), number),))
    assert launched(left, right, store).nonzero()[0].tolist() == [6, 7]
    assert launched(left, right, Exchange(left.array, right.array), store).nonzero()[0].tolist() == [10, 11]


@pytest.mark.parametrize(("offset", "message"), [(10, "beyond bytes"), (-2, "beyond bytes"), (5, "not aligned")])
def test_views_stay_within_their_array(offset: int, message: str) -> None:
    with pytest.raises(CodeFault, match=message):
        launched(view("x", offset))


def test_views_of_the_same_bytes_race() -> None:
    """Views of different names are told apart by their bytes."""
    write, read = view("x", 8), Array("y", np.dtype(np.uint32), "device", (2,))
    start = View(read, BYTES, Number(np.dtype(np.int64), 8))
    place = GROUP * 2 + ITEM
    other = Declare(Register(read.dtype, "other"), read[1 - GROUP])
    begin = write, start, Write(write.array, (place,), Number(np.dtype(np.uint16), 1))
    with pytest.raises(CodeFault, match="another group reads"):
        launched(*begin, other)
    with pytest.raises(CodeFault, match="another group reads"):
        launched(*begin, Barrier(), other)
    assert launched(*begin, ALL, other)[0] == 2


def test_barriers_of_the_launch_are_for_all_items() -> None:
    inside = If(GROUP.equals(0), (ALL,))
    with pytest.raises(CodeFault, match="some of its work-items do not reach"):
        launched(inside)
    with pytest.raises(CodeFault, match="depends on the group"):
        check_code((inside,))
    check_code((If(GROUP.equals(0), (Barrier(),)),))
    with pytest.raises(CodeFault, match="another count of arrivals than 2"):
        launched(replace(ALL, awaited=Number(COUNT.dtype, 3)))


def test_exchanges_are_for_all_items() -> None:
    left, right = view("left", 4), view("right", 8)
    swap = Exchange(left.array, right.array)
    with pytest.raises(CodeFault, match="by some work-items"):
        launched(left, right, If(ITEM.equals(0), (swap,)))
    with pytest.raises(CodeFault, match="depends on the group or"):
        check_code((left, right, If(ITEM.equals(0), (swap,))))
    with pytest.raises(CodeFault, match="one is not a view"):
        check_code((left, swap))
    with pytest.raises(CodeFault, match="declared twice"):
        check_code((left, left))
