"""Epilogues: operations that a library applies to a product before storing it, read from the fused map.

If a map is not such an epilogue, it is a separate launch after the product. Nothing here calls a library.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rlx.backends.gpu.polynomials import (
    TANH,
    Atom,
    Polynomial,
    add,
    apart_from_tanh,
    is_close,
    multiply,
    polynomial,
    variable,
)
from rlx.ir.fused_products import Digit, FusedProduct, is_map, result_digits
from rlx.ir.kernels import Access, Buffer, Contract, Kernel, Loops, Operand, RowTiles, Store
from rlx.ir.types import is_narrow

__all__ = ["Activation", "Epilogue", "LibraryProduct", "epilogue_of"]

Activation = Literal["", "relu", "gelu", "gelu gradient"]


@dataclass(frozen=True, slots=True)
class Epilogue:
    """activation(scale * product + share * added + bias), stored as `out`.

    All operands have the product's axes. added: a matrix like the result. bias: a number for each column; its rows have
    stride 0. kept: where the activation's argument is stored, if at all. taken: for "gelu gradient", the argument of
    GELU, whose derivative there is a factor of the result.
    """

    out: Operand
    activation: Activation = ""
    scale: float = 1.0
    bias: Operand | None = None
    added: Operand | None = None
    share: float = 1.0
    kept: Operand | None = None
    taken: Operand | None = None

    @property
    def name(self) -> str:
        """A readable description."""
        parts = {
            "scale": self.scale != 1.0, "sum": self.added is not None, "bias": self.bias is not None,
            self.activation: bool(self.activation), "its argument": self.kept is not None,
        }  # fmt: skip
        return ", ".join(name for name, there in parts.items() if there)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class LibraryProduct:
    """A product that a library computes, with its epilogue. library: the readable name."""

    library: str
    contract: Contract
    epilogue: Epilogue | None = None
    reader: Loops | None = None

    @property
    def out(self) -> Operand:
        """The operand that the result is stored in."""
        return self.epilogue.out if self.epilogue else self.contract.out

    @property
    def operands(self) -> tuple[Operand, ...]:
        """All operands that the library takes."""
        end = self.epilogue
        more = (end.bias, end.added, end.kept, end.taken) if end else ()
        return (self.contract.lhs, self.contract.rhs, self.out, *(operand for operand in more if operand is not None))

    @property
    def kernel(self) -> Kernel:
        """The kernels of the plan that it replaces."""
        if self.reader is None:
            return self.contract
        local = () if self.epilogue and self.epilogue.kept else (self.contract.out.buffer,)
        return RowTiles(1, (self.contract, self.reader), local)

    @property
    def name(self) -> str:
        """Its line in the list of launches."""
        end = self.epilogue.name if self.epilogue else ""
        return f"{self.contract.label or 'matmul'}: {self.library}{' with ' if end else ''}{end}"


def epilogue_of(fused: FusedProduct, excess_precision: bool = False) -> Epilogue | None:
    """The epilogue equal to a product's reader; None if there is none.

    excess_precision: whether the epilogue may read a product of narrow floats before rounding (a setting).
    """
    reader, product = fused.reader, fused.contract
    if reader is None or product.accumulate or not is_map(reader):
        return None
    digits = result_digits(reader, product.out)
    if digits is None or not {*reader.writes}.isdisjoint({*product.reads}):
        return None
    found = _Reader(fused, reader, digits).epilogue()
    if found is None:
        return None
    kept = product.out.buffer.dtype
    if not is_narrow(kept) or excess_precision:
        return found
    # rounding preserves order and zero
    return found if found == Epilogue(found.out, "relu") and found.out.buffer.dtype == kept else None


class _Reader:
    """A map that reads a product's result, matched against the epilogues of libraries."""

    def __init__(self, fused: FusedProduct, nest: Loops, digits: Sequence[Sequence[Digit]]) -> None:
        self.product, self.nest, self.digits = fused.contract, nest, digits
        self.stored = fused.stored
        self.result: Buffer = self.product.out.buffer
        self.dtype = self.product.summed_in

    def epilogue(self) -> Epilogue | None:
        """The epilogue: one store writes the result, and another may keep the activation's argument."""
        stores = self.nest.stores
        gathers = any(i.op == "load" and i.args for i in self.nest.instructions)
        if self.dtype.kind != "f" or gathers or self.stored + len(stores) > 2:
            return None
        found = (self._of(store, [other for other in stores if other is not store]) for store in stores)
        return next((epilogue for epilogue in found if epilogue is not None), None)

    def _of(self, store: Store, others: Sequence[Store]) -> Epilogue | None:
        out = self._matrix(store.access)
        if out is None:
            return None
        value = self._unrounded(store, out.buffer.dtype)
        found = self._gelu_gradient(value, out)
        if found is not None:
            return None if others or self.stored else found
        for activation, taken in self._activations(value):
            found = self._linear(out, activation, taken)
            if found is not None and (others or self.stored):
                found = self._keeping(found, taken, others)
            if found is not None:
                return found
        return None

    def _unrounded(self, store: Store, dtype: np.dtype) -> int:
        """The index of the stored value before it is rounded to the memory's dtype."""
        value = self.nest.instructions[store.value]
        rounded = value.op == "cast" and value.dtype == dtype
        return value.args[0] if rounded and self.nest.instructions[value.args[0]].dtype == self.dtype else store.value

    # ------------------------------------------------------------------ activations
    def _activations(self, value: int) -> Iterator[tuple[Activation, Polynomial]]:
        """The possible (activation, argument) pairs of a value; every value is the identity of itself."""
        inside = self._rectified(value)
        taken = polynomial(self.nest, value if inside is None else inside)
        if taken is None:
            return
        if inside is not None:
            yield "relu", taken
            return
        apart = apart_from_tanh(taken)
        if apart is None:
            yield "", taken
            return
        found, argument = apart
        whole = multiply(_number(2.0), tuple(term for term in found if TANH not in term[0]))
        half = multiply(_number(0.5), whole)
        for steep, cubic in self._constants():
            inner = add(multiply(_number(steep), whole), multiply(_number(steep * cubic), whole, whole, whole))
            gelu = add(half, multiply(half, variable(TANH)))
            if whole and is_close(found, gelu, self.dtype) and is_close(argument, inner, self.dtype):
                yield "gelu", whole
                return

    def _rectified(self, value: int) -> int | None:
        """The argument of a maximum with 0 that propagates NaN."""
        instructions = self.nest.instructions
        last = instructions[value]
        if last.op == "max":
            pairs = (last.args, last.args[::-1])
            return next((of for of, zero in pairs if self._is_zero(zero)), None)
        if last.op != "select":
            return None
        condition, inside, other = last.args
        clamped = instructions[other]
        if clamped.op != "select" or not self._compares(condition, "gt", "lt", inside):
            return None
        fits = self._is_zero(clamped.args[1]) and clamped.args[2] == inside
        return inside if fits and self._compares(clamped.args[0], "le", "ge", inside) else None

    def _compares(self, condition: int, op: str, mirrored: str, value: int) -> bool:
        """Whether a condition compares a value with zero."""
        found = self.nest.instructions[condition]
        if found.op not in (op, mirrored):
            return False
        left, right = found.args if found.op == op else found.args[::-1]
        return left == value and self._is_zero(right)

    def _is_zero(self, number: int) -> bool:
        return polynomial(self.nest, number) == ()

    def _constants(self) -> Iterator[tuple[float, float]]:
        """The two constants of the tanh approximation of GELU, rounded to the dtype."""
        for dtype in dict.fromkeys((self.dtype, self.result.dtype)):
            yield float(np.array(math.sqrt(2 / math.pi), dtype)), float(np.array(0.044715, dtype))

    def _gelu_gradient(self, value: int, out: Operand) -> Epilogue | None:
        """The product times the derivative of GELU at a matrix."""
        whole = polynomial(self.nest, value)
        apart = apart_from_tanh(whole) if whole else None
        if apart is None:
            return None
        found, argument = apart
        factor: list[tuple[tuple[Atom, ...], float]] = []
        for atoms, coefficient in found:
            rest = [atom for atom in atoms if not self._is_result(atom)]
            if len(rest) != len(atoms) - 1:
                return None
            factor.append((tuple(rest), coefficient))
        places = {atom for atoms, _ in argument for atom in atoms}
        place = places.pop() if len(places) == 1 else None
        taken = self._matrix(place) if isinstance(place, Access) and not self._is_result(place) else None
        if place is None or taken is None or not self._fits(taken, out):
            return None
        x, tanh = variable(place), variable(TANH)
        cube = multiply(x, x, x)
        for steep, cubic in self._constants():
            inner = add(variable(place, steep), multiply(_number(steep * cubic), cube))
            slope = add(multiply(_number(steep / 2), x), multiply(_number(1.5 * steep * cubic), cube))
            falling = multiply(_number(-1.0), slope, tanh, tanh)
            derivative = add(_number(0.5), variable(TANH, 0.5), slope, falling)
            if is_close(tuple(sorted(factor, key=repr)), derivative, self.dtype) and is_close(
                argument, inner, self.dtype
            ):
                return Epilogue(out, "gelu gradient", taken=taken)
        return None

    # ------------------------------------------------------------------ operands
    def _linear(self, out: Operand, activation: Activation, taken: Polynomial) -> Epilogue | None:
        """An activation's argument as the product, a matrix and a number for each column, each used at most once."""
        scale, share, added, bias = 0.0, 1.0, None, None
        for atoms, coefficient in taken:
            if len(atoms) != 1 or not isinstance(atoms[0], Access):
                return None
            if self._is_result(atoms[0]):
                scale = coefficient
                continue
            column = self._row(atoms[0]) if coefficient == 1.0 and bias is None else None
            if column is not None:
                bias = column
                continue
            matrix = self._matrix(atoms[0]) if added is None else None
            if matrix is None:
                return None
            added, share = matrix, coefficient
        # the added matrix may share the result's memory: the library reads each element where it writes it
        known = [operand for operand in (bias, added) if operand is not None and operand != out]
        if not scale or not all(self._fits(operand, out) for operand in known):
            return None
        return Epilogue(out, activation, scale, bias, added, share)

    def _keeping(self, found: Epilogue, taken: Polynomial, others: Sequence[Store]) -> Epilogue | None:
        """The epilogue that also stores GELU's argument: the product itself, or the value of another store."""
        if found.activation != "gelu":
            return None
        if self.stored:
            plain = found == Epilogue(found.out, "gelu")
            return replace(found, kept=self.product.out) if plain and self._fits(self.product.out, found.out) else None
        (other,) = others
        kept = self._matrix(other.access)
        same = kept is not None and polynomial(self.nest, self._unrounded(other, kept.buffer.dtype)) == taken
        return replace(found, kept=kept) if same and kept is not None and self._fits(kept, found.out) else None

    def _fits(self, operand: Operand, out: Operand) -> bool:
        """Whether the library can read or write it next to the result: it has its dtype, and does not overlap it."""
        return operand.buffer.dtype == out.buffer.dtype and operand.buffer is not out.buffer

    def _is_result(self, atom: Atom) -> bool:
        return isinstance(atom, Access) and self.nest.operands[atom.operand] is self.result

    def _strides(self, access: Access) -> tuple[int, ...] | None:
        """The strides of an access by the product's axes; None if it does not follow them."""
        shape = self.product.out.shape
        found: list[set[int]] = [set() for _ in shape]
        for dimension, parts in enumerate(self.digits):
            for digit in parts:
                stride, rest = divmod(access.strides[dimension] * digit.weight, digit.divisor)
                if rest:
                    return None
                found[digit.axis].add(stride)
        if any(len(strides) > 1 for strides in found):
            return None
        return tuple(strides.pop() if strides else 0 for strides in found)

    def _matrix(self, access: Access) -> Operand | None:
        """Whether an operand is a row-major matrix, one for each batch or one for all."""
        shape, strides = self.product.out.shape, self._strides(access)
        if strides is None or min(strides) < 0:
            return None
        (rows, columns), (row, column) = shape[-2:], strides[-2:]
        if (column != 1 and columns > 1) or (row < columns and rows > 1):
            return None
        return Operand(self.nest.operands[access.operand], shape, strides, access.offset)

    def _row(self, access: Access) -> Operand | None:
        """Whether an operand is a number for each column, for each batch or for all."""
        strides = self._strides(access)
        if strides is None or min(strides) < 0 or strides[-2] or (strides[-1] != 1 and self.product.columns > 1):
            return None
        return Operand(self.nest.operands[access.operand], self.product.out.shape, strides, access.offset)


def _number(value: float) -> Polynomial:
    return (((), value),)
