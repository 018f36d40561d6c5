"""while_loop: repeat while a condition holds; reverse mode by checkpointing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.errors import CallbackTransformError, CheckError
from rlx.ir.loop_parts import WhileParts, fixpoint
from rlx.ir.program import Atom, Equation, Program, Var, dead_code
from rlx.ir.types import TensorType
from rlx.ops.arithmetic import add, divide, multiply, select, subtract
from rlx.ops.call import call
from rlx.ops.check import has_check
from rlx.ops.comparison import bitwise_and, equal, greater, less
from rlx.ops.dynamic import dynamic_slice, dynamic_update_slice
from rlx.ops.families import full_like, instantiate
from rlx.ops.reduction import reduce_or
from rlx.ops.regions import (
    RegionPrimitive,
    batch_front,
    calls_host,
    check_operands,
    drop,
    is_zero,
    iteration,
    keep,
    run_region,
    tangent_inputs,
)
from rlx.ops.shape import broadcast_in_dim, reshape
from rlx.ops.shape import slice as slice_
from rlx.ops.spanning_axis import SpanningAxis, meets
from rlx.trace.builder import Builder
from rlx.trace.interpret import interpret
from rlx.trace.primitive import Linear, Zero, primitive, type_of
from rlx.trace.tracing import finish, trace_program

__all__ = ["loop_while", "while_loop"]

_TAPE_BYTES = 1 << 26  # budget for the states that reverse mode keeps


@primitive
class while_loop(RegionPrimitive):
    """Operands: constants of the condition, constants of the body, initial carries.

    params: condition: (its constants, carries) -> bool; body: (its constants, carries) -> carries;
    condition_constants, body_constants: their numbers.
    """

    def type(
        self, *types: TensorType, condition: Program, body: Program, condition_constants: int, body_constants: int
    ) -> Any:
        parts = WhileParts.of(types, condition_constants, body_constants)
        check_operands(self.name, condition, parts.condition)
        check_operands(self.name, body, parts.body)
        return tuple(t.strong() for t in body.output_types)

    def effect(self, **params: Any) -> bool:
        """Whether the body or the condition has effects."""
        programs = (params["body"], params["condition"])
        return any(e.primitive.effect(**e.params) for p in programs for e in p.equations)

    def rounds(self, **params: Any) -> int | None:
        """Unknown before it runs."""
        return None

    def divided(self, walk: Any, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        """Carries by their fixed point."""
        p = equation.params
        parts = WhileParts.of(operands, p["condition_constants"], p["body_constants"])
        carries, _ = walk.loop(equation, p["body"], (parts.body_constants, parts.carries, ()), None)
        walk.repeated(None).program(p["condition"], [*parts.condition_constants, *carries])
        return carries

    def dependence(self, walk: Any, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        """By iterations whose condition is known, and the fixed point of the carries."""
        p = equation.params
        parts = WhileParts.of(operands, p["condition_constants"], p["body_constants"])
        return walk.while_loop(equation, p["condition"], p["body"], parts)

    def reference(
        self, *args: np.ndarray, condition: Program, body: Program, condition_constants: int, body_constants: int
    ) -> Any:
        first, second, carry = WhileParts.of(args, condition_constants, body_constants)
        for step in itertools.count():
            with iteration(step, "while_loop"):
                if not run_region(condition, [*first, *carry])[0]:
                    break
                carry = run_region(body, [*second, *carry])
        return tuple(carry)

    def jvp(
        self,
        t: Any,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        condition: Program,
        body: Program,
        condition_constants: int,
        body_constants: int,
    ) -> Any:
        """Carries and their tangents in one loop; the condition reads only the carries."""
        values = WhileParts.of(primals, condition_constants, body_constants)
        moves = WhileParts.of(tangents, condition_constants, body_constants)
        constants_nz = [not is_zero(x) for x in moves.body_constants]

        def step(moving: list[bool]) -> Any:
            return t.jvp(body, [*constants_nz, *moving], moving)

        moved, carry_nz = fixpoint(step, [not is_zero(x) for x in moves.carries])
        n, extra = len(carry_nz), [Var(x.type) for x, nz in zip(moves.carries, carry_nz, strict=True) if nz]
        c, k, tc = body_constants, n, sum(constants_nz)
        inputs = moved.inputs
        ordered = [*inputs[:c], *inputs[c + k : c + k + tc], *inputs[c : c + k], *inputs[c + k + tc :]]
        outs = while_loop(
            *values.condition_constants,
            *values.body_constants,
            *tangent_inputs(moves.body_constants, constants_nz),
            *values.carries,
            *tangent_inputs(moves.carries, carry_nz),
            condition=condition.replace(inputs=(*condition.inputs, *extra)),
            body=moved.replace(inputs=ordered),
            condition_constants=condition_constants,
            body_constants=body_constants + tc,
        )
        moving = iter(outs[n:])
        return outs[:n], [next(moving) if nz else Zero(type_of(o)) for o, nz in zip(outs[:n], carry_nz, strict=True)]

    def split(self, t: Any, equation: Equation, unknown: Sequence[bool]) -> tuple[list[Equation], list[Equation]]:
        """The known loop, keeping checkpoints of its carries; and a replay that is linear in the rest."""
        p = dict(equation.params)
        n_condition = p["condition_constants"]
        hidden = WhileParts.of(unknown, n_condition, p["body_constants"])

        def step(moving: list[bool]) -> Any:
            found = t.split(p["body"], [*hidden.body_constants, *moving], moving)
            return found, found.unknown_out

        halves, hidden_carries = fixpoint(step, hidden.carries)
        mask = [*hidden.condition_constants, *hidden.body_constants, *hidden_carries]
        known_in = drop(equation.inputs, mask)
        known_constants = list(hidden.body_constants).count(False)
        n_known = hidden_carries.count(False)
        condition = p["condition"]
        carry_of_condition = drop(condition.inputs[n_condition:], hidden_carries)
        known_condition = condition.replace(inputs=(*condition.inputs[:n_condition], *carry_of_condition))
        known_body = halves.known.replace(outputs=halves.known.outputs[:n_known])
        recorded = _record(known_condition, known_body, n_condition, known_constants, [v.type for v in known_in])
        tape = [Var(ty) for ty in recorded.output_types[n_known:]]
        first = Equation(
            call,
            tuple(known_in),
            {"program": recorded, "name": "while_loop"},
            (*drop(equation.outputs, hidden_carries), *tape),
            equation.origin,
        )
        second = Equation(
            while_tangent,
            (*tape, *known_in[n_condition:], *keep(equation.inputs, mask)),
            {
                "body": t.separate(p["body"], mask[n_condition:]),
                "unknown": tuple(mask[n_condition:]),
                "body_constants": p["body_constants"],
                "tape": len(tape),
            },
            tuple(keep(equation.outputs, hidden_carries)),
            equation.origin,
        )
        return [first], [second]

    def transpose(self, t: Any, cotangents: Sequence[Any], *inputs: Any, **params: Any) -> list[Any]:
        raise AssertionError("split turns the linear half of a while_loop into while_tangent")

    def batch(
        self,
        t: Any,
        size: int,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        axis_name: Any,
        *,
        condition: Program,
        body: Program,
        condition_constants: int,
        body_constants: int,
    ) -> Any:
        """With a batched condition the loop runs while any lane does; finished lanes keep their carry."""
        mapped = WhileParts.of([d is not None for d in dims], condition_constants, body_constants)
        changing = [o is not i for o, i in zip(body.outputs, body.inputs[body_constants:], strict=True)]

        def step(moving: list[bool]) -> Any:
            inner, out_batched = t.batch(body, size, [*mapped.body_constants, *moving], moving, axis_name)
            tested = [*mapped.condition_constants, *out_batched]
            test, (ragged,) = t.batch(condition, size, tested, False, axis_name)
            return (inner, test, ragged), [b or (ragged and c) for b, c in zip(out_batched, changing, strict=True)]

        (inner, test, ragged), batched_carries = fixpoint(step, mapped.carries)
        batched = [*mapped.condition_constants, *mapped.body_constants, *batched_carries]
        operands = batch_front(inputs, dims, batched, size)
        if ragged:
            _refuse_checks(condition, body)
            if calls_host(body) or calls_host(condition):
                raise CallbackTransformError(
                    "vmap met a while_loop with a mapped condition that calls io_callback.",
                    "Finished elements would call it as well: use rlx.lax.map instead of vmap.",
                )
            inner = _masked_body(test, inner, condition_constants, body_constants, [type_of(x) for x in operands])
            tests, constants, carries = WhileParts.of(operands, condition_constants, body_constants)
            operands = [*tests, *constants, *tests, *carries]
            # the masked body also needs the condition's constants
            body_constants += condition_constants
            across = axis_name if isinstance(axis_name, SpanningAxis) and (meets(body) or meets(condition)) else None
            test = _any_lane(test, across)
        outs = while_loop(
            *operands,
            condition=test,
            body=inner,
            condition_constants=condition_constants,
            body_constants=body_constants,
        )
        return outs, [0 if b else None for b in batched_carries]

    def lower(
        self, k: Any, *values: Any, condition: Program, body: Program, condition_constants: int, body_constants: int
    ) -> Any:
        return k.while_loop(condition, body, *WhileParts.of(values, condition_constants, body_constants))


def _refuse_checks(*programs: Program) -> None:
    """Refuse checks: finished lanes continue on unused values, which checks would test."""
    if any(map(has_check, programs)):
        raise CheckError(
            "vmap met a while_loop with a check whose lanes end at different times.",
            "Map the function that checkify returns: rlx.vmap(checkify.checkify(f)).",
        )


def _any_lane(test: Program, across: SpanningAxis | None) -> Program:
    """Whether any lane continues; if lanes have collectives, any lane of all processes."""
    with Builder(test.name) as builder:
        (lanes,) = interpret(test, [builder.input(t) for t in test.input_types])
        own = reduce_or(lanes, axes=(0,))
        return finish(builder, [own if across is None else across.reduce(own, "or")])


def _masked_body(test: Program, body: Program, n_condition: int, n_body: int, types: Sequence[TensorType]) -> Program:
    """(body constants, condition constants, carries) -> carries, unchanged in finished lanes."""
    lead = n_condition + n_body
    with Builder(body.name) as builder:
        constants = [builder.input(t) for t in types[n_condition:lead]]
        tests = [builder.input(t) for t in types[:n_condition]]
        carry = [builder.input(t.strong()) for t in types[lead:]]
        (lanes,) = interpret(test, [*tests, *carry])
        steps = interpret(body, [*constants, *carry])
        writes: dict[Atom, Equation] = {e.outputs[0]: e for e in builder.equations if e.primitive.writes}
        merged = [_merged(builder, writes, lanes, new, old) for new, old in zip(steps, carry, strict=True)]
        return finish(builder, merged)


def _merged(builder: Builder, writes: Mapping[Atom, Equation], lanes: Any, new: Any, old: Any) -> Any:
    """`new` in lanes that continue and `old` elsewhere; writes into `old` are selected before they are written."""
    chain, base = [], new.atom
    while base in writes:
        chain.append(writes[base])
        base = chain[-1].inputs[0]
    if base is old.atom:
        merged = old
        for e in reversed(chain):
            merged = e.primitive.write_in_lanes(lanes, merged, *map(builder.tracer, e.inputs[1:]), **e.params)
            if merged is None:
                break
        else:
            return merged
    shape = type_of(old).shape
    mask = broadcast_in_dim(lanes, shape=shape, dims=(0,)) if len(shape) > 1 else lanes
    return select(mask, new, old)


# ------------------------------------------------------------------ reverse mode
# The known loop keeps `slots` states at multiples of a stride that doubles whenever they are full.
# The reverse sweep walks the segments backwards; in each it runs forward from the checkpoint into a
# buffer of `slots` states and then backwards over them. (Binomial-free variant of online
# checkpointing, Stumm & Walther, 2010: every step is run twice while it fits slots**2 steps.)


def loop_while(condition: Callable[..., Any], body: Callable[..., Sequence[Any]], initial: Sequence[Any]) -> list[Any]:
    """Bind while_loop for Python functions of the carries, closing over values in scope."""
    types = [type_of(x).strong() for x in initial]
    test, test_constants = trace_program(lambda *c: [condition(*c)], types, name="condition")
    program, constants = trace_program(body, types, name="body")
    return list(
        while_loop(
            *test_constants,
            *constants,
            *initial,
            condition=test,
            body=program,
            condition_constants=len(test_constants),
            body_constants=len(constants),
        )
    )


def _slots(types: Sequence[TensorType]) -> int:
    state = sum(t.nbytes for t in types) or 1
    return int(min(256, max(4, _TAPE_BYTES // state)))


def _put(buffer: Any, value: Any, position: Any) -> Any:
    shape = type_of(value).shape
    row = reshape(value, shape=(1, *shape))
    return dynamic_update_slice(buffer, row, position, *[0] * len(shape))


def _take(buffer: Any, position: Any) -> Any:
    shape = type_of(buffer).shape[1:]
    row = dynamic_slice(buffer, position, *[0] * len(shape), sizes=(1, *shape))
    return reshape(row, shape=shape)


def _thin(buffer: Any) -> Any:
    """Every second state, moved to the first half."""
    shape = type_of(buffer).shape
    half = slice_(buffer, starts=(0,) * len(shape), limits=shape, strides=(2, *(1,) * (len(shape) - 1)))
    return dynamic_update_slice(buffer, half, *[0] * len(shape))


def _int(value: int) -> np.ndarray:
    return np.asarray(value, np.int32)


def _record(condition: Program, body: Program, n_condition: int, n_body: int, types: Sequence[TensorType]) -> Program:
    """(constants, initial carries) -> (final carries, step count, stride, tape buffers...)."""
    lead = n_condition + n_body
    slots = _slots(types[lead:])
    n = len(types) - lead
    with Builder("while_loop") as builder:
        inputs = [builder.input(t) for t in types]
        tests, constants, initial = inputs[:n_condition], inputs[n_condition:lead], inputs[lead:]

        def test(carry: Sequence[Any]) -> Any:
            return interpret(condition, [*tests, *carry])[0]

        def segment(steps: Any, stride: Any, *rest: Any) -> Sequence[Any]:
            carry, buffers = rest[:n], rest[n:]
            full = equal(divide(steps, stride), _int(slots))
            buffers = [select(full, _thin(b), b) for b in buffers]
            stride = select(full, multiply(stride, _int(2)), stride)
            slot = divide(steps, stride)
            buffers = [_put(b, x, slot) for b, x in zip(buffers, carry, strict=True)]
            end = multiply(add(slot, _int(1)), stride)
            steps, *carry = loop_while(
                lambda i, *c: bitwise_and(less(i, end), test(c)),
                lambda i, *c: [add(i, _int(1)), *interpret(body, [*constants, *c])],
                [steps, *carry],
            )
            return [steps, stride, *carry, *buffers]

        buffers = [full_like(t.update(shape=(slots, *t.shape), weak=False), 0) for t in types[lead:]]
        steps, stride, *rest = loop_while(lambda s, w, *r: test(r[:n]), segment, [_int(0), _int(1), *initial, *buffers])
        return finish(builder, [*rest[:n], steps, stride, *rest[n:]])


@primitive
class while_tangent(RegionPrimitive):
    """The tangents of a while_loop's carries: a replay of its body, linear in the unknown operands.

    Operands: step count, stride, one tape buffer per known carry; known body constants, known
    initial carries; unknown body constants, unknown initial carries (in the body's order each).
    params: body, unknown (mask over the body's inputs), body_constants, tape: operands of the tape.
    """

    def type(self, *types: TensorType, body: Program, unknown: tuple[bool, ...], body_constants: int, tape: int) -> Any:
        return tuple(t.strong() for t in keep(body.output_types, unknown[body_constants:]))

    def reference(self, *args: np.ndarray, **params: Any) -> Any:
        return tuple(x.numpy() for x in self.replay(*args, **params))

    def replay(self, *args: Any, body: Program, unknown: tuple[bool, ...], body_constants: int, tape: int) -> list[Any]:
        """The loop again, with all carries, for the recorded number of steps."""
        steps, rest = args[0], args[tape:]
        n_known = unknown.count(False)
        operands = _merge(unknown, rest[:n_known], rest[n_known:])
        constants, initial = operands[:body_constants], operands[body_constants:]
        _, *final = loop_while(
            lambda i, *c: less(i, steps),
            lambda i, *c: [add(i, _int(1)), *interpret(body, [*constants, *c])],
            [_int(0), *initial],
        )
        return keep(final, unknown[body_constants:])

    def jvp(self, t: Any, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        """Differentiate the replay."""
        program, captured = trace_program(
            lambda *xs: self.replay(*xs, **params), [type_of(x) for x in primals], name="while_tangent"
        )
        assert not captured
        return call.jvp(t, primals, tangents, program=program, name="while_tangent")

    def split(self, t: Any, equation: Equation, unknown: Sequence[bool]) -> tuple[list[Equation], list[Equation]]:
        """Linear as a whole: unknown operands are only ever the tangents."""
        return [], [equation]

    def transpose(
        self,
        t: Any,
        cotangents: Sequence[Any],
        *inputs: Any,
        body: Program,
        unknown: tuple[bool, ...],
        body_constants: int,
        tape: int,
    ) -> list[Any]:
        """Walk the recorded steps backwards, segment by segment."""
        steps, stride, buffers = inputs[0], inputs[1], inputs[2:tape]
        n_known = unknown.count(False)
        known, hidden = inputs[tape : tape + n_known], inputs[tape + n_known :]
        n_constants = unknown[:body_constants].count(False)
        constants = known[:n_constants]
        slots = type_of(buffers[0]).shape[0] if buffers else 1
        backward = t.transpose(body, unknown, unknown[body_constants:])
        known_body = _known_carries(body, unknown, body_constants)
        sums = [full_like(x.type.strong(), 0) for x in hidden[: unknown[:body_constants].count(True)]]
        cts = [instantiate(c) for c in cotangents]
        n_sums = len(sums)

        def forward(state: Sequence[Any]) -> list[Any]:
            return interpret(known_body, [*constants, *state])

        def step_back(position: Any, start: Any, states: Sequence[Any], running: Sequence[Any]) -> list[Any]:
            at = [_take(s, subtract(position, start)) for s in states]
            results = interpret(backward, [*constants, *at, *running[n_sums:]])
            return [*map(add, running[:n_sums], results[:n_sums]), *results[n_sums:]]

        def block(position: Any, *sums_and_cotangents: Any) -> Sequence[Any]:
            segment = divide(subtract(position, _int(1)), stride)
            origin = multiply(segment, stride)
            start = select(greater(subtract(position, _int(slots)), origin), subtract(position, _int(slots)), origin)
            state = [_take(b, segment) for b in buffers]
            _, *state = loop_while(
                lambda i, *s: less(i, start), lambda i, *s: [add(i, _int(1)), *forward(s)], [origin, *state]
            )
            n = len(state)
            _, *rest = loop_while(
                lambda i, *r: less(i, position),
                lambda i, *r: [
                    add(i, _int(1)),
                    *forward(r[:n]),
                    *[_put(b, x, subtract(i, start)) for b, x in zip(r[n:], r[:n], strict=True)],
                ],
                [start, *state, *buffers],
            )
            states = rest[n:]
            _, *running = loop_while(
                lambda i, *r: greater(i, start),
                lambda i, *r: [subtract(i, _int(1)), *step_back(subtract(i, _int(1)), start, states, r)],
                [position, *sums_and_cotangents],
            )
            return [start, *running]

        _, *results = loop_while(lambda i, *r: greater(i, _int(0)), block, [steps, *sums, *cts])
        wanted = [isinstance(x, Linear) for x in hidden]
        return [None] * (tape + n_known) + [r if w else None for r, w in zip(results, wanted, strict=True)]

    def batch(
        self, t: Any, size: int, inputs: Sequence[Any], dims: Sequence[int | None], axis_name: Any, **params: Any
    ) -> Any:
        """Batch the replay."""
        program, _ = trace_program(
            lambda *xs: self.replay(*xs, **params),
            [_without(type_of(x), d) for x, d in zip(inputs, dims, strict=True)],
            name="while_tangent",
        )
        return call.batch(t, size, inputs, dims, axis_name, program=program, name="while_tangent")

    def lower(self, k: Any, *values: Any, **params: Any) -> Any:
        types = [v.type for v in values]
        program, _ = trace_program(lambda *xs: self.replay(*xs, **params), types, name="while_tangent")
        return k.inline(program, values)


def _merge(mask: Sequence[bool], known: Sequence[Any], hidden: Sequence[Any]) -> list[Any]:
    first, second = iter(known), iter(hidden)
    return [next(second) if m else next(first) for m in mask]


def _without(t: TensorType, dim: int | None) -> TensorType:
    return t if dim is None else t.update(shape=t.shape[:dim] + t.shape[dim + 1 :])


def _known_carries(body: Program, unknown: Sequence[bool], body_constants: int) -> Program:
    """(known constants, known carries) -> next known carries."""
    mask = unknown[body_constants:]
    half = dead_code(body.replace(outputs=drop(body.outputs, mask)))
    return half.replace(inputs=drop(half.inputs, unknown))
