"""Primitives that a library defines through JAX's interfaces. They are rlx primitives that call the library's rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

from rlx.errors import UnsupportedError
from rlx.ir.program import Equation, Program
from rlx.ir.types import TensorType
from rlx.jaxnames.avals import aval_of, tensor_type
from rlx.jaxnames.rules import BATCHING, DERIVATIVES, LOWERINGS, TRANSPOSES, UndefinedPrimal, own_tangent, tangent_of
from rlx.ops.regions import RegionPrimitive
from rlx.trace.flat import as_array
from rlx.trace.primitive import Linear, type_of
from rlx.trace.tracing import close_over, trace_program

__all__ = ["ForeignPrimitive"]

_numbers = count()


class AxisData(NamedTuple):
    """The mapped axis, in the form that rules of fancy_primitive_batchers take."""

    name: Any
    size: int
    spmd_name: Any = None
    explicit_mesh_axis: Any = None


class ForeignPrimitive(RegionPrimitive):
    """jax.extend.core.Primitive.

    Its rules are those that the library registers in the tables of jax.interpreters. A missing rule follows
    from the implementation, which is traced for it.

    >>> import rlx
    >>> from rlx.jaxnames.foreign_primitive import ForeignPrimitive
    >>> twice = ForeignPrimitive("twice")
    >>> twice.def_impl(lambda x: 2 * x) is twice.impl
    True
    >>> float(rlx.jit(rlx.grad(lambda x: twice.bind(x) * x))(3.0))
    12.0
    """

    inlined = True
    multiple = False
    call_primitive = map_primitive = False
    ref_primitive = skip_canonicalization = False

    def __init__(self, name: str) -> None:
        self.name = name
        self._number = next(_numbers)
        self._effectful = False
        self._impl: Callable[..., Any] | None = None
        self._abstract: Callable[..., Any] | None = None

    # ------------------------------------------------------------ the library's side
    @property
    def identity(self) -> str:
        """Accept any name: names are the library's, and may already be used."""
        return f"{self.name} {self._number}"

    @property
    def multiple_results(self) -> bool:
        """Whether the result is a list."""
        return self.multiple

    @multiple_results.setter
    def multiple_results(self, value: bool) -> None:
        self.multiple = value

    def def_impl(self, impl: Callable[..., Any]) -> Callable[..., Any]:
        """Set the implementation."""
        self._impl = impl
        return impl

    def def_abstract_eval(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set the rule for the results' avals."""
        self._abstract, self._effectful = rule, False
        return rule

    def def_effectful_abstract_eval(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set the rule for the results' avals and the effects."""
        self._abstract, self._effectful = rule, True
        return rule

    def def_custom_bind(self, bind: Callable[..., Any]) -> Callable[..., Any]:
        """Replace bind."""
        setattr(self, "bind", bind)  # noqa: B010  of this primitive alone
        return bind

    @property
    def impl(self) -> Callable[..., Any]:
        """The implementation, or the lowering."""
        found = self._impl or LOWERINGS.get(self)
        if found is None:
            raise UnsupportedError(
                f"The primitive {self.name} has rules for JAX's compiler, but no implementation.",
                "Call its def_impl, or mlir.register_lowering with mlir.lower_fun of a function.",
            )
        return found

    @property
    def abstract_eval(self) -> Callable[..., Any]:
        """The results' avals and the effects, from the operands' avals."""

        def rule(*avals: Any, **params: Any) -> Any:
            return self._avals(avals, params), frozenset((self.name,)) if self._effectful else frozenset()

        return rule

    def _avals(self, avals: Sequence[Any], params: dict[str, Any]) -> Any:
        if self._abstract is None:
            types = self._traced(self.impl, list(map(tensor_type, avals)), params).output_types
            return list(map(aval_of, types)) if self.multiple else aval_of(types[0])
        found = self._abstract(*avals, **params)
        return found[0] if self._effectful else found

    def _results(self, found: Any) -> list[Any]:
        return list(found) if self.multiple else [found]

    def _traced(self, function: Callable[..., Any], types: Sequence[TensorType], params: dict[str, Any]) -> Program:
        def flat(*args: Any) -> list[Any]:
            return list(map(as_array, self._results(function(*args, **params))))

        program, captured = trace_program(flat, types, name=self.name)
        return close_over(program, captured)

    # ------------------------------------------------------------ rlx's rules
    def type(self, *types: TensorType, **params: Any) -> Any:
        """By the library's rule; without one the types of the implementation's results."""
        found = self._avals([aval_of(t) for t in types], params)
        return tuple(map(tensor_type, found)) if self.multiple else tensor_type(found)

    def effect(self, **params: Any) -> bool:
        """Whether the library registered effects."""
        return self._effectful

    def evaluate(self, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """The implementation, op by op."""
        found = [as_array(x) for x in self._results(self.impl(*map(as_array, args), **params))]
        return tuple(found) if self.multiple else found[0]

    def reference(self, *args: Any, **params: Any) -> Any:
        found = self.evaluate(args, params)
        return tuple(x.numpy() for x in found) if self.multiple else found.numpy()

    def meaning(self, equation: Equation) -> Program:
        """The lowering: the function that was registered for it, or the implementation."""
        function = LOWERINGS.get(self) or self.impl
        return self._traced(function, [a.type for a in equation.inputs], dict(equation.params))

    def lower(self, k: Any, *values: Any, **params: Any) -> Any:
        raise UnsupportedError(f"The primitive {self.name} was not replaced by its lowering.")

    def jvp(self, t: Any, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        """By the library's rule, or from the implementation's equations."""
        rule = DERIVATIVES.get(self)
        if rule is None:
            outs, moved = t.jvp_walk(self._traced(self.impl, list(map(type_of, primals)), params), primals, tangents)
            return (outs, moved) if self.multiple else (outs[0], moved[0])
        outs, moved = rule(list(primals), list(map(tangent_of, tangents)), **params)
        if not self.multiple:
            return as_array(outs), own_tangent(moved, type_of(outs))
        outs = list(map(as_array, outs))
        return outs, [own_tangent(m, type_of(o)) for o, m in zip(outs, moved, strict=True)]

    def split(self, t: Any, equation: Equation, unknown: Sequence[bool]) -> tuple[list[Equation], list[Equation]]:
        """The equations that depend on tangents are linear as a whole; without a rule for that they are split."""
        return [], [equation]

    def transpose(self, t: Any, cotangents: Any, *inputs: Any, **params: Any) -> list[Any]:
        """By the library's rule, or from the implementation's equations."""
        rule = TRANSPOSES.get(self)
        if rule is None:
            program = self._traced(self.impl, list(map(type_of, inputs)), params)
            return t.backward_walk(program, inputs, cotangents if self.multiple else (cotangents,))
        given = [UndefinedPrimal(aval_of(x.type)) if isinstance(x, Linear) else x for x in inputs]
        cts = list(map(tangent_of, cotangents)) if self.multiple else tangent_of(cotangents)
        found = rule(cts, *given, **params)
        return [own_tangent(ct, x.type) if isinstance(x, Linear) else None for ct, x in zip(found, inputs, strict=True)]

    def batch(
        self, t: Any, size: int, inputs: Sequence[Any], dims: Sequence[int | None], axis_name: Any, **params: Any
    ) -> Any:
        """By the library's rule, or from the implementation's equations."""
        rule = BATCHING.plain.get(self)
        told, told_all = BATCHING.with_axis.get(self), BATCHING.with_axis_data.get(self)
        if told_all is not None:
            outs, out_dims = told_all(AxisData(axis_name, size), list(inputs), list(dims), **params)
        elif told is not None:
            outs, out_dims = told(size, axis_name, None, list(inputs), list(dims), **params)
        elif rule is not None:
            outs, out_dims = rule(list(inputs), list(dims), **params)
        else:
            types = [
                ty if d is None else ty.update(shape=(*ty.shape[:d], *ty.shape[d + 1 :]))
                for ty, d in zip(map(type_of, inputs), dims, strict=True)
            ]
            outs, out_dims = t.batch_walk(self._traced(self.impl, types, params), size, inputs, dims, axis_name)
            return (outs, out_dims) if self.multiple else (outs[0], out_dims[0])
        if not self.multiple:
            return as_array(outs), out_dims
        return list(map(as_array, outs)), list(out_dims)

    # ------------------------------------------------------------ JAX's interface for binding
    def bind(self, *args: Any, **params: Any) -> Any:
        """The result, or a list of several."""
        found = super().bind(*args, **params)
        return list(found) if self.multiple else found

    __call__ = bind

    def bind_with_trace(self, trace: Any, args: Sequence[Any], *rest: Any) -> Any:
        """bind, for every trace."""
        return self.bind(*args, **rest[-1])

    def __repr__(self) -> str:
        return self.name
