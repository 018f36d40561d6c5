"""Scalar expressions of a nest as polynomials: equivalent forms of one formula give the same polynomial."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from rlx.ir.kernels import Access, Instruction, Loops

__all__ = ["TANH", "Atom", "Polynomial", "add", "apart_from_tanh", "is_close", "multiply", "polynomial", "variable"]

# an atom: a load by its access, tanh by its argument, any other value by its index
Atom = Access | tuple[str, "Polynomial"] | int
# monomials with their coefficients, in order
Polynomial = tuple[tuple[tuple[Atom, ...], float], ...]

TANH: Atom = ("tanh", ())
_MOST_TERMS = 48
_NEAR = {"float32": 2.0**-20, "float64": 2.0**-48}  # relative tolerance of coefficients


def _collected(terms: Sequence[tuple[tuple[Atom, ...], float]]) -> Polynomial | None:
    """Terms with equal atoms combined; None if possibly infinite terms cancel, or if there are too many terms."""
    found: dict[tuple[Atom, ...], float] = {}
    for atoms, coefficient in terms:
        key = tuple(sorted(atoms, key=repr))
        found[key] = found.get(key, 0.0) + coefficient
    cancelled = [atoms for atoms, coefficient in found.items() if coefficient == 0.0]
    if len(found) > _MOST_TERMS or not all(_is_bounded(atom) for atoms in cancelled for atom in atoms):
        return None
    kept = [(atoms, coefficient) for atoms, coefficient in found.items() if coefficient != 0.0]
    return tuple(sorted(kept, key=repr))


def _is_bounded(atom: Atom) -> bool:
    return isinstance(atom, tuple) and atom[0] == "tanh"


def variable(atom: Atom, coefficient: float = 1.0) -> Polynomial:
    """An atom times a number."""
    return (((atom,), coefficient),)


def add(*polynomials: Polynomial | None) -> Polynomial | None:
    """The sum; None if an operand is not a polynomial."""
    if any(p is None for p in polynomials):
        return None
    return _collected([term for p in polynomials if p is not None for term in p])


def multiply(*polynomials: Polynomial | None) -> Polynomial | None:
    """The product; None if an operand is not a polynomial."""
    found: Polynomial | None = (((), 1.0),)
    for factor in polynomials:
        if found is None or factor is None or len(found) * len(factor) > _MOST_TERMS**2:
            return None
        pairs = product(found, factor)
        found = _collected([((*left, *right), first * second) for (left, first), (right, second) in pairs])
    return found


def is_close(left: Polynomial | None, right: Polynomial | None, dtype: np.dtype) -> bool:
    """Whether two polynomials have the same monomials, with coefficients that are equal but for rounding."""
    if left is None or right is None:
        return False
    first, second, near = dict(left), dict(right), _NEAR.get(dtype.name, 0.0)
    return first.keys() == second.keys() and all(
        abs(first[atoms] - second[atoms]) <= near * abs(second[atoms]) for atoms in first
    )


def apart_from_tanh(given: Polynomial) -> tuple[Polynomial, Polynomial] | None:
    """A polynomial with TANH for its only tanh, and the argument of that tanh; None if there is not exactly one."""
    arguments = {atom[1] for atoms, _ in given for atom in atoms if isinstance(atom, tuple)}
    if len(arguments) != 1:
        return None
    terms = [(tuple(TANH if isinstance(atom, tuple) else atom for atom in atoms), c) for atoms, c in given]
    found = _collected(terms)
    return None if found is None else (found, arguments.pop())


def polynomial(kernel: Loops, number: int) -> Polynomial | None:
    """The polynomial that an instruction computes; None if it is not a short polynomial in loads and their tanh."""
    known: dict[int, Polynomial | None] = {}

    def of(n: int) -> Polynomial | None:
        if n not in known:
            known[n] = made(n, kernel.instructions[n])
        return known[n]

    def made(n: int, instruction: Instruction) -> Polynomial | None:
        args = instruction.args
        match instruction.op:
            case "load" if not args:
                return variable(instruction.attribute)
            case "constant" if instruction.dtype.kind == "f":
                value = float(np.frombuffer(instruction.attribute, instruction.dtype)[0])
                return (((), value),) if value else ()
            case "add":
                return add(of(args[0]), of(args[1]))
            case "sub":
                return add(of(args[0]), multiply((((), -1.0),), of(args[1])))
            case "neg":
                return multiply((((), -1.0),), of(args[0]))
            case "mul":
                return multiply(of(args[0]), of(args[1]))
            case "tanh":
                inside = of(args[0])
                return None if inside is None else variable(("tanh", inside))
        return variable(n)

    return of(number)
