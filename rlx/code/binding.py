"""Code that is bound to other arrays, and to another place in the launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from rlx.code.tree import (
    Aligned,
    Array,
    Block,
    Coordinate,
    Element,
    Expression,
    Place,
    Statement,
    children,
    mapped,
    rebuilt,
)

__all__ = ["Places", "bound"]

Places = Mapping[Place, Callable[[Coordinate], Expression]]


def bound(block: Block, arrays: Mapping[str, str], places: Places) -> Block:
    """The block with other names of arrays, and other expressions for the places of work-items.

    >>> import numpy as np
    >>> from rlx.code.writing import CodeWriter
    >>> code, x = CodeWriter(), Array("x", np.dtype(np.int32))
    >>> code.write(x[0], x[1])
    >>> bound(code.block, {"x": "y"}, {})[0].array.name
    'y'
    """

    def named(array: Array) -> Array:
        return replace(array, name=arrays[array.name]) if array.name in arrays else array

    def changed(expression: Expression) -> Expression:
        below = children(expression)
        made = [changed(child) for child in below]
        if any(a is not b for a, b in zip(below, made, strict=True)):
            expression = rebuilt(expression, made)
        match expression:
            case Coordinate(_, of) if of in places:
                return places[of](expression)
            case Element():
                return replace(expression, array=named(expression.array))
            case Aligned():
                return replace(expression, arrays=tuple(map(named, expression.arrays)))
        return expression

    def statement_of(statement: Statement) -> Statement:
        made: dict[str, Any] = {}
        for item in fields(statement):
            value = getattr(statement, item.name)
            if isinstance(value, Array):
                made[item.name] = named(value)
            elif item.name in ("body", "otherwise"):
                made[item.name] = tuple(map(statement_of, value))
        return replace(mapped(statement, changed), **made)

    return tuple(map(statement_of, block))
