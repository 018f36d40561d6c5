"""Random programs in random nestings: op by op, compiled, the reference backend and jax agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.nn
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nestings import ALL, POINT
from twins import assert_same

import rlx

Operation = Callable[[Any, Any, Any], Any]
SHIFTED = np.array([0.3, -0.8, 0.5])
MATRIX = np.array([[0.2, -0.7, 0.4], [0.9, 0.1, -0.3], [-0.5, 0.6, 0.8]])

# each takes the library and two vectors, and returns a vector of moderate size
OPERATIONS: dict[str, Operation] = {
    "add": lambda L, x, y: x + y,
    "subtract": lambda L, x, y: x - 0.5 * y,
    "multiply": lambda L, x, y: x * y,
    "divide": lambda L, x, y: x / (1.5 + y * y),
    "power": lambda L, x, y: (1.1 + x * x) ** L.numpy.tanh(y),
    "maximum": lambda L, x, y: L.numpy.maximum(x, y * 1.01 + 0.013),
    "where": lambda L, x, y: L.numpy.where(x > y, L.numpy.sqrt(L.numpy.abs(x) + 1), y),
    "clip": lambda L, x, y: L.numpy.clip(x, -0.6, 0.7) + y,
    "sin": lambda L, x, y: L.numpy.sin(x),
    "exp": lambda L, x, y: L.numpy.exp(-x * x),
    "log": lambda L, x, y: L.numpy.log1p(x * x),
    "tanh": lambda L, x, y: L.numpy.tanh(x),
    "atan2": lambda L, x, y: L.numpy.arctan2(x, 2.0 + y * y),
    "softmax": lambda L, x, y: L.nn.softmax(x) * y,
    "sum": lambda L, x, y: L.numpy.sum(x) * 0.3 + y,
    "mean of squares": lambda L, x, y: x - L.numpy.mean(y**2, keepdims=True),
    "max": lambda L, x, y: L.numpy.max(x) - y,
    "prod": lambda L, x, y: L.numpy.prod(L.numpy.cos(x)) * y,
    "cumsum": lambda L, x, y: 0.5 * L.numpy.cumsum(x),
    "sort": lambda L, x, y: L.numpy.sort(x) * y,
    "reverse": lambda L, x, y: x[::-1],
    "roll": lambda L, x, y: L.numpy.roll(x, 1) + y[0],
    "matrix": lambda L, x, y: MATRIX @ x,
    "outer": lambda L, x, y: L.numpy.sum(x[:, None] * L.numpy.sin(y)[None, :], axis=0),
    "product": lambda L, x, y: L.numpy.einsum("i,j,ij->j", x, y, MATRIX),
    "concatenate": lambda L, x, y: L.numpy.concatenate([x[1:], y[:1] * 2]),
    "stack": lambda L, x, y: L.numpy.stack([x, y], axis=1).reshape(6)[1:4],
    "pad": lambda L, x, y: L.numpy.pad(x[:2], (1, 0)) - y,
    "gather": lambda L, x, y: x[np.array([2, 0, 0])],
    "indexed by a value": lambda L, x, y: L.lax.dynamic_slice(L.numpy.concatenate([x, y]), (L.numpy.argmax(x),), (3,)),
    "update": lambda L, x, y: L.numpy.asarray(x).at[1].set(y[0]).at[np.array([0, 0])].add(0.2),
    "constant": lambda L, x, y: L.numpy.asarray(SHIFTED) * L.lax.stop_gradient(x) + y,
    "narrow": lambda L, x, y: x + 0.1 * L.numpy.floor(3.3 * y).astype("int32").astype("float64"),
}


class Step(NamedTuple):
    """An operation on two earlier values, or a nested program on one."""

    name: str
    first: int
    second: int
    inner: Any = None


def _steps(inner: st.SearchStrategy[Any] | None) -> st.SearchStrategy[list[Step]]:
    place = st.integers(0, 3)
    plain = st.builds(Step, st.sampled_from(sorted(OPERATIONS)), place, place, st.none())
    if inner is None:
        return st.lists(plain, min_size=1, max_size=3)
    wrapped = st.builds(Step, st.sampled_from(sorted(ALL)), place, place, inner)
    return st.lists(st.one_of(plain, wrapped), min_size=1, max_size=3)


PROGRAMS = _steps(_steps(_steps(None)))


def evaluate(library: Any, steps: list[Step], x: Any) -> Any:
    """Run a program: every step adds a value, the last one counts."""
    values = [x]
    for step in steps:
        a, b = (values[-1 - i % len(values)] for i in (step.first, step.second))
        if step.inner is None:
            values.append(OPERATIONS[step.name](library, a, b))
        else:
            values.append(library.numpy.tanh(ALL[step.name](library, _function(library, step.inner))(a)))
    return values[-1]


def _function(library: Any, steps: list[Step]) -> Any:
    return lambda x: evaluate(library, steps, x)


def check(steps: list[Step]) -> None:
    """Four ways, one value."""
    expected = jax.jit(lambda x: evaluate(jax, steps, x))(POINT)

    def ours(x: Any) -> Any:
        return evaluate(rlx, steps, x)

    with rlx.disable_jit():
        assert_same(ours(POINT), expected, 1e-8, what="op by op")
    with rlx.default_device("reference"):
        assert_same(rlx.jit(ours)(POINT), expected, 1e-8, what="reference")
    assert_same(rlx.jit(ours)(POINT), expected, 1e-8, what="jit")


@given(PROGRAMS)
@settings(max_examples=25)
def test_four_ways_agree(steps: list[Step]) -> None:
    """On generated programs."""
    check(steps)


@pytest.mark.thorough
def test_every_operation_under_every_wrapper() -> None:
    """Pairs that the generated programs may miss, without a compiler."""
    names = sorted(OPERATIONS)
    for offset, wrapper in enumerate(sorted(ALL)):
        chosen = names[offset % 3 :: 3]
        steps = [Step(wrapper, 0, 0, [Step(name, i % 2, (i + 1) % 2) for i, name in enumerate(chosen)])]
        expected = jax.jit(lambda x, s=steps: evaluate(jax, s, x))(POINT)
        with rlx.disable_jit():
            assert_same(evaluate(rlx, steps, POINT), expected, 1e-8, what=wrapper)
