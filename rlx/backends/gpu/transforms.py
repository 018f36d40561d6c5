"""Fourier transforms of rows that fit in a group's memory, by Stockham's algorithm: results are in natural order.

A step of radix r combines r results of the step before by factors exp(-2 pi i k / n), stored in a table. Transforms
over several axes are a launch for each axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from rlx.backends.c.types import register_type
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.steps import Step, ceiling, step_of
from rlx.backends.loops.dialect import Parameter
from rlx.ir.kernels import Buffer, Library, Operand
from rlx.ir.types import element_dtype

__all__ = ["transform_steps"]

_MEMORY = 1 << 15  # bytes of group memory available on every device
_RADICES = (4, 2, 3, 5, 7, 11, 13)
_WIDE = 1 << 29  # numbers: with more, positions have 64 bits


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


def transform_steps(kernel: Library, limits: Limits, dialect: DeviceDialect) -> list[Step] | None:
    """The launches of Fourier transforms; None if a row is too long for a group or has large prime factors."""
    lengths = tuple(kernel.attributes["lengths"])
    (given,), (result,) = kernel.inputs, kernel.outputs
    number = element_dtype(result.buffer.dtype)
    if not given.buffer.size or any(_radices(n) is None or n > _longest(number) for n in lengths):
        return None
    wide = limits.wide or max(given.buffer.size, result.buffer.size) >= _WIDE
    with dialect.positions(wide):
        return [_step(axis, kernel.label, number, limits, dialect) for axis in _axes(kernel, given, result)]


def _longest(number: np.dtype) -> int:
    """The longest row that a group can hold twice, in real and imaginary parts."""
    return _MEMORY // (4 * number.itemsize)


def _radices(length: int) -> list[int] | None:
    """The factors of a length; None if some of them are large."""
    found: list[int] = []
    for radix in _RADICES:
        while length % radix == 0:
            found.append(radix)
            length //= radix
    return found if length == 1 else None


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


def _step(axis: _Axis, label: str, number: np.dtype, limits: Limits, dialect: DeviceDialect) -> Step:
    """One launch: each group has enough rows to keep its items busy."""
    n, inverse = axis.length, axis.kind in ("ifft", "irfft")
    together = max(1, min(axis.rows, limits.group // n))
    points = together * n
    items = min(limits.group, 1 << max(points - 1, 1).bit_length())
    kind, item = register_type(number), dialect.number_in_group()
    names = ("real", "imaginary", "next_real", "next_imaginary")
    every = f"for (uint32_t i = {item}; i < {points}u; i += {items}u) {{"
    body = [
        *(f"{dialect.group_space} {kind} {name}[{points}];" for name in names),
        dialect.number("first", f"({dialect.number_type}){dialect.group_number()} * {together}u"),
        every, *_load(axis, dialect), "}", dialect.barrier(),
    ]  # fmt: skip
    done = 1
    for radix in _radices(n) or []:
        body += [every, *_combine(n, radix, done, names, kind), "}", dialect.barrier()]
        names, done = (*names[2:], *names[:2]), done * radix
    body += [every, *_store(axis, number, names, dialect), "}"]
    table = _table(n, number.name, inverse)
    parameters = [Parameter("source", number, axis.source == axis.target), Parameter("factors", number, False)]
    arrays = [axis.source[0], table]
    if axis.source != axis.target:
        parameters.append(Parameter("target", number, True))
        arrays.append(axis.target[0])
    return step_of(
        label or "fft", f"transforms of {together} row{'s' * (together > 1)}", dialect, parameters, arrays, body,
        ceiling(axis.rows, together), items,
    )  # fmt: skip


def _place(size: int, apart: int, start: int, numbers: int, element: str) -> str:
    """The position of an element of a row whose axis has `size` elements there."""
    before = f"row / {apart}u * {size * apart}u + row % {apart}u" if apart > 1 else f"row * {size}u"
    moved = f"({before} + {element}{f' * {apart}u' if apart > 1 else ''}"
    return f"{moved} + {start}u) * {numbers}u" if start else f"{moved}) * {numbers}u"


def _rows(axis: _Axis, dialect: DeviceDialect) -> list[str]:
    return [
        f"    const uint32_t element = i % {axis.length}u;",
        f"    {dialect.number('row', f'first + i / {axis.length}u')}",
        f"    if (row < {axis.rows}u) {{",
    ]


def _load(axis: _Axis, dialect: DeviceDialect) -> list[str]:
    """Load a row's elements; for half a spectrum also the other half, ignoring imaginary parts that have to be zero."""
    n, start = axis.length, axis.source[1]
    lines = _rows(axis, dialect)
    if axis.kind == "rfft":
        at = _place(n, axis.apart, start, 1, "element")
        lines += [f"        real[i] = source[{at}];", "        imaginary[i] = 0;"]
    elif axis.kind == "irfft":
        half = n // 2 + 1
        at = _place(half, axis.apart, start, 2, f"(element < {half}u ? element : {n}u - element)")
        lone = f"element == 0{f' || element == {n // 2}u' if n % 2 == 0 else ''}"
        lines += [
            f"        {dialect.number('at', at)}",
            "        real[i] = source[at];",
            f"        imaginary[i] = {lone} ? 0 : element < {half}u ? source[at + 1] : -source[at + 1];",
        ]
    else:
        at = _place(n, axis.apart, start, 2, "element")
        lines += [
            f"        {dialect.number('at', at)}", "        real[i] = source[at];",
            "        imaginary[i] = source[at + 1];",
        ]  # fmt: skip
    return [*lines, "    }"]


def _combine(n: int, radix: int, done: int, names: Sequence[str], kind: str) -> list[str]:
    """One element of the next step: of `radix` results of transforms of `done` elements."""
    real, imaginary, next_real, next_imaginary = names
    apart = n // radix
    return [
        f"    const uint32_t element = i % {n}u, inside = element % {done}u;",
        f"    const uint32_t from = i - element + element / {done * radix}u * {done}u + inside;",
        f"    const uint32_t step = inside * {n // (done * radix)}u + element / {done}u % {radix}u * {apart}u;",
        f"    {{ // radix {radix}",
        "        uint32_t which = 0, at = from;",
        f"        {kind} x = 0, y = 0;",
        f"        for (int turn = 0; turn < {radix}; ++turn) {{",
        f"            const {kind} a = {real}[at], b = {imaginary}[at];",
        "            if (which == 0) { x += a; y += b; }",
        "            else {",
        f"                const {kind} c = factors[2 * which], d = factors[2 * which + 1];",
        "                x += a * c - b * d; y += a * d + b * c;",
        "            }",
        f"            at += {apart}u; which += step;",
        f"            if (which >= {n}u) which -= {n}u;",
        "        }",
        f"        {next_real}[i] = x; {next_imaginary}[i] = y;",
        "    }",
    ]


def _store(axis: _Axis, number: np.dtype, names: Sequence[str], dialect: DeviceDialect) -> list[str]:
    """Store a row's results, or the half of them that determines the others."""
    n, start = axis.length, axis.target[1]
    real, imaginary = names[:2]
    name = "source" if axis.source == axis.target else "target"
    share = f" * {dialect.constant(number, float(number.type(1) / number.type(n)))}" if axis.kind[0] == "i" else ""
    lines = _rows(axis, dialect)
    if axis.kind == "irfft":
        return [*lines, f"        {name}[{_place(n, axis.apart, start, 1, 'element')}] = {real}[i]{share};", "    }"]
    size = n // 2 + 1 if axis.kind == "rfft" else n
    guard = f"        if (element < {size}u) {{" if size < n else "        {"
    return [
        *lines, guard,
        f"            {dialect.number('to', _place(size, axis.apart, start, 2, 'element'))}",
        f"            {name}[to] = {real}[i]{share};", f"            {name}[to + 1] = {imaginary}[i]{share};",
        "        }", "    }",
    ]  # fmt: skip
