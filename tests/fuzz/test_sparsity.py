"""Patterns of random programs, against their dense derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import RlxError
from rlx.ir.types import is_inexact

from .generate import generate
from .interpret import Interpreter, namespace
from .program import Program, input_value, kind_of

pytestmark = pytest.mark.filterwarnings("ignore")
NAMES = namespace()
SEEDS = [range(start, start + 10) for start in range(0, 500, 10)]
_ELEMENTS = 200  # of an argument that is differentiated element by element


def differentiated(program: Program) -> list[int]:
    """The inputs that are real arrays of moderate size."""
    chosen = [k for k, x in enumerate(program.inputs) if kind_of(x.dtype) == "f" and x.layout != "number"]
    return [k for k in chosen if 0 < int(np.prod(program.inputs[k].shape)) <= _ELEMENTS]


def columns(function: Any, inputs: list[Any], number: int) -> np.ndarray | None:
    """Where the derivative by an input is a number other than zero; None if there is no derivative."""
    x = np.asarray(inputs[number])

    def of_one(value: Any) -> list[Any]:
        return function(*inputs[:number], value, *inputs[number + 1 :])

    basis = np.eye(x.size, dtype=x.dtype).reshape(x.size, *x.shape)
    try:
        moved = rlx.vmap(lambda t: rlx.jvp(of_one, (x,), (t,))[1])(basis)
    except RlxError:
        return None
    parts = [np.asarray(m).astype("complex128").reshape(x.size, -1) for m in moved]
    values = np.concatenate([np.zeros((x.size, 0)), *parts], axis=1)
    return (np.isfinite(values) & (values != 0)).T


def check(seed: int) -> bool:
    """Whether the program of a seed has a derivative; its pattern has every element of it."""
    program = generate(seed, NAMES)
    inputs = [rlx.numpy.asarray(input_value(x, NAMES)) for x in program.inputs]
    run, seen = Interpreter(NAMES).program(program), False

    def function(*arguments: Any) -> list[Any]:
        return [y for y in run(*arguments) if is_inexact(y.dtype)]

    with np.errstate(all="ignore"):
        for number in differentiated(program):
            true = columns(function, inputs, number)
            if true is None:
                continue
            found = rlx.sparsity(function, number)(*inputs)
            missing = np.argwhere(true & ~found.todense())
            assert not len(missing), (seed, number, missing[:5], found.assumptions)
            seen = True
    return seen


@pytest.mark.selected(1)
@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_patterns_have_every_element_of_the_derivative(seeds: range) -> None:
    """Five hundred programs."""
    assert any([check(seed) for seed in seeds])
