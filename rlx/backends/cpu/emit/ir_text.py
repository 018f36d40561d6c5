"""LLVM IR as text: values with Python operators, functions under construction, modules."""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

__all__ = [
    "ATTRIBUTES", "QUICK", "Code", "FunctionBody", "Module", "Value", "bit_width", "functions_text", "is_real",
    "literal", "vector",
]  # fmt: skip

# of every entry function
ATTRIBUTES = 'nounwind "prefer-vector-width"="512" "no-trapping-math"="true"'

# the first line of a module that is better compiled quickly than for the last few percent of its speed
QUICK = "; quick\n"

_WIDTHS = {"float": 32, "double": 64, "half": 16}


def is_real(kind: str) -> bool:
    """Whether an LLVM type is floating: a scalar, or a vector, as `<8 x float>`."""
    return kind in _WIDTHS or (kind[0] == "<" and _parts(kind)[1] in _WIDTHS)


@cache
def _parts(kind: str) -> tuple[int, str]:
    """The lanes of a vector type, and their type."""
    lanes, _, scalar = kind[1:-1].partition(" x ")
    return int(lanes), scalar


def vector(lanes: int, kind: str) -> str:
    """A vector type."""
    return f"<{lanes} x {kind}>"


def bit_width(kind: str) -> int:
    """Bits of an LLVM scalar type."""
    return _WIDTHS.get(kind) or int(kind[1:])


def literal(kind: str, number: float | int | bool) -> str:
    """A constant as IR: floats as the bits of a double, which LLVM reads exactly; in every lane of a vector."""
    if kind[0] == "<":
        lanes, scalar = _parts(kind)
        return f"<{', '.join([f'{scalar} {literal(scalar, number)}'] * lanes)}>"
    if not is_real(kind):
        return str(int(number))
    rounded = float(number)
    if kind == "float":
        rounded = _round_to_single(rounded)
    return "0x" + struct.pack(">d", rounded).hex().upper()


def _round_to_single(number: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


Number = float | int


class Value:
    """An SSA value. Operators need equal types; Python numbers become constants of the type.

    Arithmetic has no fast-math flags, so operations are not reordered.
    """

    __slots__ = ("code", "kind", "name")

    def __init__(self, code: Code, name: str, kind: str) -> None:
        self.code = code
        self.name = name
        self.kind = kind

    def lift(self, other: Value | Number) -> Value:
        """`other` as a value of this one's type."""
        return other if isinstance(other, Value) else self.code.constant(self.kind, other)

    def _binary(self, name: str, other: Value | Number) -> Value:
        return self.code.binary(name, self, self.lift(other))

    def _reflected(self, name: str, other: Number) -> Value:
        return self.code.binary(name, self.lift(other), self)

    def __add__(self, other: Value | Number) -> Value:
        return self._binary("add", other)

    def __radd__(self, other: Number) -> Value:
        return self._reflected("add", other)

    def __sub__(self, other: Value | Number) -> Value:
        return self._binary("sub", other)

    def __rsub__(self, other: Number) -> Value:
        return self._reflected("sub", other)

    def __mul__(self, other: Value | Number) -> Value:
        return self._binary("mul", other)

    def __rmul__(self, other: Number) -> Value:
        return self._reflected("mul", other)

    def __truediv__(self, other: Value | Number) -> Value:
        return self._binary("div", other)

    def __rtruediv__(self, other: Number) -> Value:
        return self._reflected("div", other)

    def __and__(self, other: Value | Number) -> Value:
        return self._binary("and", other)

    def __or__(self, other: Value | Number) -> Value:
        return self._binary("or", other)

    def __xor__(self, other: Value | Number) -> Value:
        return self._binary("xor", other)

    def __invert__(self) -> Value:
        return self ^ -1

    def __lshift__(self, other: Value | Number) -> Value:
        return self._binary("shl", other)

    def __rshift__(self, other: Value | Number) -> Value:
        """Logical shift; see `arithmetic_shift`."""
        return self._binary("lshr", other)

    def arithmetic_shift(self, other: Value | Number) -> Value:
        """Shift right that keeps the sign."""
        return self._binary("ashr", other)

    def __neg__(self) -> Value:
        if is_real(self.kind):
            return self.code.emit(self.kind, f"fneg {self.kind} {self.name}")
        return self._reflected("sub", 0)

    def __abs__(self) -> Value:
        return self.code.intrinsic("fabs", self)

    def compare(self, condition: str, other: Value | Number) -> Value:
        """`fcmp` or `icmp` with LLVM's name of the condition."""
        command = "fcmp" if is_real(self.kind) else "icmp"
        right = self.lift(other).name
        result = vector(_parts(self.kind)[0], "i1") if self.kind[0] == "<" else "i1"
        return self.code.emit(result, f"{command} {condition} {self.kind} {self.name}, {right}")

    def _ordered(self, condition: str, other: Value | Number) -> Value:
        prefix = "o" if is_real(self.kind) else "s"
        return self.compare(prefix + condition, other)

    def __lt__(self, other: Value | Number) -> Value:
        return self._ordered("lt", other)

    def __le__(self, other: Value | Number) -> Value:
        return self._ordered("le", other)

    def __gt__(self, other: Value | Number) -> Value:
        return self._ordered("gt", other)

    def __ge__(self, other: Value | Number) -> Value:
        return self._ordered("ge", other)

    def equal(self, other: Value | Number) -> Value:
        """Ordered equality."""
        return self.compare("oeq" if is_real(self.kind) else "eq", other)

    def not_equal(self, other: Value | Number) -> Value:
        """Not `equal`: true for NaN."""
        return self.compare("une" if is_real(self.kind) else "ne", other)

    def is_nan(self) -> Value:
        """Whether the float is NaN."""
        return self.compare("uno", 0.0)

    def where(self, yes: Value | Number, no: Value | Number) -> Value:
        """Select by this i1, or by lane; at least one case is a Value."""
        model = yes if isinstance(yes, Value) else no
        assert isinstance(model, Value)
        first, second = model.lift(yes), model.lift(no)
        kind = first.kind
        text = f"select {self.kind} {self.name}, {kind} {first.name}, {kind} {second.name}"
        return self.code.emit(kind, text)

    def fma(self, factor: Value | Number, term: Value | Number) -> Value:
        """self * factor + term, rounded once."""
        return self.code.intrinsic("fma", self, self.lift(factor), self.lift(term))

    def call(self, name: str, *others: Value) -> Value:
        """An LLVM intrinsic overloaded on the type of its result and arguments."""
        return self.code.intrinsic(name, self, *others)

    def convert(self, command: str, kind: str) -> Value:
        """A conversion instruction such as `fptosi`; nothing if the types are equal."""
        if kind == self.kind:
            return self
        return self.code.emit(kind, f"{command} {self.kind} {self.name} to {kind}")

    def splat(self, lanes: int) -> Value:
        """A scalar in every lane of a vector."""
        kind = vector(lanes, self.kind)
        one = self.code.emit(kind, f"insertelement {kind} poison, {self.kind} {self.name}, i64 0")
        return one.shuffled((0,) * lanes)

    def shuffled(self, order: Sequence[int], other: Value | None = None) -> Value:
        """The lanes of a vector, and after them those of another one, in an order."""
        mask, second = ", ".join(f"i32 {lane}" for lane in order), other.name if other else "poison"
        kind = vector(len(order), _parts(self.kind)[1])
        given = f"{self.kind} {self.name}, {self.kind} {second}"
        return self.code.emit(kind, f"shufflevector {given}, <{len(order)} x i32> <{mask}>")

    def bits(self) -> Value:
        """A float's bits as an integer."""
        return self.convert("bitcast", f"i{bit_width(self.kind)}")

    def as_float(self) -> Value:
        """An integer's bits as a float."""
        return self.convert(
            "bitcast", {16: "half", 32: "float", 64: "double"}[bit_width(self.kind)]
        )


class Module:
    """Declarations and internal functions that a text needs besides its entry.

    scalar: the code is not for vectors: functions that are separate for the sake of vectors are inlined.
    """

    def __init__(self, scalar: bool = False) -> None:
        self.scalar = scalar
        self.declarations: dict[str, str] = {}
        self.definitions: dict[str, str] = {}
        self.retained: set[str] = set()  # found by LLVM through attributes only
        self.apart: set[str] = set()  # not inlined in vector code

    def declare(self, name: str, result: str, arguments: Sequence[str], suffix: str = "") -> None:
        """Declare an external function or intrinsic once."""
        text = f"declare {result} @{name}({', '.join(arguments)}){suffix}"
        self.declarations[name] = text

    def define(self, name: str, code: Code, parameters: str, result: Value | None = None) -> None:
        """Add a function that other code can call."""
        kind, end = ("void", "ret void") if result is None else (result.kind, f"ret {result.kind} {result.name}")
        self.definitions[name] = f"define {kind} @{name}({parameters}) {ATTRIBUTES} {{\n{code.text()}\n  {end}\n}}"

    def include(self, other: Module) -> None:
        """Take over everything of another module."""
        self.declarations.update(other.declarations)
        self.definitions.update(other.definitions)
        self.retained |= other.retained
        self.apart |= other.apart

    def text(self) -> str:
        """All definitions and declarations."""
        declared = (t for n, t in self.declarations.items() if n not in self.definitions)
        if not self.scalar:
            return "\n".join((*self.definitions.values(), *declared, self._retention()))
        inlined = {n: self.definitions[n].replace("noinline", "alwaysinline", 1) for n in self.apart}
        return "\n".join((*(self.definitions | inlined).values(), *declared))

    def _retention(self) -> str:
        if not self.retained:
            return ""
        listed = ", ".join(f"ptr @{name}" for name in sorted(self.retained))
        kind = f"[{len(self.retained)} x ptr]"
        return f'@llvm.compiler.used = appending global {kind} [{listed}], section "llvm.metadata"'


@cache
def _function_module(name: str, body: Any, kinds: tuple[str, ...]) -> tuple[str, Module]:
    module = Module()
    code = Code(module)
    arguments = [Value(code, f"%a{n}", kind) for n, kind in enumerate(kinds)]
    result = body(*arguments)
    parameters = ", ".join(f"{v.kind} {v.name}" for v in arguments)
    module.definitions[name] = (
        f"define internal {result.kind} @{name}({parameters}) alwaysinline nounwind {{\n"
        f"{code.text()}\n  ret {result.kind} {result.name}\n}}"
    )
    return result.kind, module


class Code:
    """The text of one function under construction."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.lines: list[str] = []
        self.slots: list[str] = []
        self.block = "entry"
        self._count = 0

    def text(self) -> str:
        """The body: entry block first, stack slots at its head."""
        return "\n".join(("entry:", *self.slots, *self.lines))

    def fresh(self, prefix: str = "%v") -> str:
        """A name not used before in this function."""
        self._count += 1
        return f"{prefix}{self._count}"

    def line(self, text: str) -> None:
        """Append an instruction without a result."""
        self.lines.append("  " + text)

    def emit(self, kind: str, text: str) -> Value:
        """Append an instruction with a result."""
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return Value(self, name, kind)

    def constant(self, kind: str, number: Number) -> Value:
        """A constant operand."""
        return Value(self, literal(kind, number), kind)

    def binary(self, name: str, left: Value, right: Value, flags: str = "") -> Value:
        """Arithmetic by its integer name; `flags` in LLVM's syntax."""
        command = "f" + name if is_real(left.kind) else name
        command = {"fand": "and", "for": "or", "fxor": "xor", "div": "sdiv"}.get(command, command)
        flag = f" {flags}" if flags else ""
        return self.emit(left.kind, f"{command}{flag} {left.kind} {left.name}, {right.name}")

    def intrinsic(self, name: str, *arguments: Value, flags: str = "") -> Value:
        """Call `llvm.<name>` overloaded on the first argument's type."""
        kind = arguments[0].kind
        lanes, scalar = _parts(kind) if kind[0] == "<" else (0, kind)
        suffix = {"float": "f32", "double": "f64", "half": "f16"}.get(scalar, scalar)
        suffix = f"v{lanes}{suffix}" if lanes else suffix
        return self.call(f"llvm.{name}.{suffix}", kind, *arguments, flags=flags)

    def call(
        self, name: str, kind: str, *arguments: Value, flags: str = "", attributes: str = ""
    ) -> Value:
        """Call a function that the module defines or declares."""
        kinds = [v.kind for v in arguments]
        if name not in self.module.definitions:
            self.module.declare(name, kind, kinds)
        passed = ", ".join(f"{v.kind} {v.name}" for v in arguments)
        flag = f" {flags}" if flags else ""
        return self.emit(kind, f"call{flag} {kind} @{name}({passed}){attributes}")

    def function(self, body: Any, *arguments: Value) -> Value:
        """Call a Python-written function of values, emitted once per module and inlined by LLVM."""
        kinds = tuple(v.kind for v in arguments)
        name = f"{body.__name__}_{'_'.join(kinds)}"
        kind, module = _function_module(name, body, kinds)
        self.module.include(module)
        return self.call(name, kind, *arguments)

    def stack_slot(self, kind: str) -> str:
        """A scalar stack slot, which LLVM promotes to a register."""
        name = self.fresh("%slot")
        self.slots.append(f"  {name} = alloca {kind}")
        return name

    def load(self, kind: str, pointer: str, metadata: str = "") -> Value:
        """Load a scalar, naturally aligned."""
        return self.emit(kind, f"load {kind}, ptr {pointer}{metadata}")

    def store(self, value: Value, pointer: str, metadata: str = "") -> None:
        """Store a scalar, naturally aligned."""
        self.line(f"store {value.kind} {value.name}, ptr {pointer}{metadata}")

    def element(self, kind: str, pointer: str, index: Value | int) -> str:
        """The address of an array element."""
        shown = index.name if isinstance(index, Value) else str(index)
        if shown == "0":
            return pointer
        return self.emit("ptr", f"getelementptr inbounds {kind}, ptr {pointer}, i64 {shown}").name

    def start_block(self, label: str) -> None:
        """End the current block with a jump to a new one, and continue there."""
        self.line(f"br label %{label}")
        self.enter_block(label)

    def enter_block(self, label: str) -> None:
        """Continue in a block that others jump to."""
        self.lines.append(f"{label}:")
        self.block = label

    @contextmanager
    def loop(self, lower: Value, upper: Value) -> Generator[Value]:
        """Count from `lower` (included) to `upper` (excluded)."""
        number = self.fresh("")
        before, head, latch = self.block, f"head{number}", f"latch{number}"
        index = Value(self, f"%index{number}", "i64")
        self.start_block(head)
        self.line(
            f"{index.name} = phi i64 [ {lower.name}, %{before} ], [ %next{number}, %{latch} ]"
        )
        inside = index < upper
        self.line(f"br i1 {inside.name}, label %body{number}, label %done{number}")
        self.enter_block(f"body{number}")
        yield index
        self.start_block(latch)
        self.line(f"%next{number} = add nuw nsw i64 {index.name}, 1")
        self.line(f"br label %{head}")
        self.enter_block(f"done{number}")

    @contextmanager
    def loop_while(self, condition: Callable[[], Value]) -> Generator[None]:
        """Repeat code as long as a condition holds, which is computed before each iteration."""
        number = self.fresh("")
        self.start_block(f"head{number}")
        self.line(f"br i1 {condition().name}, label %body{number}, label %done{number}")
        self.enter_block(f"body{number}")
        yield
        self.line(f"br label %head{number}")
        self.enter_block(f"done{number}")

    @contextmanager
    def when(self, condition: Value) -> Generator[None]:
        """Run code emitted inside only if `condition` holds."""
        number = self.fresh("")
        self.line(f"br i1 {condition.name}, label %then{number}, label %join{number}")
        self.enter_block(f"then{number}")
        yield
        self.start_block(f"join{number}")


_Target = TypeVar("_Target")
# the body of a function, given its addresses and its words, and how many there are
FunctionBody = tuple[Callable[[_Target, list[str], list[Value]], Value | None], int, int]


def functions_text(
    bodies: Mapping[str, FunctionBody[_Target]], target: Callable[[Code], _Target], pointer: str = "ptr"
) -> str:
    """The IR of functions of addresses and words, by name; `target`: what bodies write a function's code with."""
    module = Module()
    for name, (body, pointers, numbers) in bodies.items():
        code = Code(module)
        given = [f"%p{n}" for n in range(pointers)]
        words = [Value(code, f"%w{n}", "i64") for n in range(numbers)]
        result = body(target(code), given, words)
        parameters = [*(f"{pointer} {p}" for p in given), *(f"i64 {w.name}" for w in words)]
        module.define(name, code, ", ".join(parameters), result)
    return module.text() + "\n"
