"""rlx.core: JAX's names for reading and running programs as jaxprs.

There is no separate form of a program: a jaxpr, closed or not, is a Program, an aval a TensorType.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import wraps
from typing import Any

from rlx.array import Array
from rlx.call.jitted import Jitted
from rlx.call.scopes import ensure_compile_time_eval
from rlx.errors import InconclusiveDimensionOperation, JaxprTypeError, TreeMismatchError
from rlx.ir.program import Atom, Literal, Program, Var
from rlx.ir.program import Equation as JaxprEqn
from rlx.ir.types import TensorType
from rlx.ir.verify import verify_program
from rlx.numpy.promotion import canonical_axis
from rlx.offered_names import offer_names
from rlx.trace.builder import Tracer
from rlx.trace.flat import as_array, shared_array
from rlx.trace.interpret import interpret
from rlx.trace.primitive import Primitive, type_of
from rlx.trace.tracing import named_axis

__all__ = [
    "Atom",
    "ClosedJaxpr",
    "InconclusiveDimensionOperation",
    "Jaxpr",
    "JaxprEqn",
    "JaxprTypeError",
    "Literal",
    "Primitive",
    "ShapedArray",
    "Tracer",
    "Value",
    "Var",
    "check_jaxpr",
    "ensure_compile_time_eval",
    "eval_jaxpr",
    "get_aval",
    "jaxpr_as_fun",
    "jaxprs_in_params",
    "make_jaxpr",
    "mapped_aval",
    "subjaxprs",
    "unmapped_aval",
    "valid_jaxtype",
]

offer_names(globals())

Value = Array


class View(type):
    """A class of JAX whose instances are the instances of a class of rlx."""

    of: type | tuple[type, ...]

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.of)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.of)


class ShapedArray(metaclass=View):
    """JAX's name for the type of an array: calling it gives a TensorType.

    >>> import rlx
    >>> aval = rlx.core.ShapedArray((2,), rlx.numpy.float32)
    >>> aval, isinstance(rlx.numpy.ones(2).aval, rlx.core.ShapedArray)
    (float32[2], True)
    """

    of = TensorType

    def __new__(cls, shape: Sequence[int], dtype: Any, weak_type: bool = False) -> Any:
        """The type."""
        return TensorType(tuple(shape), dtype, weak_type)


class Jaxpr(metaclass=View):
    """JAX's name for a program: calling it gives a Program.

    >>> import rlx
    >>> program = rlx.make_jaxpr(lambda x: x * 2.0)(1.0)
    >>> again = rlx.core.Jaxpr(program.constvars, program.invars, program.outvars, program.eqns)
    >>> isinstance(again, rlx.core.Jaxpr), rlx.core.eval_jaxpr(again, [], 3.0)
    (True, [Array(6., dtype=float32, weak_type=True)])
    """

    of = Program

    def __new__(cls, constvars: Sequence[Var], invars: Sequence[Var], outvars: Sequence[Atom], eqns: Any) -> Any:
        """The program, whose constants do not have values yet."""
        return Program(invars, eqns, outvars, [(v, None) for v in constvars])


class ClosedJaxpr(metaclass=View):
    """JAX's name for a program with the values of its constants: calling it gives a Program.

    >>> import rlx
    >>> program = rlx.make_jaxpr(lambda x: x * 2.0)(1.0)
    >>> isinstance(rlx.core.ClosedJaxpr(program.jaxpr, program.consts), rlx.core.ClosedJaxpr)
    True
    """

    of = Program

    def __new__(cls, jaxpr: Program, consts: Sequence[Any]) -> Any:
        """The program with these values of its constants."""
        return _with_constants(jaxpr, consts)


def _with_constants(program: Program, values: Sequence[Any]) -> Program:
    if len(values) != len(program.constants):
        raise TreeMismatchError(
            f"{program.name} has {len(program.constants)} constants and got {len(values)}.",
            "Pass jaxpr.consts, one value for each of jaxpr.constvars.",
        )
    return program.replace(constants=tuple(zip(program.constvars, values, strict=True)))


def eval_jaxpr(jaxpr: Program, consts: Sequence[Any], *args: Any, propagate_source_info: bool = True) -> list[Any]:
    """Run a program's equations on `args`, one after the other.

    Args:
      jaxpr: a Program.
      consts: values of its constants, in order.
      args: one array or number for each of its inputs.
      propagate_source_info: accepted for JAX compatibility: new equations keep the user's line of the old ones.

    Returns: a list of its outputs.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> jaxpr = rlx.make_jaxpr(lambda x: jnp.sin(x) * 2.0)(1.0)
    >>> rlx.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, 0.0)
    [Array(0., dtype=float32, weak_type=True)]
    """
    if len(args) != len(jaxpr.inputs):
        raise TreeMismatchError(
            f"{jaxpr.name} takes {len(jaxpr.inputs)} arguments and got {len(args)}.",
            "Pass one array for each of jaxpr.invars: the leaves of the function's arguments.",
        )
    return interpret(_with_constants(jaxpr, consts), [as_array(x) for x in args])


def jaxpr_as_fun(closed_jaxpr: Program) -> Callable[..., list[Any]]:
    """A program as a function of flat arguments; it returns a list.

    >>> import rlx
    >>> rlx.core.jaxpr_as_fun(rlx.make_jaxpr(lambda x: x + 1.0)(1.0))(2.0)
    [Array(3., dtype=float32, weak_type=True)]
    """
    return lambda *args: eval_jaxpr(closed_jaxpr, closed_jaxpr.consts, *args)


def make_jaxpr(
    fun: Callable[..., Any],
    static_argnums: int | Sequence[int] = (),
    axis_env: Sequence[tuple[Any, int]] | None = None,
    return_shape: bool = False,
) -> Callable[..., Any]:
    """A function that returns the traced program of `fun` instead of running it.

    It is a Program, which also has JAX's names: .jaxpr, .eqns, .invars, .outvars, .constvars, .consts, .in_avals,
    .out_avals, .effects; an equation has .primitive, .params, .invars, .outvars, and a variable .aval. Primitives are
    rlx's, with NumPy's names.

    Args:
      fun: a function of arrays, or trees of arrays. Its arguments are arrays, or anything with .shape and .dtype.
      static_argnums: positions of arguments that are not traced.
      axis_env: (name, size) of mapped axes that `fun` may refer to.
      return_shape: return (program, tree of ShapeDtypeStruct for the result).

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> jaxpr = rlx.make_jaxpr(lambda x: jnp.sin(x) * 2.0)(1.0)
    >>> [(e.primitive.name, e.outvars[0].aval.dtype.name) for e in jaxpr.eqns]
    [('sin', 'float32'), ('multiply', 'float32')]
    """
    numbers = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    jitted = fun if isinstance(fun, Jitted) and not numbers else Jitted(fun, numbers)

    @wraps(fun, updated=())
    def traced(*args: Any, **kwargs: Any) -> Any:
        with ExitStack() as scopes:
            for name, size in axis_env or ():
                scopes.enter_context(named_axis(name, size))
            found = jitted.trace(*args, **kwargs)
        outside = found.outside()
        n = len(outside)
        captured = tuple(zip(found.program.inputs[:n], outside, strict=True))
        program = found.program.replace(
            inputs=found.program.inputs[n:], constants=(*captured, *found.program.constants)
        )
        return (program, found.out_info) if return_shape else program

    return traced


def get_aval(x: Any) -> TensorType:
    """The type of an array or number.

    >>> import rlx
    >>> rlx.core.get_aval(rlx.numpy.ones(3))
    float32[3]
    """
    return type_of(shared_array(x))


def valid_jaxtype(x: Any) -> bool:
    """Whether functions of arrays accept this value.

    >>> import rlx
    >>> rlx.core.valid_jaxtype(1.0), rlx.core.valid_jaxtype("text")
    (True, False)
    """
    try:
        shared_array(x)
    except TypeError:
        return False
    return True


def mapped_aval(size: int, axis: int | None, aval: TensorType) -> TensorType:
    """The type of an array's slices, as seen by a function that is mapped along an axis.

    >>> import rlx
    >>> rlx.core.mapped_aval(3, 0, rlx.core.get_aval(rlx.numpy.ones((3, 2))))
    float32[2]
    """
    if axis is None:
        return aval
    axis = canonical_axis(axis, aval.ndim, "mapped_aval")
    if aval.shape[axis] != size:
        raise TreeMismatchError(f"Axis {axis} of {aval!r} has another size than {size}.", "Name the mapped axis.")
    return aval.update(shape=(*aval.shape[:axis], *aval.shape[axis + 1 :]))


def unmapped_aval(size: int, axis: int | None, aval: TensorType) -> TensorType:
    """The type of an array whose slices along a new axis have the given one.

    >>> import rlx
    >>> rlx.core.unmapped_aval(3, 0, rlx.core.get_aval(rlx.numpy.ones(2)))
    float32[3,2]
    """
    if axis is None:
        return aval
    axis = canonical_axis(axis, aval.ndim + 1, "unmapped_aval")
    return aval.update(shape=(*aval.shape[:axis], size, *aval.shape[axis:]))


def jaxprs_in_params(params: Any) -> Iterator[Program]:
    """The programs among the parameters of an equation: the bodies of control flow and calls.

    >>> import rlx
    >>> jaxpr = rlx.make_jaxpr(lambda x: rlx.lax.cond(x > 0, lambda: x, lambda: -x))(1.0)
    >>> [len(list(rlx.core.jaxprs_in_params(e.params))) for e in jaxpr.eqns if e.primitive.name == "cond"]
    [2]
    """
    for value in params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(item, Program):
                yield item


def subjaxprs(jaxpr: Program) -> Iterator[Program]:
    """The programs in the equations of a program, one level down.

    >>> import rlx
    >>> len(list(rlx.core.subjaxprs(rlx.make_jaxpr(lambda x: x + 1.0)(1.0))))
    0
    """
    return jaxpr.regions()


def check_jaxpr(jaxpr: Program) -> None:
    """Raise VerificationError, a JaxprTypeError, if a program breaks a rule.

    >>> import rlx
    >>> rlx.core.check_jaxpr(rlx.make_jaxpr(lambda x: x + 1.0)(1.0))
    """
    verify_program(jaxpr, "hir")
