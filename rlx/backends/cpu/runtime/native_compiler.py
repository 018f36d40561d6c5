"""Native functions (see native.py) to LLVM IR."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Sequence

from rlx.backends.cpu.runtime.native import (
    External,
    NativeFunction,
    NativeSignature,
    Operation,
    address_of,
    stack,
)

__all__ = ["module_text"]

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
        source = textwrap.dedent(inspect.getsource(function.function))
        definition = ast.parse(source).body[0]
        if not isinstance(definition, ast.FunctionDef):
            raise TypeError(f"{self.name} is not a plain function")
        self.definition = definition
        self.parameters = [argument.arg for argument in definition.args.args]
        self.prologue: list[str] = []
        self.lines: list[str] = []
        self.variables: set[str] = set()
        self.count = 0
        self.loops: list[tuple[str, str]] = []

    def text(self, exported: bool) -> str:
        for name in self.parameters:
            self.variable(name)
            self.lines.append(f"store i64 %argument.{name}, ptr %{name}")
        self.statements(self.definition.body)
        self.lines.append("ret i64 0")
        parameters = ", ".join(f"i64 %argument.{name}" for name in self.parameters)
        linkage = "" if exported else "internal "
        head = f"define {linkage}i64 @{self.name}({parameters}) uwtable {{"
        return "\n".join([head, *self.prologue, *self.lines, "}"])

    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def label(self) -> str:
        self.count += 1
        return f"block{self.count}"

    def start(self, label: str) -> None:
        self.lines += [f"br label %{label}", f"{label}:"]

    def variable(self, name: str) -> str:
        if name not in self.variables:
            self.variables.add(name)
            self.prologue.append(f"%{name} = alloca i64")
        return f"%{name}"

    def refuse(self, node: ast.AST) -> TypeError:
        return TypeError(f"{self.name}: native code has no {ast.unparse(node)!r}")

    def statements(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            method = getattr(self, f"statement_{type(statement).__name__.lower()}", None)
            if method is None:
                raise self.refuse(statement)
            method(statement)

    def statement_expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.value(node.value)

    def statement_pass(self, node: ast.Pass) -> None:
        pass

    def statement_assign(self, node: ast.Assign) -> None:
        self.store(node.targets[0], self.value(node.value))

    def statement_augassign(self, node: ast.AugAssign) -> None:
        reading = self.read(node.target)
        self.store(node.target, self.value(ast.BinOp(reading, node.op, node.value)))

    def statement_return(self, node: ast.Return) -> None:
        value = self.value(node.value) if node.value else "0"
        self.lines += [f"ret i64 {value}", f"{self.label()}:"]

    def statement_if(self, node: ast.If) -> None:
        then, otherwise, after = self.label(), self.label(), self.label()
        self.branch(node.test, then, otherwise)
        self.lines.append(f"{then}:")
        self.statements(node.body)
        self.lines += [f"br label %{after}", f"{otherwise}:"]
        self.statements(node.orelse)
        self.start(after)

    def statement_while(self, node: ast.While) -> None:
        head, body, after = self.label(), self.label(), self.label()
        self.start(head)
        self.branch(node.test, body, after)
        self.lines.append(f"{body}:")
        self.loop_body(node.body, head, after)
        self.lines += [f"br label %{head}", f"{after}:"]

    def statement_for(self, node: ast.For) -> None:
        call = node.iter
        if not (isinstance(call, ast.Call) and ast.unparse(call.func) == "range"):
            raise self.refuse(node)
        first = self.value(call.args[0]) if len(call.args) == 2 else "0"
        last = self.value(call.args[-1])
        head, body, step, after = self.label(), self.label(), self.label(), self.label()
        self.store(node.target, first)
        self.start(head)
        position, more = self.value(self.read(node.target)), self.fresh()
        self.lines += [
            f"{more} = icmp slt i64 {position}, {last}",
            f"br i1 {more}, label %{body}, label %{after}",
            f"{body}:",
        ]
        self.loop_body(node.body, step, after)
        self.start(step)
        position, following = self.value(self.read(node.target)), self.fresh()
        self.lines.append(f"{following} = add i64 {position}, 1")
        self.store(node.target, following)
        self.lines += [f"br label %{head}", f"{after}:"]

    def loop_body(self, body: Sequence[ast.stmt], head: str, after: str) -> None:
        self.loops.append((head, after))
        self.statements(body)
        self.loops.pop()

    def statement_break(self, node: ast.Break) -> None:
        self.lines += [f"br label %{self.loops[-1][1]}", f"{self.label()}:"]

    def statement_continue(self, node: ast.Continue) -> None:
        self.lines += [f"br label %{self.loops[-1][0]}", f"{self.label()}:"]

    @staticmethod
    def read(target: ast.expr) -> ast.expr:
        """An assignment's target as an expression."""
        return ast.parse(ast.unparse(target), mode="eval").body

    def store(self, target: ast.expr, value: str) -> None:
        if isinstance(target, ast.Name):
            self.lines.append(f"store i64 {value}, ptr {self.variable(target.id)}")
        elif isinstance(target, ast.Subscript):
            self.lines.append(f"store i64 {value}, ptr {self.word(target)}")
        else:
            raise self.refuse(target)

    def word(self, node: ast.Subscript) -> str:
        base, index = self.value(node.value), self.value(node.slice)
        pointer, element = self.fresh(), self.fresh()
        self.lines += [
            f"{pointer} = inttoptr i64 {base} to ptr",
            f"{element} = getelementptr i64, ptr {pointer}, i64 {index}",
        ]
        return element

    def branch(self, test: ast.expr, then: str, otherwise: str) -> None:
        """Jump to `then` or `otherwise`; and, or, not never evaluate more than they need."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self.branch(test.operand, otherwise, then)
        elif isinstance(test, ast.BoolOp):
            for operand in test.values[:-1]:
                following = self.label()
                if isinstance(test.op, ast.And):
                    self.branch(operand, following, otherwise)
                else:
                    self.branch(operand, then, following)
                self.lines.append(f"{following}:")
            self.branch(test.values[-1], then, otherwise)
        else:
            value, flag = self.value(test), self.fresh()
            self.lines += [
                f"{flag} = icmp ne i64 {value}, 0",
                f"br i1 {flag}, label %{then}, label %{otherwise}",
            ]

    def value(self, node: ast.expr) -> str:
        method = getattr(self, f"value_{type(node).__name__.lower()}", None)
        if method is None:
            raise self.refuse(node)
        return method(node)

    def value_constant(self, node: ast.Constant) -> str:
        if not isinstance(node.value, int):
            raise self.refuse(node)
        return str(int(node.value))

    def value_name(self, node: ast.Name) -> str:
        if node.id in self.variables:
            result = self.fresh()
            self.lines.append(f"{result} = load i64, ptr %{node.id}")
            return result
        constant = self.scope.get(node.id)
        if not isinstance(constant, int):
            raise self.refuse(node)
        return str(int(constant))

    def value_unaryop(self, node: ast.UnaryOp) -> str:
        operand, result = self.value(node.operand), self.fresh()
        if isinstance(node.op, ast.USub):
            self.lines.append(f"{result} = sub i64 0, {operand}")
        elif isinstance(node.op, ast.Invert):
            self.lines.append(f"{result} = xor i64 {operand}, -1")
        else:
            raise self.refuse(node)
        return result

    def value_binop(self, node: ast.BinOp) -> str:
        left, right, result = self.value(node.left), self.value(node.right), self.fresh()
        operation = _BINARY.get(type(node.op))
        if operation is None:
            raise self.refuse(node)
        self.lines.append(f"{result} = {operation} i64 {left}, {right}")
        return result

    def value_compare(self, node: ast.Compare) -> str:
        predicate = _COMPARE.get(type(node.ops[0]))
        if predicate is None or len(node.ops) > 1:
            raise self.refuse(node)
        left, right = self.value(node.left), self.value(node.comparators[0])
        flag, result = self.fresh(), self.fresh()
        self.lines += [
            f"{flag} = icmp {predicate} i64 {left}, {right}",
            f"{result} = zext i1 {flag} to i64",
        ]
        return result

    def value_subscript(self, node: ast.Subscript) -> str:
        element, result = self.word(node), self.fresh()
        self.lines.append(f"{result} = load i64, ptr {element}")
        return result

    def value_call(self, node: ast.Call) -> str:
        if not isinstance(node.func, ast.Name):
            raise self.refuse(node)
        target = self.scope.get(node.func.id)
        if target is address_of:
            return self.function_address(node)
        if target is stack:
            return self.stack_words(node)
        arguments = [self.value(argument) for argument in node.args]
        if isinstance(target, Operation):
            return self.operation(target, arguments)
        if isinstance(target, NativeFunction):
            name = self.module.require(target)
            return self.call(f"@{name}", NativeSignature("i64", ("i64",) * len(arguments)), arguments)
        if isinstance(target, External):
            declaration = f"declare {target.signature.result} @{target.name}"
            parameters = ", ".join(target.signature.parameters)
            self.module.declarations[f"{declaration}({parameters})"] = None
            return self.call(f"@{target.name}", target.signature, arguments)
        if isinstance(target, NativeSignature):
            pointer = self.fresh()
            self.lines.append(f"{pointer} = inttoptr i64 {arguments[0]} to ptr")
            return self.call(pointer, target, arguments[1:])
        raise self.refuse(node)

    def function_address(self, node: ast.Call) -> str:
        target = self.scope[ast.unparse(node.args[0])]
        result = self.fresh()
        self.lines.append(f"{result} = ptrtoint ptr @{self.module.require(target)} to i64")
        return result

    def stack_words(self, node: ast.Call) -> str:
        area, result = self.fresh(), self.fresh()
        words = self.value(node.args[0])
        self.prologue.append(f"{area} = alloca [{words} x i64], align 16")
        self.lines.append(f"{result} = ptrtoint ptr {area} to i64")
        return result

    def operation(self, target: Operation, arguments: list[str]) -> str:
        self.module.declarations |= dict.fromkeys(target.declaration.splitlines())
        result = self.fresh()
        names = {name: self.fresh() for name in "abc"}
        self.lines.append(target.template.format(*arguments, result=result, **names))
        return result

    def call(self, function: str, signature: NativeSignature, arguments: list[str]) -> str:
        if len(arguments) != len(signature.parameters):
            raise TypeError(f"{self.name}: {function} takes {len(signature.parameters)} arguments")
        converted = ", ".join(
            f"{kind} {self.convert(value, kind)}" for value, kind in zip(arguments, signature.parameters, strict=True)
        )
        if signature.result == "void":
            self.lines.append(f"call void {function}({converted})")
            return "0"
        returned, result = self.fresh(), self.fresh()
        self.lines.append(f"{returned} = call {signature.result} {function}({converted})")
        change = {"i32": "sext", "ptr": "ptrtoint"}.get(signature.result)
        if change is None:
            return returned
        self.lines.append(f"{result} = {change} {signature.result} {returned} to i64")
        return result

    def convert(self, value: str, kind: str) -> str:
        change = {"i32": "trunc", "ptr": "inttoptr", "float": "sitofp", "double": "sitofp"}
        if kind == "i64":
            return value
        result = self.fresh()
        self.lines.append(f"{result} = {change[kind]} i64 {value} to {kind}")
        return result


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
