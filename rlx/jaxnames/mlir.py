"""jax.interpreters.mlir: what a library's own primitive is compiled to, where that is a function (equinox)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx.errors import UnsupportedError
from rlx.jaxnames.rules import LOWERINGS

__all__ = ["emit_python_callback", "ir_constant", "lower_fun", "register_lowering"]


class Lowered:
    """A function that a primitive is compiled to: made by lower_fun."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


def lower_fun(fun: Callable[..., Any], multiple_results: bool = True) -> Lowered:
    """The rule that compiles what a function computes."""
    return Lowered(fun)


def register_lowering(primitive: Any, rule: Any, platform: str | None = None, **_: Any) -> Any:
    """Compile a primitive by this rule. One that writes MLIR itself is not kept: the implementation is compiled.

    >>> import rlx
    >>> from rlx.jaxnames.foreign_primitive import ForeignPrimitive
    >>> from rlx.jaxnames.mlir import lower_fun, register_lowering
    >>> own = ForeignPrimitive("own")
    >>> _ = register_lowering(own, lower_fun(lambda x: x + 1, multiple_results=False))
    >>> float(rlx.jit(own.bind)(1.0))
    2.0
    """
    if isinstance(rule, Lowered) and platform in (None, "cpu"):
        LOWERINGS[primitive] = rule.function
    return rule


def _refuse(*_: Any, **__: Any) -> Any:
    raise UnsupportedError(
        "A rule writes MLIR, which rlx does not compile.", "Register mlir.lower_fun of a function instead."
    )


emit_python_callback = ir_constant = _refuse
