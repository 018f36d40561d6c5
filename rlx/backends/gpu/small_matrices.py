"""Small factorisations and triangular systems: a group holds a matrix, or some right-hand sides, in its memory.

Columns are processed in order, and the group's items share the columns to the right. Values are as in `rlx.routines`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod

import numpy as np

from rlx.backends.c.types import register_type
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.steps import Step, ceiling, step_of
from rlx.backends.loops.dialect import Parameter
from rlx.ir.kernels import Library, Operand
from rlx.ir.types import element_dtype

__all__ = ["SMALL", "small_matrix_steps"]

_MEMORY = 1 << 15  # bytes of group memory available on every device
_SIDES = 16  # right-hand sides that a group solves together
_WIDE = 1 << 29  # numbers: with more, positions have 64 bits
_INT32 = np.dtype(np.int32)


class _Numbers:
    """Statements over real numbers, or over complex numbers in two arrays each: `a` holds a_re, and a_im."""

    def __init__(self, dtype: np.dtype) -> None:
        self.number = element_dtype(dtype)
        self.complex = dtype.kind == "c"
        self.kind = register_type(self.number)
        self.parts = ("re", "im") if self.complex else ("re",)

    def declared(self, name: str, size: int, dialect: DeviceDialect) -> list[str]:
        """Declare arrays of a group."""
        return [f"{dialect.group_space} {self.kind} {name}_{part}[{size}];" for part in self.parts]

    def at(self, position: str, part: str) -> str:
        """The position of a part in memory, where both parts of a number are adjacent."""
        return f"2u * ({position}) + {int(part == 'im')}u" if self.complex else position

    def loaded(self, name: str, place: str, source: str, position: str) -> str:
        """Load from memory."""
        return " ".join(f"{name}_{p}[{place}] = {source}[{self.at(position, p)}];" for p in self.parts)

    def stored(self, target: str, position: str, value: Callable[[str], str]) -> str:
        """Store to memory: a value for each part."""
        return " ".join(f"{target}[{self.at(position, p)}] = {value(p)};" for p in self.parts)

    def read(self, name: str, source: str, position: str, conjugated: bool = False) -> str:
        """Load constants from memory."""
        signs = {"re": "", "im": "-" if conjugated else ""}
        return " ".join(
            f"const {self.kind} {name}_{p} = {signs[p]}{source}[{self.at(position, p)}];" for p in self.parts
        )

    def held(self, name: str, array: str, place: str, conjugated: bool = False) -> str:
        """Load constants from an array."""
        signs = {"re": "", "im": "-" if conjugated else ""}
        return " ".join(f"const {self.kind} {name}_{p} = {signs[p]}{array}_{p}[{place}];" for p in self.parts)

    def less_product(self, array: str, place: str, a: str, b: str) -> str:
        """An element minus a product of constants."""
        if not self.complex:
            return f"{array}_re[{place}] -= {a}_re * {b}_re;"
        return (
            f"{array}_re[{place}] -= {a}_re * {b}_re - {a}_im * {b}_im;"
            f" {array}_im[{place}] -= {a}_re * {b}_im + {a}_im * {b}_re;"
        )

    def divided(self, array: str, place: str, d: str) -> list[str]:
        """An element divided by a constant; complex numbers are scaled by the larger part, to avoid overflow."""
        if not self.complex:
            return [f"{array}_re[{place}] /= {d}_re;"]
        re, im = f"{array}_re[{place}]", f"{array}_im[{place}]"
        return [
            f"{{ const {self.kind} u = {re}, v = {im};",
            f"  if (({d}_re < 0 ? -{d}_re : {d}_re) >= ({d}_im < 0 ? -{d}_im : {d}_im)) {{",
            f"      const {self.kind} q = {d}_im / {d}_re, w = {d}_re + {d}_im * q;",
            f"      {re} = (u + v * q) / w; {im} = (v - u * q) / w;",
            "  } else {",
            f"      const {self.kind} q = {d}_re / {d}_im, w = {d}_re * q + {d}_im;",
            f"      {re} = (u * q + v) / w; {im} = (v * q - u) / w;",
            "  } }",
        ]


def small_matrix_steps(kernel: Library, limits: Limits, dialect: DeviceDialect) -> list[Step] | None:
    """The launches of a routine of `SMALL`; None if a matrix does not fit in a group's memory."""
    sizes = [operand.buffer.size for operand in (*kernel.inputs, *kernel.outputs)]
    if 0 in [size for operand in (*kernel.inputs, *kernel.outputs) for size in operand.shape]:
        return None
    with dialect.positions(limits.wide or max(sizes) >= _WIDE):
        step = SMALL[kernel.routine](kernel, limits, dialect)
    return None if step is None else [step]


def _items(limits: Limits, work: int) -> int:
    return min(limits.group, 1 << max(work - 1, 1).bit_length())


def _every(items: int, count: int | str, dialect: DeviceDialect, name: str = "t") -> str:
    return f"for (uint32_t {name} = {dialect.number_in_group()}; {name} < {count}; {name} += {items}u) {{"


def _parameters(pairs: Iterable[tuple[str, Operand, bool]]) -> tuple[list[Parameter], list]:
    parameters, arrays = [], []
    for name, operand, written in pairs:
        parameters.append(Parameter(name, element_dtype(operand.buffer.dtype), written))
        arrays.append(operand.buffer)
    return parameters, arrays


def _begin(name: str, operand: Operand, each: int, group: str, dialect: DeviceDialect) -> str:
    """The beginning of a group's part of an operand."""
    start = f" + {operand.offset}u" if operand.offset else ""
    return dialect.number(name, f"({dialect.number_type}){group} * {each}u{start}")


# ------------------------------------------------------------------ factorisations
def _cholesky(kernel: Library, limits: Limits, dialect: DeviceDialect) -> Step | None:
    """The lower factor; all NaN if a pivot is not positive."""
    (given,), (result,) = kernel.inputs, kernel.outputs
    n, x = given.shape[-1], _Numbers(given.buffer.dtype)
    if n * n * given.buffer.dtype.itemsize > _MEMORY - 16:
        return None
    items, first = _items(limits, n * n), f"{dialect.number_in_group()} == 0"
    barrier = dialect.barrier()
    imaginary = [f"        if (r == j) m_im[r * {n}u + j] = 0;"] if x.complex else []
    scaled = " ".join(f"m_{p}[r * {n}u + j] /= root;" for p in x.parts)
    root = f"{'sqrtf' if x.kind == 'float' else 'sqrt'}(pivot)"
    body = [
        *x.declared("m", n * n, dialect), f"{dialect.group_space} int32_t failed[1];",
        _begin("source_at", given, n * n, dialect.group_number(), dialect),
        _begin("target_at", result, n * n, dialect.group_number(), dialect),
        _every(items, f"{n * n}u", dialect), f"    {x.loaded('m', 't', 'source', 'source_at + t')}", "}",
        f"if ({first}) failed[0] = 0;", barrier,
        f"for (uint32_t j = 0; j < {n}u; ++j) {{",
        f"    const {x.kind} pivot = m_re[j * {n}u + j], root = {root};",
        f"    if ({first} && !(pivot > 0)) failed[0] = 1;", f"    {barrier}",
        f"    {_every(items, f'{n}u', dialect, 'r')}",
        f"        if (r > j) {{ {scaled} }}", f"        if (r == j) m_re[r * {n}u + j] = root;", *imaginary, "    }",
        f"    {barrier}",
        f"    const uint32_t rest = {n - 1}u - j;",
        f"    {_every(items, 'rest * rest', dialect)}",
        "        const uint32_t r = j + 1 + t / rest, c = j + 1 + t % rest;",
        "        if (c <= r) {",
        f"            {x.held('a', 'm', f'r * {n}u + j')} {x.held('b', 'm', f'c * {n}u + j', conjugated=True)}",
        f"            {x.less_product('m', f'r * {n}u + c', 'a', 'b')}",
        "        }", "    }", f"    {barrier}", "}",
        _every(items, f"{n * n}u", dialect), f"    const bool below = t % {n}u <= t / {n}u;",
        f"    {x.stored('target', 'target_at + t', lambda p: f'!below ? 0 : failed[0] ? {_nan(p)} : m_{p}[t]')}", "}",
    ]  # fmt: skip
    parameters, arrays = _parameters([("source", given, False), ("target", result, True)])
    return step_of(
        kernel.label or "cholesky", "a group for each matrix", dialect, parameters, arrays, body,
        prod(given.shape[:-2]), items,
    )  # fmt: skip


def _nan(part: str) -> str:
    return "NAN" if part == "re" else "0"


def _lu(kernel: Library, limits: Limits, dialect: DeviceDialect) -> Step | None:
    """Partial pivoting; the first item finds the pivot."""
    (given,), (packed, pivots, permutation) = kernel.inputs, kernel.outputs
    (rows, columns), x = given.shape[-2:], _Numbers(given.buffer.dtype)
    size, short = rows * columns, min(rows, columns)
    if size * given.buffer.dtype.itemsize + 4 * rows > _MEMORY - 16:
        return None
    items, item, barrier = _items(limits, size), dialect.number_in_group(), dialect.barrier()
    group = dialect.group_number()
    magnitude = [f"(m_{p}[r * {columns}u + j] < 0 ? -m_{p}[r * {columns}u + j] : m_{p}[r * {columns}u + j])"
                 for p in x.parts]  # fmt: skip
    swapped = [
        f"const {x.kind} kept_{p} = m_{p}[j * {columns}u + c]; m_{p}[j * {columns}u + c] = m_{p}[p * {columns}u + c];"
        f" m_{p}[p * {columns}u + c] = kept_{p};"
        for p in x.parts
    ]
    nonzero = " || ".join(f"d_{p} != 0" for p in x.parts)
    body = [
        *x.declared("m", size, dialect), f"{dialect.group_space} int32_t order[{rows}], chosen[1];",
        _begin("source_at", given, size, group, dialect), _begin("packed_at", packed, size, group, dialect),
        _begin("pivots_at", pivots, short, group, dialect), _begin("order_at", permutation, rows, group, dialect),
        _every(items, f"{size}u", dialect), f"    {x.loaded('m', 't', 'source', 'source_at + t')}", "}",
        _every(items, f"{rows}u", dialect), "    order[t] = (int32_t)t;", "}", barrier,
        f"for (uint32_t j = 0; j < {short}u; ++j) {{",
        f"    if ({item} == 0) {{",
        f"        {x.kind} best = -1; uint32_t p = j;",
        f"        for (uint32_t r = j; r < {rows}u; ++r) {{",
        f"            const {x.kind} size = {' + '.join(magnitude)};",
        "            if (size > best) { best = size; p = r; }",
        "        }",
        "        const int32_t moved = order[p]; order[p] = order[j]; order[j] = moved;",
        "        chosen[0] = (int32_t)p; pivots[pivots_at + j] = (int32_t)p;",
        "    }",
        f"    {barrier}",
        "    const uint32_t p = (uint32_t)chosen[0];",
        f"    if (p != j) {_every(items, f'{columns}u', dialect, 'c')} {' '.join(swapped)} }}",
        f"    {barrier}",
        f"    {x.held('d', 'm', f'j * {columns}u + j')}",
        f"    {_every(items, f'{rows}u', dialect, 'r')} if (r > j && ({nonzero})) {{",
        *(f"        {line}" for line in x.divided("m", f"r * {columns}u + j", "d")),
        "    } }", f"    {barrier}",
        f"    const uint32_t right = {columns - 1}u - j;",
        f"    {_every(items, f'({rows - 1}u - j) * right', dialect)}",
        "        const uint32_t r = j + 1 + t / right, c = j + 1 + t % right;",
        f"        {x.held('a', 'm', f'r * {columns}u + j')} {x.held('b', 'm', f'j * {columns}u + c')}",
        f"        {x.less_product('m', f'r * {columns}u + c', 'a', 'b')}", "    }", f"    {barrier}", "}",
        _every(items, f"{size}u", dialect), f"    {x.stored('packed', 'packed_at + t', lambda p: f'm_{p}[t]')}", "}",
        _every(items, f"{rows}u", dialect), "    permutation[order_at + t] = order[t];", "}",
    ]  # fmt: skip
    written = [("packed", packed, True), ("pivots", pivots, True), ("permutation", permutation, True)]
    parameters, arrays = _parameters([("source", given, False), *written])
    return step_of(
        kernel.label or "lu", "a group for each matrix", dialect, parameters, arrays, body,
        prod(given.shape[:-2]), items,
    )  # fmt: skip


# ------------------------------------------------------------------ systems
def _triangular_solve(kernel: Library, limits: Limits, dialect: DeviceDialect) -> Step | None:
    a, b = kernel.inputs
    how = kernel.attributes
    left, turned = how.get("left_side", True), how.get("transpose_a", False)
    phase = (how.get("lower", True), turned == left, how.get("unit_diagonal", False))
    return _solved(kernel, a, b, [phase], left, None, False, limits, dialect)


def _lu_solve(kernel: Library, limits: Limits, dialect: DeviceDialect) -> Step | None:
    """Rows are permuted before both systems, or, if these are transposed, after them."""
    factors, permutation, b = kernel.inputs
    turned = kernel.attributes.get("transpose_a", False)
    phases = [(True, turned, True), (False, turned, False)]
    order = reversed(phases) if turned else phases
    return _solved(kernel, factors, b, order, True, permutation, turned, limits, dialect)


def _solved(
    kernel: Library, a: Operand, b: Operand, phases: Iterable[tuple[bool, bool, bool]], left: bool,
    permutation: Operand | None, ordered_last: bool, limits: Limits, dialect: DeviceDialect,
) -> Step | None:  # fmt: skip
    """Systems one after the other, as (lower, transposed, unit diagonal), for some right-hand sides of a matrix."""
    n, x, (result,) = a.shape[-1], _Numbers(a.buffer.dtype), kernel.outputs
    sides = b.shape[-1] if left else b.shape[-2]
    together = min(sides, _SIDES, _MEMORY // 2 // (n * a.buffer.dtype.itemsize))
    if not together:
        return None
    tiles, items, barrier = ceiling(sides, together), _items(limits, n * together), dialect.barrier()
    group = dialect.group_number()
    matrix = f"({group} / {tiles}u)"
    rows = {True: "r", False: "r"}
    if permutation is not None:
        rows[ordered_last] = "(uint32_t)permutation[order_at + r]"
    at = {
        last: f"{row} * {sides}u + side" if left else f"side * {n}u + {row}" for last, row in rows.items()
    }
    every = [
        _every(items, f"{n * together}u", dialect), f"    const uint32_t r = t / {together}u,",
        f"        side = {group} % {tiles}u * {together}u + t % {together}u;",
    ]  # fmt: skip
    body = [
        *x.declared("x", n * together, dialect), _begin("a_at", a, n * n, matrix, dialect),
        _begin("b_at", b, n * sides, matrix, dialect), _begin("result_at", result, n * sides, matrix, dialect),
        *([_begin("order_at", permutation, n, matrix, dialect)] if permutation is not None else []),
        *every, f"    if (side < {sides}u) {{ {x.loaded('x', 't', 'b', f'b_at + {at[False]}')} }}", "}", barrier,
    ]  # fmt: skip
    for phase in phases:
        body += _substituted(x, n, together, items, phase, kernel.attributes.get("conjugate_a", False), dialect)
    body += [
        *every,
        f"    if (side < {sides}u) {{ {x.stored('result', f'result_at + {at[True]}', lambda p: f'x_{p}[t]')} }}", "}",
    ]  # fmt: skip
    given = [("a", a, False), ("b", b, False), ("result", result, True)]
    if permutation is not None:
        given.append(("permutation", permutation, False))
    parameters, arrays = _parameters(given)
    strategy = f"a group for {together} right side{'s' * (together > 1)}"
    groups = prod(a.shape[:-2]) * tiles
    return step_of(kernel.label or "solve", strategy, dialect, parameters, arrays, body, groups, items)


def _substituted(
    x: _Numbers, n: int, together: int, items: int, phase: tuple[bool, bool, bool], conjugate: bool,
    dialect: DeviceDialect,
) -> list[str]:  # fmt: skip
    """Substitution row by row; the solved row is subtracted from the rows that remain."""
    lower, transposed, unit = phase
    forward = lower != transposed
    element = f"a_at + i * {n}u + r" if transposed else f"a_at + r * {n}u + i"
    row = "s" if forward else f"{n - 1}u - s"
    lines = [f"for (uint32_t s = 0; s < {n}u; ++s) {{", f"    const uint32_t i = {row};"]
    if not unit:
        lines += [
            f"    {{ {x.read('d', 'a', f'a_at + i * {n + 1}u', conjugate)}",
            f"    {_every(items, f'{together}u', dialect)}",
            *(f"        {line}" for line in x.divided("x", f"i * {together}u + t", "d")),
            "    } }", f"    {dialect.barrier()}",
        ]  # fmt: skip
    return [
        *lines,
        f"    {_every(items, f'{n * together}u', dialect)}", f"        const uint32_t r = t / {together}u;",
        f"        if (r {'>' if forward else '<'} i) {{",
        f"            {x.read('c', 'a', element, conjugate)} {x.held('y', 'x', f'i * {together}u + t % {together}u')}",
        f"            {x.less_product('x', 't', 'c', 'y')}",
        "        }", "    }", f"    {dialect.barrier()}", "}",
    ]  # fmt: skip


SMALL: dict[str, Callable[[Library, Limits, DeviceDialect], Step | None]] = {
    "cholesky": _cholesky,
    "lu": _lu,
    "lu_solve": _lu_solve,
    "triangular_solve": _triangular_solve,
}
