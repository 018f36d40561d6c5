"""Types of arguments as text: "f32[64,32] i32[]", "(f32[3], f32[]) 0.1", "{w: f32[3,4], b: f32[4]}", "f32[batch,3]"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

import rlx
from rlx.cli.mistakes import Mistake
from rlx.errors import ShapeError, did_you_mean
from rlx.ir.types import supported_dtypes

__all__ = ["DTYPES", "arguments_of"]

LONGEST = 10_000  # characters
DEEPEST = 16  # brackets in one another
MOST_LEAVES = 1_000
MOST_DIGITS = 19  # of a size

_SHORT = (("bfloat", "bf"), ("float", "f"), ("uint", "u"), ("int", "i"), ("complex", "c"))


def _names() -> Iterator[tuple[str, Any]]:
    """Each dtype by its own name, and by the short one: f32, bf16, i8, c64, f8_e4m3fn."""
    for dtype in sorted(supported_dtypes, key=lambda d: d.name):
        yield dtype.name, dtype
        for long, short in _SHORT:
            if dtype.name.startswith(long):
                yield short + dtype.name.removeprefix(long), dtype
                break


DTYPES: dict[str, Any] = dict(_names())

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_TOKENS = re.compile(
    rf"""(?P<type>[A-Za-z_]\w*\s*\[[^\[\]]*\]) | (?P<number>{_NUMBER}(?![\w.])) | (?P<text>'[^']*'|"[^"]*")
    | (?P<name>[A-Za-z_]\w*) | (?P<mark>[()\[\]{{}}:]) | (?P<between>[\s,]+)""",
    re.VERBOSE,
)
_CONSTANTS = {"True": True, "False": False, "None": None}
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_EXAMPLE = 'Types are written as in --args "f32[64,32] i32[]".'


class _Token(NamedTuple):
    kind: str
    text: str


def arguments_of(text: str, symbolic: bool = False) -> list[Any]:
    """The arguments that a text describes: types as ShapeDtypeStruct, Python's numbers and strings as they are.

    symbolic: whether sizes may have names (see rlx.export.symbolic_shape).

    Parentheses make tuples, square brackets without a name lists, braces dictionaries. Raises Mistake.

    >>> arguments_of("f32[64,32] i32[]")
    [ShapeDtypeStruct(shape=(64, 32), dtype=float32), ShapeDtypeStruct(shape=(), dtype=int32)]
    >>> arguments_of("{rate: 0.1, w: bf16[8]}")
    [{'rate': 0.1, 'w': ShapeDtypeStruct(shape=(8,), dtype=bfloat16)}]
    """
    if len(text) > LONGEST:
        raise Mistake(f"The types take {len(text)} characters.", f"They may take {LONGEST}.")
    return _Parser(list(_tokens(text)), symbolic).items("", 0)


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        found = _TOKENS.match(text, at)
        if found is None or found.lastgroup is None:
            raise Mistake(f"The types {_cut(text)} cannot be read from {_cut(text[at:])} on.", _EXAMPLE)
        if found.lastgroup != "between":
            yield _Token(found.lastgroup, found.group())
        at = found.end()


class _Parser:
    """Reads tokens from left to right."""

    def __init__(self, tokens: list[_Token], symbolic: bool) -> None:
        self.tokens = tokens[::-1]
        self.symbolic = symbolic
        self.leaves = 0

    def items(self, closing: str, depth: int) -> list[Any]:
        """Everything up to the bracket `closing`, or to the end of the text."""
        found = []
        while not self.at_end(closing):
            found.append(self.item(depth))
        return found

    def at_end(self, closing: str) -> bool:
        """Whether the bracket, or the end of the text, comes next; takes the bracket."""
        if not self.tokens:
            if closing:
                raise Mistake(f"The types end before a {closing!r}.", _EXAMPLE)
            return True
        if self.tokens[-1].text != closing:
            return False
        self.tokens.pop()
        return True

    def item(self, depth: int) -> Any:
        token = self.tokens.pop()
        if token.text in _CLOSING and token.kind == "mark":
            if depth >= DEEPEST:
                raise Mistake(f"The types have more than {DEEPEST} brackets in one another.")
            closing = _CLOSING[token.text]
            if closing == "}":
                return self.entries(depth + 1)
            found = self.items(closing, depth + 1)
            return tuple(found) if closing == ")" else found
        self.leaves += 1
        if self.leaves > MOST_LEAVES:
            raise Mistake(f"There are more than {MOST_LEAVES} types.")
        return _leaf(token, self.symbolic)

    def entries(self, depth: int) -> dict[str, Any]:
        """The entries between braces."""
        found: dict[str, Any] = {}
        while not self.at_end("}"):
            key = self.tokens.pop()
            if key.kind not in ("name", "text") or not self.tokens or self.tokens.pop().text != ":":
                raise Mistake(
                    f"Between braces, {_cut(key.text)} is no name with a colon.", "Write {w: f32[3,4], b: f32[4]}."
                )
            if self.tokens:
                found[_string(key)] = self.item(depth)
        return found


def _leaf(token: _Token, symbolic: bool) -> Any:
    if token.kind == "type":
        return _type(token.text, symbolic)
    if token.kind == "number":
        return ast.literal_eval(token.text.lstrip("+"))
    if token.kind == "text":
        return _string(token)
    if token.kind == "name":
        if token.text in _CONSTANTS:
            return _CONSTANTS[token.text]
        _refuse_name(token.text)
    raise Mistake(f"The types have a {token.text!r} that nothing belongs to.", _EXAMPLE)


def _string(token: _Token) -> str:
    return token.text[1:-1] if token.kind == "text" else token.text


def _refuse_name(name: str) -> NoReturn:
    if name in DTYPES:
        raise Mistake(f"{name} is a dtype without a shape.", f"Write {name}[] for a scalar, or {name}[64,32].")
    if name == "key":
        raise Mistake("Random keys have no type text.", "Make the key in the function: rlx.random.key(0).")
    raise Mistake(f"There is no dtype {_cut(name)}.", did_you_mean(name, DTYPES) or _EXAMPLE)


def _type(text: str, symbolic: bool) -> rlx.ShapeDtypeStruct:
    name, _, inside = text.partition("[")
    name = name.strip()
    if name not in DTYPES:
        _refuse_name(name)
    sizes = [size.strip() for size in inside.removesuffix("]").split(",")]
    if sizes[-1] == "":  # no sizes, or a trailing comma
        sizes.pop()
    if symbolic and not all(size.isdigit() for size in sizes):
        return _symbolic(inside.removesuffix("]"), name)
    for size in sizes:
        if not (size.isascii() and size.isdigit() and len(size) <= MOST_DIGITS):
            what = f"{_cut(text)} has a size {_cut(size)}." if size else f"{_cut(text)} has a comma too many."
            raise Mistake(what, f"Sizes are numbers: {name}[64,32].")
    shape = tuple(map(int, sizes))
    try:
        found = rlx.ShapeDtypeStruct(shape, DTYPES[name])
        _ = found.size  # raises if no array can have this shape
    except ShapeError as error:
        raise Mistake(error.what, error.instead) from None
    return found


def _symbolic(inside: str, name: str) -> rlx.ShapeDtypeStruct:
    """A type with sizes that have names."""
    try:
        shape: Any = rlx.export.symbolic_shape(inside)
    except ShapeError as error:
        raise Mistake(error.what, error.instead) from None
    return rlx.ShapeDtypeStruct(shape, DTYPES[name])


def _cut(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
