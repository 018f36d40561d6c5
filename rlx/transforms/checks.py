"""Checks as values: transforms a program into one that also returns the first failed check and its values.

A checked program returns two things after its own outputs: a code (0, or the number of the failure that happened
first), and the values of all failures; only the values of the failure that happened are valid. It raises nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from rlx.errors import CheckError
from rlx.ir.program import Equation, Program, dead_code
from rlx.ir.types import TensorType, is_inexact
from rlx.ops.arithmetic import absolute, add, clamp, copysign, divide, maximum, minimum, negative, select
from rlx.ops.call import call, checkpoint, custom_jvp_call, custom_vjp_call, optimization_barrier
from rlx.ops.callback import HostCall
from rlx.ops.check import DivisionByZeroError, Failure, NaNError, OOBError, check, has_check
from rlx.ops.checkpoint_name import checkpoint_name
from rlx.ops.collective import NamedAxisPrimitive
from rlx.ops.comparison import bitwise_or, equal, greater, less, not_equal
from rlx.ops.conditional import cond
from rlx.ops.conversion import complex, conj, convert, imag, real
from rlx.ops.custom_batch import custom_vmap_call
from rlx.ops.families import NonDifferentiable, full_like
from rlx.ops.index_windows import gather_windows, scatter_windows
from rlx.ops.indexing import dynamic_slice, dynamic_update_slice, gather, scatter
from rlx.ops.reduction import argmax, reduce_or
from rlx.ops.scan import scan
from rlx.ops.scatter import Scatter
from rlx.ops.shape import Movement, concatenate, reshape
from rlx.ops.sorting import sort, top_k
from rlx.ops.while_loop import while_loop
from rlx.trace.builder import Builder
from rlx.trace.interpret import Environment, interpret, origins_of
from rlx.trace.lower import inline_blocks
from rlx.trace.primitive import Primitive, type_of
from rlx.trace.tracing import finish
from rlx.trees import tree

__all__ = ["Checked", "check_walk", "checked_program"]

Categories = frozenset[type[CheckError]]
_CODE = TensorType((), np.dtype(np.int32))

# operations, in addition to whole families, that propagate NaNs and produce none
_PASSES = (
    *(select, convert, real, imag, complex, conj, negative, absolute, copysign, maximum, minimum, clamp),
    *(sort, top_k, dynamic_update_slice, scatter, checkpoint_name, optimization_barrier),
)
_PASSING_FAMILIES = (Movement, NonDifferentiable, NamedAxisPrimitive, HostCall)


@dataclass
class Checked:
    """The state of checking: the possible failures, which one happened first, and their values."""

    failures: list[Failure] = field(default_factory=list)
    code: Any = 0
    payload: list[Any] = field(default_factory=list)

    def include(self, failures: Sequence[Failure], code: Any, payload: Sequence[Any]) -> None:
        """Failures that come after the others: `code` counts from 1 among them."""
        if failures:
            code = _shifted(code, len(self.failures))
            self.code = _first(self.code, code) if self.failures else code
            self.failures += failures
            self.payload += payload

    def fails(self, predicate: Any, failure: Failure, payload: Sequence[Any] = ()) -> None:
        """A failure that happens where `predicate` is true."""
        self.include([failure], convert(predicate, dtype=_CODE.dtype, weak=False), payload)


def _shifted(code: Any, by: int) -> Any:
    return code if by == 0 else select(greater(code, 0), add(code, np.int32(by)), code)


def _first(code: Any, later: Any) -> Any:
    return select(greater(code, 0), code, later)


def check_walk(program: Program, args: Sequence[Any], categories: Categories) -> tuple[list[Any], Checked]:
    """The program's outputs, and the results of its checks, for values in the current builder."""
    env, checked = Environment(program, args), Checked()
    with origins_of() as inherit:
        for e in inline_blocks(program).equations:
            inherit(e)
            outs = _rules.get(e.primitive, _operation)(e, [env.read(a) for a in e.inputs], categories, checked)
            env.update(zip(e.outputs, outs, strict=True))
    return [env.read(a) for a in program.outputs], checked


@lru_cache(maxsize=256)
def checked_program(program: Program, categories: Categories) -> tuple[Program, tuple[Failure, ...]]:
    """inputs -> (outputs, code, payload); without checks if none of these categories is possible."""
    with Builder(program.name) as builder:
        outs, checked = check_walk(program, [builder.input(t) for t in program.input_types], categories)
        if not checked.failures:
            return (finish(builder, outs) if has_check(program) else program), ()
        return finish(builder, [*outs, checked.code, *checked.payload]), tuple(checked.failures)


# ------------------------------------------------------------------ operations
def _bound(e: Equation, args: Sequence[Any]) -> list[Any]:
    outs = e.primitive.bind(*args, **e.params)
    return list(outs) if e.primitive.multiple else [outs]


def _operation(e: Equation, args: Sequence[Any], categories: Categories, checked: Checked) -> list[Any]:
    """An operation without its own checks: check bounds, divisors, NaNs."""
    if OOBError in categories:
        _check_bounds(e, args, checked)
    if DivisionByZeroError in categories and e.primitive is divide:
        checked.fails(_any([equal(args[1], 0)]), _failure(DivisionByZeroError, "division by zero", e))
    outs = _bound(e, args)
    if NaNError in categories and not (e.primitive in _PASSES or isinstance(e.primitive, _PASSING_FAMILIES)):
        nans = [not_equal(x, x) for x in outs if is_inexact(type_of(x).dtype)]
        if nans:
            checked.fails(_any(nans), _failure(NaNError, f"nan generated by primitive: {e.primitive.name}.", e))
    return outs


def _failure(category: type[CheckError], text: str, e: Equation, count: int = 0) -> Failure:
    return Failure(category, text, tree.structure(((0,) * count, {})), e.origin)


def _any(masks: Sequence[Any]) -> Any:
    """Whether any element of any mask is true."""
    found = [reduce_or(m, axes=tuple(range(type_of(m).ndim))) for m in masks]
    total = found[0]
    for other in found[1:]:
        total = bitwise_or(total, other)
    return total


def _check_bounds(e: Equation, args: Sequence[Any], checked: Checked) -> None:
    """Starts of windows that stick out of the operand, for each primitive that has some."""
    windows = _windows(e, args)
    if windows is None:
        return
    starts, axes, sizes = windows
    shape = type_of(args[0]).shape
    if 0 in type_of(starts).shape:
        return
    dtype = type_of(starts).dtype
    most = np.iinfo(dtype).max
    limits = np.asarray([min(shape[a] - sizes[a], most) for a in axes], dtype)
    outside = greater(starts, limits)
    if dtype.kind == "i":
        outside = bitwise_or(less(starts, 0), outside)
    count = int(np.prod(type_of(starts).shape))
    where = argmax(reshape(outside, shape=(count,)), axis=0, index_dtype=_CODE.dtype)
    rows = count // len(axes)
    payload = [
        _element(reshape(starts, shape=(count,)), where),
        _element(np.tile(np.asarray(axes, np.int32), rows), where),
        _element(np.tile(np.asarray([shape[a] for a in axes], np.int32), rows), where),
    ]
    text = f"out-of-bounds indexing for array of shape {shape}: "
    text += "index {} is out of bounds for axis {} with size {}."
    checked.fails(_any([outside]), _failure(OOBError, text, e, 3), payload)


def _element(x: Any, at: Any) -> Any:
    return reshape(dynamic_slice(x, at, sizes=(1,)), shape=())


def _windows(e: Equation, args: Sequence[Any]) -> tuple[Any, tuple[int, ...], tuple[int, ...]] | None:
    """Starts (..., components) of windows, the operand's axis of each component, the windows' sizes along all axes."""
    p, types = e.primitive, [type_of(x) for x in args]
    if p is gather:
        numbers, sizes = e.params["dimension_numbers"], e.params["slice_sizes"]
        gather_windows(p.name, types[0], types[1], numbers, sizes)
        return (args[1], numbers.start_index_map, sizes) if numbers.start_index_map else None
    if isinstance(p, Scatter):
        numbers = e.params["dimension_numbers"]
        sizes = scatter_windows(p.name, *types, numbers).sizes
        axes = numbers.scatter_dims_to_operand_dims
        return (args[1], axes, sizes) if axes else None
    if p is dynamic_slice or p is dynamic_update_slice:
        first = 1 if p is dynamic_slice else 2
        starts = [reshape(x, shape=(1,)) for x in args[first:]]
        sizes = e.params["sizes"] if p is dynamic_slice else types[1].shape
        return (concatenate(*starts, axis=0), tuple(range(len(starts))), sizes) if starts else None
    return None


# ------------------------------------------------------------------ checks, calls and control flow
def _check(e: Equation, args: Sequence[Any], categories: Categories, checked: Checked) -> list[Any]:
    """A check becomes part of the results; checks outside the categories are dropped."""
    failures, (code, *payload) = e.params["failures"], args
    wanted = [f.category in categories for f in failures]
    if all(wanted):
        checked.include(failures, code, payload)
        return []
    start = 0
    for number, (failure, mine) in enumerate(zip(failures, wanted, strict=True), 1):
        if mine:
            checked.fails(equal(code, np.int32(number)), failure, payload[start : start + failure.count])
        start += failure.count
    return []


def _call(e: Equation, args: Sequence[Any], categories: Categories, checked: Checked) -> list[Any]:
    """A call of the checked program, of the same kind."""
    program, failures = checked_program(e.params["program"], categories)
    outs = e.primitive.bind(*args, **{**e.params, "program": program})
    return _taken(outs, len(e.outputs), failures, checked)


def _taken(outs: Sequence[Any], count: int, failures: Sequence[Failure], checked: Checked) -> list[Any]:
    """The first `count` results; the rest are the failure state."""
    if failures:
        checked.include(failures, outs[count], outs[count + 1 :])
    return list(outs[:count])


def _beside(e: Equation, args: Sequence[Any], categories: Categories, checked: Checked) -> list[Any]:
    """A call with its own rules stays unchanged; its checked program runs in addition."""
    program, failures = checked_program(e.params["program"], categories)
    if failures:
        _taken(interpret(program, args), len(e.outputs), failures, checked)
    return list(e.primitive.bind(*args, **{**e.params, "program": _values(program, len(e.outputs))}))


def _values(program: Program, count: int) -> Program:
    """A checked program for its values only."""
    return dead_code(program, [i < count for i in range(len(program.outputs))])


def _payload_types(program: Program, failures: Sequence[Failure]) -> list[TensorType]:
    count = sum(f.count for f in failures)
    return [t.strong() for t in program.output_types[len(program.outputs) - count :]] if count else []


def _blank(types: Sequence[TensorType]) -> list[Any]:
    return [np.int32(0), *[full_like(t, 0) for t in types]]


def _kept(state: Sequence[Any], found: Sequence[Any]) -> list[Any]:
    """The state of a loop after a step: an earlier failure, otherwise the step's failure."""
    failed = greater(state[0], 0)
    return [select(failed, old, new) for old, new in zip(state, found, strict=True)]


def _cond(e: Equation, args: Sequence[Any], categories: Categories, checked: Checked) -> list[Any]:
    """Every branch returns the failures of all: blanks for the others'."""
    pairs = [checked_program(b, categories) for b in e.params["branches"]]
    failures = [f for _, found in pairs for f in found]
    if not failures:
        return list(cond(*args, branches=tuple(program for program, _ in pairs)))
    types = [_payload_types(program, found) for program, found in pairs]
    branches, before = [], 0
    for number, (program, found) in enumerate(pairs):
        with Builder(program.name) as builder:
            outs = interpret(program, [builder.input(t) for t in program.input_types])
            n = len(e.outputs)
            code = _shifted(outs[n], before) if found else np.int32(0)
            payload = [x for i, row in enumerate(types) for x in (outs[n + 1 :] if i == number else _blank(row)[1:])]
            branches.append(finish(builder, [*outs[:n], code, *payload]))
        before += len(found)
    return _taken(cond(*args, branches=tuple(branches)), len(e.outputs), failures, checked)


def _scan(e: Equation, args: Sequence[Any], categories: Categories, checked: Checked) -> list[Any]:
    """The first failure is a carry."""
    body, failures = checked_program(e.params["body"], categories)
    if not failures:
        return list(scan(*args, **{**e.params, "body": body}))
    constants, carries = e.params["constants"], e.params["carries"]
    types, n = _payload_types(body, failures), len(e.outputs)
    with Builder(body.name) as builder:
        inputs = body.input_types
        fixed = [builder.input(t) for t in inputs[:constants]]
        state = [builder.input(t) for t in (_CODE, *types)]
        rest = [builder.input(t) for t in inputs[constants:]]
        outs = interpret(body, [*fixed, *rest])
        joint = finish(builder, [*_kept(state, outs[n:]), *outs[:n]])
    params = {**e.params, "body": joint, "carries": carries + len(types) + 1}
    found = scan(*args[:constants], *_blank(types), *args[constants:], **params)
    m = len(types) + 1
    return _taken([*found[m:], *found[:m]], n, failures, checked)


def _while(e: Equation, args: Sequence[Any], categories: Categories, checked: Checked) -> list[Any]:
    """The condition is checked before the loop, and after each step that is checked."""
    p = e.params
    n_condition, lead = p["condition_constants"], p["condition_constants"] + p["body_constants"]
    test, of_test = checked_program(p["condition"], categories)
    body, of_body = checked_program(p["body"], categories)
    failures = [*of_test, *of_body]
    if not failures:
        return list(while_loop(*args, **{**p, "condition": test, "body": body}))
    types = [*_payload_types(test, of_test), *_payload_types(body, of_body)]
    n = len(e.outputs)

    def tested(constants: Sequence[Any], carry: Sequence[Any], found: Checked) -> None:
        if of_test:
            _taken(interpret(test, [*constants, *carry]), 1, of_test, found)

    with Builder(body.name) as builder:
        tests = [builder.input(t) for t in p["condition"].input_types[:n_condition]]
        fixed = [builder.input(t) for t in body.input_types[: p["body_constants"]]]
        state = [builder.input(t) for t in (_CODE, *types)]
        carry = [builder.input(t) for t in body.input_types[p["body_constants"] :]]
        outs, found = interpret(body, [*fixed, *carry]), Checked()
        _taken(outs, n, of_body, found)
        tested(tests, outs[:n], found)
        # failures of the condition come first in number, though later in the step
        step = _renumbered(found, len(of_body), len(of_test))
        joint = finish(builder, [*_kept(state, step), *outs[:n]])
    with Builder(test.name) as builder:
        tests = [builder.input(t) for t in p["condition"].input_types[:n_condition]]
        for t in (_CODE, *types):
            builder.input(t)
        carry = [builder.input(t) for t in p["condition"].input_types[n_condition:]]
        condition = finish(builder, interpret(test, [*tests, *carry])[:1])
    begin = Checked()
    tested(args[:n_condition], args[lead:], begin)
    start = [begin.code, *begin.payload, *_blank(types)[1 + len(begin.payload) :]] if of_test else _blank(types)
    found_all = while_loop(
        *args[:n_condition],
        *args[:n_condition],
        *args[n_condition:lead],
        *start,
        *args[lead:],
        condition=condition,
        body=joint,
        condition_constants=n_condition,
        body_constants=n_condition + p["body_constants"],
    )
    m = len(types) + 1
    return _taken([*found_all[m:], *found_all[:m]], n, failures, checked)


def _renumbered(found: Checked, of_body: int, of_test: int) -> list[Any]:
    """(code, payload) of a step with the condition's failures numbered before the body's."""
    if of_test == 0 or of_body == 0:
        return [found.code, *found.payload]
    shift = select(greater(found.code, np.int32(of_body)), np.int32(-of_body), np.int32(of_test))
    code = select(greater(found.code, 0), add(found.code, shift), found.code)
    split = sum(f.count for f in found.failures[:of_body])
    return [code, *found.payload[split:], *found.payload[:split]]


CheckRule = Callable[[Equation, Sequence[Any], Categories, Checked], list[Any]]
_rules: dict[Primitive, CheckRule] = {
    check: _check,
    call: _call,
    checkpoint: _call,
    custom_jvp_call: _beside,
    custom_vjp_call: _beside,
    custom_vmap_call: _beside,
    cond: _cond,
    scan: _scan,
    while_loop: _while,
}
