"""Jaxprs: programs in the form in which JAX's libraries read, rewrite and run them, with JAX's primitives and order.

`view_of` shows a Program in this form; `staged` (jaxprs.py) converts a library's result back to a Program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any

from rlx.ir.program import Equation, Program
from rlx.jaxnames import core
from rlx.jaxnames.jaxprs import ClosedJaxpr, Jaxpr, JaxprEqn, eval_jaxpr
from rlx.jaxnames.named_primitives import translated

__all__ = ["jaxpr_as_fun", "jaxprs_in_params", "make_jaxpr", "subjaxprs", "view_of"]


# ------------------------------------------------------------------ programs as jaxprs
def view_of(program: Program) -> ClosedJaxpr:
    """A program as a jaxpr.

    >>> import rlx
    >>> from rlx.jaxnames.views import view_of
    >>> view_of(rlx.make_program(lambda x: x * x)(2.0)).jaxpr.eqns[0].primitive
    mul
    """
    eqns = [eqn for e in program.equations for eqn in _equations(e)]
    effects: frozenset[Any] = frozenset().union(*(e.effects for e in eqns))
    jaxpr = Jaxpr(program.constvars, program.invars, program.outvars, eqns, effects)
    closed = ClosedJaxpr(jaxpr, program.consts)
    closed.program = program
    return closed


def _equations(e: Equation) -> Iterator[JaxprEqn]:
    """An equation of rlx as equations of JAX: operands of several shapes are broadcast first."""
    for primitive, invars, params, outvars in translated(e):
        shown = {name: value if name in _RULES else _shown(value) for name, value in params.items()}
        yield JaxprEqn(list(invars), list(outvars), primitive, shown, e.effects, e.origin)


# programs of rules, which bind takes unchanged
_RULES = ("jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd")


def _shown(value: Any) -> Any:
    if isinstance(value, Program):
        return view_of(value)
    if isinstance(value, tuple) and any(isinstance(v, Program) for v in value):
        return tuple(map(_shown, value))
    return value


def jaxpr_as_fun(closed_jaxpr: Any) -> Callable[..., list[Any]]:
    """A closed jaxpr as a function of flat arguments; it returns a list.

    >>> from rlx.jaxnames.views import jaxpr_as_fun, make_jaxpr
    >>> jaxpr_as_fun(make_jaxpr(lambda x: x * 2.0)(1.0))(3.0)
    [Array(6., dtype=float32, weak_type=True)]
    """

    def function(*args: Any) -> list[Any]:
        return eval_jaxpr(closed_jaxpr.jaxpr, closed_jaxpr.consts, *args)

    return function


@wraps(core.make_jaxpr)
def make_jaxpr(fun: Callable[..., Any], *options: Any, return_shape: bool = False, **more: Any) -> Callable[..., Any]:
    """As rlx.make_jaxpr, but returns a ClosedJaxpr instead of a program."""
    traced = core.make_jaxpr(fun, *options, return_shape=True, **more)

    @wraps(fun, updated=())
    def show(*args: Any, **kwargs: Any) -> Any:
        program, shape = traced(*args, **kwargs)
        return (view_of(program), shape) if return_shape else view_of(program)

    return show


def jaxprs_in_params(params: Mapping[str, Any]) -> Iterator[Jaxpr]:
    """The jaxprs among the parameters of an equation.

    >>> import rlx
    >>> from rlx.jaxnames.views import jaxprs_in_params, make_jaxpr
    >>> closed = make_jaxpr(lambda x: rlx.lax.cond(x > 0, rlx.numpy.sin, rlx.numpy.cos, x))(1.0)
    >>> [len(list(jaxprs_in_params(eqn.params))) for eqn in closed.eqns if eqn.primitive.name == "cond"]
    [2]
    """
    for value in params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(item, Jaxpr):
                yield item
            elif isinstance(item, ClosedJaxpr):
                yield item.jaxpr


def subjaxprs(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """The jaxprs in the equations of a jaxpr, one level down.

    >>> from rlx.jaxnames.views import make_jaxpr, subjaxprs
    >>> list(subjaxprs(make_jaxpr(lambda x: x + 1.0)(1.0).jaxpr))
    []
    """
    for e in jaxpr.eqns:
        yield from jaxprs_in_params(e.params)
