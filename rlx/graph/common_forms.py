"""Operations in terms of simpler ones, for backends that do not have them; explicit broadcasts and products."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.ir.program import Equation, Program
from rlx.ir.types import is_complex, is_inexact
from rlx.passes.rebuild import bound, rebuilt
from rlx.trace.lower import map_regions
from rlx.trace.primitive import registry, type_of

__all__ = ["COMMON_FORMS", "LegalizeBroadcast", "LowerDotGeneral", "common_form"]

COMMON_FORMS: dict[str, Callable[..., Any]] = {}


def common_form(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the common form of the primitive `name`, a function of its operands and parameters.

    It calls other primitives (`registry[...]`) and returns the result, or a tuple of several.

    >>> import rlx
    >>> from rlx import opt
    >>> @opt.common_form("twice")
    ... def _twice(x):
    ...     return rlx.ops.arithmetic.add(x, x)
    >>> rlx.graph.common_forms.COMMON_FORMS.pop("twice") is _twice
    True
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        COMMON_FORMS[name] = function
        return function

    return register


def _op(name: str, *operands: Any, **params: Any) -> Any:
    return registry[name](*operands, **params)


def _number(x: Any, value: complex) -> np.ndarray:
    return np.asarray(value, type_of(x).dtype)


# ------------------------------------------------------------------ arithmetic
@common_form("square")
def _square(x: Any) -> Any:
    return _op("multiply", x, x)


@common_form("negative")
def _negative(x: Any) -> Any:
    if is_inexact(type_of(x).dtype):
        return _op("multiply", x, _number(x, -1))
    return _op("subtract", _number(x, 0), x)


@common_form("subtract")
def _subtract(x: Any, y: Any) -> Any:
    return _op("add", x, _op("negative", y))


@common_form("absolute")
def _absolute(x: Any) -> Any:
    if is_complex(type_of(x).dtype):
        real, imaginary = _op("real", x), _op("imag", x)
        return _op("sqrt", _op("add", _op("multiply", real, real), _op("multiply", imaginary, imaginary)))
    zero = _number(x, 0)
    return _op("select", _op("less_equal", x, zero), _op("subtract", zero, x), x)  # 0 - -0.0 is 0.0


@common_form("integer_power")
def _integer_power(x: Any, *, exponent: int) -> Any:
    result, factor = None, x
    remaining = abs(exponent)
    while remaining:
        if remaining & 1:
            result = factor if result is None else _op("multiply", result, factor)
        remaining >>= 1
        if remaining:
            factor = _op("multiply", factor, factor)
    if result is None:
        return _op("broadcast_in_dim", _number(x, 1), shape=type_of(x).shape, dims=())
    return _op("divide", _number(x, 1), result) if exponent < 0 else result


@common_form("clamp")
def _clamp(low: Any, x: Any, high: Any) -> Any:
    return _op("minimum", _op("maximum", x, low), high)


# ------------------------------------------------------------------ comparisons
@common_form("greater")
def _greater(x: Any, y: Any) -> Any:
    return _op("less", y, x)


@common_form("greater_equal")
def _greater_equal(x: Any, y: Any) -> Any:
    return _op("less_equal", y, x)


@common_form("not_equal")
def _not_equal(x: Any, y: Any) -> Any:
    return _op("bitwise_not", _op("equal", x, y))


# ------------------------------------------------------------------ functions
@common_form("rsqrt")
def _rsqrt(x: Any) -> Any:
    return _op("divide", _number(x, 1), _op("sqrt", x))


@common_form("logistic")
def _logistic(x: Any) -> Any:
    one = _number(x, 1)
    return _op("divide", one, _op("add", one, _op("exp", _op("negative", x))))


@common_form("tan")
def _tan(x: Any) -> Any:
    return _op("divide", _op("sin", x), _op("cos", x))


@common_form("tanh")
def _tanh(x: Any) -> Any:
    if is_complex(type_of(x).dtype):
        return _op("divide", _op("sinh", x), _op("cosh", x))
    shrunk = _op("expm1", _op("multiply", _op("absolute", x), _number(x, -2)))  # never overflows
    size = _op("divide", _op("negative", shrunk), _op("add", shrunk, _number(x, 2)))
    return _op("copysign", size, x)


@common_form("exp2")
def _exp2(x: Any) -> Any:
    return _op("exp", _op("multiply", x, _number(x, math.log(2))))


# ------------------------------------------------------------------ contraction
@common_form("dot_general")
def _dot_general(lhs: Any, rhs: Any, *, dimension_numbers: Any, preferred_dtype: Any, tf32: bool = False) -> Any:
    """A product with both operands broadcast to all axes, summed over the contracted ones."""
    (contract_lhs, contract_rhs), (batch_lhs, batch_rhs) = dimension_numbers
    left, right = type_of(lhs), type_of(rhs)
    dtype = np.dtype(preferred_dtype) if preferred_dtype is not None else left.dtype
    free_lhs = [a for a in range(left.ndim) if a not in (*contract_lhs, *batch_lhs)]
    free_rhs = [a for a in range(right.ndim) if a not in (*contract_rhs, *batch_rhs)]
    order_lhs, order_rhs = [*batch_lhs, *free_lhs, *contract_lhs], [*batch_rhs, *free_rhs, *contract_rhs]
    batches, middle, columns = len(batch_lhs), len(free_lhs), len(free_rhs)
    ends = [batches + middle + columns + k for k in range(len(contract_lhs))]
    shape = (
        *[left.shape[a] for a in (*batch_lhs, *free_lhs)],
        *[right.shape[a] for a in free_rhs],
        *[left.shape[a] for a in contract_lhs],
    )
    at_lhs = [*range(batches + middle), *ends]
    at_rhs = [*range(batches), *range(batches + middle, batches + middle + columns), *ends]
    times, total = ("bitwise_and", "reduce_or") if dtype.kind == "b" else ("multiply", "reduce_sum")
    product = _op(
        times, _spread(lhs, order_lhs, shape, at_lhs, dtype), _spread(rhs, order_rhs, shape, at_rhs, dtype)
    )
    return _op(total, product, axes=tuple(ends)) if ends else product


def _spread(x: Any, order: Sequence[int], shape: Sequence[int], dims: Sequence[int], dtype: np.dtype) -> Any:
    if type_of(x).dtype != dtype:
        x = _op("convert", x, dtype=dtype, weak=False)
    x = _op("transpose", x, permutation=tuple(order))
    return _op("broadcast_in_dim", x, shape=tuple(shape), dims=tuple(dims))


# ------------------------------------------------------------------ passes
class LegalizeBroadcast:
    """A pass: operands of elementwise operations are broadcast explicitly, select's and comparisons' too.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> g = rlx.Graph.trace(lambda x, y: x + y, jnp.ones((2, 3)), jnp.ones(3))
    >>> [e.primitive.name for e in opt.run_passes(g, [opt.LegalizeBroadcast()]).program.equations]
    ['broadcast_in_dim', 'add']
    """

    name = "legalize_broadcast"

    def run(self, program: Program) -> Program:
        """The program whose elementwise operations have operands of one shape."""
        return rebuilt(program, self._replace)

    def _replace(self, equation: Equation, operands: Sequence[Any]) -> Sequence[Any] | None:
        if not hasattr(equation.primitive, "scalar"):
            return bound(map_regions(equation, self.run), operands)
        shape = equation.outputs[0].type.shape
        return bound(equation, [_broadcast(x, shape) for x in operands])


def _broadcast(x: Any, shape: tuple[int, ...]) -> Any:
    own = type_of(x).shape
    if own == shape:
        return x
    lead = len(shape) - len(own)
    kept = [axis for axis, size in enumerate(own) if size == shape[lead + axis]]
    if len(kept) < len(own):
        x = _op("reshape", x, shape=tuple(own[axis] for axis in kept))
    return _op("broadcast_in_dim", x, shape=shape, dims=tuple(lead + axis for axis in kept))


class LowerDotGeneral:
    """A pass: every contraction becomes a batched matrix product (b, m, k) x (b, k, n).

    Transposes and reshapes are put around it; any batch, contracted and free axes are handled.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> g = rlx.Graph.trace(lambda x, y: jnp.einsum("ij,kj->ik", x, y), jnp.ones((2, 3)), jnp.ones((4, 3)))
    >>> opt.run_passes(g, [opt.LowerDotGeneral()])(jnp.ones((2, 3)), jnp.ones((4, 3))).shape
    (2, 4)
    """

    name = "lower_dot_general"
    CANONICAL = (((2,), (1,)), ((0,), (0,)))

    def run(self, program: Program) -> Program:
        """The program with contractions in one form."""
        return rebuilt(program, self._replace)

    def _replace(self, equation: Equation, operands: Sequence[Any]) -> Sequence[Any] | None:
        if equation.primitive.name != "dot_general":
            return bound(map_regions(equation, self.run), operands)
        (contract_lhs, contract_rhs), (batch_lhs, batch_rhs) = equation.params["dimension_numbers"]
        lhs, rhs = operands
        left, right = type_of(lhs).shape, type_of(rhs).shape
        free_lhs = [a for a in range(len(left)) if a not in (*contract_lhs, *batch_lhs)]
        free_rhs = [a for a in range(len(right)) if a not in (*contract_rhs, *batch_rhs)]
        matrix_lhs = _grouped(lhs, batch_lhs, free_lhs, contract_lhs)
        matrix_rhs = _grouped(rhs, batch_rhs, contract_rhs, free_rhs)
        params = {**equation.params, "dimension_numbers": self.CANONICAL}
        product = equation.primitive.bind(matrix_lhs, matrix_rhs, **params)
        return (_op("reshape", product, shape=equation.outputs[0].type.shape),)


def _grouped(x: Any, *groups: Sequence[int]) -> Any:
    """x with one axis for each group of axes."""
    shape = type_of(x).shape
    order = tuple(a for group in groups for a in group)
    if order != tuple(range(len(shape))):
        x = _op("transpose", x, permutation=order)
    return _op("reshape", x, shape=tuple(math.prod(shape[a] for a in group) for group in groups))
