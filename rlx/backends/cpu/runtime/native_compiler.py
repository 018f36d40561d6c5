"""Native functions (see native.py) to LLVM IR."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Sequence

from rlx.backends.cpu.emit.ir_text import Code, Module, Value
from rlx.backends.cpu.runtime.native import (
    External,
    NativeFunction,
    NativeSignature,
    Operation,
    address_of,
    stack,
    stack_of,
)

__all__ = ["filler_text", "module_text"]

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "sdiv",
    ast.Mod: "srem",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.LShift: "shl",
    ast.RShift: "ashr",
}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "slt",
    ast.LtE: "sle",
    ast.Gt: "sgt",
    ast.GtE: "sge",
}

_CONVERSIONS = {"i32": "trunc", "ptr": "inttoptr", "float": "sitofp", "double": "sitofp"}


class _NativeModule:
    """Functions found so far, in the order they were met, and the declarations they need."""

    def __init__(self) -> None:
        self.functions: dict[str, NativeFunction] = {}
        self.pending: list[NativeFunction] = []
        self.declarations: dict[str, None] = {}

    def require(self, function: NativeFunction) -> str:
        known = self.functions.get(function.name)
        if known is None:
            self.functions[function.name] = function
            self.pending.append(function)
        elif known is not function:
            raise ValueError(f"two native functions are called {function.name!r}")
        return function.name


class _FunctionCompiler:
    """One function: statements to basic blocks; variables are stack slots that LLVM promotes."""

    def __init__(self, module: _NativeModule, function: NativeFunction) -> None:
        self.module = module
        self.name = function.name
        self.scope = function.scope
        definition = ast.parse(textwrap.dedent(inspect.getsource(function.function))).body[0]
        if not isinstance(definition, ast.FunctionDef):
            raise TypeError(f"{self.name} is not a plain function")
        self.definition = definition
        self.code = Code(Module())
        self.variables: dict[str, str] = {}
        self.loops: list[tuple[str, str]] = []

    def text(self, exported: bool) -> str:
        parameters = [argument.arg for argument in self.definition.args.args]
        for name in parameters:
            self.code.store(Value(self.code, f"%argument.{name}", "i64"), self.variable(name))
        self.statements(self.definition.body)
        given = ", ".join(f"i64 %argument.{name}" for name in parameters)
        linkage = "" if exported else "internal "
        head = f"define {linkage}i64 @{self.name}({given}) uwtable {{"
        return f"{head}\n{self.code.text()}\n  ret i64 0\n}}"

    def word(self, number: int) -> Value:
        return self.code.constant("i64", number)

    def labels(self, count: int) -> list[str]:
        return [self.code.fresh("block") for _ in range(count)]

    def leave(self, instruction: str) -> None:
        """The last instruction of a block; what follows is not reached."""
        self.code.line(instruction)
        self.code.enter_block(*self.labels(1))

    def variable(self, name: str) -> str:
        if name not in self.variables:
            self.variables[name] = self.code.stack_slot("i64")
        return self.variables[name]

    def refuse(self, node: ast.AST) -> TypeError:
        return TypeError(f"{self.name}: native code has no {ast.unparse(node)!r}")

    # ------------------------------------------------------------- statements
    def statements(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Pass() | ast.Expr(ast.Constant()):
                pass
            case ast.Expr(value):
                self.value(value)
            case ast.Assign([target], value):
                self.store(target, self.value(value))
            case ast.AugAssign(target, operation, value):
                self.store(target, self.value(ast.BinOp(_read(target), operation, value)))
            case ast.Return(value):
                self.leave(f"ret i64 {self.value(value).name if value else 0}")
            case ast.If(test, body, otherwise):
                self.condition(test, body, otherwise)
            case ast.While(test, body):
                self.while_loop(test, body)
            case ast.For(target, ast.Call(ast.Name("range"), bounds), body):
                self.for_loop(target, bounds, body)
            case ast.Break():
                self.leave(f"br label %{self.loops[-1][1]}")
            case ast.Continue():
                self.leave(f"br label %{self.loops[-1][0]}")
            case _:
                raise self.refuse(node)

    def condition(self, test: ast.expr, body: Sequence[ast.stmt], otherwise: Sequence[ast.stmt]) -> None:
        yes, no, after = self.labels(3)
        self.branch(test, yes, no)
        self.code.enter_block(yes)
        self.statements(body)
        self.code.line(f"br label %{after}")
        self.code.enter_block(no)
        self.statements(otherwise)
        self.code.start_block(after)

    def while_loop(self, test: ast.expr, body: Sequence[ast.stmt]) -> None:
        head, inside, after = self.labels(3)
        self.code.start_block(head)
        self.branch(test, inside, after)
        self.code.enter_block(inside)
        self.loop_body(body, head, after)
        self.code.line(f"br label %{head}")
        self.code.enter_block(after)

    def for_loop(self, target: ast.expr, bounds: Sequence[ast.expr], body: Sequence[ast.stmt]) -> None:
        first = self.value(bounds[0]) if len(bounds) == 2 else self.word(0)
        last = self.value(bounds[-1])
        head, inside, step, after = self.labels(4)
        self.store(target, first)
        self.code.start_block(head)
        more = self.value(_read(target)) < last
        self.code.line(f"br i1 {more.name}, label %{inside}, label %{after}")
        self.code.enter_block(inside)
        self.loop_body(body, step, after)
        self.code.start_block(step)
        self.store(target, self.value(_read(target)) + 1)
        self.code.line(f"br label %{head}")
        self.code.enter_block(after)

    def loop_body(self, body: Sequence[ast.stmt], head: str, after: str) -> None:
        self.loops.append((head, after))
        self.statements(body)
        self.loops.pop()

    def store(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.code.store(value, self.variable(target.id))
        elif isinstance(target, ast.Subscript):
            self.code.store(value, self.place(target))
        else:
            raise self.refuse(target)

    def place(self, node: ast.Subscript) -> str:
        base, index = self.value(node.value), self.value(node.slice)
        pointer = base.convert("inttoptr", "ptr").name
        return self.code.emit("ptr", f"getelementptr i64, ptr {pointer}, i64 {index.name}").name

    def branch(self, test: ast.expr, then: str, otherwise: str) -> None:
        """Jump to `then` or `otherwise`; and, or, not never evaluate more than they need."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self.branch(test.operand, otherwise, then)
        elif isinstance(test, ast.BoolOp):
            for operand in test.values[:-1]:
                (following,) = self.labels(1)
                both = isinstance(test.op, ast.And)
                self.branch(operand, *((following, otherwise) if both else (then, following)))
                self.code.enter_block(following)
            self.branch(test.values[-1], then, otherwise)
        else:
            flag = self.value(test).not_equal(0)
            self.code.line(f"br i1 {flag.name}, label %{then}, label %{otherwise}")

    # ------------------------------------------------------------- values
    def value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(int(number)):
                return self.word(number)
            case ast.Name(name) if name in self.variables:
                return self.code.load("i64", self.variables[name])
            case ast.Name(name) if isinstance(number := self.scope.get(name), int):
                return self.word(number)
            case ast.UnaryOp(ast.USub(), operand):
                return -self.value(operand)
            case ast.UnaryOp(ast.Invert(), operand):
                return ~self.value(operand)
            case ast.BinOp(left, operation, right) if type(operation) in _BINARY:
                return self.code.binary(_BINARY[type(operation)], self.value(left), self.value(right))
            case ast.Compare(left, [relation], [right]) if type(relation) in _COMPARE:
                return self.value(left).compare(_COMPARE[type(relation)], self.value(right)).convert("zext", "i64")
            case ast.Subscript():
                return self.code.load("i64", self.place(node))
            case ast.Call(ast.Name(name)):
                return self.called(node, self.scope.get(name))
        raise self.refuse(node)

    def called(self, node: ast.Call, target: object) -> Value:
        if target is address_of:
            function = self.module.require(self.scope[ast.unparse(node.args[0])])
            return Value(self.code, f"@{function}", "ptr").convert("ptrtoint", "i64")
        arguments = [self.value(argument) for argument in node.args]
        if target is stack:
            return self.stack(arguments[0].name)
        if target is stack_of:
            words = self.stack(str(len(arguments)))
            for number, value in enumerate(arguments):
                pointer = words.convert("inttoptr", "ptr").name
                self.code.store(value, self.code.emit("ptr", f"getelementptr i64, ptr {pointer}, i64 {number}").name)
            return words
        if isinstance(target, Operation):
            return self.operation(target, arguments)
        if isinstance(target, NativeFunction):
            name = self.module.require(target)
            return self.call(f"@{name}", NativeSignature("i64", ("i64",) * len(arguments)), arguments)
        if isinstance(target, External):
            parameters = ", ".join(target.signature.parameters)
            self.module.declarations[f"declare {target.signature.result} @{target.name}({parameters})"] = None
            return self.call(f"@{target.name}", target.signature, arguments)
        if isinstance(target, NativeSignature):
            return self.call(arguments[0].convert("inttoptr", "ptr").name, target, arguments[1:])
        raise self.refuse(node)

    def stack(self, words: str) -> Value:
        slot = self.code.stack_slot(f"[{words} x i64], align 16")
        return Value(self.code, slot, "ptr").convert("ptrtoint", "i64")

    def operation(self, target: Operation, arguments: Sequence[Value]) -> Value:
        self.module.declarations |= dict.fromkeys(target.declaration.splitlines())
        result = self.code.fresh()
        names = {name: self.code.fresh() for name in "abc"}
        self.code.line(target.template.format(*(a.name for a in arguments), result=result, **names))
        return Value(self.code, result, "i64")

    def call(self, function: str, signature: NativeSignature, arguments: Sequence[Value]) -> Value:
        if len(arguments) != len(signature.parameters):
            raise TypeError(f"{self.name}: {function} takes {len(signature.parameters)} arguments")
        pairs = zip(arguments, signature.parameters, strict=True)
        converted = [value.convert(_CONVERSIONS.get(kind, ""), kind) for value, kind in pairs]
        given = ", ".join(f"{value.kind} {value.name}" for value in converted)
        if signature.result == "void":
            self.code.line(f"call void {function}({given})")
            return self.word(0)
        returned = self.code.emit(signature.result, f"call {signature.result} {function}({given})")
        return returned.convert({"i32": "sext", "ptr": "ptrtoint"}.get(signature.result, ""), "i64")


def _read(target: ast.expr) -> ast.expr:
    """An assignment's target as an expression."""
    return ast.parse(ast.unparse(target), mode="eval").body


def module_text(exported: Sequence[NativeFunction]) -> str:
    """LLVM IR of the functions and of everything they call; only `exported` ones have symbols."""
    module = _NativeModule()
    for function in exported:
        module.require(function)
    names = {function.name for function in exported}
    texts: list[str] = []
    while module.pending:
        function = module.pending.pop(0)
        texts.append(_FunctionCompiler(module, function).text(function.name in names))
    return "\n\n".join([*module.declarations, *texts]) + "\n"


def filler_text(symbol: str, names: Sequence[str]) -> str:
    """IR of `symbol(words)`, which writes the addresses of functions of the same module to words in order."""
    lines = [f"define void @{symbol}(ptr %words) {{"]
    for number, name in enumerate(names):
        place = f"%place{number}"
        lines += [f"{place} = getelementptr i64, ptr %words, i64 {number}", f"store ptr @{name}, ptr {place}"]
    return "\n".join([*lines, "ret void", "}"]) + "\n"
