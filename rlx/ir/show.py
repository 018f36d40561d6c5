"""Programs as text: Python that runs, and gives an equal program under `rlx.trace.text`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

from rlx.errors import short_name
from rlx.ir.extended import key_dtype_of
from rlx.ir.program import Atom, Equation, Literal, Origin, Program, Var
from rlx.ir.types import TensorType, is_key, supported_dtypes

__all__ = ["show_bindings", "show_equation", "show_functions", "show_lines", "show_program"]

_HEADER = "from rlx.trace.text import *"
_INLINE_ELEMENTS = 16  # arrays up to this size are printed in full


def show_program(program: Program) -> str:
    """Python source of the program; `rlx.trace.text.program_from_text` reads it back.

    Large constants, functions and other objects without a text are free names: `show_bindings`.
    """
    return _write(program).text()


def show_functions(program: Program) -> str:
    """The functions in `show_program`, without its imports."""
    return "\n\n\n".join(_write(program).parts)


def show_bindings(program: Program) -> dict[str, Any]:
    """The values of the free names in `show_program`."""
    return {name: thing for thing, name in _write(program).bound.values()}


def show_lines(program: Program) -> list[str]:
    """One line for each equation, and the line that returns; regions by name only."""
    return _ProgramLines(_ProgramWriter(), program).lines()


def show_equation(program: Program, equation: Equation) -> str:
    """The equation's line in `show_program`."""
    return show_lines(program)[program.equations.index(equation)]


def _write(program: Program) -> _ProgramWriter:
    writer = _ProgramWriter()
    writer.program(program)
    return writer


class _ProgramWriter:
    """Collects the functions of a program and its regions; a region used twice is written once."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.imports: dict[str, None] = {}
        self.modules: set[str] = set()  # where the primitives are defined
        self.names: dict[int, str] = {}
        self.used: set[str] = set()
        self.bound: dict[int, tuple[Any, str]] = {}
        self.summaries: list[str] = []

    def text(self) -> str:
        """The whole source."""
        modules = ", ".join(sorted(self.modules - {"__main__"}))
        primitives = [f"import {modules}"] if modules else []
        head = [_HEADER, *self.imports, *primitives, *self.summaries]
        return "\n\n\n".join(["\n".join(head), *self.parts]) + "\n"

    def program(self, program: Program) -> str:
        """The name of a program, written after its regions."""
        known = self.names.get(id(program))
        if known is not None:
            return known
        body = _ProgramLines(self, program)
        lines = body.lines()
        name = self.names[id(program)] = self.fresh(program.name)
        decorator = "@program" if name == program.name else f"@program({program.name!r})"
        signature = f"def {name}({body.parameters()}):"
        self.parts.append("\n".join([decorator, signature, *(f"    {line}" for line in lines)]))
        return name

    def fresh(self, wish: str) -> str:
        """An identifier like `wish` that is not yet used."""
        base = "".join(c if c.isalnum() or c == "_" else "_" for c in wish) or "program"
        base = base if base.isidentifier() and base not in _RESERVED else f"{base}_"
        base = base if base.isidentifier() else f"_{base}"
        name, number = base, 0
        while name in self.used:
            number += 1
            name = f"{base}_{number}"
        self.used.add(name)
        return name

    def bind(self, thing: Any, wish: str, summary: str) -> str:
        """A free name that stands for an object."""
        known = self.bound.get(id(thing))
        if known is None:
            known = self.bound[id(thing)] = (thing, self.fresh(wish))
            self.summaries.append(f"# {known[1]}: {summary}")
        return known[1]

    # -------------------------------------------------------------- expressions
    def value(self, value: Any) -> str:
        """An expression for a parameter."""
        if isinstance(value, Program):
            return self.program(value)
        if isinstance(value, TensorType):
            return f'tensor("{value!r}")'
        if isinstance(value, np.dtype) or is_key(value):
            return f'dtype("{value.name}")'
        if isinstance(value, np.generic):
            return _scalar(np.asarray(value))
        if isinstance(value, np.ndarray):
            return self.array(value)
        if isinstance(value, Enum):
            return f"{self.importable(type(value))}.{value.name}"
        if isinstance(value, (bool, int, str, bytes)) or value is None or value is Ellipsis:
            return repr(value)
        if isinstance(value, (float, complex)):
            return _number(value)
        return self.compound(value)

    def compound(self, value: Any) -> str:
        """An expression for a tree of values, or a free name."""
        kind = type(value)
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return self.construct(kind, dict(zip(kind._fields, value, strict=True)))
        if isinstance(value, tuple):
            parts = [self.value(v) for v in value]
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        if isinstance(value, list):
            return f"[{', '.join(self.value(v) for v in value)}]"
        if isinstance(value, Mapping):
            return f"{{{', '.join(f'{self.value(k)}: {self.value(v)}' for k, v in value.items())}}}"
        if is_dataclass(value) and not isinstance(value, type) and "<locals>" not in kind.__qualname__:
            return self.construct(kind, {f.name: getattr(value, f.name) for f in fields(value) if f.init})
        return self.bind(value, getattr(value, "__name__", kind.__name__), kind.__name__)

    def construct(self, kind: type, arguments: Mapping[str, Any]) -> str:
        """A call of a class."""
        parts = ", ".join(f"{name}={self.value(v)}" for name, v in arguments.items())
        return f"{self.importable(kind)}({parts})"

    def importable(self, kind: type) -> str:
        """The name of a class of some module, imported in the header."""
        outer = kind.__qualname__.split(".")[0]
        self.imports[f"from {kind.__module__} import {outer}"] = None
        return kind.__qualname__

    def array(self, array: np.ndarray) -> str:
        """An array in full if it is small, otherwise a free name."""
        if array.size > _INLINE_ELEMENTS:
            return self.bind(array, "constant", _summary(array))
        if key_dtype_of(array.dtype) is not None:
            return _bytes_of(array)
        if array.ndim == 0:
            return _scalar(array)
        values = array.tolist()
        readable = _same(np.array(_read(values), array.dtype), array)
        return f'array({self.value(values)}, "{array.dtype.name}")' if readable else _bytes_of(array)


_RESERVED = frozenset(
    "False None True and as assert async await break class continue def del elif else except finally for from"
    " global if import in is lambda nonlocal not or pass raise return try while with yield"
    " array dtype inf nan ndarray ops program tensor weak".split()
) | {d.name for d in supported_dtypes}


class _ProgramLines:
    """One program as the lines of a function's body."""

    def __init__(self, writer: _ProgramWriter, program: Program) -> None:
        self.writer = writer
        self.program = program
        self.names: dict[Var, str] = {}
        for number, variable in enumerate(program.inputs):
            self.names[variable] = f"x{number}"
        for number, (variable, _) in enumerate(program.constants):
            self.names[variable] = f"c{number}"
        self.count = 0

    def parameters(self) -> str:
        """Inputs with their types; constants as keyword-only parameters with their values."""
        program = self.program
        parts = [f'{self.names[v]}: "{v.type!r}"' for v in program.inputs]
        if program.constants:
            parts.append("*")
        for variable, value in program.constants:
            array = value.numpy() if hasattr(value, "numpy") else np.asarray(value)
            if array.size > _INLINE_ELEMENTS:
                text = self.writer.bind(value, "constant", _summary(array))
            else:
                text = self.writer.array(array)
            parts.append(f'{self.names[variable]}: "{variable.type!r}" = {text}')
        return ", ".join(parts)

    def lines(self) -> list[str]:
        """A line for each equation, and the line that returns."""
        lines = [self.equation(e) for e in self.program.equations]
        outputs = [self.atom(a) for a in self.program.outputs]
        result = f"({', '.join(outputs)},)" if len(outputs) == 1 else f"({', '.join(outputs)})"
        return [*lines, f"return {result}"]

    def equation(self, equation: Equation) -> str:
        """results = ops.name(operands, parameters)  # types  origin."""
        self.writer.modules.add(type(equation.primitive).__module__)
        arguments = self.operands(equation)
        arguments += [f"{key}={self.writer.value(v)}" for key, v in equation.params.items()]
        call = f"ops.{equation.primitive.name}({', '.join(arguments)})"
        results = [self.define(v) for v in equation.outputs]
        if results:
            comma = "," if equation.primitive.multiple and len(results) == 1 else ""
            call = f"{', '.join(results)}{comma} = {call}"
        types = ", ".join(repr(v.type) for v in equation.outputs)
        return f"{call}  # {types}{_place(equation.origin)}"

    def define(self, variable: Var) -> str:
        """A name for a new variable."""
        name = self.names[variable] = f"v{self.count}"
        self.count += 1
        return name

    def atom(self, atom: Atom) -> str:
        """A name, or a literal's expression."""
        if not isinstance(atom, Literal):
            return self.names.get(atom, "undefined")
        if not isinstance(atom.value, np.ndarray) or atom.value.shape:
            return repr(atom)  # the verifier refuses it
        if atom.type.weak:
            return f'weak({_plain(atom.value)}, "{atom.type.dtype.name}")'
        return _scalar(atom.value)

    def operands(self, equation: Equation) -> list[str]:
        """Expressions of an equation's operands.

        A weak literal whose neighbours determine its dtype is a plain Python number.
        """
        atoms = equation.inputs
        plain = hasattr(equation.primitive, "result_dtype") and len({a.type.dtype for a in atoms}) == 1
        plain = plain and not all(isinstance(a, Literal) and a.type.weak for a in atoms)
        texts = []
        for a in atoms:
            short = isinstance(a, Literal) and a.type.weak and plain
            text = _plain(a.value) if short and isinstance(a, Literal) else self.atom(a)
            texts.append(text)
        return texts


def _place(origin: Origin | None) -> str:
    return f"  {short_name(origin.file)}:{origin.line}" if origin is not None else ""


# ------------------------------------------------------------------ numbers
def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def _number(value: complex) -> str:
    """A Python number; nan and inf are names of the header."""
    if isinstance(value, complex):
        return f"complex({_number(value.real)}, {_number(value.imag)})"
    return repr(value)


def _plain(value: np.ndarray) -> str:
    """A Python number that becomes `value` in its dtype, shortest first; its bytes if there is none."""
    number = value.item()
    if not isinstance(number, (float, complex)):
        return repr(number)
    short = _attempt(str(value), float) if isinstance(number, float) else None
    candidates: Sequence[complex] = [number] if short is None else [short, number]
    for candidate in candidates:
        if _same(np.asarray(_read(candidate), value.dtype), value):
            return _number(candidate)
    return _bytes_of(value)


def _read(number: Any) -> Any:
    """A number, or a list of numbers, as read back from its printed form: the bits of a NaN are lost."""
    if isinstance(number, list):
        return list(map(_read, number))
    if isinstance(number, complex):
        return complex(float(repr(number.real)), float(repr(number.imag)))
    return float(repr(number)) if isinstance(number, float) else number


def _attempt(text: str, function: Callable[[str], float]) -> float | None:
    try:
        return function(text)
    except ValueError:
        return None


def _scalar(value: np.ndarray) -> str:
    text = _plain(value)
    name = "bool_" if value.dtype.kind == "b" else value.dtype.name
    return text if text.startswith("ndarray(") else f"{name}({text})"


def _bytes_of(array: np.ndarray) -> str:
    content = np.ascontiguousarray(array).tobytes().hex()
    return f'ndarray({array.shape!r}, "{(key_dtype_of(array.dtype) or array.dtype).name}", "{content}")'


def _summary(array: np.ndarray) -> str:
    """Type and range of an array, for a comment."""
    text = repr(TensorType(array.shape, array.dtype))
    if array.dtype.kind in "biuf" and array.size:
        text += f", {array.min()} to {array.max()}"
    return text
