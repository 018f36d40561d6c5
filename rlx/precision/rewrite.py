"""Automatic mixed precision: a program rewritten so that its operations compute in a policy's precisions.

Types at the edges stay: inputs, outputs, and the operands and results of regions (loops, branches, calls). Integers,
bools, complex numbers, float64, and 16-bit floats of the program itself are never changed; an equation with any float
but float32 is left as it is. After Micikevicius et al., Mixed Precision Training, ICLR 2018.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from rlx.array import ConcreteArray
from rlx.ir.program import Atom, Equation, Literal, Program, Var
from rlx.ir.types import is_inexact
from rlx.ops.conversion import convert
from rlx.ops.families import NonDifferentiable
from rlx.precision.policy import OperationKind, Precision, PrecisionPolicy, operation_kind
from rlx.trace.builder import Builder
from rlx.trace.flat import FlatFunction, flatten_call
from rlx.trace.interpret import origins_of
from rlx.trace.lower import inline_blocks, map_regions
from rlx.trace.primitive import type_of
from rlx.trace.tracing import finish, trace_program

__all__ = ["AutoMixedPrecision", "mixed_precision", "mixed_program"]

_SINGLE = np.dtype(np.float32)
# regions to which the policy also applies; other primitives with programs (solvers, reducers) are kept
_ENTERED = frozenset("call checkpoint cond custom_jvp_call custom_vjp_call custom_vjp_tangent scan while_loop".split())
# boundaries without arithmetic; comparisons, rounding and bits are the family NonDifferentiable
_NEUTRAL = _ENTERED | frozenset("complex conj convert imag iota optimization_barrier real".split())
_KEPT_KINDS = (OperationKind.REDUCTION, OperationKind.SENSITIVE)
_FLOWING = (OperationKind.ELEMENTWISE, OperationKind.DATA_MOVEMENT)


def mixed_precision(fun: Callable[..., Any], policy: PrecisionPolicy | None = None) -> Callable[..., Any]:
    """Transform `fun` to compute in the precisions of a policy.

    Args:
      fun: a function of arrays, or trees of them.
      policy: a PrecisionPolicy; the default is PrecisionPolicy.mixed() (bfloat16 products and elementwise operations,
        float32 reductions).

    Returns: a function of the same arguments, with results of the same shapes and dtypes. It may be
      jitted, differentiated and batched, in any order: `rlx.grad(rlx.mixed_precision(loss))` runs the
      products of the backward pass in 16 bits as well, on parameters and gradients of float32.

    >>> import rlx, rlx.numpy as jnp
    >>> f = rlx.mixed_precision(lambda x, w: jnp.tanh(x @ w).sum(), rlx.PrecisionPolicy.mixed("bfloat16"))
    >>> x = jnp.full((2, 2), 1.001)
    >>> rlx.jit(f)(x, x).dtype, float(f(x, x)) == float(jnp.tanh(x @ x).sum())
    (dtype('float32'), False)
    """
    chosen = PrecisionPolicy.mixed() if policy is None else policy

    @wraps(fun)
    def mixed(*args: Any, **kwargs: Any) -> Any:
        leaves, in_tree = flatten_call(args, kwargs, "an argument of a mixed_precision function")
        flat = FlatFunction(fun, in_tree)
        types = [x.type for x in leaves]
        program, captured = trace_program(flat, types, leaves, flat.name, leaves)
        return flat.unflatten(_Rewriter(chosen).outputs(program, [*captured, *leaves]))

    return mixed


def mixed_program(program: Program, policy: PrecisionPolicy) -> Program:
    """Rewrite a program to compute in a policy's precisions, with the same inputs and outputs.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> program = rlx.make_program(lambda x: x @ x)(jnp.ones((2, 2)))
    >>> mixed = rlx.precision.mixed_program(program, rlx.PrecisionPolicy.mixed())
    >>> [str(e.outputs[0].type.dtype) for e in mixed.equations]
    ['bfloat16', 'float32']
    """
    return program if policy.is_identity else _Rewriter(policy).program(program)


class AutoMixedPrecision:
    """Mixed precision as a pass: an object with a name, and `run` from program to program.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> program = rlx.make_program(lambda x: x @ x)(jnp.ones((2, 2)))
    >>> mixed = rlx.precision.AutoMixedPrecision().run(program)
    >>> [str(e.outputs[0].type.dtype) for e in mixed.equations]
    ['bfloat16', 'float32']
    """

    name = "auto_mixed_precision"

    def __init__(self, policy: PrecisionPolicy | None = None) -> None:
        self.policy = PrecisionPolicy.mixed() if policy is None else policy

    def run(self, program: Program) -> Program:
        """The program in the policy's precisions."""
        return mixed_program(program, self.policy)


class _Rewriter:
    """Applies one policy; repeated regions are rewritten once."""

    def __init__(self, policy: PrecisionPolicy) -> None:
        self.policy = policy
        self._done: dict[int, tuple[Program, Program]] = {}

    def program(self, program: Program) -> Program:
        """The rewritten program."""
        found = self._done.get(id(program))
        if found is None:
            with Builder(program.name) as builder:
                inputs = [builder.input(t) for t in program.input_types]
                found = (program, finish(builder, self.outputs(program, inputs)))
            self._done[id(program)] = found
        return found[1]

    def outputs(self, program: Program, args: Sequence[Any]) -> list[Any]:
        """The program's outputs for the given inputs, recorded in the current trace."""
        program = inline_blocks(program)
        values = _Values(program, args)
        kept = self._kept(program)
        with origins_of() as inherit:
            for equation in program.equations:
                inherit(equation)
                values.define(equation, self._run(equation, values, equation in kept))
        return [values.declared(a) for a in program.outputs]

    def _run(self, equation: Equation, values: _Values, kept: bool) -> Any:
        precision = self._precision(equation, values, kept)
        if precision is None:
            if equation.primitive.name in _ENTERED:
                equation = map_regions(equation, self.program)
            return equation.primitive.bind(*map(values.declared, equation.inputs), **equation.params)
        params = dict(equation.params)
        if self.policy.cast is not None and equation.primitive.name == "dot_general":
            (contracted, _) = params["dimension_numbers"]
            operands = [
                self.policy.cast.rounded(values.declared(a), axes[-1]) if axes else values.declared(a)
                for a, axes in zip(equation.inputs, contracted, strict=True)
            ]
            return equation.primitive.bind(*operands, **params)
        operands = [values.narrowed(a, precision) for a in equation.inputs]
        if operation_kind(equation.primitive.name) is OperationKind.COMPUTE and precision is not Precision.FLOAT32:
            if "preferred_dtype" in params:
                params["preferred_dtype"] = _SINGLE
            else:  # rounded operands, but a sum in float32
                operands = [_converted(x, _SINGLE) for x in operands]
        return equation.primitive.bind(*operands, **params)

    def _precision(self, equation: Equation, values: _Values, kept: bool) -> Precision | None:
        """The precision of an equation; None: the program's dtypes."""
        kind = operation_kind(equation.primitive.name)
        floats = [a for a in (*equation.inputs, *equation.outputs) if is_inexact(a.type.dtype)]
        if kind is OperationKind.BOUNDARY or not floats or any(a.type.dtype != _SINGLE for a in floats):
            return None
        if kept and equation.primitive.name not in self.policy.overrides:
            return Precision.FLOAT32
        precision = self.policy.precision(equation.primitive.name)
        return precision or values.common_precision(equation.inputs)

    def _kept(self, program: Program) -> set[Equation]:
        """Elementwise equations that lead to an equation kept in float32, or that take its result."""
        taken: set[Var] = set()  # flows into a kept equation, elementwise or moved
        for e in reversed(program.equations):
            flows = operation_kind(e.primitive.name) in _FLOWING and not taken.isdisjoint(e.outputs)
            if flows or self._is_guarded(e):
                taken.update(_variables(e))
        given: set[Var] = set()  # computed only from results of kept equations, like a mean from a sum
        fixed: set[Var] = set()  # computed from literals
        kept: set[Equation] = set()
        for e in program.equations:
            kind, operands = operation_kind(e.primitive.name), set(_variables(e))
            if kind is OperationKind.ELEMENTWISE and not (given.isdisjoint(operands) and taken.isdisjoint(e.outputs)):
                kept.add(e)
            if self._is_guarded(e):
                given.update(e.outputs)
            elif kind in _FLOWING and operands <= given | fixed:
                (fixed if operands <= fixed else given).update(e.outputs)
        return kept

    def _is_guarded(self, equation: Equation) -> bool:
        """Whether an equation needs float32, and the policy allows it."""
        primitive = equation.primitive
        kind = operation_kind(primitive.name)
        if kind is OperationKind.BOUNDARY:  # a routine, a special function: as a sensitive one
            neutral = primitive.name in _NEUTRAL or isinstance(primitive, NonDifferentiable)
            return not neutral and self.policy.sensitive is Precision.FLOAT32
        return kind in _KEPT_KINDS and self.policy.precision(primitive.name) is Precision.FLOAT32


class _Values:
    """Values of variables, each in the precisions that were requested."""

    def __init__(self, program: Program, args: Sequence[Any]) -> None:
        self._made: dict[Var, Any] = dict(zip(program.inputs, args, strict=True))
        self._made.update(program.constants)
        self._converted: dict[tuple[Var, np.dtype], Any] = {}

    def define(self, equation: Equation, out: Any) -> None:
        """Store an equation's result."""
        outs = out if equation.primitive.multiple else (out,)
        self._made.update(zip(equation.outputs, outs, strict=True))

    def declared(self, atom: Atom) -> Any:
        """The value in the program's dtype."""
        return self._as(atom, atom.type.dtype)

    def narrowed(self, atom: Atom, precision: Precision) -> Any:
        """The value for an operation that computes in `precision`: float32 is converted, all else is unchanged."""
        return self._as(atom, precision.dtype if atom.type.dtype == _SINGLE else atom.type.dtype)

    def common_precision(self, atoms: Sequence[Atom]) -> Precision | None:
        """The 16-bit precision that all float32 operands have in common; None if there is none."""
        found = {type_of(self._made[a]).dtype for a in atoms if isinstance(a, Var) and a.type.dtype == _SINGLE}
        return next((p for p in Precision if {p.dtype} == found and p is not Precision.FLOAT32), None)

    def _as(self, atom: Atom, dtype: np.dtype) -> Any:
        if isinstance(atom, Literal):
            return ConcreteArray(np.asarray(atom.value, dtype), atom.type.weak)
        value = self._made[atom]
        if type_of(value).dtype == dtype:
            return value
        key = (atom, dtype)
        if key not in self._converted:
            self._converted[key] = _converted(value, dtype, atom.type.weak and dtype == atom.type.dtype)
        return self._converted[key]


def _variables(equation: Equation) -> list[Var]:
    """The operands that are float32 variables."""
    return [a for a in equation.inputs if isinstance(a, Var) and a.type.dtype == _SINGLE]


def _converted(value: Any, dtype: np.dtype, weak: bool = False) -> Any:
    return convert(value, dtype=dtype, weak=weak)
