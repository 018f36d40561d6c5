"""C functions of doubles parsed to trees: the subset of the language in which the special functions are written.

Numbers are float64. Integers are exact, and are never divided by each other, which C would truncate.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

__all__ = [
    "Assign",
    "Break",
    "CFunction",
    "Expression",
    "For",
    "If",
    "Return",
    "Statement",
    "assigned",
    "read_function",
    "returns",
]


class Expression(NamedTuple):
    """An operation on others. operation: a symbol of C, "call" (the function is `name`), "?", "trunc", "name" or
    "number" (in `name`, in the syntax of float() or fromhex())."""

    operation: str
    parts: tuple[Expression, ...] = ()
    name: str = ""
    whole: bool = False  # an int in C


class Assign(NamedTuple):
    """A variable's new value, or (`declares`) a new variable."""

    name: str
    value: Expression
    declares: bool = False


class If(NamedTuple):
    """A branch."""

    condition: Expression
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...]


class For(NamedTuple):
    """A loop; `start` declares its counter, or is empty."""

    start: tuple[Statement, ...]
    condition: Expression
    step: tuple[Statement, ...]
    body: tuple[Statement, ...]


class Return(NamedTuple):
    """The function's value."""

    value: Expression


class Break(NamedTuple):
    """The end of the innermost loop."""


Statement = Assign | If | For | Return | Break


class CFunction(NamedTuple):
    """A function of doubles."""

    parameters: tuple[str, ...]
    body: tuple[Statement, ...]


_TOKEN = re.compile(
    r"(?P<number>0x[\da-f.]+p[-+]\d+|(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<symbol>\+\+|[-+*/<>=!]=|&&|\|\||[-+*/<>=!?:;,(){}])|\s+"
)
_ASSIGNING = ("=", "+=", "-=", "*=", "/=")
_LEVELS = (("||",), ("&&",), ("==", "!="), ("<", "<=", ">", ">="), ("+", "-"), ("*", "/"))


def read_function(text: str) -> CFunction:
    """Parse the definition of a function."""
    return _Reader(re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)).function()


class _Reader:
    """Tokens, and the current position."""

    def __init__(self, text: str) -> None:
        self.tokens = [m[0] for m in _TOKEN.finditer(text) if m.lastgroup]
        assert "".join(self.tokens) == "".join(text.split()), "unsupported C syntax"
        self.at = 0
        self.whole: set[str] = set()  # variables that are ints

    @property
    def ahead(self) -> str:
        return self.tokens[self.at]

    def take(self, *wanted: str) -> str:
        """Take the next token, which must be one of these."""
        token = self.ahead
        assert not wanted or token in wanted, f"{token} in place of {' or '.join(wanted)}"
        self.at += 1
        return token

    def follows(self, *tokens: str) -> bool:
        """Whether these are the next tokens; if so, take them."""
        if tuple(self.tokens[self.at : self.at + len(tokens)]) != tokens:
            return False
        self.at += len(tokens)
        return True

    # ------------------------------------------------------------------ statements
    def function(self) -> CFunction:
        while self.take() != "(":  # static double name
            pass
        parameters = []
        while not self.follows(")"):
            self.follows(",")
            self.take("double")
            parameters.append(self.take())
        return CFunction(tuple(parameters), self.block())

    def block(self) -> tuple[Statement, ...]:
        """Statements in braces, or one."""
        if not self.follows("{"):
            return self.statement()
        found: list[Statement] = []
        while not self.follows("}"):
            found += self.statement()
        return tuple(found)

    def statement(self) -> tuple[Statement, ...]:
        if self.follows("if", "("):
            condition = self.expression()
            self.take(")")
            then = self.block()
            return (If(condition, then, self.block() if self.follows("else") else ()),)
        if self.follows("for", "("):
            start = () if self.follows(";") else self.statement()
            condition = self.expression()
            self.take(";")
            step = self.change()
            self.take(")")
            return (For(start, condition, step, self.block()),)
        if self.follows("return"):
            found: tuple[Statement, ...] = (Return(self.expression()),)
        elif self.follows("break"):
            found = (Break(),)
        elif self.ahead in ("const", "double", "int"):
            found = self.declarations()
        else:
            found = self.change()
        self.take(";")
        return found

    def declarations(self) -> tuple[Statement, ...]:
        self.follows("const")
        whole = self.take("double", "int") == "int"
        found: list[Statement] = []
        while not found or self.follows(","):
            name = self.take()
            (self.whole.add if whole else self.whole.discard)(name)
            value = self.expression() if self.follows("=") else Expression("number", name="0")
            found.append(Assign(name, value, True))
        return tuple(found)

    def change(self) -> tuple[Statement, ...]:
        """An assignment, or ++."""
        counts = self.follows("++")
        name = self.take()
        if counts:
            return (Assign(name, self.binary("+", self.named(name), Expression("number", name="1", whole=True))),)
        symbol = self.take(*_ASSIGNING)
        value = self.expression()
        return (Assign(name, value if symbol == "=" else self.binary(symbol[0], self.named(name), value)),)

    # ------------------------------------------------------------------ expressions
    def expression(self) -> Expression:
        test = self.level(0)
        if not self.follows("?"):
            return test
        first = self.expression()
        self.take(":")
        second = self.expression()
        return Expression("?", (test, first, second), whole=first.whole and second.whole)

    def level(self, number: int) -> Expression:
        """Operations of at least a level of precedence."""
        if number == len(_LEVELS):
            return self.unary()
        found = self.level(number + 1)
        while self.ahead in _LEVELS[number]:
            found = self.binary(self.take(), found, self.level(number + 1))
        return found

    def binary(self, symbol: str, left: Expression, right: Expression) -> Expression:
        whole = left.whole and right.whole
        assert not (whole and symbol == "/"), "a quotient of integers"
        return Expression(symbol, (left, right), whole=whole)

    def unary(self) -> Expression:
        if self.follows("-"):
            inner = self.unary()
            return Expression("-", (inner,), whole=inner.whole)
        if self.follows("!"):
            return Expression("!", (self.unary(),))
        if self.follows("(", "double", ")"):
            return self.unary()._replace(whole=False)
        if self.follows("(", "int", ")"):
            return Expression("trunc", (self.unary(),), whole=True)
        if self.follows("("):
            inner = self.expression()
            self.take(")")
            return inner
        token = self.take()
        if not token[0].isalpha():
            return Expression("number", name=token, whole=token.isdigit())
        return Expression("call", self.operands(), token) if self.follows("(") else self.named(token)

    def operands(self) -> tuple[Expression, ...]:
        found: list[Expression] = []
        while not self.follows(")"):
            self.follows(",")
            found.append(self.expression())
        return tuple(found)

    def named(self, name: str) -> Expression:
        return Expression("name", name=name, whole=name in self.whole)


def assigned(statements: Sequence[Statement]) -> list[str]:
    """The variables that statements assign, except those that they declare."""
    found: dict[str, None] = {}
    declared: set[str] = set()
    for statement in statements:
        match statement:
            case Assign(name, _, True):
                declared.add(name)
            case Assign(name, _, False):
                found[name] = None
            case If(_, then, otherwise):
                found.update(dict.fromkeys((*assigned(then), *assigned(otherwise))))
            case For(start, _, step, body):
                inner = (*assigned(body), *assigned(step))
                own = {s.name for s in start if isinstance(s, Assign) and s.declares}
                found.update(dict.fromkeys(name for name in inner if name not in own))
    return [name for name in found if name not in declared]


def returns(statements: Sequence[Statement]) -> bool:
    """Whether statements may return from the function."""
    for statement in statements:
        match statement:
            case Return():
                return True
            case If(_, then, otherwise) if returns(then) or returns(otherwise):
                return True
            case For(_, _, _, body) if returns(body):
                return True
    return False
