"""Native code from a small subset of Python: every value is a 64-bit word, a number or an address.

The run-time system (executor, thread pool, entry) is written in it. `w[n]` reads or writes the
n-th word after address `w`; statements are assignment, while, for over range, if, break, continue
and return; calls go to other native functions, C functions, addresses and the operations below.
`//` and `%` truncate. It never runs as Python: native_compiler.module_text translates it to LLVM IR.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

__all__ = [
    "External",
    "NativeFunction",
    "Operation",
    "NativeSignature",
    "Word",
    "address_of",
    "atomic_add",
    "atomic_load",
    "atomic_store",
    "clear_bytes",
    "compare_exchange",
    "copy_bytes",
    "external",
    "in_scope",
    "load_byte",
    "load_int32",
    "maximum",
    "minimum",
    "native",
    "pointer_operation",
    "relax_operation",
    "stack",
    "stack_of",
]


class Word(int):
    """The static type of native values; only for annotations."""

    def __getitem__(self, index: int) -> Word:
        raise NotImplementedError

    def __setitem__(self, index: int, value: int) -> None:
        raise NotImplementedError

    def __add__(self, other: int) -> Word:
        raise NotImplementedError

    def __sub__(self, other: int) -> Word:
        raise NotImplementedError

    def __mul__(self, other: int) -> Word:
        raise NotImplementedError

    def __and__(self, other: int) -> Word:
        raise NotImplementedError

    def __floordiv__(self, other: int) -> Word:
        raise NotImplementedError

    def __mod__(self, other: int) -> Word:
        raise NotImplementedError


@dataclass(frozen=True)
class NativeSignature:
    """The C type of a function; called as `signature(address, *arguments)`."""

    result: str
    parameters: tuple[str, ...]

    def __call__(self, address: int, *arguments: int) -> Word:
        raise NotImplementedError

    @property
    def text(self) -> str:
        """The function type in LLVM's syntax."""
        return f"{self.result} ({', '.join(self.parameters)})"


@dataclass(frozen=True)
class External:
    """A C function that the process has under `name`."""

    name: str
    signature: NativeSignature

    def __call__(self, *arguments: int) -> Word:
        raise NotImplementedError


@dataclass(frozen=True)
class Operation:
    """A primitive operation on words; `template` is IR with the arguments {0}, {1}, ..., the
    {result}, and fresh names {a}, {b}, {c}."""

    template: str
    declaration: str = ""

    def __call__(self, *arguments: Any) -> Word:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class NativeFunction:
    """A function to be compiled to native code; callable only from other native functions.

    scope: the meaning of the names that are not its own.
    """

    name: str
    function: FunctionType
    scope: Mapping[str, Any]

    def __call__(self, *arguments: int) -> Word:
        raise NotImplementedError


def native(function: FunctionType) -> NativeFunction:
    """Mark a function as native code."""
    return NativeFunction(function.__name__, function, function.__globals__)


def in_scope(functions: Sequence[NativeFunction], names: Mapping[str, Any]) -> tuple[NativeFunction, ...]:
    """The functions, which call one another, with other meanings of some names."""
    scope = {**functions[0].scope, **names}
    made = tuple(NativeFunction(function.name, function.function, scope) for function in functions)
    scope |= {function.name: function for function in made}
    return made


def external(name: str, result: str, *parameters: str) -> External:
    """Declare a C function, with types among i32, i64, float, double, ptr and void."""
    return External(name, NativeSignature(result, parameters))


def pointer_operation(template: str, declaration: str = "") -> Operation:
    """An operation on an address, which its template finds as the pointer {a}."""
    return Operation("{a} = inttoptr i64 {0} to ptr\n" + template, declaration)


load_int32 = pointer_operation("{b} = load i32, ptr {a}\n{result} = sext i32 {b} to i64")
load_byte = pointer_operation("{b} = load i8, ptr {a}\n{result} = zext i8 {b} to i64")
atomic_load = pointer_operation("{result} = load atomic i64, ptr {a} seq_cst, align 8")
atomic_store = pointer_operation("store atomic i64 {1}, ptr {a} seq_cst, align 8\n{result} = add i64 0, 0")
atomic_add = pointer_operation("{result} = atomicrmw add ptr {a}, i64 {1} seq_cst")
compare_exchange = pointer_operation(
    "{b} = cmpxchg ptr {a}, i64 {1}, i64 {2} seq_cst seq_cst\n"
    "{c} = extractvalue {{ i64, i1 }} {b}, 1\n{result} = zext i1 {c} to i64"
)
copy_bytes = pointer_operation(
    "{b} = inttoptr i64 {1} to ptr\n"
    "call void @llvm.memcpy.p0.p0.i64(ptr {a}, ptr {b}, i64 {2}, i1 false)\n"
    "{result} = add i64 0, 0",
    "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
)
clear_bytes = pointer_operation(
    "call void @llvm.memset.p0.i64(ptr {a}, i8 0, i64 {1}, i1 false)\n{result} = add i64 0, 0",
    "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
)
minimum = Operation("{result} = call i64 @llvm.smin.i64(i64 {0}, i64 {1})", "declare i64 @llvm.smin.i64(i64, i64)")
maximum = Operation("{result} = call i64 @llvm.smax.i64(i64 {0}, i64 {1})", "declare i64 @llvm.smax.i64(i64, i64)")


def relax_operation(machine: str) -> Operation:
    """The hint that a spinning loop gives to the processor."""
    if machine in ("x86_64", "AMD64"):
        call, declaration = "@llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()"
    elif machine in ("aarch64", "arm64", "ARM64"):
        call, declaration = "@llvm.aarch64.hint(i32 1)", "declare void @llvm.aarch64.hint(i32)"
    else:
        return Operation("{result} = add i64 0, 0")
    return Operation(f"call void {call}\n{{result}} = add i64 0, 0", declaration)


def address_of(function: NativeFunction) -> Word:
    """The address of a native function (generated by the compiler)."""
    raise NotImplementedError


def stack(words: int) -> Word:
    """The address of `words` uninitialised words that live until the function returns."""
    raise NotImplementedError


def stack_of(*words: int) -> Word:
    """The address of these words, which live until the function returns."""
    raise NotImplementedError
