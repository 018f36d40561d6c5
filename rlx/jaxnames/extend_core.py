"""jax.core and jax.extend.core: jaxprs as views of programs, primitives of a library's own, the state of tracing."""

from __future__ import annotations

from typing import Any

from rlx.ir.program import Atom, Literal, Var
from rlx.jaxnames import core
from rlx.jaxnames.avals import AbstractArray, AbstractValue, aval_of, tensor_type, typeof
from rlx.jaxnames.avals import AbstractArray as ShapedArray
from rlx.jaxnames.core import Tracer, ensure_compile_time_eval, valid_jaxtype
from rlx.jaxnames.foreign_primitive import ForeignPrimitive as Primitive
from rlx.jaxnames.jaxprs import ClosedJaxpr, Jaxpr, JaxprEqn, eval_jaxpr
from rlx.jaxnames.trace_state import find_top_trace, get_opaque_trace_state, trace_state_clean
from rlx.jaxnames.views import jaxpr_as_fun, jaxprs_in_params, make_jaxpr, subjaxprs

__all__ = [
    "AbstractValue",
    "Atom",
    "ClosedJaxpr",
    "DropVar",
    "Effect",
    "Jaxpr",
    "JaxprEqn",
    "Literal",
    "Primitive",
    "ShapedArray",
    "Tracer",
    "Var",
    "ensure_compile_time_eval",
    "eval_jaxpr",
    "find_top_trace",
    "get_aval",
    "get_opaque_trace_state",
    "jaxpr_as_fun",
    "jaxprs_in_params",
    "make_jaxpr",
    "mapped_aval",
    "new_jaxpr_eqn",
    "subjaxprs",
    "trace_state_clean",
    "unmapped_aval",
    "valid_jaxtype",
]

get_aval = typeof


class DropVar(Var):
    """A result that nobody reads. Programs name all of theirs."""


class Effect:
    """The class of effects that a library makes."""


def new_jaxpr_eqn(
    invars: Any,
    outvars: Any,
    primitive: Any,
    params: Any,
    effects: Any = frozenset(),
    source_info: Any = None,
    ctx: Any = None,
) -> JaxprEqn:
    """An equation."""
    return JaxprEqn(list(invars), list(outvars), primitive, params, effects, source_info, ctx)


def mapped_aval(size: int, axis: int | None, aval: Any) -> AbstractArray:
    """The type of what a function sees of an array that is mapped along an axis."""
    return aval_of(core.mapped_aval(size, axis, tensor_type(aval)))


def unmapped_aval(size: int, axis: int | None, aval: Any) -> AbstractArray:
    """The type of an array whose slices along a new axis have the given one."""
    return aval_of(core.unmapped_aval(size, axis, tensor_type(aval)))
