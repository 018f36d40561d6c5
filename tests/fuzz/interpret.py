"""Runs programs on a namespace, step by step, and follows which values are exact."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from types import CodeType
from typing import Any

import ml_dtypes
import numpy as np

import rlx
import rlx.lax
import rlx.nn
import rlx.numpy
import rlx.ops
import rlx.random
import rlx.scipy.special

from .program import Body, Program, Step, body_name, expression, is_narrow, kind_of, name_of
from .table import OPERATIONS, Operation

__all__ = ["EXACT", "Fact", "INEXACT", "Interpreter", "Unsound", "epsilon", "namespace"]


class Unsound(Exception):
    """A program whose result may jump where the last bits of a value differ: nothing can be said about it."""


@dataclasses.dataclass(frozen=True)
class Fact:
    """What is known of a value's last bits.

    exact: it has to be the same however the program is computed.
    product: a sum with it may be rounded once instead of twice.
    active: it depends on an argument that is differentiated.
    """

    exact: bool = True
    product: bool = False
    active: bool = False


EXACT, INEXACT = Fact(), Fact(exact=False)


def namespace(**replaced: Any) -> dict[str, Any]:
    """Names that programs are written in; some may be replaced."""
    return {"rlx": rlx, "jnp": rlx.numpy, "lax": rlx.lax, "np": np, "__builtins__": __builtins__, **replaced}


def dtype_name(value: Any) -> str:
    """The dtype of an array, tracer or number."""
    if isinstance(value, (bool, int, float, complex)):
        return {bool: "bool", int: "int64", float: "float64", complex: "complex128"}[type(value)]
    return np.dtype(value.dtype).name


@cache
def epsilon(dtype: str) -> float:
    """The distance of 1 to the next number of a float or complex dtype."""
    return float(ml_dtypes.finfo({"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)).eps)


@lru_cache(maxsize=4096)
def _compiled(text: str) -> CodeType:
    return compile(text, "<step>", "eval")


class Interpreter:
    """Runs steps.

    noise: numbers by which results that may be rounded differently are moved by a few units in the last place; how far
      the outputs move then says what rounding may do to them.
    derivative: refuse (Unsound) steps whose derivative jumps where the last bits of an operand differ.
    smooth: refuse every step whose derivative may jump, so that finite differences come near it.
    backward: noise moves cotangents, too, wherever they pass a step.
    """

    def __init__(
        self,
        names: dict[str, Any],
        noise: np.random.Generator | None = None,
        derivative: bool = False,
        smooth: bool = False,
        backward: bool = False,
    ) -> None:
        self.names = names
        self.backward = backward
        self.seen: set[str] = set()  # dtypes of results that are differentiated
        self.noise = noise
        self.derivative = derivative
        self.smooth = smooth

    def program(self, program: Program, facts: dict[int, Fact] | None = None) -> Callable[..., tuple[Any, ...]]:
        """A Python function that computes a program. Facts of its values are left in `facts`."""

        def function(*arguments: Any) -> tuple[Any, ...]:
            scope = dict(self.names)
            found: dict[int, Fact] = {} if facts is None else facts
            for x, value in zip(program.inputs, arguments, strict=True):
                scope[name_of(x.number)] = value
                found[x.number] = Fact(active=kind_of(dtype_name(value)) in "fc")
            self.run(program.steps, scope, found)
            return tuple(scope[name_of(n)] for n in program.outputs)

        return function

    def run(self, steps: Iterable[Step], scope: dict[str, Any], facts: dict[int, Fact]) -> None:
        """Add the results of steps to a scope, and what is known of them to facts."""
        for step in steps:
            self.step(step, scope, facts)

    def step(self, step: Step, scope: dict[str, Any], facts: dict[int, Fact]) -> None:
        """Run one step."""
        line = OPERATIONS[step.operation]
        known = [facts[n] for n in step.operands]
        self._refuse_unsound(line, step, known, scope)
        rounded = line.rounding == "rounded" or line.rounding == "sum" and any(f.product for f in known)
        local = scope
        if self.noise is not None and (rounded or self.backward):
            local = dict(scope)
            for number in step.operands:
                operand = self._noisy(scope[name_of(number)]) if rounded else scope[name_of(number)]
                local[name_of(number)] = self._noisy_backward(operand) if facts[number].active else operand
        if step.bodies:
            local = dict(local)
            for place, body in enumerate(step.bodies):
                local[body_name(step, place)] = self._function(body, line, local, facts, known)
        value = eval(_compiled(expression(step, line.template)), local)
        values = (value,) if len(step.results) == 1 else tuple(value)
        for number, result in zip(step.results, values, strict=True):
            fact = facts[number] = _fact(line, known, rounded, dtype_name(result))
            if fact.active:
                self.seen.add(dtype_name(result))
            if self.smooth and fact.active and epsilon(dtype_name(result)) > 1e-15:
                raise Unsound(f"{line.name}: finite differences need 64 bits")
            if self.derivative and fact.active and is_narrow(dtype_name(result)):
                raise Unsound(f"{line.name}: cotangents in so few bits differ from tangents by whole digits")
            noisy = self.noise is not None and rounded and not step.bodies
            scope[name_of(number)] = self._noisy(result) if noisy else result

    def _refuse_unsound(self, line: Operation, step: Step, known: list[Fact], scope: dict[str, Any]) -> None:
        known_values = [x for x in (scope[name_of(n)] for n in step.operands) if not isinstance(x, rlx.core.Tracer)]
        if line.finite and not all(np.isfinite(np.asarray(x)).all() for x in known_values):
            raise Unsound(f"{line.name} of infinities or NaN")
        for place in line.discrete:
            if not known[place].exact or self.smooth and known[place].active:
                raise Unsound(line.name)
        floats = [
            f for f, n in zip(known, step.operands, strict=True) if kind_of(dtype_name(scope[name_of(n)])) in "fc"
        ]
        active = [f for f in floats if f.active]
        if line.slope != "smooth" and active and (self.smooth or self.derivative and not all(f.exact for f in active)):
            raise Unsound(line.name)

    def _function(
        self, body: Body, line: Operation, scope: dict[str, Any], facts: dict[int, Fact], known: list[Fact]
    ) -> Callable[..., Any]:
        """A body as a Python function; floats that it is given may be anything in their last bits."""
        derivative = self.derivative or line.derivative_inside
        backward = self.backward and not line.derivative_inside
        inner = Interpreter(self.names, self.noise, derivative, self.smooth, backward)
        inner.seen = self.seen

        def function(*arguments: Any) -> Any:
            names, found = dict(scope), dict(facts)
            for number, value in zip(body.parameters, arguments, strict=True):
                inexact = kind_of(dtype_name(value)) in "fc"
                names[name_of(number)], found[number] = value, Fact(exact=not inexact, active=inexact)
            inner.run(body.steps, names, found)
            results = tuple(names[name_of(n)] for n in body.results)
            return results[0] if len(results) == 1 else results

        return function

    def _noisy(self, value: Any) -> Any:
        return value if (factors := self._factors(value)) is None else value * factors

    def _noisy_backward(self, value: Any) -> Any:
        """The value itself, with a cotangent that is moved."""
        if not self.backward or (factors := self._factors(value)) is None:
            return value
        same = rlx.custom_vjp(lambda x: x)
        same.defvjp(lambda x: (x, None), lambda _, cotangent: (cotangent * factors,))
        return same(value)

    def _factors(self, value: Any) -> np.ndarray | None:
        """Numbers near to 1, for the elements of a value."""
        name = dtype_name(value)
        if kind_of(name) not in "fc" or self.noise is None or not hasattr(value, "shape"):
            return None
        moved = 1 + 2 * epsilon(name) * self.noise.choice([-1.0, 1.0], value.shape)
        return np.asarray(moved).astype({"complex64": "float32", "complex128": "float64"}.get(name, name))


def _fact(line: Operation, known: list[Fact], rounded: bool, dtype: str) -> Fact:
    """What is known of a result."""
    active = any(f.active for f in known) and kind_of(dtype) in "fc" and line.slope != "flat"
    if line.rounding == "identity":
        return Fact()
    if kind_of(dtype) not in "fc":
        return Fact(exact=all(f.exact for f in known) or line.rounding != "exact")
    product = line.rounding == "product" or line.rounding == "exact" and any(f.product for f in known)
    return Fact(not rounded and all(f.exact for f in known), product, active)
