"""Shared by functions with custom rules: arguments, symbolic zeros, captured values of rules."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial, update_wrapper
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar, cast

import numpy as np

from rlx.config import config, scoped
from rlx.errors import CustomRuleError, InputTypeError
from rlx.ir.program import Program, Var
from rlx.ir.types import TensorType, is_inexact
from rlx.ops.arithmetic import convert
from rlx.ops.families import full_like
from rlx.trace.builder import Builder, state
from rlx.trace.flat import as_array, function_name, zero_tangent
from rlx.trace.interpret import interpret
from rlx.trace.primitive import Zero, type_of
from rlx.trace.tracing import finish
from rlx.trees import tree

__all__ = [
    "CustomRule",
    "SymbolicZero",
    "bind_arguments",
    "fill_tangents",
    "moving_types",
    "moving_values",
    "prefix_captures",
    "share_captures",
    "zero_from_primal",
]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_RULE_SETTERS = ("defjvp", "defjvps", "defvjp", "def_vmap")


class SymbolicZero(Zero):
    """A tangent or cotangent known to be zero, as rules with symbolic_zeros=True see it.

    >>> import rlx
    >>> rlx.custom_derivatives.SymbolicZero.from_primal_value(rlx.numpy.ones(3)).shape
    (3,)
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value that it stands for."""
        return self.type.shape

    @property
    def dtype(self) -> np.dtype:
        """dtype of the value that it stands for."""
        return self.type.dtype

    @property
    def ndim(self) -> int:
        """Number of axes of the value that it stands for."""
        return self.type.ndim

    @staticmethod
    def from_primal_value(value: Any) -> SymbolicZero:
        """The zero that is a tangent of `value`."""
        return SymbolicZero(as_array(value).type.strong())


def zero_from_primal(val: Any, symbolic_zeros: bool = False) -> Any:
    """Zeros that are a tangent of a tree of arrays: SymbolicZeros, or arrays.

    >>> import rlx
    >>> rlx.custom_derivatives.zero_from_primal((1.0, 2.0), symbolic_zeros=True)[0].shape
    ()
    """
    zeros = tree.map(SymbolicZero.from_primal_value, val)
    if symbolic_zeros:
        return zeros
    return tree.map(lambda z: full_like(z.type, 0) if is_inexact(z.dtype) else zero_tangent(z.type), zeros)


class _Tracing(threading.local):
    """The functions whose rules this thread is tracing."""

    functions: frozenset[int] = frozenset()


_tracing = _Tracing()


class RuleScope(NamedTuple):
    """The context of a call of a function with a rule, for rules that are traced later."""

    axes: Any
    switches: dict[str, Any]


# switches that change the meaning of a function's operations
_SWITCHES = ("default_float", "default_int", "numpy_dtype_promotion", "numpy_rank_promotion")


def rule_scope() -> RuleScope:
    """The mapped axes, default dtypes and promotion of operands here."""
    return RuleScope(state.axes, {name: getattr(config, name) for name in _SWITCHES})


def bind_arguments(fun: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """All arguments by position, keywords and defaults resolved. Keyword-only parameters keep their defaults."""
    try:
        bound = inspect.signature(fun).bind(*args, **kwargs)
    except (TypeError, ValueError):
        if kwargs:
            raise
        return tuple(args)
    given = set(bound.arguments)
    bound.apply_defaults()
    if named := [name for name in bound.kwargs if name in given or name in kwargs]:
        raise InputTypeError(
            f"{function_name(fun)} got {', '.join(named)} by keyword only: its rule has no place for them.",
            "Rules take all arguments by position: give the function positional parameters.",
        )
    return bound.args


class CustomRule(Generic[Parameters, Result]):
    """A function with a rule: which arguments the rule sees as values, and whether it is being traced."""

    def __init__(
        self,
        fun: Callable[Parameters, Result],
        nondiff_argnums: int | Sequence[int] = (),
        nondiff_argnames: Sequence[str] = (),
    ) -> None:
        update_wrapper(cast(Any, self), fun)
        self.fun = fun
        self.name = function_name(fun)
        numbers = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)
        names = (nondiff_argnames,) if isinstance(nondiff_argnames, str) else tuple(nondiff_argnames)
        self.nondiff_argnums = tuple(dict.fromkeys((*numbers, *_positions(fun, names))))

    def __getattr__(self, name: str) -> Any:
        # of rules around rules, the inner one is set through the outer
        inner = self.__dict__.get("fun")
        if name in _RULE_SETTERS and isinstance(inner, CustomRule):
            return getattr(inner, name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Methods bind as functions do."""
        return self if instance is None else partial(cast(Any, self), instance)

    def _within_rule(self) -> bool:
        """Whether this thread is tracing a rule of this function, which may call the function."""
        return id(self) in _tracing.functions

    @contextmanager
    def _tracing_rule(self, scope: RuleScope) -> Generator[None]:
        before = _tracing.functions, state.axes
        _tracing.functions, state.axes = before[0] | {id(self)}, scope.axes
        try:
            with scoped(**scope.switches):
                yield
        finally:
            _tracing.functions, state.axes = before

    def _divide(self, args: tuple[Any, ...]) -> tuple[list[Any], list[Any], Callable[[Sequence[Any]], list[Any]]]:
        """Arguments that rules get unchanged, the others, and a function that merges both."""
        count = len(args)
        held = {n % count: args[n] for n in self.nondiff_argnums}
        moving = [a for i, a in enumerate(args) if i not in held]

        def join(values: Sequence[Any]) -> list[Any]:  # lives as long as the rule: it refers to no other argument
            rest = iter(values)
            return [held[i] if i in held else next(rest) for i in range(count)]

        return [held[n % len(args)] for n in self.nondiff_argnums], moving, join


def _positions(fun: Callable[..., Any], names: Sequence[str]) -> list[int]:
    """The positions of the named parameters."""
    if not names:
        return []
    known = list(inspect.signature(fun).parameters)
    absent = [n for n in names if n not in known]
    if absent:
        raise CustomRuleError(
            f"{function_name(fun)} has no argument {absent[0]!r} for nondiff_argnames.",
            f"Its arguments are: {', '.join(known)}.",
        )
    return [known.index(n) for n in names]


# ------------------------------------------------------------- tangents and cotangents
def moving_types(types: Sequence[TensorType]) -> list[TensorType]:
    """Types of the tangents of those values that have one."""
    return [t.strong() for t in types if is_inexact(t.dtype)]


def fill_tangents(types: Sequence[TensorType], moving: Sequence[Any], symbolic: bool = False) -> list[Any]:
    """Tangents of every leaf: those given for float leaves, zeros of dtype float0 for others."""
    found = iter(moving)

    def zero(t: TensorType) -> Any:
        return SymbolicZero(t.strong()) if symbolic else zero_tangent(t)

    return [next(found) if is_inexact(t.dtype) else zero(t) for t in types]


def spread(moving: Sequence[Any], mask: Sequence[bool] | None, types: Sequence[TensorType]) -> list[Any]:
    """All moving values, symbolic zeros at the places that `mask` leaves out."""
    if mask is None:
        return list(moving)
    found = iter(moving)
    return [next(found) if m else SymbolicZero(t) for t, m in zip(types, mask, strict=True)]


def moving_values(types: Sequence[TensorType], values: Sequence[Any], what: str) -> list[Any]:
    """Tangents that a rule returned for values of the given types, checked; tangents of integers are dropped."""
    out = []
    for t, v in zip(types, values, strict=True):
        if not is_inexact(t.dtype):
            continue
        if v is None or (isinstance(v, Zero) and v.type.shape == t.shape):
            v = full_like(t.strong(), 0)
        v = v if isinstance(v, Zero) else as_array(v, what)
        if isinstance(v, Zero) or v.shape != t.shape:
            raise CustomRuleError(
                f"{what} has shape {v.type.shape}, its value has shape {t.shape}.",
                "A tangent or cotangent has the shape and dtype of the value it belongs to.",
            )
        out.append(v if v.dtype == t.dtype else convert(v, dtype=t.dtype, weak=False))
    return out


# ------------------------------------------------------------- captured values
def share_captures(
    program: Program,
    captured: Sequence[Any],
    rule: Program,
    more: Sequence[Any],
    mask: Sequence[bool] | None = None,
) -> tuple[Program, Program, list[Any]]:
    """Give both programs the same leading inputs: the values that either of them closed over.

    The rule also gets (ignored) tangents for the captured floats, or those in `mask`: their
    derivative through the rule is not the rule's to state.
    """
    values = [*captured, *more]
    a, b = len(captured), len(more)
    before = [Var(type_of(v)) for v in more]
    after = [Var(type_of(v)) for v in captured]
    tangents = [Var(t) for t in moving_types([type_of(v) for v in values])]
    tangents = tangents if mask is None else [t for t, m in zip(tangents, mask, strict=True) if m]
    n = len(program.inputs) - a
    program = program.replace(inputs=(*program.inputs[:a], *before, *program.inputs[a:]))
    rule = rule.replace(inputs=(*after, *rule.inputs[:b], *rule.inputs[b : b + n], *tangents, *rule.inputs[b + n :]))
    return program, rule, values


def prefix_captures(
    program: Program,
    captured: Sequence[Any],
    forward: Program,
    more: Sequence[Any],
    backward: Program,
    third: Sequence[Any],
) -> tuple[Program, Program, Program]:
    """Give the programs common leading inputs; the backward rule's captures travel as residuals."""
    program, forward = prefix_forward(program, captured, forward, more, third)
    return program, forward, prefix_backward(backward, [*captured, *more, *third])


def prefix_forward(
    program: Program, captured: Sequence[Any], forward: Program, more: Sequence[Any], third: Sequence[Any]
) -> tuple[Program, Program]:
    """The function and its forward rule over the same leading inputs; `third` passes through the rule."""
    a, b = len(captured), len(more)

    def fresh(values: Sequence[Any]) -> list[Var]:
        return [Var(type_of(v)) for v in values]

    n_out = len(program.outputs)
    program = program.replace(inputs=(*program.inputs[:a], *fresh(more), *fresh(third), *program.inputs[a:]))
    carried = fresh(third)
    forward = forward.replace(
        inputs=(*fresh(captured), *forward.inputs[:b], *carried, *forward.inputs[b:]),
        outputs=(*forward.outputs[:n_out], *carried, *forward.outputs[n_out:]),
    )
    return program, forward


def prefix_backward(backward: Program, values: Sequence[Any]) -> Program:
    """The backward rule with zeros as cotangents of captured floats."""
    types = moving_types([type_of(v) for v in values])
    if not types:
        return backward
    with Builder(backward.name) as builder:
        inputs = [builder.input(t) for t in backward.input_types]
        return finish(builder, [*[full_like(t, 0) for t in types], *interpret(backward, inputs)])
