"""C files whose function takes sizes as arguments.

The function is exported for all sizes first. Its program is then written in C for some sizes. The texts are equal
except for numbers, which become expressions of the sizes (rlx.export's templates).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rlx.backends.c.files import CFiles, wrapped
from rlx.backends.c.prelude import helpers_of
from rlx.backends.c.sized import ALIGNED, SizedBytes, SizedFunction, arena_text, inner_name
from rlx.errors import ShapeError
from rlx.export.sizes import Constraint, Unknowns
from rlx.export.templates import Template, points_of, template_of
from rlx.ir.kernels import Branch, Buffer, Kernel, Plan, Scan, While, nested_plans
from rlx.planning.memory import blocks_of

__all__ = ["sized_files", "with_sized_places"]

# odd and even numbers with different divisors, far from the sizes from which on programs change
_CANDIDATES = (97, 102, 131, 144, 163, 116, 175, 187, 109, 138, 152, 191, 123, 170, 149, 113, 158, 181, 106, 127)
_FAR = (1031, 4099, 1_048_583)
_POINTS = 9
_OPERATIONS: dict[type, str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_CALLS: dict[type, str] = {ast.FloorDiv: "rlx_floor_divide", ast.Mod: "rlx_modulo"}
_HELPERS = (ALIGNED, "rlx_floor_divide", "rlx_modulo", "rlx_maximum_int64")
LEAST_ARENA = 8  # bytes: the memory of a function without temporaries is not empty
Sizes = Mapping[str, int]


def sized_files(function_for: Callable[[Sizes], SizedFunction], unknowns: Unknowns, what: str, text: str) -> CFiles:
    """The files of a function whose sizes are arguments.

    Args:
      function_for: returns the function for given sizes, with a SizedDialect.
      unknowns: the sizes, and the constraints for which the program is right.
      what: the function's name, for messages.
      text: the program for all sizes; sizes that are equal to one of its numbers are not tried.

    Raises ShapeError if the texts for two sizes differ in more than numbers.
    """
    points = _points(unknowns, what, text)
    functions = [function_for(point) for point in points]
    body = template_of([f.functions_text() for f in functions], points, what)
    limits = tuple(_limits(body, function_for, unknowns, points[0]))
    return _SizedTexts(functions, points, unknowns.and_also(limits), body).files()


# ------------------------------------------------------------------ memory
def with_sized_places(plan: Plan) -> Plan:
    """The plan, and the plans inside it, with temporaries in places that are sums of sizes.

    Temporaries share a place if they have the same size and are not needed at the same time.
    """
    places: list[list[int]] = []  # of each place: its bytes, and the last kernel that needs it
    offsets: dict[Buffer, int] = {}
    at = [SizedBytes({})]
    for block in blocks_of(plan.kernels):
        nbytes = block.buffers[0].nbytes
        free = (n for n, (size, last) in enumerate(places) if size == nbytes and last < block.first)
        number = next(free, len(places))
        if number == len(places):
            places.append([nbytes, 0])
            at.append(at[-1] + SizedBytes({nbytes: 1}))
        places[number][1] = block.last
        offsets |= dict.fromkeys(block.buffers, at[number])
    return replace(plan, kernels=tuple(map(_with_inner_places, plan.kernels)), arena=at[-1], offsets=offsets)


def _with_inner_places(kernel: Kernel) -> Kernel:
    match kernel:
        case Scan():
            return replace(kernel, body=with_sized_places(kernel.body))
        case While():
            condition, body = map(with_sized_places, nested_plans(kernel))
            return replace(kernel, condition=condition, body=body)
        case Branch():
            return replace(kernel, branches=tuple(map(with_sized_places, kernel.branches)))
    return kernel


# ------------------------------------------------------------------ sizes
def _points(unknowns: Unknowns, what: str, text: str) -> list[dict[str, int]]:
    """Sizes that no number in the program's text is equal to."""
    taken = {int(number) for number in re.findall(r"(?<![\w.])\d+(?![\w.])", text)}
    values = [value for value in _CANDIDATES if value not in taken]
    names = unknowns.names
    found = [
        {name: values[((turn << at) + 5 * at) % len(values)] for at, name in enumerate(names)}
        for turn in range(min(_POINTS, len(values)))
    ]
    allowed = not any(unknowns.broken(point, strictly=True) for point in found)
    return found if allowed and len(found) == _POINTS else points_of(unknowns, what, thorough=True)


def _limits(
    body: Template, function_for: Callable[[Sizes], SizedFunction], unknowns: Unknowns, base: Sizes
) -> Iterator[Constraint]:
    """Upper bounds of sizes from which on the program is written in another way."""
    for name in unknowns.names:
        yield Constraint.of(f"{name} >= 1")
        for size in _FAR:
            point = {**base, name: size}
            if unknowns.broken(point):
                break
            if not body.fits(function_for(point).functions_text(), point):
                yield Constraint.of(f"{name} <= {_last(body, function_for, base, name, size)}")
                break


def _last(body: Template, function_for: Callable[[Sizes], SizedFunction], base: Sizes, name: str, bad: int) -> int:
    """The largest size below `bad` that the template is known to be right for."""
    good = max(size for size in (base[name], *_FAR) if size < bad)
    while bad - good > 1:
        middle = (good + bad) // 2
        point = {**base, name: middle}
        good, bad = (middle, bad) if body.fits(function_for(point).functions_text(), point) else (good, middle)
    return good


# ------------------------------------------------------------------ texts
class _SizedTexts:
    """The files for all sizes, from functions for some."""

    def __init__(
        self, functions: Sequence[SizedFunction], points: Sequence[Sizes], unknowns: Unknowns, body: Template
    ) -> None:
        self.functions, self.points, self.unknowns, self.body = functions, points, unknowns, body
        self.first = functions[0]
        self.inside = {size: inner_name(size) for size in self.first.sizes}
        arena = self._template(arena_text(function.plan) for function in functions)
        self.arena = _in_c(arena, self.inside)

    def _template(self, texts: Iterable[str]) -> Template:
        return template_of([*texts], self.points, self.first.name)

    def files(self) -> CFiles:
        """Both files, and the weights."""
        return CFiles(self.source(), self.header(), self.first.weights.data if self.first.weights else b"")

    def header(self) -> str:
        """The header."""
        described = self._template("\n".join(function.description()) for function in self.functions).text
        conditions = ", ".join(map(str, self.unknowns.constraints))
        name = self.first.name
        refused = f"{name}_arena_bytes returns -1 unless {conditions}; {name} must not be called then."
        lines = [*described.splitlines(), "", *wrapped(refused)]
        return self.first.header_of(lines, [*self.size_macros()])

    def size_macros(self) -> Iterator[str]:
        """A macro for the number of elements of each parameter, which may take the sizes."""
        outside = {size: f"((int64_t)({name}))" for size, name in self.first.sizes.items()}
        parameters = ", ".join(self.first.sizes.values())
        for lines in zip(*(function.size_macros() for function in self.functions), strict=True):
            head, _, value = _in_c(self._template(lines), outside).partition("_SIZE ")
            yield lines[0] if len(set(lines)) == 1 else f"{head}_SIZE({parameters}) ({value})"

    def source(self) -> str:
        """The C file."""
        body, checks = _in_c(self.body, self.inside), " && ".join(map(self._condition, self.unknowns.constraints))
        renamed = [f"    const int64_t {inner_name(size)} = {name};" for size, name in self.first.sizes.items()]
        arena = [
            f"{self.first.arena_prototype()} {{",
            *renamed,
            *wrapped(f"    return {checks} ? {self.arena} + {LEAST_ARENA} : -1;"),
            "}",
        ]
        helpers = [name for name in _HELPERS if f"{name}(" in f"{body}{arena}" and f" {name}(" not in _heads(body)]
        defined = "\n\n".join(helpers_of(helpers))
        head, include, functions = body.partition(f'#include "{self.first.header}"\n')
        added = f"\n{defined}\n" if defined else ""
        return self.first.source_of(f"{head}{include}{added}{functions}") + "\n" + "\n".join(arena) + "\n"

    def _condition(self, constraint: Constraint) -> str:
        left, right = (_expression(size.text, self.inside) for size in (constraint.left, constraint.right))
        return f"{left} {constraint.relation} {right}"


def _heads(text: str) -> str:
    """The lines that define functions and macros."""
    return "\n".join(line for line in text.splitlines() if line.startswith(("static", "#define")))


def _in_c(template: Template, names: Mapping[str, str]) -> str:
    """A template's text, with expressions in C."""
    return template._replace(numbers=[_expression(number, names) for number in template.numbers]).text


def _expression(expression: str, names: Mapping[str, str]) -> str:
    """An expression of sizes in C."""
    return _text(ast.parse(expression.strip(), mode="eval").body, names)


def _text(node: ast.expr, names: Mapping[str, str]) -> str:
    match node:
        case ast.Name(id=name):
            return names[name]
        case ast.Constant(value=value):
            return str(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return f"-{_text(operand, names)}"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _CALLS:
            return f"{_CALLS[type(op)]}({_text(left, names)}, {_text(right, names)})"
        case ast.BinOp(left=ast.Constant(value=float(value)), op=op, right=right):
            return f"({value} {_OPERATIONS[type(op)]} (double)({_text(right, names)}))"
        case ast.BinOp(left=left, op=op, right=right):
            return f"({_text(left, names)} {_OPERATIONS[type(op)]} {_text(right, names)})"
    raise ShapeError(f"{ast.unparse(node)} is not an expression of sizes.", "Please report it.")
