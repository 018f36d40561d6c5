"""Operations on complex arrays as ONNX: the same operation on the real and the imaginary part, and products."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ir.program import Atom, Equation, Literal, Var
from rlx.ir.types import TensorType, is_complex
from rlx.onnx.exporting.writer import FORMAT, Name, Names, Parts, Writer
from rlx.ops.matrices import real_dtype
from rlx.standalone.spelling import refused

__all__ = ["has_complex", "write_complex"]

# moves of elements and sums do the same with both parts
_ALIKE = frozenset(
    "reshape transpose broadcast_in_dim slice reverse concatenate pad reduce_sum cumsum gather scatter scatter_add"
    " dynamic_slice dynamic_update_slice windows overlap_add".split()
)


def has_complex(equation: Equation) -> bool:
    """Whether an operand or a result is complex."""
    return any(is_complex(x.type.dtype) for x in (*equation.inputs, *equation.outputs))


def write_complex(w: Writer, e: Equation, xs: Names) -> Names:
    """An operation on complex numbers. Raises UnsupportedError."""
    if e.primitive.name == "dot_general":
        return [_product(w, e, xs)]
    if e.primitive.name not in _ALIKE:
        raise refused(e, FORMAT, "it takes complex numbers")
    real, imag = (_part(w, e, xs, field) for field in Parts._fields)
    return [Parts(a, b) for a, b in zip(real, imag, strict=True)]


def _part(w: Writer, e: Equation, xs: Names, *fields: str) -> Names:
    """An operation on one part of each operand; the last field is for all further operands."""
    chosen = [fields[min(n, len(fields) - 1)] for n in range(len(xs))]
    inputs = [_real(atom, field) for atom, field in zip(e.inputs, chosen, strict=True)]
    outputs = [Var(_real_type(v.type)) for v in e.outputs]
    given = [getattr(x, field) if isinstance(x, Parts) else x for x, field in zip(xs, chosen, strict=True)]
    half = Equation(e.primitive, tuple(inputs), e.params, tuple(outputs), e.origin)
    return w.rule_of(half)(w, half, given)


def _real(atom: Atom, field: str) -> Atom:
    if not is_complex(atom.type.dtype):
        return atom
    type = _real_type(atom.type)
    return Literal(np.asarray(getattr(atom.value, field)), type) if isinstance(atom, Literal) else Var(type)


def _real_type(type: TensorType) -> TensorType:
    return TensorType(type.shape, real_dtype(type.dtype), type.weak)


def _product(w: Writer, e: Equation, xs: Names) -> Name:
    def part(left: str, right: str) -> Any:
        return _part(w, e, xs, left, right)[0]

    if not isinstance(xs[0], Parts) or not isinstance(xs[1], Parts):
        return Parts(*(part(field, field) for field in Parts._fields))
    real = w.node("Sub", part("real", "real"), part("imag", "imag"))
    return Parts(real, w.node("Add", part("real", "imag"), part("imag", "real")))
