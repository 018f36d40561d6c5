"""Loops as one launch, run by the interpreter: of one group, and of groups that wait for one another."""

from __future__ import annotations

from collections.abc import Iterator
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
from rlx.backends.gpu.steps import Step
from rlx.code.faults import CodeFault
from rlx.code.running import run_code
from rlx.code.tree import Barrier, Block, Exchange, blocks_of, statements_in
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
@pytest.mark.selected("all")
def test_loops_compute_the_reference_without_races(name: str, limits: str, device: str) -> None:
    with scoped(check=True):
        ran = check(*of_program(name), DEVICES[device](), LIMITS[limits]).ran
    assert {"one group": "loop", "groups": "loop of groups"}[limits] in ran
    assert not any(kernel.startswith("reference") for kernel in ran), ran
