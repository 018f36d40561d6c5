"""Fourier transforms of rows that fit in a group's memory, by Stockham's algorithm: results are in natural order.

In a step of radix r, a work-item transforms r numbers, and multiplies the results by factors exp(-2 pi i k / n), stored
in a table. Transforms
over several axes are a launch for each axis.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.grid import ITEM, unsigned
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.steps import LaunchStep, ceiling, code_step, position_in
from rlx.backends.loops.dialect import Parameter
from rlx.code.butterflies import butterfly, radices
from rlx.code.split_numbers import SplitArray, SplitNumber
from rlx.code.tree import Apply, Array, Barrier, Coordinate, Either, Expression, Number, Register, minimum
from rlx.code.writing import CodeWriter
from rlx.ir.kernels import Buffer, Library, Operand
from rlx.ir.types import element_dtype

__all__ = ["transform_steps"]

_RADICES = (4, 2, 3, 5, 7, 11, 13)
_BOOL, _UINT32 = np.dtype(bool), np.dtype(np.uint32)
_POINT = Register(_UINT32, "i")  # an element of a group's rows


@dataclass(frozen=True, slots=True)
class _Axis:
    """One launch: `rows` transforms of `length` elements with stride `apart`; the elements that are read and written.

    kind: as the routine's. source, target: buffers, and positions where arrays begin in them.
    """

    kind: str
    length: int
    apart: int
    rows: int
    source: tuple[Buffer, int]
    target: tuple[Buffer, int]


def transform_steps(kernel: Library, limits: Limits, dialect: DeviceDialect) -> list[LaunchStep] | None:
    """The launches of Fourier transforms; None if a row is too long for a group or has large prime factors."""
    lengths = tuple(kernel.attributes["lengths"])
    (given,), (result,) = kernel.inputs, kernel.outputs
    number = element_dtype(result.buffer.dtype)
    longest = limits.least_group_bytes // (4 * number.itemsize)  # a group holds a row twice, in both parts
    if not given.buffer.size or any(prod(radices(n, _RADICES)) != n or n > longest for n in lengths):
        return None
    position = position_in(limits, given, result)
    return [_step(axis, kernel.label, number, position, limits, dialect) for axis in _axes(kernel, given, result)]


def _axes(kernel: Library, given: Operand, result: Operand) -> list[_Axis]:
    """The transforms of each axis, in order; for real signals, the last axis is read first and written last."""
    kind, lengths = kernel.attributes["kind"], tuple(kernel.attributes["lengths"])
    others = {"rfft": "fft", "irfft": "ifft"}.get(kind, kind)
    real_last = kind == "irfft"
    source, target = (given.buffer, given.offset), (result.buffer, result.offset)
    held = target
    spectrum = given.shape if real_last else result.shape
    if real_last and len(lengths) > 1:
        held = (Buffer(given.buffer.dtype, prod(given.shape), name="spectrum"), 0)
    order = range(len(lengths) - 1) if real_last else range(len(lengths) - 1, -1, -1)
    found = []
    for place in order:
        axis = len(spectrum) - len(lengths) + place
        last = place == len(lengths) - 1
        rows = prod(spectrum) // spectrum[axis]
        which = kind if last else others
        found.append(_Axis(which, lengths[place], prod(spectrum[axis + 1 :]), rows, source, held))
        source = held
    if real_last:
        found.append(_Axis(kind, lengths[-1], 1, prod(spectrum[:-1]), source, target))
    return found


@lru_cache(maxsize=64)
def _table(length: int, number: str, inverse: bool) -> Buffer:
    """exp(-2 pi i k / length), or its conjugate: one buffer for all transforms of a length."""
    impulse = np.zeros(length)
    impulse[1 % length] = 1
    factors = np.fft.fft(impulse)
    factors = factors.conj() if inverse else factors
    values = np.stack([factors.real, factors.imag], -1).astype(number).reshape(-1)
    return Buffer(np.dtype(number), 2 * length, "constant", values, "factors")


def _step(
    axis: _Axis, label: str, number: np.dtype, position: np.dtype, limits: Limits, dialect: DeviceDialect
) -> LaunchStep:
    """One launch: each group has enough rows to keep its work-items busy."""
    n, spectrum = axis.length, np.result_type(number, np.complex64)
    together = max(1, min(axis.rows, limits.group // n))
    items = min(limits.group, 1 << max(together * n // max(radices(n, _RADICES), default=1) - 1, 1).bit_length())
    code = CodeWriter()
    held, following = (SplitArray.of_group(code, name, spectrum, together * n) for name in ("held", "following"))
    factors = SplitArray.of_device("factors", spectrum)
    group = Coordinate(unsigned(position), "group")
    first = code.declare("first", group * together)
    points: Expression | int = together * n
    if axis.rows % together:
        points = code.declare("points", minimum(axis.rows - first, together) * n, _UINT32)
    with code.loop(_POINT, ITEM, points, items):
        held.write(code, _POINT, _loaded(code, axis, number, first))
    width = 1
    for radix in radices(n, _RADICES):
        code.add(Barrier())
        with code.loop(_POINT, ITEM, points // radix, items):
            _stage(code, n, radix, width, axis.kind[0] == "i", held, following, factors)
        held, following, width = following, held, width * radix
    code.add(Barrier())
    with code.loop(_POINT, ITEM, points, items):
        _store(code, axis, number, first, held[_POINT])
    table = _table(n, number.name, axis.kind in ("ifft", "irfft"))
    parameters = [Parameter("source", number, axis.source == axis.target), Parameter("factors", number, False)]
    arrays = [axis.source[0], table]
    if axis.source != axis.target:
        parameters.append(Parameter("target", number, True))
        arrays.append(axis.target[0])
    return code_step(
        label or "fft", f"transforms of {together} row{'s' * (together > 1)}", dialect, parameters, arrays,
        code.block, ceiling(axis.rows, together), items,
    )  # fmt: skip


def _place(code: CodeWriter, axis: _Axis, size: int, start: int, first: Register, element: Expression) -> Register:
    """The position of a number of a work-item's row; the axis has `size` elements there."""
    row = code.declare("row", first + _POINT // axis.length)
    before = row // axis.apart * (axis.apart * size)
    if axis.apart > 1:
        before = before + row % axis.apart
    return code.declare("place", before + element * axis.apart + start)


def _loaded(code: CodeWriter, axis: _Axis, number: np.dtype, first: Register) -> SplitNumber:
    """A row's element; of half a spectrum also one of the other half, ignoring imaginary parts that have to be zero."""
    n, start, zero = axis.length, axis.source[1], Number(number, 0)
    element = code.declare("element", _POINT % n)
    spectrum = SplitArray.of_device("source", np.result_type(number, np.complex64))
    if axis.kind == "rfft":
        return SplitNumber((Array("source", number)[_place(code, axis, n, start, first, element)], zero))
    if axis.kind != "irfft":
        return spectrum[_place(code, axis, n, start, first, element)]
    half = n // 2 + 1
    mirrored = Apply(_UINT32, "select", (element < half, element, n - element))
    found = spectrum[_place(code, axis, half, start, first, mirrored)]
    real, imaginary = found.parts
    signed = Apply(number, "select", (element < half, imaginary, found.conjugate().parts[1]))
    alone = element.equals(0) if n % 2 else Either(_BOOL, element.equals(0), element.equals(n // 2))
    return SplitNumber((real, Apply(number, "select", (alone, zero, signed))))


def _stage(
    code: CodeWriter, n: int, radix: int, width: int, inverse: bool, held: SplitArray, following: SplitArray,
    factors: SplitArray,
) -> None:  # fmt: skip
    """A work-item's transform of `radix` numbers."""
    apart, zero = n // radix, Number(_UINT32, 0)
    row = code.declare("row_start", _POINT // apart * n)
    number = code.declare("number", _POINT % apart) if apart > 1 else zero
    column = zero if width == 1 else number if width == apart else code.declare("column", number % width)
    values = [held[row + number + k * apart].declared(code, f"x{k}") for k in range(radix)]
    results = butterfly(values, lambda x: _turned(x, inverse), lambda x, y, factor: x + y * factor)
    target = code.declare("to", row + (number - column) * radix + column)
    for k, result in enumerate(results):
        if k and width < apart:
            result = result.declared(code, f"y{k}") * factors[(number - column) * k].declared(code, f"factor{k}")
        following.write(code, target + k * width, result)


def _turned(x: SplitNumber, inverse: bool) -> SplitNumber:
    """x times -j, or j."""
    real, imaginary = x.parts
    negative = Apply(real.dtype, "neg", (imaginary if inverse else real,))
    return SplitNumber((negative, real) if inverse else (imaginary, negative))


def _store(code: CodeWriter, axis: _Axis, number: np.dtype, first: Register, value: SplitNumber) -> None:
    """Store a row's results, or the half of them that determines the others."""
    n, start = axis.length, axis.target[1]
    name = "source" if axis.source == axis.target else "target"
    if axis.kind[0] == "i":
        value = value.scaled(Number(number, float(number.type(1) / number.type(n))))
    element = code.declare("element", _POINT % n)
    if axis.kind == "irfft":
        code.write(Array(name, number)[_place(code, axis, n, start, first, element)], value.parts[0])
        return
    size = n // 2 + 1 if axis.kind == "rfft" else n
    with ExitStack() as nest:
        if size < n:
            nest.enter_context(code.when(element < size))
        target = SplitArray.of_device(name, np.result_type(number, np.complex64))
        target.write(code, _place(code, axis, size, start, first, element), value)
