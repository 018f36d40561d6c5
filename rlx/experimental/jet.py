"""rlx.experimental.jet: Taylor mode, derivatives of high order along a curve.

A curve is a truncated power series x0 + x1 t + x2 t**2 + ...; every value of the program becomes one. The coefficient
of order k of an operation is taken from its derivative along the curve,

    (d/dt f(x))_(k - 1) = k f(x)_k,

where d/dt f(x) is a program of the primitives themselves, recorded by the primitive's own tangent rule. So no
primitive needs a rule for this mode. Equal operations on equal series are one object, and coefficients are computed
when they are needed: exp(x), whose derivative is exp(x) dx/dt, thus gives Taylor's recurrence, of quadratic cost.
Operations that are linear in the varying operands act on each coefficient, products and quotients by Leibniz' rule.

Source: Griewank and Walther, Evaluating Derivatives (2nd edition, 2008), chapter 13.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from rlx.array import ConcreteArray
from rlx.errors import ShapeError, TreeMismatchError
from rlx.ir.program import Atom, Equation, Literal, Program, Var, dead_code
from rlx.ir.types import TensorType, is_inexact
from rlx.offered_names import offer_names
from rlx.ops.arithmetic import add, divide, multiply, negative, subtract
from rlx.ops.call import custom_jvp_call
from rlx.ops.contract import dot_general
from rlx.ops.conversion import convert
from rlx.ops.convolution import conv_general_dilated
from rlx.ops.families import instantiate
from rlx.trace.flat import FlatFunction, as_array
from rlx.trace.interpret import origins_of
from rlx.trace.primitive import Primitive, Zero, type_of
from rlx.trace.tracing import trace_program
from rlx.transforms.programs import jvp_program
from rlx.trees import tree

__all__ = ["jet"]

offer_names(globals())

_PRODUCTS = (multiply, dot_general, conv_general_dilated)


def _sum(terms: Sequence[Any]) -> Any:
    """The sum of the terms that are not zero (None); None if all are zero."""
    total = None
    for term in terms:
        if term is not None:
            total = term if total is None else add(total, term)
    return total


def _times(value: Any, factor: float) -> Any:
    return value if value is None or factor == 1 else multiply(value, factor)


# ------------------------------------------------------------------ series
class _Series:
    """A value along the curve; coefficients that are None are zero."""

    moving = True

    def __init__(self, type: TensorType) -> None:
        self.type = type

    def coefficient(self, order: int) -> Any:
        """The coefficient of a power of t."""
        raise NotImplementedError


class _Given(_Series):
    """Known coefficients: an argument, or with one coefficient a constant."""

    def __init__(self, value: Any, terms: Sequence[Any] = ()) -> None:
        super().__init__(type_of(value))
        self.terms = [value, *terms]
        self.moving = len(terms) > 0

    def coefficient(self, order: int) -> Any:
        return self.terms[order] if order < len(self.terms) else None


class _Derivative(_Series):
    """The derivative of a series along the curve."""

    def __init__(self, of: _Series) -> None:
        super().__init__(of.type.strong())
        self.of = of

    def coefficient(self, order: int) -> Any:
        return _times(self.of.coefficient(order + 1), order + 1)


class _Result(_Series):
    """One of the results of an operation."""

    def __init__(self, operation: _Operation, index: int, type: TensorType) -> None:
        super().__init__(type)
        self.operation, self.index = operation, index
        self.moving = operation.rule is not None and operation.rule.kept[index]

    def coefficient(self, order: int) -> Any:
        if order and not self.moving:
            return None
        return self.operation.coefficients(order)[self.index]


class _Rule(NamedTuple):
    """An operation's tangents as a function of (operands, tangents of the varying operands)."""

    program: Program
    kept: tuple[bool, ...]
    linear: bool


class _Operation:
    """A primitive applied to series."""

    def __init__(
        self,
        expansion: _Expansion,
        primitive: Primitive,
        inputs: Sequence[_Series],
        params: dict[str, Any],
        types: Sequence[TensorType],
    ) -> None:
        self.expansion, self.primitive, self.inputs, self.params = expansion, primitive, inputs, params
        self.rule = expansion.rule(primitive, inputs, params, types)
        self.known: list[tuple[Any, ...]] = []
        self.tangents: list[_Series] | None = None
        self.results = [_Result(self, i, t) for i, t in enumerate(types)]

    def coefficients(self, order: int) -> tuple[Any, ...]:
        """The coefficients of all results."""
        while len(self.known) <= order:
            self.known.append(self._next(len(self.known)))
        return self.known[order]

    def _bind(self, operands: Sequence[Any]) -> tuple[Any, ...]:
        found = self.primitive.bind(*operands, **self.params)
        return tuple(found) if self.primitive.multiple else (found,)

    def _next(self, order: int) -> tuple[Any, ...]:
        if order == 0:
            return self._bind([x.coefficient(0) for x in self.inputs])
        if self.rule is None:
            return (None,) * len(self.results)
        if self.rule.linear:
            return self._linear(order)
        if self.primitive in _PRODUCTS:
            return (self._product(order),)
        if self.primitive is divide:
            return (self._quotient(order),)
        if self.tangents is None:
            moving = [self.expansion.derivative(x) for x in self.inputs if x.moving]
            self.tangents = self.expansion.walk(self.rule.program, [*self.inputs, *moving])
        found = iter(self.tangents)
        return tuple(_integral(next(found), order) if k else None for k in self.rule.kept)

    def _linear(self, order: int) -> tuple[Any, ...]:
        """The operation of the coefficients, if it is linear in the varying operands."""
        terms = [x.coefficient(order) for x in self.inputs if x.moving]
        if all(term is None for term in terms):
            return (None,) * len(self.results)
        return self._bind([_explicit(x, order) if x.moving else x.coefficient(0) for x in self.inputs])

    def _product(self, order: int) -> Any:
        """Leibniz' rule, if the operation is bilinear and both factors vary."""
        first, second = self.inputs
        pairs = [(first.coefficient(i), second.coefficient(order - i)) for i in range(order + 1)]
        return _sum([self._bind(pair)[0] for pair in pairs if not any(x is None for x in pair)])

    def _quotient(self, order: int) -> Any:
        """The series that gives the numerator when multiplied by the denominator, by Leibniz' rule."""
        numerator, denominator = self.inputs
        pairs = [(self.known[i][0], denominator.coefficient(order - i)) for i in range(order)]
        taken = _sum([multiply(a, b) for a, b in pairs if a is not None and b is not None])
        rest = numerator.coefficient(order)
        if taken is not None:
            rest = negative(taken) if rest is None else subtract(rest, taken)
        return None if rest is None else divide(rest, denominator.coefficient(0))


def _explicit(series: _Series, order: int) -> Any:
    """A coefficient with zeros written out."""
    found = series.coefficient(order)
    return instantiate(Zero(series.type.strong())) if found is None else found


def _integral(series: _Series, order: int) -> Any:
    """The coefficient of a series with the given derivative."""
    if isinstance(series, _Derivative):
        return series.of.coefficient(order)
    return _times(series.coefficient(order - 1), 1 / order)


class _Expansion:
    """The operations on series so far. Equal operations are created once."""

    def __init__(self) -> None:
        self._operations: dict[Hashable, _Operation] = {}
        self._derivatives: dict[int, _Derivative] = {}
        self._literals: dict[Hashable, _Given] = {}
        self._rules: dict[Hashable, _Rule | None] = {}

    def derivative(self, series: _Series) -> _Derivative:
        """The derivative of a series, which is one object."""
        return self._derivatives.setdefault(id(series), _Derivative(series))

    def literal(self, atom: Literal) -> _Given:
        """A number as a series."""
        key = (atom.value.tobytes(), atom.type)
        return self._literals.setdefault(key, _Given(ConcreteArray(atom.value, atom.type.weak)))

    def apply(self, equation: Equation, inputs: Sequence[_Series]) -> _Operation:
        """The operation of an equation on series."""
        primitive, params = equation.primitive, dict(equation.params)
        types = [v.type for v in equation.outputs]
        if primitive.opaque or primitive.effect(**params):
            return _Operation(self, primitive, inputs, params, types)
        key = (*_key(primitive, params), tuple(map(id, inputs)))
        if key not in self._operations:
            self._operations[key] = _Operation(self, primitive, inputs, params, types)
        return self._operations[key]

    def rule(
        self, primitive: Primitive, inputs: Sequence[_Series], params: dict[str, Any], types: Sequence[TensorType]
    ) -> _Rule | None:
        """The rule for the tangents of an operation, None if no result varies."""
        moving = tuple(x.moving for x in inputs)
        if not any(moving):
            return None
        key = (*_key(primitive, params), tuple(x.type for x in inputs), moving)
        if key not in self._rules:
            self._rules[key] = _rule(primitive, [x.type for x in inputs], params, types, moving)
        return self._rules[key]

    def walk(self, program: Program, inputs: Sequence[_Series], orders: int | None = None) -> list[_Series]:
        """The series of a program's outputs; computed at once up to `orders`, or when they are needed."""
        values: dict[Var, _Series] = dict(zip(program.inputs, inputs, strict=True))
        values.update({v: _Given(array) for v, array in program.constants})

        def read(atom: Atom) -> _Series:
            return self.literal(atom) if isinstance(atom, Literal) else values[atom]

        with origins_of() as inherit:
            for e in program.equations:
                inherit(e)
                operands = [read(a) for a in e.inputs]
                if e.primitive.inlined and e.primitive is not custom_jvp_call:
                    results = self.walk(e.primitive.meaning(e), operands, orders)
                else:
                    operation = self.apply(e, operands)
                    results = operation.results
                    if orders is not None:
                        operation.coefficients(orders)
                values.update(zip(e.outputs, results, strict=True))
        return [read(a) for a in program.outputs]


def _key(primitive: Primitive, params: dict[str, Any]) -> tuple[Hashable, ...]:
    """The key of an operation without its operands; unique if the parameters cannot be compared."""
    items = tuple(sorted(params.items()))
    try:
        hash(items)
    except TypeError:
        return (primitive, object())
    return (primitive, items)


def _rule(
    primitive: Primitive,
    inputs: Sequence[TensorType],
    params: dict[str, Any],
    outputs: Sequence[TensorType],
    moving: Sequence[bool],
) -> _Rule | None:
    """The rule that the primitive's own tangent rule records."""
    variables, results = [Var(t) for t in inputs], [Var(t) for t in outputs]
    alone = Program(variables, [Equation(primitive, tuple(variables), params, tuple(results))], results)
    moved, kept = jvp_program(alone, moving)
    if not any(kept):
        return None
    tangents = dead_code(moved, [i >= len(outputs) for i in range(len(moved.outputs))])
    return _Rule(tangents, kept, _acts_on_tangents(tangents, primitive, params, moving))


def _acts_on_tangents(program: Program, primitive: Primitive, params: dict[str, Any], moving: Sequence[bool]) -> bool:
    """Whether the tangents are the operation itself, applied to tangents instead of the varying operands."""
    if len(program.equations) != 1:
        return False
    (equation,) = program.equations
    tangents = iter(program.inputs[len(moving) :])
    wanted = [next(tangents) if m else v for v, m in zip(program.inputs, moving, strict=False)]
    found = list(equation.inputs)
    if primitive is multiply and found[0] is not wanted[0]:
        found.reverse()
    same = len(found) == len(wanted) and all(a is b for a, b in zip(found, wanted, strict=True))
    return (
        same
        and equation.primitive is primitive
        and dict(equation.params) == params
        and program.outputs == equation.outputs
    )


# ------------------------------------------------------------------ user interface
def _arguments(primals: Sequence[Any], series: Sequence[Any]) -> tuple[int, list[Any], list[list[Any]]]:
    """The order, and the arguments with the terms of each as arrays of its shape and dtype."""
    orders = {len(terms) for terms in series}
    if len(orders) != 1 or len(primals) != len(series):
        raise TreeMismatchError(
            f"jet got {len(primals)} primals, and series of {[len(terms) for terms in series]} terms.",
            "Pass one series for each primal, all of one length: the order of the result.",
        )
    arrays, rows = [], []
    for number, (x, terms) in enumerate(zip(primals, series, strict=True)):
        for value in (x, *terms):
            if not tree.all_leaves([value]):
                raise TreeMismatchError(
                    f"jet got a {type(value).__name__} for argument {number}, or among its terms.",
                    "Arguments must be arrays: write a function of the leaves.",
                )
        array = as_array(x, "a primal of jet")
        row = [as_array(term, "a term of jet's series") for term in terms]
        for term in row:
            if term.shape != array.shape:
                raise ShapeError(
                    f"jet got a term of shape {term.shape} for an argument of shape {array.shape}.",
                    "A term must have the shape of its argument.",
                )
        arrays.append(array)
        rows.append([t if t.dtype == array.dtype else convert(t, dtype=array.dtype, weak=False) for t in row])
    return orders.pop(), arrays, rows


def jet(
    fun: Callable[..., Any],
    primals: Sequence[Any],
    series: Sequence[Any],
    factorial_scaled: bool = True,
) -> tuple[Any, Any]:
    """`fun` and its derivatives of all orders along a curve (Taylor mode).

    Args:
      fun: a function of arrays.
      primals: the arguments: the curve's point at t = 0.
      series: for each argument the curve's derivatives at t = 0 of orders 1, 2, ..., the same number for all. The
        derivatives of integers are not used.
      factorial_scaled: if False, `series` and the result contain coefficients of powers of t: derivatives divided by
        factorials.

    Returns: (fun(*primals), derivatives). The derivatives have the structure of the result, with a list of the orders
    1, 2, ... in place of each array; zeros for integers.
    Raises: TreeMismatchError (a ValueError) for arguments that are trees, and for series of different lengths;
    ShapeError for terms of another shape than their argument.

    >>> import rlx.numpy as jnp
    >>> from rlx.experimental.jet import jet
    >>> y, (first, second) = jet(jnp.exp, (0.0,), ((1.0, 0.0),))
    >>> float(y), float(first), float(second)
    (1.0, 1.0, 1.0)
    """
    order, arrays, rows = _arguments(primals, series)
    _, treedef = tree.flatten((tuple(arrays), {}))
    flat = FlatFunction(fun, treedef)
    types = [x.type for x in arrays]
    program, captured = trace_program(flat, types, arrays, flat.name, arrays, own_only=True, differentiated=True)
    scales = [math.factorial(k) if factorial_scaled else 1 for k in range(order + 1)]
    curves: list[_Series] = [_Given(value) for value in captured]
    for x, terms in zip(arrays, rows, strict=True):
        moves = is_inexact(x.dtype)
        curves.append(_Given(x, [_times(term, 1 / scales[k + 1]) for k, term in enumerate(terms)] if moves else ()))
    results = _Expansion().walk(dead_code(program), curves, order)
    values = [x.coefficient(0) for x in results]
    derivatives = [[_times(_explicit(x, k), scales[k]) for k in range(1, order + 1)] for x in results]
    return flat.unflatten(values), tree.unflatten(flat.out_tree, derivatives)
