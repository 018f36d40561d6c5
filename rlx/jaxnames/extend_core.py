"""jax.core and jax.extend.core: jaxprs as views of programs, primitives of libraries, the tracing state."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

from rlx.errors import ConcretizationTypeError, InconclusiveDimensionOperation, JaxprTypeError
from rlx.ir.program import Atom, Literal, Var
from rlx.ir.types import float0, is_inexact, is_key
from rlx.jaxnames import core
from rlx.jaxnames.api_util import DebugInfo
from rlx.jaxnames.avals import AbstractArray, AbstractValue, aval_of, tensor_type, typeof
from rlx.jaxnames.avals import AbstractArray as ShapedArray
from rlx.jaxnames.core import Tracer, check_jaxpr, ensure_compile_time_eval, valid_jaxtype
from rlx.jaxnames.foreign_primitive import ForeignPrimitive as Primitive
from rlx.jaxnames.jaxprs import ClosedJaxpr, Jaxpr, JaxprEqn, eval_jaxpr
from rlx.jaxnames.trace_state import find_top_trace, get_opaque_trace_state, trace_state_clean
from rlx.jaxnames.views import jaxpr_as_fun, jaxprs_in_params, make_jaxpr, subjaxprs
from rlx.numpy.promotion import known_numpy, to_dtype
from rlx.trace.builder import is_traced, state

__all__ = [
    "AbstractValue",
    "Atom",
    "ClosedJaxpr",
    "DebugInfo",
    "DropVar",
    "Effect",
    "Effects",
    "InconclusiveDimensionOperation",
    "Jaxpr",
    "JaxprEqn",
    "JaxprTypeError",
    "Literal",
    "ParamDict",
    "Primitive",
    "ShapedArray",
    "Tracer",
    "Value",
    "Var",
    "array_types",
    "aval_mapping_handlers",
    "check_jaxpr",
    "concrete_or_error",
    "custom_typechecks",
    "ensure_compile_time_eval",
    "eval_context",
    "eval_jaxpr",
    "find_top_trace",
    "gensym",
    "get_aval",
    "get_opaque_trace_state",
    "is_concrete",
    "is_constant_dim",
    "is_constant_shape",
    "jaxpr_as_fun",
    "jaxprs_in_params",
    "literalable_types",
    "make_jaxpr",
    "mapped_aval",
    "max_dim",
    "min_dim",
    "new_jaxpr_eqn",
    "no_axis_name",
    "no_effects",
    "nonempty_axis_env_DO_NOT_USE",
    "primal_dtype_to_tangent_dtype",
    "subjaxprs",
    "trace_state_clean",
    "unmapped_aval",
    "unsafe_am_i_under_a_jit_DO_NOT_USE",
    "unsafe_am_i_under_a_vmap_DO_NOT_USE",
    "unsafe_get_axis_names_DO_NOT_USE",
    "valid_jaxtype",
]

get_aval = typeof


class DropVar(Var):
    """An unused result. Programs name all of their results."""


class Effect:
    """The base class of libraries' effects."""


Effects = frozenset[Effect]
ParamDict = dict[str, Any]
Value = Any
no_effects: Effects = frozenset()
no_axis_name = object()
# types of constants of programs, and tables that libraries extend: rlx reads none of these
array_types = {np.ndarray, *np.sctypeDict.values()}
literalable_types = {bool, int, float, complex, *array_types}
aval_mapping_handlers: dict[type, Any] = {}
custom_typechecks: dict[Any, Any] = {}


# ------------------------------------------------------------- values that must be known
def concrete_or_error(force: Callable[[Any], Any] | None, val: Any, context: str = "") -> Any:
    """force(val), or val itself if `force` is None. Raises ConcretizationTypeError for an unknown value.

    >>> from rlx.jaxnames.extend_core import concrete_or_error
    >>> concrete_or_error(int, 3.0)
    3
    """
    if is_traced(val):
        instead = context or "Pass a value that does not depend on arguments of the traced function."
        val = known_numpy(val, "concrete_or_error", instead)
    return val if force is None else force(val)


def is_concrete(x: Any) -> bool:
    """Whether the value is known during tracing.

    >>> from rlx.jaxnames.extend_core import is_concrete
    >>> is_concrete(1.0)
    True
    """
    try:
        concrete_or_error(None, x)
    except ConcretizationTypeError:
        return False
    return True


def is_constant_dim(d: Any) -> bool:
    """Whether a size is a number rather than a symbol."""
    return isinstance(d, (int, np.integer))


def is_constant_shape(s: Any) -> bool:
    """Whether all sizes are numbers."""
    return all(map(is_constant_dim, s))


def min_dim(d1: Any, d2: Any) -> Any:
    """The smaller of two sizes."""
    return min(d1, d2)


def max_dim(d1: Any, d2: Any) -> Any:
    """The larger of two sizes."""
    return max(d1, d2)


@contextmanager
def eval_context() -> Generator[None]:
    """Compute operations on known values immediately, also while a function around them is being traced."""
    with ensure_compile_time_eval():
        yield


def primal_dtype_to_tangent_dtype(primal_dtype: Any) -> Any:
    """The dtype of tangents: float0 for integers and bools.

    >>> import numpy as np
    >>> from rlx.jaxnames.extend_core import primal_dtype_to_tangent_dtype
    >>> primal_dtype_to_tangent_dtype(np.float32)
    dtype('float32')
    """
    dtype = to_dtype(primal_dtype)
    return dtype if is_key(dtype) or is_inexact(dtype) else float0


# ------------------------------------------------------------- the tracing state
def nonempty_axis_env_DO_NOT_USE() -> bool:
    """Whether the name of a mapped axis is in scope."""
    return bool(state.axes)


def unsafe_get_axis_names_DO_NOT_USE() -> list[Any]:
    """The names of the mapped axes in scope, outermost first."""
    return [axis.name for axis in state.axes]


def unsafe_am_i_under_a_jit_DO_NOT_USE() -> bool:
    """Whether a function is being traced."""
    return not trace_state_clean()


def unsafe_am_i_under_a_vmap_DO_NOT_USE() -> bool:
    """Whether a mapped axis is in scope."""
    return bool(state.axes)


# ------------------------------------------------------------- parts of jaxprs
def gensym() -> Callable[[Any], Var]:
    """A function that creates a new variable of a type.

    >>> from rlx.jaxnames.extend_core import gensym, get_aval
    >>> gensym()(get_aval(1.0)).aval.shape
    ()
    """
    return lambda aval: Var(tensor_type(aval))


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
    """The type of an array's slices, as seen by a function that is mapped along an axis."""
    return aval_of(core.mapped_aval(size, axis, tensor_type(aval)))


def unmapped_aval(size: int, axis: int | None, aval: Any, explicit_mesh_axis: Any = None) -> AbstractArray:
    """The type of an array whose slices along a new axis have the given one."""
    return aval_of(core.unmapped_aval(size, axis, tensor_type(aval)))
