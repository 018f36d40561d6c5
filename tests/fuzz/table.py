"""What an operation of the table states: how it is spelled, drawn and rounded."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from .program import Body

__all__ = ["Draw", "NoDraw", "Operation", "OPERATIONS", "operation", "templates"]


class NoDraw(Exception):
    """The values at hand are no operands for an operation."""


@dataclasses.dataclass(frozen=True)
class Draw:
    """Operands (values of the pool), parameters and bodies that were chosen for an operation."""

    operands: tuple[Any, ...]
    parameters: dict[str, Any] = dataclasses.field(default_factory=dict)
    bodies: tuple[Body, ...] = ()


@dataclasses.dataclass(frozen=True)
class Operation:
    """One line of the table.

    template: Python with {0}, {1} for operands, {name} for parameters and {body0} for bodies; a parameter whose name
      ends in an underscore is put in as text.
    rounding: what a float result's last bits depend on.
      "exact": on nothing, if the operands are exact; it is compared to the last bit.
      "product": as exact, but a sum with it may be rounded once (a fused multiply-add).
      "sum": exact, unless an operand is a product.
      "rounded": on the order of additions or on a function's approximation; it is compared within a tolerance.
      "identity": exact whatever the operands are, as y - y is.
    slope: of the derivative. "smooth", "kinked" (it jumps: operands must be exact), "flat" (it is zero; so is a result
      of a small change of an operand not: operands must be exact).
    discrete: operands by position, on which the result depends with jumps: they must be exact.
    structural: moves elements, and never rounds.
    """

    name: str
    template: str
    draw: Callable[[Any], Draw]
    rounding: str = "rounded"
    slope: str = "smooth"
    discrete: tuple[int, ...] = ()
    results: int = 1
    finite: bool = False  # LAPACK says nothing about infinities and NaN: they may raise, spread, or vanish
    weight: float = 1.0
    derivative_inside: bool = False


OPERATIONS: dict[str, Operation] = {}


def operation(name: str, template: str, draw: Callable[[Any], Draw], *traits: str, **options: Any) -> None:
    """Add a line. traits: one of the roundings, one of the slopes."""
    for trait in traits:
        options["rounding" if trait in _ROUNDINGS else "slope"] = trait
        if trait not in (*_ROUNDINGS, *_SLOPES):
            raise ValueError(f"{name}: no such trait: {trait}")
    if name in OPERATIONS:
        raise ValueError(f"{name} is there twice")
    OPERATIONS[name] = Operation(name, template, draw, **options)


_ROUNDINGS = ("exact", "product", "sum", "rounded", "identity")
_SLOPES = ("smooth", "kinked", "flat")


def templates() -> dict[str, str]:
    """Spellings by name."""
    return {name: line.template for name, line in OPERATIONS.items()}
