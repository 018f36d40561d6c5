"""Operators of arrays: +, -, @, <, [] and others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rlx.array import Array, is_array_or_numpy
from rlx.config import config
from rlx.errors import DtypeError, InputTypeError, ShapeError
from rlx.ir.types import is_key
from rlx.numpy import elementwise, floats, powers, products, reductions, rounding
from rlx.numpy.indexing import getitem
from rlx.numpy.promotion import convert_to
from rlx.ops import shape as shapes

__all__ = ["OPERATORS", "REFLECTED", "install_operators"]

Operator = Callable[[Any, Any], Any]
_OPERANDS = (Array, int, float, complex, np.ndarray, np.generic)

OPERATORS: dict[str, Operator] = {
    "add": elementwise.add,
    "sub": elementwise.subtract,
    "mul": elementwise.multiply,
    "truediv": elementwise.divide,
    "floordiv": rounding.floor_divide,
    "mod": rounding.remainder,
    "divmod": rounding.divmod,
    "pow": powers.power,
    "matmul": products.matmul,
    "and": elementwise.bitwise_and,
    "or": elementwise.bitwise_or,
    "xor": elementwise.bitwise_xor,
    "lshift": elementwise.left_shift,
    "rshift": rounding.right_shift,
    "eq": elementwise.equal,
    "ne": elementwise.not_equal,
    "lt": elementwise.less,
    "le": elementwise.less_equal,
    "gt": elementwise.greater,
    "ge": elementwise.greater_equal,
}
REFLECTED = tuple(OPERATORS)[:14]
_UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": elementwise.negative,
    "pos": floats.positive,
    "abs": floats.absolute,
    "invert": elementwise.bitwise_not,
}


def _takes(other: Any) -> bool:
    return isinstance(other, _OPERANDS) or hasattr(other, "__jax_array__")


def _forward(function: Operator) -> Operator:
    def operator(self: Any, other: Any) -> Any:
        return function(self, other) if _takes(other) else NotImplemented

    return operator


def _backward(function: Operator) -> Operator:
    def operator(self: Any, other: Any) -> Any:
        return function(other, self) if _takes(other) else NotImplemented

    return operator


def _round(self: Any, ndigits: int | None = None) -> Any:
    """Like Python's numbers: an integer if `ndigits` is left out."""
    if ndigits is not None:
        return rounding.round(self, ndigits)
    if self.dtype.kind == "c":
        raise DtypeError("A complex number does not round to an integer.", "Write jnp.round(x) to round both parts.")
    return convert_to(rounding.round(self), np.dtype(config.default_int))


def _iterate(self: Any) -> Iterator[Any]:
    if self.ndim == 0:
        instead = "Use rlx.random.split(key, num)." if is_key(self.dtype) else "Use x.item(), or x[None]."
        raise ShapeError("iteration over a 0-d array: it has no axis.", instead)
    return iter(unstacked(self))


def unstacked(x: Any, axis: int = 0) -> list[Any]:
    """The slices of an array along an axis."""
    return [shapes.squeeze(shapes.slice_along(x, i, i + 1, axis), (axis,)) for i in range(x.shape[axis])]


def _length(self: Any) -> int:
    if self.ndim == 0:
        raise ShapeError("len() of a 0-d array: it has no axis.", "Use x.size, or give the array an axis with x[None].")
    return self.shape[0]


def _contains(self: Any, value: Any) -> bool:
    if not (is_array_or_numpy(value) or isinstance(value, (np.generic, bool, int, float, complex))):
        raise InputTypeError(f"`in` of an array got a {type(value).__name__}.", "Pass a number.")
    if self.ndim != 1 or np.ndim(value) != 0:
        raise ShapeError(
            f"`in` got an array of shape {self.shape} and a value of shape {np.shape(value)}.",
            "It tests whether a 1-d array contains a number: for others use rlx.numpy.isin(value, x).",
        )
    return bool(reductions.any(elementwise.equal(self, value)))


def _reversed(self: Any) -> Any:
    return iter(unstacked(self)[::-1])


def install_operators(target: Any) -> None:
    """Give a class every operator of arrays."""
    for name, function in OPERATORS.items():
        setattr(target, f"__{name}__", _forward(function))
    for name in REFLECTED:
        setattr(target, f"__r{name}__", _backward(OPERATORS[name]))
    for name, single in _UNARY.items():
        setattr(target, f"__{name}__", lambda self, single=single: single(self))
    # assigning __eq__ must not take the explaining __hash__ away
    extras = {"round": _round, "iter": _iterate, "len": _length, "getitem": getitem}
    for name, extra in {**extras, "contains": _contains, "reversed": _reversed}.items():
        setattr(target, f"__{name}__", extra)
