"""scan: a loop of known length that carries state and maps over slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.errors import ControlFlowTypeError
from rlx.ir.loop_parts import ScanParts, ScanResults, fixpoint
from rlx.ir.program import Atom, Equation, Program, Var, dead_code
from rlx.ir.types import TensorType
from rlx.ops.arithmetic import add
from rlx.ops.families import full_like, instantiate, to_front
from rlx.ops.regions import (
    RegionPrimitive,
    batch_front,
    check_operands,
    drop,
    is_zero,
    iteration,
    keep,
    run_region,
    tangent_inputs,
)
from rlx.ops.shape import transpose
from rlx.trace.builder import Builder
from rlx.trace.interpret import interpret
from rlx.trace.primitive import Linear, Zero, primitive, type_of
from rlx.trace.tracing import finish, trace_program

__all__ = ["scan", "scan_over"]


def _stack(t: TensorType, length: int) -> TensorType:
    return TensorType((length, *t.shape), t.dtype)


def scan_over(
    body: Callable[..., Sequence[Any]], initial: Sequence[Any], xs: Sequence[Any], length: int, reverse: bool = False
) -> tuple[list[Any], list[Any]]:
    """Bind scan for a Python function (*carries, *slices) -> (*carries, *ys), closing over values in scope.

    Returns the final carries, and the ys.
    """
    slices = [TensorType(type_of(x).shape[1:], type_of(x).dtype) for x in xs]
    program, constants = trace_program(body, [*(type_of(x).strong() for x in initial), *slices], name="body")
    outs = scan(
        *constants,
        *initial,
        *xs,
        body=program,
        constants=len(constants),
        carries=len(initial),
        length=length,
        reverse=reverse,
    )
    return list(outs[: len(initial)]), list(outs[len(initial) :])


@primitive
class scan(RegionPrimitive):
    """Operands: constants, initial carries, xs (leading axis `length`); body: (constants, carries,
    slices) -> (carries, slices of ys). Results: final carries, ys.

    params: body: Program; constants, carries: the number of operands of each kind; length; reverse.
    """

    def type(self, *types: TensorType, body: Program, constants: int, carries: int, length: int, reverse: bool) -> Any:
        parts, outs = ScanParts.of(types, constants, carries), ScanResults.of(body.output_types, carries)
        for t in parts.xs:
            if t.shape[:1] != (length,):
                raise ControlFlowTypeError(
                    f"scan of length {length} got xs of type {t!r}.", "Every x needs a leading axis of that length."
                )
        slices = [TensorType(t.shape[1:], t.dtype) for t in parts.xs]
        check_operands(self.name, body, [*parts.constants, *parts.carries, *slices])
        return (*[t.strong() for t in outs.carries], *[_stack(t, length) for t in outs.ys])

    def effect(self, **params: Any) -> bool:
        """Whether the body has effects."""
        return any(e.primitive.effect(**e.params) for e in params["body"].equations)

    def rounds(self, **params: Any) -> int | None:
        """The length of the scan."""
        return params["length"]

    def divided(self, walk: Any, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        """Carries by their fixed point; the leading axes of xs are needed whole."""
        p = equation.params
        parts = ScanParts.of(operands, p["constants"], p["carries"])
        lead = len(parts.constants) + len(parts.carries)
        slices = []
        for number, division in enumerate(parts.xs, lead):
            if division is not None:
                walk.gather(equation, number, division, ((), *division[1:]))
            slices.append(None if division is None else division[1:])
        carries, ys = walk.loop(equation, p["body"], (parts.constants, parts.carries, slices), p["length"])
        return [*carries, *(None if y is None else ((), *y) for y in ys)]

    def dependence(self, walk: Any, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        """By iterations, or the fixed point of the carries."""
        p = equation.params
        parts = ScanParts.of(operands, p["constants"], p["carries"])
        return walk.scan(equation, p["body"], parts, p["length"], p["reverse"])

    def reference(
        self, *args: np.ndarray, body: Program, constants: int, carries: int, length: int, reverse: bool
    ) -> Any:
        fixed, carry, xs = ScanParts.of(args, constants, carries)
        ys = [np.empty((length, *t.shape), t.dtype) for t in body.output_types[carries:]]
        for t in reversed(range(length)) if reverse else range(length):
            with iteration(t, f"{'reverse ' * reverse}loop of {length} steps"):
                carry, parts = ScanResults.of(run_region(body, [*fixed, *carry, *[x[t] for x in xs]]), carries)
            for y, value in zip(ys, parts, strict=True):
                y[t] = value
        return (*carry, *ys)

    def jvp(
        self,
        t: Any,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        body: Program,
        constants: int,
        carries: int,
        length: int,
        reverse: bool,
    ) -> Any:
        """One scan over (carries, their tangents)."""
        nz_c, nz_k, nz_x = ScanParts.of([not is_zero(x) for x in tangents], constants, carries)
        dark = [False] * (len(body.outputs) - carries)

        def step(moving: list[bool]) -> Any:  # a carry whose next tangent is nonzero has one
            found = t.jvp(body, [*nz_c, *moving, *nz_x], [*moving, *dark])
            return found, found[1][:carries]

        (moved, kept), nz_k = fixpoint(step, nz_k)
        nonzero = [*nz_c, *nz_k, *nz_x]
        n = len(nonzero)
        groups = interleave([constants, carries, n - constants - carries], [sum(nz_c), sum(nz_k), sum(nz_x)])
        order = interleave([carries, len(kept) - carries], [sum(kept[:carries]), sum(kept[carries:])])
        joint = moved.replace(inputs=[moved.inputs[i] for i in groups], outputs=[moved.outputs[i] for i in order])
        operands = [*primals, *tangent_inputs(tangents, nonzero)]
        outs = scan(
            *[operands[i] for i in groups],
            body=joint,
            constants=constants + sum(nz_c),
            carries=carries + sum(nz_k),
            length=length,
            reverse=reverse,
        )
        plain = dict(zip(order, outs, strict=True))
        moving = iter([plain[len(kept) + i] for i in range(sum(kept))])
        primal_outs = [plain[i] for i in range(len(kept))]
        return primal_outs, [next(moving) if k else Zero(type_of(o)) for o, k in zip(primal_outs, kept, strict=True)]

    def split(self, t: Any, equation: Equation, unknown: Sequence[bool]) -> tuple[list[Equation], list[Equation]]:
        """A known scan that stacks residuals, and a scan over the unknown part that reads them.

        Residuals that do not change over the loop are computed once, before it.
        """
        p = dict(equation.params)
        body, constants, carries = p["body"], p["constants"], p["carries"]
        hidden = ScanParts.of(unknown, constants, carries)
        dark = [False] * (len(body.outputs) - carries)

        def step(moving: list[bool]) -> Any:
            found = t.split(body, [*hidden.constants, *moving, *hidden.xs], [*moving, *dark])
            return found, found.unknown_out[:carries]

        halves, hidden_carries = fixpoint(step, hidden.carries)
        mask = [*hidden.constants, *hidden_carries, *hidden.xs]
        known_in, unknown_in = drop(equation.inputs, mask), keep(equation.inputs, mask)
        n_constants, n_carries = list(hidden.constants).count(False), hidden_carries.count(False)
        hoisted, invariant = _hoist(halves.known, n_constants, known_in)
        n_primal = halves.unknown_out.count(False)
        known_inputs = halves.known.inputs
        # where the linear body finds each residual: a constant, a slice of xs, or a stacked value
        fixed: list[tuple[Var, Atom]] = []
        sliced: list[tuple[Var, Atom]] = []
        stacked: list[tuple[Var, Var]] = []
        residuals = [v for v in halves.known.outputs[n_primal:] if isinstance(v, Var)]
        for v in [*residuals, *[known_inputs[i] for i in halves.forwarded]]:
            if v in invariant:
                fixed.append((v, invariant[v]))
            elif v in known_inputs[n_constants + n_carries :]:
                sliced.append((v, known_in[known_inputs.index(v)]))
            else:
                stacked.append((v, Var(_stack(v.type, p["length"]))))
        known_body = dead_code(
            halves.known.replace(outputs=(*halves.known.outputs[:n_primal], *[v for v, _ in stacked]))
        )
        known = Equation(
            scan,
            tuple(known_in),
            {**p, "body": known_body, "constants": n_constants, "carries": n_carries},
            (*drop(equation.outputs, halves.unknown_out), *[v for _, v in stacked]),
            equation.origin,
        )
        first = len(halves.linear.inputs) - len(unknown_in)
        pairs = list(zip(halves.linear.inputs[first:], unknown_in, strict=True))
        u_constants, u_carries = sum(hidden.constants), sum(hidden_carries)
        order = [
            *fixed,
            *pairs[: u_constants + u_carries],
            *sliced,
            *stacked,
            *pairs[u_constants + u_carries :],
        ]
        linear = Equation(
            scan,
            tuple(o for _, o in order),
            {
                **p,
                "body": halves.linear.replace(inputs=tuple(v for v, _ in order)),
                "constants": len(fixed) + u_constants,
                "carries": u_carries,
            },
            tuple(keep(equation.outputs, halves.unknown_out)),
            equation.origin,
        )
        return [*hoisted, known], [linear] if linear.outputs else []

    def transpose(
        self,
        t: Any,
        cotangents: Sequence[Any],
        *inputs: Any,
        body: Program,
        constants: int,
        carries: int,
        length: int,
        reverse: bool,
    ) -> list[Any]:
        """A scan in the other direction; cotangents of constants are summed in the carry."""
        given, cts = ScanParts.of(inputs, constants, carries), ScanResults.of(cotangents, carries)
        lin_c, wanted, lin_x = ([isinstance(x, Linear) for x in part] for part in given)
        linear = [*lin_c, *[True] * carries, *lin_x]  # an initial zero may be known
        fixed, sliced = drop(given.constants, lin_c), drop(given.xs, lin_x)
        ct_carry = [instantiate(c) for c in cts.carries]
        used = [not is_zero(c) for c in cts.ys]
        ct_ys = keep(list(cts.ys), used)
        backward = t.transpose(body, linear, [*[True] * carries, *used])
        n_fixed, n_sliced, n_sums = len(fixed), len(sliced), sum(lin_c)
        with Builder(body.name) as builder:
            types = backward.input_types
            fixed_in = [builder.input(x) for x in types[:n_fixed]]
            sums = [builder.input(x.type.strong()) for x in keep(given.constants, lin_c)]
            carry_cts = [builder.input(x) for x in types[n_fixed + n_sliced : n_fixed + n_sliced + carries]]
            y_cts = [builder.input(x) for x in types[n_fixed + n_sliced + carries :]]
            slices = [builder.input(x) for x in types[n_fixed : n_fixed + n_sliced]]
            results = interpret(backward, [*fixed_in, *slices, *carry_cts, *y_cts])
            from_constants, rest = results[:n_sums], results[n_sums:]
            totals = [add(s, c) for s, c in zip(sums, from_constants, strict=True)]
            joint = finish(builder, [*totals, *rest])
        zeros = [full_like(x.type.strong(), 0) for x in keep(given.constants, lin_c)]
        outs = scan(
            *fixed,
            *zeros,
            *ct_carry,
            *ct_ys,
            *sliced,
            body=joint,
            constants=n_fixed,
            carries=n_sums + carries,
            length=length,
            reverse=not reverse,
        )
        found = iter(outs)
        by_constant = [next(found) if m else None for m in lin_c]
        by_carry = [ct if w else None for ct, w in zip([next(found) for _ in wanted], wanted, strict=True)]
        by_slice = [next(found) if m else None for m in lin_x]
        return [*by_constant, *by_carry, *by_slice]

    def batch(
        self,
        t: Any,
        size: int,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        axis_name: Any,
        *,
        body: Program,
        constants: int,
        carries: int,
        length: int,
        reverse: bool,
    ) -> Any:
        """One scan whose body is batched."""
        mapped = ScanParts.of([d is not None for d in dims], constants, carries)
        dark = [False] * (len(body.outputs) - carries)

        def step(moving: list[bool]) -> Any:
            found = t.batch(body, size, [*mapped.constants, *moving, *mapped.xs], [*moving, *dark], axis_name)
            return found, found[1][:carries]

        (inner, out_batched), batched_carries = fixpoint(step, mapped.carries)
        batched = [*mapped.constants, *batched_carries, *mapped.xs]
        n_lead = constants + carries
        operands = batch_front(inputs[:n_lead], dims[:n_lead], batched[:n_lead], size)
        for x, d in zip(inputs[n_lead:], dims[n_lead:], strict=True):
            operands.append(x if d is None else _swap_leading(to_front(x, d, size)))
        outs = scan(*operands, body=inner, constants=constants, carries=carries, length=length, reverse=reverse)
        out_dims = [0 if b else None for b in out_batched[:carries]]
        out_dims += [1 if b else None for b in out_batched[carries:]]
        return outs, out_dims

    def lower(
        self, k: Any, *values: Any, body: Program, constants: int, carries: int, length: int, reverse: bool
    ) -> Any:
        final, ys = k.scan(body, *ScanParts.of(values, constants, carries), length, reverse)
        return (*final, *ys)


def interleave(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """Indices that merge groups laid out as (a, b, ..., a', b', ...) into (a, a', b, b', ...)."""
    order, start, other = [], 0, sum(first)
    for a, b in zip(first, second, strict=True):
        order += [*range(start, start + a), *range(other, other + b)]
        start, other = start + a, other + b
    return order


def _hoist(body: Program, constants: int, operands: Sequence[Atom]) -> tuple[list[Equation], dict[Var, Atom]]:
    """Equations of `body` that depend only on its constants, moved outside the loop.

    Returns the equations that residuals need, and the outside value of each invariant variable.
    """
    outside: dict[Var, Atom] = dict(zip(body.inputs[:constants], operands, strict=False))
    equations = []
    for e in body.equations:
        inside = [a for a in e.inputs if isinstance(a, Var)]
        if not inside or not all(a in outside for a in inside) or e.primitive.effect(**e.params):
            continue
        outputs = tuple(Var(v.type) for v in e.outputs)
        inputs = tuple(outside[a] if isinstance(a, Var) else a for a in e.inputs)
        equations.append(Equation(e.primitive, inputs, e.params, outputs, e.origin))
        outside.update(zip(e.outputs, outputs, strict=True))
    needed = [outside[a] for a in body.outputs if isinstance(a, Var) and a in outside]
    return list(dead_code(Program((), equations, needed)).equations), outside


def _swap_leading(x: Any) -> Any:
    return transpose(x, permutation=(1, 0, *range(2, type_of(x).ndim)))
