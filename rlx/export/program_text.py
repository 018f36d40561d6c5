"""Printed programs from strangers: read, never run.

`rlx.trace.text` gives a printed program its meaning as Python, by `exec`. Here the same text is a data format: its
syntax tree is walked, and only the vocabulary of printed programs is accepted. Sizes may be expressions of
names, whose values the caller gives: one text for all sizes of a batch.
"""

from __future__ import annotations

import ast
import importlib
import operator
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from inspect import Signature, signature
from math import inf, nan
from typing import Any

import numpy as np

from rlx.array import ConcreteArray, array_of_type, is_concrete
from rlx.errors import RlxError
from rlx.ir.program import Origin, Program
from rlx.ir.types import TensorType
from rlx.trace import text as vocabulary
from rlx.trace.builder import Builder
from rlx.trace.primitive import Primitive, registry

__all__ = ["Unreadable", "evaluate_number", "evaluate_size", "read_program"]

MOST_CHARACTERS = 1 << 28
LARGEST_SIZE = 1 << 62
_HOUSE = re.compile(r"rlx(\.[A-Za-z]\w*)+")


class Unreadable(Exception):
    """The reason why a text is not a printed program."""


def read_program(text: str, constants: Mapping[str, Any], sizes: Mapping[str, int] | None = None) -> Program:
    """The program that `rlx.ir.show.show_program` printed, or Unreadable.

    Args:
      constants: arrays that the text names and does not contain.
      sizes: values of the names in its sizes.
    """
    if len(text) > MOST_CHARACTERS:
        raise Unreadable(f"it takes {len(text)} characters")
    failure: Exception | None = None
    try:
        tree = ast.parse(text)
        return _ProgramReader(constants, sizes or {}).module(tree)
    except _REFUSALS as error:
        failure = error
    raise Unreadable(_reason(failure))


# exceptions of type rules for invalid parameters, and of Python for invalid text
_REFUSALS = (
    Unreadable, RlxError, RecursionError, MemoryError, SyntaxError, ValueError, TypeError, LookupError, AttributeError,
    ArithmeticError, AssertionError,
)  # fmt: skip


def _reason(failure: Exception) -> str:
    if isinstance(failure, RlxError):
        return failure.what
    if isinstance(failure, RecursionError):
        return "it is nested too deeply"
    if isinstance(failure, (Unreadable, MemoryError, SyntaxError, ValueError)):
        return str(failure)
    return f"an operation has parameters that it does not understand ({type(failure).__name__}: {failure})"


def evaluate_size(text: str, sizes: Mapping[str, int]) -> int:
    """The value of an expression of sizes: `2*b + 1`. Raises Unreadable for anything else."""
    return _size(_expression(text), sizes)


def evaluate_number(text: str, sizes: Mapping[str, int]) -> int | float:
    """The value of an expression of sizes and numbers: `1.0 / (2*b)`. Raises Unreadable for anything else."""
    return _arithmetic(_expression(text), sizes)


def _expression(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        reason = f"{text!r:.80} is not an expression of sizes"
    raise Unreadable(reason)


_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Div: operator.truediv,
}


def _size(node: ast.expr, sizes: Mapping[str, int]) -> int:
    found = _arithmetic(node, sizes)
    if type(found) is not int:
        raise Unreadable(f"{ast.unparse(node):.80} is not a size")
    return found


def _arithmetic(node: ast.expr, sizes: Mapping[str, int]) -> int | float:
    """A number, a size's name, or an expression of these with +, -, *, /, // and %."""
    match node:
        case ast.Constant(value=value) if type(value) in (int, float):
            found: Any = value
        case ast.Name(id=name) if name in sizes:
            found = sizes[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            found = -_arithmetic(operand, sizes)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            found = _ARITHMETIC[type(op)](_arithmetic(left, sizes), _arithmetic(right, sizes))
        case _:
            raise Unreadable(f"{ast.unparse(node):.80} is not a number")
    if type(found) is int and abs(found) > LARGEST_SIZE and not isinstance(node, ast.Constant):
        raise Unreadable(f"{ast.unparse(node):.80} is {found}")
    return found


class _ProgramReader:
    """The functions of a text, one after the other."""

    def __init__(self, constants: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
        self.constants = constants
        self.sizes = sizes
        self.programs: dict[str, Program] = {}
        self.classes: dict[str, type] = {}

    def module(self, tree: ast.Module) -> Program:
        """The last program of a text, which calls the others."""
        for node in tree.body:
            match node:
                case ast.ImportFrom(module=str(module), names=names, level=0):
                    self.import_from(module, [n.name for n in names])
                case ast.Import(names=names):
                    for name in names:
                        _load_operations(name.name)
                case ast.FunctionDef():
                    self.programs[node.name] = self.function(node)
                case _:
                    raise Unreadable(f"line {node.lineno} is not a program")
        if not self.programs:
            raise Unreadable("it contains no program")
        return next(reversed(self.programs.values()))

    def import_from(self, module: str, names: Sequence[str]) -> None:
        """Classes of parameters: records and enumerations of rlx's own modules."""
        if module == vocabulary.__name__:
            return
        for name in names:
            found: Any = getattr(_load_operations(module), name, None)
            if not _is_record(found) or found.__module__ != module:
                raise Unreadable(f"{module}.{name} is not a class of parameters")
            self.classes[name] = found

    def function(self, node: ast.FunctionDef) -> Program:
        """The program of one function."""
        name = self.title(node)
        arguments = node.args
        if arguments.posonlyargs or arguments.vararg or arguments.kwarg or arguments.defaults:
            raise Unreadable(f"the function {node.name} has other parameters than programs have")
        with Builder(name) as builder:
            builder.at(Origin("<program>", node.lineno, name))
            values = {a.arg: builder.input(self.annotation(a)) for a in arguments.args}
            count = len(builder.inputs)
            held = {}
            for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
                held[argument.arg] = self.constant(default, self.annotation(argument))
                values[argument.arg] = builder.input(held[argument.arg].type)
            recorded, captured = builder.close(self.body(node.body, values))
        if captured:
            raise Unreadable(f"the function {node.name} uses arrays that are not its constants")
        pairs = zip(recorded.inputs[count:], held.values(), strict=True)
        return recorded.replace(inputs=recorded.inputs[:count], constants=pairs)

    def title(self, node: ast.FunctionDef) -> str:
        """The name of a program: from its decorator, or from its function."""
        match node.decorator_list:
            case [ast.Name(id="program")]:
                return node.name
            case [ast.Call(func=ast.Name(id="program"), args=[ast.Constant(value=str(name))], keywords=[])]:
                return name
        raise Unreadable(f"the function {node.name} is not a program")

    def annotation(self, argument: ast.arg) -> TensorType:
        """The type of a parameter."""
        match argument.annotation:
            case ast.Constant(value=str(text)):
                return self.tensor(text)
        raise Unreadable(f"the parameter {argument.arg} has no type")

    def tensor(self, text: str) -> TensorType:
        """The type of an annotation, with its sizes evaluated."""
        head, bracket, inside = text.partition("[")
        if bracket and self.sizes:
            sizes = [str(evaluate_size(part, self.sizes)) for part in inside.removesuffix("]").split(",") if part]
            text = f"{head}[{','.join(sizes)}]"
        return vocabulary.tensor(text)

    def constant(self, default: ast.expr | None, type: TensorType) -> ConcreteArray:
        """The value of a constant, which has to be of its type."""
        if default is None:
            raise Unreadable("a constant has no value")
        value = self.value(default, {})
        array = value if is_concrete(value) else array_of_type(np.asarray(value), type)
        if array.type.strong() is not type.strong():
            raise Unreadable(f"a constant is {array.type!r} instead of {type!r}")
        return array

    def body(self, statements: Sequence[ast.stmt], values: dict[str, Any]) -> tuple[Any, ...]:
        """Record the equations of a function, and return its results."""
        for node in statements:
            match node:
                case ast.Return(value=ast.Tuple(elts=elements)):
                    return tuple(self.operand(e, values) for e in elements)
                case ast.Assign(targets=[target], value=ast.Call() as call):
                    self.define(target, self.equation(call, values), values)
                case ast.Expr(value=ast.Call() as call):
                    self.equation(call, values)
                case _:
                    raise Unreadable(f"line {node.lineno} is not an equation")
        raise Unreadable("a program returns nothing")

    def define(self, target: ast.expr, result: Any, values: dict[str, Any]) -> None:
        """Names for an equation's results."""
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        results = result if isinstance(target, ast.Tuple) else [result]
        if not isinstance(results, (tuple, list)) or len(names) != len(results):
            raise Unreadable(f"line {target.lineno} gives {len(names)} names to other results")
        for name, value in zip(names, results, strict=True):
            if not isinstance(name, ast.Name) or isinstance(value, tuple):
                raise Unreadable(f"line {target.lineno} defines no variable")
            values[name.id] = value

    def equation(self, call: ast.Call, values: dict[str, Any]) -> Any:
        """results of ops.name(operands, parameters)."""
        match call.func:
            case ast.Attribute(value=ast.Name(id="ops"), attr=name):
                pass
            case _:
                raise Unreadable(f"line {call.lineno} calls something else than an operation")
        if name not in registry:
            raise Unreadable(
                f"it has the operation {name!r}, which is not defined here (first import the module of yours that"
                " defines it; an operation of a newer rlx needs that version)"
            )
        operands = [self.operand(a, values) for a in call.args]
        params: dict[str, Any] = {}
        for keyword in call.keywords:
            if keyword.arg is None:
                raise Unreadable(f"line {call.lineno} spreads parameters")
            params[keyword.arg] = self.value(keyword.value, {})
        primitive = registry[name]
        _signature(primitive).bind(*operands, **params)
        return primitive.bind(*operands, **params)

    def operand(self, node: ast.expr, values: Mapping[str, Any]) -> Any:
        """A variable, or a literal."""
        if isinstance(node, ast.Name) and node.id in values:
            return values[node.id]
        found = self.value(node, values)
        if not (is_concrete(found) or isinstance(found, (bool, int, float, complex, np.ndarray))):
            raise Unreadable(f"{ast.unparse(node):.80} is not an operand")
        return found

    def value(self, node: ast.expr, values: Mapping[str, Any]) -> Any:
        """The value of an expression of the vocabulary."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Tuple(elts=elements):
                return tuple([self.value(e, values) for e in elements])
            case ast.List(elts=elements):
                return [self.value(e, values) for e in elements]
            case ast.Dict(keys=keys, values=items) if None not in keys:
                return {self.value(k, values): self.value(v, values) for k, v in zip(keys, items, strict=True) if k}
            case ast.Name(id=name):
                return self.named(name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                found = self.value(operand, values)
                if isinstance(found, (int, float, complex)):
                    return -found
            case ast.BinOp():
                return _arithmetic(node, self.sizes)
            case ast.Attribute(value=ast.Name(id=name), attr=member) if name in self.classes:
                kind = self.classes[name]
                if issubclass(kind, Enum) and member in kind.__members__:
                    return kind[member]
            case ast.Call(func=ast.Name(id=name)):
                return self.call(name, node, values)
        raise Unreadable(f"{ast.unparse(node):.80} has no meaning in a program")

    def named(self, name: str) -> Any:
        """The value of a name: a size, a program, a constant, nan or inf."""
        known: Mapping[str, Any] = {"nan": nan, "inf": inf}
        for scope in (self.sizes, self.programs, self.constants, known):
            if name in scope:
                return scope[name]
        raise Unreadable(f"it uses the name {name!r}, which is not defined")

    def call(self, name: str, node: ast.Call, values: Mapping[str, Any]) -> Any:
        """A number of a dtype, an array, a type, a record of parameters."""
        arguments = [self.value(a, values) for a in node.args]
        keywords = {k.arg: self.value(k.value, values) for k in node.keywords if k.arg is not None}
        if name in self.classes and not issubclass(self.classes[name], Enum):
            return self.classes[name](*arguments, **keywords)
        if name == "complex" and len(arguments) == 2:
            return complex(*arguments)
        if name == "tensor" and len(arguments) == 1 and isinstance(arguments[0], str):
            return self.tensor(arguments[0])
        if name in _CALLED and not keywords:
            return getattr(vocabulary, name)(*arguments)
        raise Unreadable(f"{name!r:.80} is not called in a program")


def _is_record(kind: Any) -> bool:
    """Whether something is a class of parameters: a dataclass, a named tuple, an enumeration."""
    named_tuple = isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")
    return isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, Enum) or named_tuple)


# of the vocabulary's functions those that make numbers and arrays
_CALLED = frozenset(vocabulary.__all__) - {"inf", "nan", "ops", "program", "tensor"}


@cache
def _signature(primitive: Primitive) -> Signature:
    """The number of operands and the parameters of a primitive: type rules of families take any."""
    scalar = getattr(primitive, "scalar", None)
    if scalar is None:
        return signature(primitive.reference)
    found = signature(scalar)
    return found.replace(parameters=list(found.parameters.values())[1:])


def _load_operations(module: str) -> Any:
    """A module of rlx that defines primitives or records; a foreign module only if it has been imported."""
    if _HOUSE.fullmatch(module) and module.split(".")[1] in ("ops", "ir", "transforms", "trace", "lax"):
        try:
            return importlib.import_module(module)
        except ImportError:
            found = None
    else:
        found = sys.modules.get(module)
    if found is None:
        raise Unreadable(f"it has operations of the module {module!r:.80}, which is not imported here")
    return found
