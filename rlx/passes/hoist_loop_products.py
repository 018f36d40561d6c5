"""Products in scans for all steps at once: before the loop for products of slices, after it for summed ones.

A step's product of small matrices costs more than its part of one large product. The price is memory for
the operands of all steps: at most `ProductLimits.loop_bytes` bytes per scan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache, partial
from math import prod
from typing import Any, NamedTuple

from rlx.ir.loop_parts import ScanParts, ScanResults
from rlx.ir.options import ProductLimits
from rlx.ir.program import Atom, Equation, Literal, Program, Var
from rlx.ir.rewrite import Match, Rule, RuleSet, rewrite
from rlx.passes.prune import prune
from rlx.passes.simplify import rules
from rlx.trace.primitive import registry

__all__ = ["hoist_loop_products"]

_MOVEMENT = frozenset(("transpose", "reshape"))


def hoist_loop_products(program: Program, limits: ProductLimits | None = None) -> Program:
    """The program with products taken out of its scans."""
    if not any(e.primitive.name == "scan" for e in program.equations):
        return program
    return prune(rewrite(program, _rules(limits or ProductLimits()), registry))


class _ScanLoop:
    """A scan's operands, its body, and the producers and uses of its values."""

    def __init__(self, m: Match, limits: ProductLimits) -> None:
        self.limits = limits
        n, c = m.params["constants"], m.params["carries"]
        self.body: Program = m.params["body"]
        self.length: int = m.params["length"]
        self.constants, self.initial, self.xs = ScanParts.of(m.inputs, n, c)
        self.fixed, self.carried, self.slices = ScanParts.of(self.body.inputs, n, c)
        self.next, self.ys = map(list, ScanResults.of(self.body.outputs, c))
        self.producers = {v: e for e in self.body.equations for v in e.outputs}
        self.uses: Counter[Atom] = Counter(a for e in self.body.equations for a in e.inputs)
        self.uses.update(self.body.outputs)

    def only_use(self, atom: Atom) -> Equation | None:
        """The equation that computes `atom`, if that is used once."""
        return self.producers.get(atom) if isinstance(atom, Var) and self.uses[atom] == 1 else None

    def step_bytes(self, atom: Atom) -> int:
        """Bytes of a value of one step."""
        return atom.type.size * atom.type.dtype.itemsize


# ------------------------------------------------------------------ sums, after the loop
class _Sum(NamedTuple):
    """A term of a carry's sum: a dot_general or reduce_sum, and the moves of its elements."""

    source: Equation
    moves: tuple[Equation, ...]


def _sums_after(m: Match, limits: ProductLimits) -> Any:
    """Carries to which steps add products: the products of all steps are summed after the loop."""
    loop = _ScanLoop(m, limits)
    if loop.length < 2:
        return None
    stacks = _Stacks(loop)
    found: dict[int, list[_Sum]] = {}
    rest: dict[int, list[Atom]] = {}
    sums = {k: terms for k in range(len(loop.next)) if (terms := _terms(loop, k)) is not None}
    for wanted in ("dot_general", "reduce_sum"):
        for k, terms in sums.items():
            remaining = rest.get(k, terms)
            for atom in remaining:
                term = _summed(loop, atom, wanted)
                if term is not None and stacks.take(term):
                    found.setdefault(k, []).append(term)
                    remaining = [a for a in remaining if a is not atom]
            rest[k] = remaining
    if not found:
        return None
    body = _with_terms(loop, {k: rest[k] for k in found}, stacks.ys)
    results = m.emit("scan", *m.inputs, **{**m.params, "body": body})
    final = list(results)
    values = stacks.values(results)
    for k, joined in found.items():
        totals = [_total(m, term, values) for term in joined]
        if rest[k]:
            totals.insert(0, final[k])
        elif not _is_zero(m, loop.initial[k]):
            totals.insert(0, loop.initial[k])
        final[k] = totals[0]
        for total in totals[1:]:
            final[k] = m.emit("add", final[k], total)
    return final[: len(loop.body.outputs)]


def _is_zero(m: Match, atom: Atom) -> bool:
    """Whether an initial carry is known to be zero."""
    source = m.producer(atom, "broadcast_in_dim")
    if source is not None:
        atom = source.inputs[0]
    return isinstance(atom, Literal) and not atom.value.any()


def _terms(loop: _ScanLoop, k: int) -> list[Atom] | None:
    """The terms that a step adds to carry `k`, if it does nothing else with the carry."""
    carry = loop.carried[k]
    if loop.uses[carry] != 1 or carry.type.dtype.kind not in "fc":
        return None
    terms = list(_addends(loop, loop.next[k]))
    if terms.count(carry) != 1:
        return None
    return [a for a in terms if a is not carry]


def _addends(loop: _ScanLoop, atom: Atom) -> Iterator[Atom]:
    equation = loop.only_use(atom)
    same = equation is not None and all(a.type.shape == atom.type.shape for a in equation.inputs)
    if equation is None or equation.primitive.name != "add" or not same:
        yield atom
        return
    for operand in equation.inputs:
        yield from _addends(loop, operand)


def _summed(loop: _ScanLoop, atom: Atom, wanted: str) -> _Sum | None:
    """The term as a `wanted` equation whose elements are moved, if it is one."""
    moves: list[Equation] = []
    equation = loop.only_use(atom)
    while equation is not None and equation.primitive.name in _MOVEMENT:
        moves.append(equation)
        equation = loop.only_use(equation.inputs[0])
    if equation is None or equation.primitive.name != wanted:
        return None
    if wanted == "dot_general" and not _is_small_product(equation, loop.limits.loop_rows):
        return None
    return _Sum(equation, tuple(reversed(moves)))


def _is_small_product(equation: Equation, many: int) -> bool:
    """Whether a product sums over few elements, and its operands are worth keeping."""
    (contracted, _), _ = equation.params["dimension_numbers"]
    lhs, rhs = (a.type for a in equation.inputs)
    out = equation.outputs[0].type
    few = prod(lhs.shape[d] for d in contracted) < many
    return few and lhs.size + rhs.size <= 2 * out.size and lhs.dtype == out.dtype


class _Stacks:
    """Values of steps that the loop stacks, and how much more it may."""

    def __init__(self, loop: _ScanLoop) -> None:
        self.loop = loop
        self.ys: list[Atom] = []
        self.room = loop.limits.loop_bytes

    def take(self, term: _Sum) -> bool:
        """Stack the operands of a term, if they fit the limit; sums only use operands that are already stacked."""
        operands = [a for a in term.source.inputs if not self.has(a)]
        if not all(isinstance(a, Var) and a not in self.loop.fixed for a in term.source.inputs):
            return False
        needed = self.loop.length * sum(self.loop.step_bytes(a) for a in dict.fromkeys(operands))
        if needed > self.room or (operands and term.source.primitive.name == "reduce_sum"):
            return False
        self.room -= needed
        self.ys.extend(dict.fromkeys(operands))
        return True

    def has(self, atom: Atom) -> bool:
        """Whether the values of all steps are available."""
        return atom in self.loop.slices or atom in self.loop.ys or atom in self.ys

    def values(self, results: Sequence[Atom]) -> dict[Atom, Atom]:
        """Each value of a step and its stack, given the results of the new loop."""
        stacked = [*self.loop.ys, *self.ys]
        values = dict(zip(stacked, results[len(self.loop.next) :], strict=True))
        values.update(zip(self.loop.slices, self.loop.xs, strict=True))
        return values


def _with_terms(loop: _ScanLoop, rest: dict[int, list[Atom]], ys: Sequence[Atom]) -> Program:
    """The body whose carries only gather the terms that are left."""
    equations, following = list(loop.body.equations), list(loop.next)
    for k, terms in rest.items():
        last = loop.producers[_var(loop.next[k])]
        total: Var = loop.carried[k]
        for term in terms:
            result = Var(total.type)
            equations.append(Equation(last.primitive, (total, term), last.params, (result,), last.origin))
            total = result
        following[k] = total
    outputs = (*following, *loop.ys, *ys)
    return prune(loop.body.replace(equations=equations, outputs=outputs))


def _var(atom: Atom) -> Var:
    assert isinstance(atom, Var)
    return atom


def _total(m: Match, term: _Sum, values: dict[Atom, Atom]) -> Atom:
    """The term summed over all steps."""
    source = term.source
    operands = [values[a] for a in source.inputs]
    if source.primitive.name == "reduce_sum":
        axes = (0, *(axis + 1 for axis in source.params["axes"]))
        total = m.emit("reduce_sum", *operands, **{**source.params, "axes": axes})
    else:
        (lhs, rhs), (lhs_batch, rhs_batch) = source.params["dimension_numbers"]
        numbers = (((0, *_later(lhs)), (0, *_later(rhs))), (_later(lhs_batch), _later(rhs_batch)))
        total = m.emit("dot_general", *operands, **{**source.params, "dimension_numbers": numbers})
    for move in term.moves:
        total = m.emit(move.primitive.name, total, **move.params)
    return total


def _later(axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(axis + 1 for axis in axes)


# ------------------------------------------------------------------ products of slices, before it
def _products_before(m: Match, limits: ProductLimits) -> Any:
    """Products of a slice and a constant: computed for all steps; the body reads slices of the result."""
    loop = _ScanLoop(m, limits)
    room = limits.loop_bytes
    found: list[tuple[Equation, int]] = []
    for equation in loop.body.equations:
        side = _slice_side(loop, equation)
        if side is None or loop.length < 2:
            continue
        needed = loop.length * loop.step_bytes(equation.outputs[0])
        if needed <= room:
            room -= needed
            found.append((equation, side))
    if not found:
        return None
    stacked = [_for_all_steps(m, loop, equation, side) for equation, side in found]
    taken = {id(equation) for equation, _ in found}
    body = loop.body.replace(
        inputs=[*loop.body.inputs, *(e.outputs[0] for e, _ in found)],
        equations=[e for e in loop.body.equations if id(e) not in taken],
    )
    return m.emit("scan", *m.inputs, *stacked, **{**m.params, "body": body})


def _slice_side(loop: _ScanLoop, equation: Equation) -> int | None:
    """The operand of a small product that is a slice, if the other is a constant."""
    if equation.primitive.name != "dot_general":
        return None
    numbers = equation.params["dimension_numbers"]
    for side in (0, 1):
        slice, constant = equation.inputs[side], equation.inputs[1 - side]
        if _origin(loop, slice) in loop.slices and _origin(loop, constant) in loop.fixed:
            contracted, batch = numbers[0][side], numbers[1][side]
            free = [n for d, n in enumerate(slice.type.shape) if d not in (*contracted, *batch)]
            inner = prod(slice.type.shape[d] for d in contracted)
            worth = prod(free) < loop.limits.loop_rows and not batch and inner > 1
            if worth and equation.outputs[0].type.size <= 16 * slice.type.size:
                return side
    return None


def _origin(loop: _ScanLoop, atom: Atom) -> Atom:
    """An atom without its transpositions."""
    equation = loop.producers.get(atom) if isinstance(atom, Var) else None
    if equation is None or equation.primitive.name != "transpose":
        return atom
    return _origin(loop, equation.inputs[0])


def _outside(m: Match, loop: _ScanLoop, atom: Atom) -> Atom:
    """A constant, or the stack of a slice, transposed as it is in the loop."""
    if atom in loop.slices:
        return loop.xs[loop.slices.index(_var(atom))]
    if atom in loop.fixed:
        return loop.constants[loop.fixed.index(_var(atom))]
    equation = loop.producers[_var(atom)]
    x = _outside(m, loop, equation.inputs[0])
    permutation = equation.params["permutation"]
    if x.type.ndim > len(permutation):
        permutation = (0, *_later(permutation))
    return m.emit("transpose", x, permutation=tuple(permutation))


def _for_all_steps(m: Match, loop: _ScanLoop, equation: Equation, side: int) -> Atom:
    """The product of all slices, the steps in front."""
    (lhs, rhs), batch = equation.params["dimension_numbers"]
    contracting = (_later(lhs), rhs) if side == 0 else (lhs, _later(rhs))
    operands = [_outside(m, loop, a) for a in equation.inputs]
    params = {**equation.params, "dimension_numbers": (contracting, batch)}
    result = m.emit("dot_general", *operands, **params)
    if side == 0:
        return result
    steps = equation.inputs[0].type.ndim - len(lhs)
    rest = [axis for axis in range(result.type.ndim) if axis != steps]
    return m.emit("transpose", result, permutation=(steps, *rest))


@cache
def _rules(limits: ProductLimits) -> RuleSet:
    own = RuleSet((
        Rule("scan -> with the products that carries sum after the loop", partial(_sums_after, limits=limits)),
        Rule("scan -> with products of slices and constants before the loop", partial(_products_before, limits=limits)),
    ))  # fmt: skip
    return own + rules
