"""Calls of programs: jitted functions by name, custom derivative rules, checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from rlx.errors import CustomRuleError, ReferenceUseError, UnexpectedTracerError, UnsupportedError
from rlx.ir.index_sets import Along, Reading
from rlx.ir.program import Equation, Program, Var, dead_code, substitute
from rlx.ir.types import TensorType, is_inexact
from rlx.ops.families import instantiate, to_front
from rlx.ops.reduction import reduce_sum
from rlx.ops.regions import RegionPrimitive, batch_front, calls_host, drop, is_zero, keep, run_region, tangent_inputs
from rlx.trace.builder import Builder
from rlx.trace.interpret import interpret
from rlx.trace.lower import inline_calls
from rlx.trace.primitive import Linear, Primitive, Sample, Zero, primitive
from rlx.trace.tracing import finish

__all__ = [
    "ByValue",
    "Deferred",
    "call",
    "checkpoint",
    "custom_jvp_call",
    "custom_vjp_call",
    "optimization_barrier",
    "placed_call",
]


def has_effect(program: Program) -> bool:
    """Whether any equation of a program must run."""
    return any(e.primitive.effect(**e.params) for e in program.equations)


class CallLike(RegionPrimitive):
    """Runs `params["program"]` on its operands; inlined before compilation."""

    inlined = True

    def type(self, *types: TensorType, program: Program, **params: Any) -> Any:
        return program.output_types

    def effect(self, *, program: Program, **params: Any) -> bool:
        """Whether the program has effects."""
        return has_effect(program)

    def reference(self, *args: np.ndarray, program: Program, **params: Any) -> Any:
        return tuple(run_region(program, args))

    def dependence(self, walk: Any, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        """By the equations of the program."""
        return walk.program(self.meaning(equation), operands)

    def lower(self, k: Any, *values: Any, program: Program, **params: Any) -> Any:
        return k.inline(program, values)


class TransformedCall(CallLike):
    """A call whose derivative and batch are calls of the same kind of the transformed program."""

    def jvp(self, t: Any, primals: Sequence[Any], tangents: Sequence[Any], *, program: Program, **params: Any) -> Any:
        """The call of the program with tangents."""
        nonzero = [not is_zero(x) for x in tangents]
        moved, kept = t.jvp(program, nonzero)
        outs = self.bind(*primals, *tangent_inputs(tangents, nonzero), program=moved, **params)
        moving = iter(outs[len(kept) :])
        return outs[: len(kept)], [
            next(moving) if k else Zero(o) for o, k in zip(program.output_types, kept, strict=True)
        ]

    def batch(
        self,
        t: Any,
        size: int,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        axis_name: Any,
        *,
        program: Program,
        **params: Any,
    ) -> Any:
        """The call of the batched program."""
        batched = [d is not None for d in dims]
        moved, out_batched = t.batch(program, size, batched, False, axis_name)
        outs = self.bind(*batch_front(inputs, dims, batched, size), program=moved, **params)
        return outs, [0 if b else None for b in out_batched]


class NamedCall(TransformedCall):
    """A call whose halves and whose transpose are calls of the same kind, with its parameters."""

    def split(self, t: Any, equation: Equation, unknown: Sequence[bool]) -> tuple[list[Equation], list[Equation]]:
        """Two calls; the first passes its residuals to the second."""
        halves = t.split(equation.params["program"], unknown)
        known_in, unknown_in = drop(equation.inputs, unknown), keep(equation.inputs, unknown)
        slots = [Var(r) for r in halves.residuals]
        known_out = drop(equation.outputs, halves.unknown_out)
        params = {**equation.params, "program": halves.known}
        first = Equation(self, tuple(known_in), params, (*known_out, *slots), equation.origin)
        forwarded = [known_in[i] for i in halves.forwarded]
        params = {**equation.params, "program": halves.linear}
        unknown_out = tuple(keep(equation.outputs, halves.unknown_out))
        second = Equation(self, (*slots, *forwarded, *unknown_in), params, unknown_out, equation.origin)
        return [first], [second] if unknown_out else []

    def transpose(self, t: Any, cotangents: Sequence[Any], *inputs: Any, program: Program, **params: Any) -> list[Any]:
        """The call of the transposed program."""
        linear = [isinstance(x, Linear) for x in inputs]
        used = [not is_zero(c) for c in cotangents]
        backward = t.transpose(program, linear, used)
        outs = iter(self.bind(*drop(inputs, linear), *keep(cotangents, used), program=backward, **params))
        return [next(outs) if m else None for m in linear]


@primitive
class call(NamedCall):
    """A call of a named program, as of a jitted function. params: program, name."""


@primitive
class placed_call(NamedCall):
    """A region that runs on a device of its own (rlx.place). params: program, device."""


class Deferred:
    """A rule's program, traced when a derivative first needs it.

    A rule that calls its own function contains itself: its program would otherwise be infinite. A
    `symbolic` rule has a program for each set of nonzero tangents: `make` gets the mask of
    these, and otherwise None.
    """

    __slots__ = ("_made", "_make", "symbolic")

    def __init__(self, make: Callable[[tuple[bool, ...] | None], Any], symbolic: bool = False) -> None:
        self._make = make
        self.symbolic = symbolic
        self._made: dict[tuple[bool, ...] | None, Any] = {}

    def program(self, mask: Sequence[bool] | None = None) -> Any:
        """The program, traced now if it does not exist."""
        key = tuple(mask) if self.symbolic and mask is not None else None
        if key not in self._made:
            self._made[key] = self._make(key)
        return self._made[key]

    def then(self, transform: Callable[[Any, tuple[bool, ...] | None], Any]) -> Deferred:
        """The deferred result of a transform of program and mask."""
        return Deferred(lambda mask: transform(self.program(mask), mask), self.symbolic)


class ByValue:
    """A backward rule whose program depends on values: it is traced again with the known values."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[Sequence[Any] | None], Program]) -> None:
        self._make = make

    def program(self, operands: Sequence[Any] | None) -> Program:
        """The program for these residuals and cotangents; ConcretizationTypeError if it needs an unknown one."""
        return self._make(operands)


def _made(rule: Program | Deferred, mask: Sequence[bool] | None = None) -> Any:
    return rule.program(mask) if isinstance(rule, Deferred) else rule


def _moving_of(rule: Program | Deferred, tangents: Sequence[Any]) -> tuple[list[bool], list[Any]]:
    """The mask of tangents that a rule gets as values, and the values."""
    mask = [not (isinstance(rule, Deferred) and rule.symbolic and is_zero(x)) for x in tangents]
    return mask, [instantiate(x) for x in keep(tangents, mask)]


def _batch_all(
    t: Any, rule: Program | Deferred, size: int, batched: Sequence[bool], axis_name: Any, moving: Sequence[bool] = ()
) -> Any:
    """A rule over inputs and moving tangents with every output batched; a deferred one remains deferred."""

    def wide(program: Program, mask: tuple[bool, ...] | None) -> Program:
        present = keep(moving, mask) if mask is not None and moving else moving
        return t.batch(program, size, [*batched, *present], True, axis_name)[0]

    return rule.then(wide) if isinstance(rule, Deferred) else wide(rule, None)


def _refuse_captured(name: str, tangents: Sequence[Any], captured: int) -> None:
    """Raise UnexpectedTracerError if a value that a function with a rule closes over is differentiated."""
    if all(map(is_zero, tangents[:captured])):
        return
    raise UnexpectedTracerError(
        f"{name} has a derivative rule and closes over a value that is being differentiated: the rule does not cover"
        " its derivative.",
        "Pass the value as an argument of the function; rlx.closure_convert turns closed-over values into arguments.",
    )


@primitive
class custom_jvp_call(CallLike):
    """A call with its own forward derivative.

    params: program; rule: (inputs, tangents) -> (outputs, tangents); captured: the number of leading operands that it
    or its rule closed over.
    """

    def jvp(
        self,
        t: Any,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        program: Program,
        rule: Program | Deferred,
        captured: int,
    ) -> Any:
        """The user's rule."""
        _refuse_captured(program.name, tangents, captured)
        mask, explicit = _moving_of(rule, _float_tangents(program, tangents))
        outs = interpret(_made(rule, mask), [*primals, *explicit])
        n = len(program.outputs)
        return outs[:n], _scatter_tangents(program, outs[n:])

    def dependence(self, walk: Any, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        """By the rule: its tangents' sets are the operands'."""
        if not any(x.sets for x in operands):  # the rule of a function may call it
            return super().dependence(walk, equation, operands)
        program, rule = equation.params["program"], equation.params["rule"]
        symbolic = isinstance(rule, Deferred) and rule.symbolic
        moving = [x for x, t in zip(operands, program.input_types, strict=True) if _moves(t)]
        mask = [bool(x.sets) or not symbolic for x in moving]
        known = [x._replace(sets={}) for x in operands]
        outs = walk.program(_made(rule, mask), [*known, *[x._replace(value=None) for x in keep(moving, mask)]])
        tangents = iter(outs[len(program.outputs) :])
        pairs = zip(outs, program.output_types, strict=False)
        return [x._replace(sets=next(tangents).sets) if _moves(t) else x for x, t in pairs]

    def split(self, t: Any, equation: Equation, unknown: Sequence[bool]) -> tuple[list[Equation], list[Equation]]:
        """A call that depends on tangents is linear as a whole."""
        return [], [equation]

    def transpose(self, t: Any, cotangents: Sequence[Any], *inputs: Any, program: Program, **params: Any) -> list[Any]:
        """Transpose the program itself."""
        return call.transpose(t, cotangents, *inputs, program=program, name="custom_jvp")

    def batch(
        self,
        t: Any,
        size: int,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        axis_name: Any,
        *,
        program: Program,
        rule: Program | Deferred,
        captured: int,
    ) -> Any:
        """Batch the program and its rule alike."""
        batched = [d is not None for d in dims]
        moving = [b for b, ty in zip(batched, program.input_types, strict=True) if _moves(ty)]
        if isinstance(rule, Deferred):
            wide, _ = t.batch(program, size, batched, True, axis_name)
            later = _batch_all(t, rule, size, batched, axis_name, moving)
            values = batch_front(inputs, dims, batched, size)
            outs = custom_jvp_call(*values, program=wide, rule=later, captured=captured)
            return outs, [0] * len(outs)
        _, kept = t.batch(program, size, batched, False, axis_name)
        inner_outs = [k for k, ty in zip(kept, program.output_types, strict=True) if _moves(ty)]
        _, rule_kept = t.batch(rule, size, [*batched, *moving], [*kept, *inner_outs], axis_name)
        n = len(kept)
        tangent_kept = iter(rule_kept[n:])
        force = [
            a or b or (next(tangent_kept) if _moves(ty) else False)
            for a, b, ty in zip(kept, rule_kept[:n], program.output_types, strict=True)
        ]
        inner, _ = t.batch(program, size, batched, force, axis_name)
        force_rule = [*force, *[f for f, ty in zip(force, program.output_types, strict=True) if _moves(ty)]]
        batched_rule, _ = t.batch(rule, size, [*batched, *moving], force_rule, axis_name)
        values = batch_front(inputs, dims, batched, size)
        outs = custom_jvp_call(*values, program=inner, rule=batched_rule, captured=captured)
        return outs, [0 if f else None for f in force]


@primitive
class custom_vjp_call(CallLike):
    """A call with its own reverse derivative.

    params: program; forward: inputs -> (outputs, residuals); backward: (residuals, cotangents of the
    outputs) -> cotangents of the inputs that can have one; captured: the number of leading operands that it or its
    rules closed over; cells: the number of last operands (also the last results) that represent cells that the
    backward rule uses: their cotangents are the values of those cells (see trace/references.py).
    """

    def jvp(
        self,
        t: Any,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        program: Program,
        forward: Program | Deferred,
        backward: Program | Deferred,
        captured: int,
        cells: int = 0,
    ) -> Any:
        """Run `forward`; the tangents go through an equation that only transposition can read."""
        _refuse_captured(program.name, tangents, captured)
        if cells and all(map(is_zero, tangents[:-cells])):  # nothing is differentiated
            zeros = [Zero(ty) for ty in program.output_types[:-cells]]
            return interpret(program, primals), [*zeros, *tangents[-cells:]]
        mask = [not is_zero(x) for x in _float_tangents(program, tangents)]
        results = interpret(_made(forward, mask), primals)
        n = len(program.outputs)
        explicit = [instantiate(x) for x in _float_tangents(program, tangents)]
        out_types = tuple(ty.strong() for ty in program.output_types if _moves(ty))
        # the backward rule is traced at the first pullback, if there is one
        later = isinstance(backward, Deferred) and not backward.symbolic
        behind = backward if later else _made(backward, mask)
        moving = custom_vjp_tangent(
            *results[n:], *explicit, backward=behind, residuals=len(results) - n, types=out_types, cells=cells
        )
        return results[:n], _scatter_tangents(program, moving)

    def dependence(self, walk: Any, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        """By the backward rule, reversed."""
        if not any(x.sets for x in operands):
            return super().dependence(walk, equation, operands)
        p = equation.params
        program, backward = p["program"], p["backward"]
        moving = [x for x, t in zip(operands, program.input_types, strict=True) if _moves(t)]
        ahead = _made(p["forward"], [bool(x.sets) for x in moving])
        count = len(program.outputs)
        known = walk.program(ahead, [x._replace(sets={}) for x in operands])
        places = [i for i, t in enumerate(program.output_types) if _moves(t)]
        behind = _made(backward, [True] * len(places))
        if p.get("cells") or isinstance(behind, ByValue):
            return walk.dense(equation, operands, "its backward rule depends on values")
        pairs = [(x, t) for x, t in zip(operands, program.input_types, strict=True) if _moves(t)]
        readings = walk.transposed(behind, known[count:])
        found = walk.by_readings(equation, pairs, readings, [program.output_types[i] for i in places])
        sets = {i: x.sets for i, x in zip(places, found, strict=True)}
        return [x._replace(sets=sets.get(i, {})) for i, x in enumerate(known[:count])]

    def split(self, t: Any, equation: Equation, unknown: Sequence[bool]) -> tuple[list[Equation], list[Equation]]:
        """A call that depends on tangents is linear as a whole."""
        return [], [equation]

    def transpose(self, t: Any, cotangents: Sequence[Any], *inputs: Any, program: Program, **params: Any) -> list[Any]:
        """Transpose the program itself."""
        return call.transpose(t, cotangents, *inputs, program=program, name="custom_vjp")

    def batch(
        self,
        t: Any,
        size: int,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        axis_name: Any,
        *,
        program: Program,
        forward: Program | Deferred,
        backward: Program | Deferred,
        captured: int,
        cells: int = 0,
    ) -> Any:
        """Batch all three programs; cotangents of unbatched inputs are summed over the batch."""
        batched = [d is not None for d in dims]
        n = len(program.outputs)
        if isinstance(forward, Deferred):
            force, given = [True] * n, None
            ahead: Any = _batch_all(t, forward, size, batched, axis_name)
        else:
            every = [t.batch(p, size, batched, False, axis_name)[1] for p in (program, forward)]
            force = [a or b for a, b in zip(every[0], every[1][:n], strict=True)]
            ahead, kept = t.batch(forward, size, batched, [*force, *every[1][n:]], axis_name)
            given = [*kept[n:], *[f for f, ty in zip(force, program.output_types, strict=True) if _moves(ty)]]
        inner, _ = t.batch(program, size, batched, force, axis_name)
        moving = [b for b, ty in zip(batched, program.input_types, strict=True) if _moves(ty)]

        behind = _batch_backward(t, backward, size, moving, axis_name, given, cells)
        values = batch_front(inputs, dims, batched, size)
        outs = custom_vjp_call(*values, program=inner, forward=ahead, backward=behind, captured=captured, cells=cells)
        return outs, [0 if f else None for f in force]


def _batch_backward(
    t: Any,
    rule: Program | Deferred | ByValue,
    size: int,
    moving: Sequence[bool] | None,
    axis_name: Any,
    given: Sequence[bool] | None = None,
    cells: int = 0,
) -> Program | Deferred:
    """A backward rule over a batch; differing cotangents of operands not in `moving` are summed over the batch.

    `given`: which residuals and cotangents are batched; all. The contents of the last `cells` must not differ.
    """
    if isinstance(rule, Deferred):
        return rule.then(lambda program, _: _batch_backward(t, program, size, moving, axis_name, given, cells))
    if isinstance(rule, ByValue):
        rule = rule.program(None)
    if given is None:
        behind, wide = t.batch(rule, size, [True] * len(rule.inputs), True, axis_name)
    else:
        behind, wide = t.batch(rule, size, given, True if moving is None else moving, axis_name)
    if moving is None or all(moving):
        return behind
    pairs = list(zip(wide, moving, strict=True))
    if any(w and not b for w, b in pairs[len(pairs) - cells :]):
        raise ReferenceUseError(
            f"{behind.name} under vmap writes a value that differs along the mapped axis to a Ref from outside.",
            "Pass the Ref as a mapped argument, or write a value that is equal for all, such as a sum over the axis.",
        )
    with Builder(behind.name) as builder:
        cts = interpret(behind, [builder.input(x) for x in behind.input_types])
        summed = [reduce_sum(c, axes=(0,)) if w and not b else c for c, (w, b) in zip(cts, pairs, strict=True)]
        return finish(builder, summed)


def _moves(type: TensorType) -> bool:
    return is_inexact(type.dtype)


def _float_tangents(program: Program, tangents: Sequence[Any]) -> list[Any]:
    return [x for x, ty in zip(tangents, program.input_types, strict=True) if _moves(ty)]


def _scatter_tangents(program: Program, moving: Sequence[Any]) -> list[Any]:
    found = iter(moving)
    return [next(found) if _moves(ty) else Zero(ty) for ty in program.output_types]


@primitive
class custom_vjp_tangent(RegionPrimitive):
    """The tangent of a custom_vjp function: linear in the tangents, known only by its transpose.

    Operands: residuals, then tangents. params: backward; residuals: their number; types of the results; cells: as in
    custom_vjp_call.
    """

    def type(
        self,
        *operands: TensorType,
        backward: Program | Deferred,
        residuals: int,
        types: tuple[TensorType, ...],
        cells: int = 0,
    ) -> Any:
        return types

    def _refuse(self) -> CustomRuleError:
        return CustomRuleError(
            "A function with custom_vjp met forward-mode autodiff (jvp, jacfwd, hessian).",
            "Give the function a custom_jvp rule, which serves both modes, or use jacrev.",
        )

    def reference(self, *args: np.ndarray, **params: Any) -> Any:
        raise self._refuse()

    def lower(self, k: Any, *values: Any, **params: Any) -> Any:
        raise self._refuse()

    def jvp(self, t: Any, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        """The derivative in this direction is unknown."""
        raise self._refuse()

    def split(self, t: Any, equation: Equation, unknown: Sequence[bool]) -> tuple[list[Equation], list[Equation]]:
        """Linear as a whole."""
        return [], [equation]

    def transpose(
        self,
        t: Any,
        cotangents: Sequence[Any],
        *inputs: Any,
        backward: Program | Deferred,
        residuals: int,
        types: Any,
        cells: int = 0,
    ) -> list[Any]:
        """The user's backward rule."""
        if cells and all(map(is_zero, cotangents[:-cells])):  # unused
            return [*[None] * (len(inputs) - cells), *cotangents[-cells:]]
        mask, explicit = _moving_of(backward, cotangents)
        operands = [*inputs[:residuals], *explicit]
        rule = _made(backward, mask)
        cts = interpret(rule.program(operands) if isinstance(rule, ByValue) else rule, operands)
        return [None] * residuals + list(cts)

    def batch(
        self,
        t: Any,
        size: int,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        axis_name: Any,
        *,
        backward: Program | Deferred,
        residuals: int,
        types: Any,
        cells: int = 0,
    ) -> Any:
        """Every operand batched in front."""
        behind = _batch_backward(t, backward, size, None, axis_name)
        values = [to_front(x, d, size) for x, d in zip(inputs, dims, strict=True)]
        wide = tuple(ty.update(shape=(size, *ty.shape)) for ty in types)
        outs = custom_vjp_tangent(*values, backward=behind, residuals=residuals, types=wide, cells=cells)
        return outs, [0] * len(outs)


@primitive
class checkpoint(TransformedCall):
    """A call whose intermediate values are recomputed for the derivative instead of stored.

    params: program; policy: None (keep nothing but the operands) or a function of
    (primitive, *types, **params) that selects the equations whose results are kept.
    """

    def split(self, t: Any, equation: Equation, unknown: Sequence[bool]) -> tuple[list[Equation], list[Equation]]:
        """The known half runs unchanged; the linear half repeats it from the operands.

        Values that the policy keeps are passed as residuals.
        """
        program: Program = equation.params["program"]
        policy = equation.params["policy"]
        if calls_host(program):
            raise UnsupportedError(
                "A derivative met a checkpoint that calls io_callback.",
                "The call would be repeated with the rest: move it outside of rlx.checkpoint.",
            )
        halves = t.split(program, unknown)
        halves = halves._replace(known=_opened(halves.known, policy))
        saved = _saved_by_policy(halves.known, policy)
        known_in, unknown_in = drop(equation.inputs, unknown), keep(equation.inputs, unknown)
        n_out = halves.unknown_out.count(False)
        slots = [Var(v.type) for v in saved]
        first_program = dead_code(halves.known.replace(outputs=(*halves.known.outputs[:n_out], *saved)))
        first = Equation(
            call,
            tuple(known_in),
            {"program": first_program, "name": "checkpoint"},
            (*drop(equation.outputs, halves.unknown_out), *slots),
            equation.origin,
        )
        again = _replay(halves, saved)
        unknown_out = tuple(keep(equation.outputs, halves.unknown_out))
        second = Equation(
            checkpoint,
            (*known_in, *slots, *unknown_in),
            {"program": again, "policy": policy},
            unknown_out,
            equation.origin,
        )
        return [first], [second] if unknown_out else []

    def transpose(self, t: Any, cotangents: Sequence[Any], *inputs: Any, program: Program, policy: Any) -> list[Any]:
        """Transpose after a barrier, so that the repeated work is not merged with the first run."""
        linear = [isinstance(x, Linear) for x in inputs]
        used = [not is_zero(c) for c in cotangents]
        backward = t.transpose(program, linear, used)
        operands = [*drop(inputs, linear), *keep(cotangents, used)]
        guarded = optimization_barrier(*operands)
        outs = iter(call(*guarded, program=backward, name="checkpoint"))
        return [next(outs) if m else None for m in linear]


def _opened(known: Program, policy: Any) -> Program:
    """The known half with equations instead of the blocks that begin derivatives, if a policy keeps any."""
    if policy is None:
        return known

    def stays(e: Equation) -> bool:
        if e.params.get("alone") is None:
            return True
        inside = e.params["program"].equations
        return not any(policy(x.primitive, *[a.type for a in x.inputs], **x.params) for x in inside)

    return inline_calls(known, stays)


def _saved_by_policy(known: Program, policy: Any) -> list[Var]:
    """Results of the known half that the policy keeps."""
    if policy is None:
        return []
    saved: list[Var] = []
    for e in known.equations:
        if policy(e.primitive, *[a.type for a in e.inputs], **e.params):
            saved += e.outputs
    return saved


def _replay(halves: Any, saved: Sequence[Var]) -> Program:
    """(known inputs, saved values, unknown inputs) -> unknown outputs, computing residuals again."""
    n_out = halves.unknown_out.count(False)
    residuals = halves.known.outputs[n_out:]
    replaced = {v: Var(v.type) for v in saved}
    known = substitute(halves.known, replaced)
    mapping = dict(zip(halves.linear.inputs, [known.outputs[n_out + i] for i in range(len(residuals))], strict=False))
    forwarded = halves.linear.inputs[len(residuals) : len(residuals) + len(halves.forwarded)]
    mapping.update(zip(forwarded, [known.inputs[i] for i in halves.forwarded], strict=True))
    linear = substitute(halves.linear, mapping)
    unknown_inputs = halves.linear.inputs[len(residuals) + len(halves.forwarded) :]
    return dead_code(
        Program(
            [*known.inputs, *[replaced[v] for v in saved], *unknown_inputs],
            [*known.equations, *linear.equations],
            linear.outputs,
            [*known.constants, *linear.constants],
            "checkpoint",
        )
    )


@primitive
class optimization_barrier(Primitive):
    """The operands unchanged; the compiler moves and merges nothing across."""

    multiple = True
    opaque = True

    def type(self, *types: TensorType) -> Any:
        return types

    def varies(self, *operands: frozenset[Any], **params: Any) -> Any:
        """Each result as its operand."""
        return operands

    def divided(self, walk: Any, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        """The operands unchanged."""
        return operands

    def reads(self, known: Any, *types: TensorType, **params: Any) -> list[Reading | None]:
        """The operand itself."""
        return [Along(tuple(range(t.ndim))) for t in types]

    def reference(self, *args: np.ndarray) -> Any:
        return args

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        """A barrier for the tangents as well."""
        outs = optimization_barrier(*primals)
        mask = [not is_zero(t) for t in tangents]
        moving = iter(optimization_barrier(*keep(tangents, mask)) if any(mask) else ())
        return outs, [next(moving) if m else Zero(t.type) for t, m in zip(tangents, mask, strict=True)]

    def transpose(self, cotangents: Sequence[Any], *inputs: Any) -> list[Any]:
        """A barrier for the cotangents."""
        return [ct if isinstance(x, Linear) else None for ct, x in zip(cotangents, inputs, strict=True)]

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None]) -> Any:
        """Batch axes keep their positions."""
        return optimization_barrier(*inputs), list(dims)

    def lower(self, k: Any, *values: Any) -> Any:
        k.fence()
        return values

    def samples(self) -> Iterator[Sample]:
        """Operands of different types."""
        yield Sample((np.linspace(0.0, 1.0, 3), np.arange(2)), {})
