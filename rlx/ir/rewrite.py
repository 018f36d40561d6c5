"""Rewrite rules as data, and the rewriter that applies them to a program until none matches."""

from __future__ import annotations

import ast
import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import RlxError, VerificationError
from rlx.ir.program import Atom, Equation, Literal, Origin, Program, Var
from rlx.ir.types import TensorType, dtype_kind

__all__ = ["Match", "Rule", "RuleSet", "rewrite"]

_DEPTH = 200  # rewrites that one equation may cause, one inside of the other


# ------------------------------------------------------------------ patterns
class _NumberPattern(NamedTuple):
    """A literal of this value; for zero of floats the sign counts."""

    value: complex

    def matches(self, atom: Atom) -> bool:
        """Whether an operand is the number."""
        if not isinstance(atom, Literal):
            return False
        found = atom.value.item()
        if found != self.value:
            return False
        if found != 0 or isinstance(found, (bool, int)):
            return True
        if isinstance(found, complex):
            return False
        return math.copysign(1, found) == math.copysign(1, float(self.value.real))


class _EquationPattern(NamedTuple):
    """The result of an equation; without operands: of any equation of the primitive."""

    name: str
    operands: tuple[Any, ...] | None


_Pattern = str | _NumberPattern | _EquationPattern  # a string is a variable: it stands for one operand


def _parse(node: ast.expr, text: str) -> _Pattern:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _EquationPattern(node.func.id, tuple(_parse(a, text) for a in node.args))
    try:
        return _NumberPattern(ast.literal_eval(node))
    except ValueError:
        raise RlxError(f"The rule {text!r} is not an expression of names, numbers and calls.") from None


def _parse_before(text: str) -> _EquationPattern:
    node = ast.parse(text.strip(), mode="eval").body
    pattern = _parse(node, text)
    if isinstance(pattern, str):
        return _EquationPattern(pattern, None)
    if not isinstance(pattern, _EquationPattern):
        raise RlxError(f"The rule {text!r} matches no equation.", "Begin with a primitive's name.")
    return pattern


class Rule:
    """before -> after.

    `before` is a primitive of operands: variables, numbers, or the results of other primitives; a
    bare primitive's name matches its equations of any operands, and `any` all equations. Without a
    function, `after` consists of the same parts. With one, `after` is for the reader: the function
    gets the Match and returns the replacement of the results (an operand, or a tuple for several
    results), or None if the rule does not apply. `kinds`: the dtype kinds (as in "biufc") of the
    first operand for which the rule holds; all if empty.
    """

    __slots__ = ("after", "before", "function", "kinds", "location", "text")

    def __init__(self, text: str, function: Callable[[Match], Any] | None = None, kinds: str = "") -> None:
        before, arrow, after = text.partition("->")
        if not arrow:
            raise RlxError(f"The rule {text!r} has no arrow.", 'Write "before -> after".')
        self.text = text
        self.kinds = kinds
        self.function = function
        self.before = _parse_before(before)
        self.after = _parse(ast.parse(after.strip(), mode="eval").body, text) if function is None else None
        frame = sys._getframe(1)
        self.location = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"

    def swapped(self) -> Rule:
        """The rule with the two operands of the outer primitive the other way round."""
        other = object.__new__(Rule)
        for name in Rule.__slots__:
            setattr(other, name, getattr(self, name))
        assert self.before.operands is not None
        other.before = _EquationPattern(self.before.name, self.before.operands[::-1])
        return other

    def __repr__(self) -> str:
        return f"<rule {self.text}  {self.location}>"


class RuleSet:
    """Rules by primitive, tried in order; sets add with `+`. `hits` counts how often each fired.

    For the primitives named in `commutative`, a rule of two different operands applies to both orders.
    """

    def __init__(self, rules: Iterable[Rule], commutative: Iterable[str] = ()) -> None:
        self.rules = tuple(rules)
        self.commutative = frozenset(commutative)
        self.hits: Counter[str] = Counter()
        self._table: dict[str, list[Rule]] = {}
        for rule in self.rules:
            row = self._table.setdefault(rule.before.name, [])
            row.append(rule)
            operands = rule.before.operands
            if rule.before.name in self.commutative and operands is not None and operands[0] != operands[1]:
                row.append(rule.swapped())
        everywhere = self._table.pop("any", [])
        self._everywhere = tuple(everywhere)
        for row in self._table.values():
            row.extend(everywhere)

    def __add__(self, other: RuleSet) -> RuleSet:
        return RuleSet((*self.rules, *other.rules), self.commutative | other.commutative)

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def of(self, name: str) -> Sequence[Rule]:
        """The rules for equations of a primitive."""
        return self._table.get(name, self._everywhere)


# ------------------------------------------------------------------ matching
class Match:
    """An equation that a rule matched: its parts, and how to make new equations.

    `match["x"]` is the operand that the variable x stands for.
    """

    __slots__ = ("_rewriter", "equation", "found")

    def __init__(self, rewriter: _Rewriter, equation: Equation, found: dict[str, Atom]) -> None:
        self._rewriter = rewriter
        self.equation = equation
        self.found = found

    def __getitem__(self, name: str) -> Atom:
        return self.found[name]

    @property
    def inputs(self) -> tuple[Atom, ...]:
        """Operands of the equation."""
        return self.equation.inputs

    @property
    def params(self) -> Mapping[str, Any]:
        """Parameters of the equation."""
        return self.equation.params

    @property
    def type(self) -> TensorType:
        """Type of the equation's first result."""
        return self.equation.outputs[0].type

    def producer(self, atom: Atom, name: str = "") -> Equation | None:
        """The equation that computes an operand, if it is of the primitive `name` (or of any)."""
        return self._rewriter.producer(atom, name)

    def emit(self, name: str, *inputs: Atom, **params: Any) -> Any:
        """A new equation, simplified itself; its result, or a tuple of several."""
        return self._rewriter.emit(name, inputs, params, self.equation.origin)

    def inline(self, program: Program, inputs: Sequence[Atom]) -> tuple[Atom, ...]:
        """The equations of a closed program on `inputs`; its outputs."""
        return self._rewriter.inline(program, inputs)


class _Rewriter:
    """One walk over a program. Emitted equations are final, so one walk reaches the fixpoint."""

    def __init__(self, program: Program, rules: RuleSet, primitives: Mapping[str, Any]) -> None:
        self.program = program
        self.rules = rules
        self.primitives = primitives
        self.equations: list[Equation] = []
        self.constants = list(program.constants)
        self.producers: dict[Var, Equation] = {}
        self.replaced: dict[Var, Atom] = {}
        self.depth = 0

    def run(self) -> Program:
        """The rewritten program; the same object if no rule applied."""
        for equation in self.program.equations:
            if self.replaced:
                equation = self.renamed(equation)
            results = self.settle(equation)
            if results is not equation.outputs:
                self.replaced.update(zip(equation.outputs, results, strict=True))
        if not self.replaced:
            return self.program
        outputs = tuple(map(self.read, self.program.outputs))
        return self.program.replace(equations=self.equations, outputs=outputs, constants=self.constants)

    def read(self, atom: Atom) -> Atom:
        """The current replacement of an operand."""
        return self.replaced.get(atom, atom) if isinstance(atom, Var) else atom

    def renamed(self, equation: Equation) -> Equation:
        """The equation with its operands replaced."""
        inputs = tuple(map(self.read, equation.inputs))
        if all(a is b for a, b in zip(inputs, equation.inputs, strict=True)):
            return equation
        return Equation(equation.primitive, inputs, equation.params, equation.outputs, equation.origin)

    def settle(self, equation: Equation) -> tuple[Atom, ...]:
        """Replace an equation as long as a rule applies, or append it."""
        for rule in self.rules.of(equation.primitive.name):
            results = self.attempt(rule, equation)
            if results is not None:
                self.rules.hits[rule.text] += 1
                return results
        self.equations.append(equation)
        for variable in equation.outputs:
            self.producers[variable] = equation
        return equation.outputs

    def attempt(self, rule: Rule, equation: Equation) -> tuple[Atom, ...] | None:
        """The replacement of an equation by a rule; None if the rule does not apply."""
        if rule.kinds and dtype_kind(equation.inputs[0].type.dtype) not in rule.kinds:
            return None
        found: dict[str, Atom] = {}
        if rule.before.operands is not None and not self.matches(rule.before.operands, equation.inputs, found):
            return None
        self.depth += 1
        if self.depth > _DEPTH:
            raise RlxError(f"The rewrite rules do not come to an end: {rule!r} is applied again and again.")
        try:
            result = (
                self.build(rule.after, found, equation)
                if rule.function is None
                else rule.function(Match(self, equation, found))
            )
        finally:
            self.depth -= 1
        if result is None:
            return None
        results = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        _check_types(rule, equation, results)
        return results

    def matches(self, patterns: Sequence[Any], atoms: Sequence[Atom], found: dict[str, Atom]) -> bool:
        """Whether operands match the patterns; binds variables in `found`."""
        if len(patterns) != len(atoms):
            return False
        for pattern, atom in zip(patterns, atoms, strict=True):
            if isinstance(pattern, str):
                if found.setdefault(pattern, atom) is not atom:
                    return False
            elif isinstance(pattern, _NumberPattern):
                if not pattern.matches(atom):
                    return False
            else:
                inner = self.producer(atom, pattern.name)
                if inner is None or not self.matches(pattern.operands or (), inner.inputs, found):
                    return False
        return True

    def build(self, pattern: Any, found: Mapping[str, Atom], equation: Equation) -> Atom:
        """The right-hand side of a rule without a function."""
        if isinstance(pattern, str):
            return found[pattern]
        if isinstance(pattern, _NumberPattern):
            dtype = equation.outputs[0].type.dtype
            return Literal(np.asarray(pattern.value, dtype), TensorType((), dtype, True))
        operands = tuple(self.build(p, found, equation) for p in pattern.operands or ())
        result: Atom = self.emit(pattern.name, operands, {}, equation.origin)
        return result

    # -------------------------------------------------------------- for matches
    def producer(self, atom: Atom, name: str) -> Equation | None:
        """The equation that computes an operand."""
        equation = self.producers.get(atom) if isinstance(atom, Var) else None
        if equation is None or (name and equation.primitive.name != name):
            return None
        return equation

    def emit(self, name: str, inputs: Sequence[Atom], params: dict[str, Any], origin: Origin | None) -> Any:
        """Settle a new equation."""
        primitive = self.primitives[name]
        types = primitive.type(*[a.type for a in inputs], **params)
        outputs = tuple(map(Var, types)) if primitive.multiple else (Var(types),)
        results = self.settle(Equation(primitive, tuple(inputs), params, outputs, origin))
        return results if primitive.multiple else results[0]

    def inline(self, program: Program, inputs: Sequence[Atom]) -> tuple[Atom, ...]:
        """Settle a copy of a closed program's equations."""
        values: dict[Var, Atom] = dict(zip(program.inputs, inputs, strict=True))
        for variable, array in program.constants:
            fresh = values[variable] = Var(variable.type)
            self.constants.append((fresh, array))
        for e in program.equations:
            operands = tuple(values[a] if isinstance(a, Var) else a for a in e.inputs)
            outputs = tuple(Var(v.type) for v in e.outputs)
            results = self.settle(Equation(e.primitive, operands, e.params, outputs, e.origin))
            values.update(zip(e.outputs, results, strict=True))
        return tuple(values[a] if isinstance(a, Var) else a for a in program.outputs)


def _check_types(rule: Rule, equation: Equation, results: Sequence[Atom]) -> None:
    given = [(a.type.shape, a.type.dtype) for a in results]
    expected = [(v.type.shape, v.type.dtype) for v in equation.outputs]
    if given != expected:
        raise VerificationError(f"{rule!r} replaced results of types {expected} by {given}.", line="")


def rewrite(program: Program, rules: RuleSet, primitives: Mapping[str, Any]) -> Program:
    """The program with every rule applied wherever it matches; regions are left alone.

    primitives: the primitives by name, for the equations that rules make. Equations that become unused
    stay: run dead_code afterwards. The time is linear in the number of equations.
    """
    return _Rewriter(program, rules, primitives).run()
