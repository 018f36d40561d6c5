"""jax.interpreters.mlir: lowerings of a library's primitives, if they are functions (equinox)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from rlx.call.stages import ShapeDtypeStruct
from rlx.errors import UnsupportedError
from rlx.jaxnames.avals import typeof
from rlx.jaxnames.callbacks import pure_callback
from rlx.jaxnames.rules import LOWERINGS

__all__ = ["emit_python_callback", "ir_constant", "lower_fun", "register_lowering"]


class Context(NamedTuple):
    """The context of a lowering rule: avals of operands and results, and a list of objects to keep alive."""

    avals_in: list[Any]
    avals_out: list[Any]
    module_context: Any


class Lowered:
    """A function that a primitive is lowered to, created by lower_fun."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


def lower_fun(fun: Callable[..., Any], multiple_results: bool = True) -> Lowered:
    """The lowering rule that compiles a function."""
    return Lowered(fun)


def emit_python_callback(
    ctx: Context,
    callback: Callable[..., Any],
    token: Any,
    operands: Sequence[Any],
    operand_avals: Sequence[Any],
    result_avals: Sequence[Any],
    **_: Any,
) -> tuple[Any, Any, Any]:
    """Results of a Python function that runs whenever the program runs; the token; nothing to keep alive."""
    types = [ShapeDtypeStruct(a.shape, a.dtype) for a in result_avals]
    return list(pure_callback(lambda *args: tuple(callback(*args)), tuple(types), *operands)), token, None


def _function_of(primitive: Any, rule: Callable[..., Any]) -> Callable[..., Any]:
    """A rule with a callback to Python as a function; values of MLIR are the arrays themselves."""

    def function(*args: Any, **params: Any) -> Any:
        avals = list(map(typeof, args))
        results, _ = primitive.abstract_eval(*avals, **params)
        outs = results if primitive.multiple_results else [results]
        found = rule(Context(avals, outs, SimpleNamespace(add_keepalive=_keep_nothing)), *args, **params)
        return found if primitive.multiple_results else found[0]

    return function


def _keep_nothing(_: Any) -> None:
    """The program itself keeps called functions alive."""


def register_lowering(prim: Any, rule: Any, platform: str | None = None, **_: Any) -> Any:
    """Lower a primitive by this rule: a function of lower_fun, or a rule that calls back to Python.

    A rule that writes MLIR itself is ignored: the implementation is compiled.

    >>> import rlx
    >>> from rlx.jaxnames.foreign_primitive import ForeignPrimitive
    >>> from rlx.jaxnames.mlir import lower_fun, register_lowering
    >>> own = ForeignPrimitive("own")
    >>> _ = register_lowering(own, lower_fun(lambda x: x + 1, multiple_results=False))
    >>> float(rlx.jit(own.bind)(1.0))
    2.0
    """
    if platform not in (None, "cpu"):
        return rule
    if isinstance(rule, Lowered):
        LOWERINGS[prim] = rule.function
    elif "emit_python_callback" in getattr(getattr(rule, "__code__", None), "co_names", ()):
        LOWERINGS[prim] = _function_of(prim, rule)
    return rule


def ir_constant(*_: Any, **__: Any) -> Any:
    """A constant in MLIR: refused."""
    raise UnsupportedError(
        "A rule writes MLIR, which rlx does not compile.", "Register mlir.lower_fun of a function instead."
    )
