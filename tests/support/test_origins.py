"""The lines that equations come from: right for every code object, and none is kept alive."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import rlx
from rlx import lax


def made(line: int, name: str) -> Callable[..., Any]:
    """A function whose one operation stands on a line of a file of its own."""
    scope: dict[str, Any] = {"sin": lax.sin}
    exec(compile("\n" * (line - 2) + f"def {name}(x):\n    return sin(x)\n", f"<{name}>", "exec"), scope)
    return scope[name]


def test_code_that_is_gone_lends_its_lines_to_none() -> None:
    """Functions made one after another live at the same address."""
    addresses = set()
    for line in range(2, 12):
        f = made(line, f"f{line}")
        addresses.add(id(f.__code__))
        origin = rlx.make_program(f)(1.0).equations[-1].origin
        assert (origin.file, origin.line, origin.function) == (f"<f{line}>", line, f"f{line}")
        del f
        gc.collect()
    assert len(addresses) < 10


def test_code_is_let_go() -> None:
    """A function that was traced, and is forgotten, takes its code object with it."""
    f = made(7, "f")
    rlx.make_program(f)(1.0)
    code = weakref.ref(f.__code__)
    del f
    gc.collect()
    assert code() is None


def test_every_statement_has_its_line() -> None:
    """Statements of several lines, comprehensions and calls in calls point at the line of the operation."""

    def f(x: Any) -> Any:
        y = lax.sin(
            lax.cos(x),
        )
        return [lax.exp(y) for _ in range(1)][0]

    first = f.__code__.co_firstlineno
    lines = [e.origin.line - first for e in rlx.make_program(f)(1.0).equations]
    assert lines == [2, 1, 4]
