"""Bars of loops in programs: how often they are updated, one bar under every transform, none after an exception."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import progress
from rlx.errors import ControlFlowTypeError, ShapeError


class Bars:
    """A stand-in for tqdm that records the bars."""

    def __init__(self) -> None:
        self.made: list[Any] = []

    def __call__(self, **options: Any) -> Any:
        bars = self

        class Bar:
            n = 0
            updates = 0
            leave = True
            closed = 0

            def __init__(self) -> None:
                self.options = options
                bars.made.append(self)

            def update(self, count: int) -> None:
                assert count > 0 and not self.closed
                self.n += count
                self.updates += 1

            def close(self) -> None:
                self.closed += 1

        return Bar()

    def only(self) -> Any:
        (bar,) = self.made
        assert bar.closed == 1
        return bar


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> Bars:
    found = Bars()
    monkeypatch.setattr(progress, "_tqdm", lambda: found)
    return found


def power(x: Any, n: int = 50) -> Any:
    """x ** (n + 1), by a scan with a bar."""
    return progress.scan(lambda c, _: (c * x, None), x, None, n)[0]


TRANSFORMS: dict[str, Callable[[], Any]] = {
    "eager": lambda: power(1.5),
    "jit": lambda: rlx.jit(power)(1.5),
    "vmap": lambda: rlx.jit(rlx.vmap(power))(np.array([1.5, 1.5]))[0],
    "grad": lambda: rlx.jit(rlx.grad(power))(1.5) * 1.5 / 51,
    "vmap of grad": lambda: rlx.vmap(rlx.grad(power))(np.array([1.5, 1.5]))[1] * 1.5 / 51,
    "jvp": lambda: rlx.jvp(power, (1.5,), (1.0,))[0],
}


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.selected("all")
def test_a_scan_has_one_bar_under_transforms(bars: Bars, name: str) -> None:
    assert float(TRANSFORMS[name]()) == pytest.approx(1.5**51, rel=1e-4)
    bar = bars.only()
    assert bar.n == 50 and bar.updates <= 20 and bar.leave
    assert bar.options == {"desc": "scan", "total": 50}


def test_loops_count_their_steps(bars: Bars) -> None:
    @rlx.jit
    def halved(x: Any, lower: Any) -> Any:
        first = progress.while_loop(lambda v: v > 1.0, lambda v: v / 2, x, label="halving")
        second = progress.fori_loop(2, 1002, lambda i, v: v + i, 0, leave=False)
        third = progress.fori_loop(lower, 40, lambda i, v: v + i, 0)
        return first, second, third

    for _ in range(2):  # each run begins the bars again
        first, second, third = halved(1024.0, 30)
        assert (float(first), int(second), int(third)) == (1.0, sum(range(2, 1002)), sum(range(30, 40)))
    assert [bar.n for bar in bars.made] == [10, 1000, 10] * 2
    assert [bar.options["total"] for bar in bars.made] == [None, 1000, None] * 2
    assert bars.made[1].updates == 20 and bars.made[0].updates == 5  # after 1, 2, 4, 8 and 10 steps
    assert bars.made[1].options["leave"] is False and all(bar.closed == 1 for bar in bars.made)


def test_a_batched_while_loop_has_the_bar_of_its_longest_element(bars: Bars) -> None:
    loop = rlx.vmap(lambda x: progress.while_loop(lambda v: v < 100, lambda v: 2 * v, x, total=10))
    assert rlx.jit(loop)(np.array([50, 1, 1000])).tolist() == [100, 128, 1000]
    assert bars.only().n == 7


def test_empty_loops(bars: Bars) -> None:
    assert progress.scan(lambda c, x: (c, x), 1.0, np.zeros(0))[1].shape == (0,)
    assert int(rlx.jit(lambda: progress.fori_loop(5, 2, lambda i, v: v + 1, 0))()) == 0
    assert [bar.n for bar in bars.made] == [0, 0]


def test_operands_that_are_refused(bars: Bars) -> None:
    """The errors are those of lax, about the user's functions."""
    with pytest.raises(ShapeError):
        progress.scan(lambda c, x: (c, x), 1.0, 2.0)
    with pytest.raises(ControlFlowTypeError, match="lower"):
        progress.fori_loop(jnp.zeros(2, int), 3, lambda i, v: v, 0)
    with pytest.raises(ControlFlowTypeError, match="cond_fun") as found:
        progress.while_loop(lambda v: v, lambda v: v - 1, 3.0)
    assert "test_progress.py" in found.value.line


@pytest.mark.parametrize("jitted", [True, False])
def test_an_exception_removes_the_bar(bars: Bars, jitted: bool) -> None:
    def refuse(x: Any) -> None:
        if x == 5:
            raise ZeroDivisionError("the fifth step")

    def body(c: Any, x: Any) -> Any:
        rlx.debug.callback(refuse, x)
        return c + x, None

    def f(xs: Any) -> Any:
        return progress.scan(body, 0, xs)[0]

    run = rlx.jit(f) if jitted else f
    with pytest.raises(ZeroDivisionError):
        run(np.arange(10))
    bar = bars.only()
    assert bar.leave is False and 0 < bar.n < 10
    assert int(run(np.arange(5))) == 10 and bars.made[-1].leave and bars.made[-1].n == 5


def test_an_exception_of_the_body_removes_the_bar_in_python(bars: Bars) -> None:
    def body(c: Any, x: Any) -> Any:
        return c + 1 // (3 - int(x)), None

    with rlx.disable_jit(), pytest.raises(ZeroDivisionError):
        progress.scan(body, 0, np.arange(10))
    assert bars.only().leave is False


def test_the_bar_is_tqdm_s() -> None:
    text = io.StringIO()
    assert float(rlx.jit(lambda x: progress.scan(lambda c, v: (c + v, None), 0.0, x, label="adds", file=text)[0])(
        jnp.ones(40)
    )) == 40.0  # fmt: skip
    assert "adds: 100%" in text.getvalue() and "40/40" in text.getvalue()


def test_without_tqdm_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    original = importlib.import_module

    def missing(name: str, *rest: Any) -> Any:
        if name == "tqdm.auto":
            raise ModuleNotFoundError(name)
        return original(name, *rest)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(rlx.errors.UnsupportedError, match=r"tqdm.*(?s:.*)pip install .*\[progress\]"):
        progress.scan(lambda c, x: (c, x), 0.0, np.ones(3))


def test_a_scan_can_be_unrolled(bars: Bars) -> None:
    total, _ = rlx.jit(lambda xs: progress.scan(lambda c, x: (c + x, None), 0.0, xs, unroll=3))(jnp.arange(10.0))
    assert total.item() == 45 and bars.only().n == 10
