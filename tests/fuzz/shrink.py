"""The few lines of a program that still fail."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import rlx

from .checks import CHECKS, Check
from .interpret import EXACT, Interpreter, dtype_name
from .program import Body, Input, Program, Step, all_steps, input_value, kind_of, live, name_of, used_by

__all__ = ["shrink", "size_of"]

Candidate = tuple[Program, Check]
LITERAL = 64  # values up to this size are written out
SIMPLER = {"vmap_grad": ("vmap", "grad"), "memory_grad": ("memory", "grad")}
SIZES = ("shape", "sizes", "length", "count", "size", "window")


def shrink(
    program: Program,
    check: Check,
    fails: Callable[[Program, Check], bool],
    names: dict[str, Any],
    seconds: float = 60.0,
) -> Candidate:
    """A smaller program that still fails, and the simplest check that shows it.

    fails: whether a candidate fails as the original did. It is asked until nothing smaller fails, or time is over.
    """
    deadline = time.monotonic() + seconds
    best = (live(program), check)
    improved = True
    while improved:
        improved = False
        for moves in (_checks, _outputs, _frozen, _bypassed, _bodies, _sizes, _plain):
            best, better = _taken(best, moves, fails, names, deadline)
            improved = improved or better
    return best


def _taken(
    best: Candidate,
    moves: Callable[[Candidate, dict[str, Any]], Iterator[Candidate]],
    fails: Callable[[Program, Check], bool],
    names: dict[str, Any],
    deadline: float,
) -> tuple[Candidate, bool]:
    """Follow a kind of moves as long as they make the program smaller."""
    better, again = False, True
    while again:
        again = False
        for candidate in moves(best, names):
            if time.monotonic() > deadline:
                return best, False
            if size_of(*candidate) < size_of(*best) and fails(*candidate):
                best, better, again = candidate, True, True
                break
    return best, better


def size_of(program: Program, check: Check) -> tuple[int, ...]:
    """What shrinking makes smaller, in order of importance."""
    steps = list(all_steps(program.steps))
    elements = sum(int(np.prod(x.shape)) for x in program.inputs)
    odd = sum(
        (x.layout != "plain") + (x.domain != "quarters") + (x.dtype not in ("float32", "int32")) for x in program.inputs
    )
    written = sum(len(str(s.parameters)) for s in steps)
    simple = list(CHECKS).index(check.name)
    return (len(steps), len(program.outputs), simple, len(program.inputs), elements, odd, written)


def _checks(best: Candidate, names: dict[str, Any]) -> Iterator[Candidate]:
    program, check = best
    for name in (*SIMPLER.get(check.name, ()), "jit"):
        yield program, dataclasses.replace(CHECKS[name], values=check.values)


def _outputs(best: Candidate, names: dict[str, Any]) -> Iterator[Candidate]:
    program, check = best
    if len(program.outputs) > 1:
        for number in program.outputs:
            yield from _with_inputs(dataclasses.replace(program, outputs=(number,)), check)
    for step in program.steps[:-1]:
        yield from _with_inputs(dataclasses.replace(program, outputs=step.results[-1:]), check)


def _with_inputs(program: Program, check: Check) -> Iterator[Candidate]:
    """A program with fewer inputs, if its check counts none of those that go."""
    found = live(program)
    yield found, _renumbered(check, program.inputs, found.inputs)


def _renumbered(check: Check, before: tuple[Input, ...], after: tuple[Input, ...]) -> Check:
    """A check whose argument numbers follow the inputs that are left; those that came are ordinary ones."""
    places = {x.number: k for k, x in enumerate(before)}
    kept = [places.get(x.number) for x in after]

    def changed(name: str, value: Any) -> Any:
        if name in ("argnums", "donated"):
            return tuple(k for k, old in enumerate(kept) if old in value)
        if name == "axes":
            return tuple(0 if old is None else value[old] for old in kept)
        return value

    return dataclasses.replace(check, values=tuple((k, changed(k, v)) for k, v in check.values))


def _frozen(best: Candidate, names: dict[str, Any]) -> Iterator[Candidate]:
    """Steps, many at once and then one by one, become inputs with the values that they have."""
    program, check = best
    values = _values(program, names)
    count = len(program.steps)
    width = count // 2
    while width >= 1:
        for start in range(0, count, width):
            chosen = program.steps[start : start + width]
            yield from _freeze(program, check, chosen, values)
        width //= 2


def _values(program: Program, names: dict[str, Any]) -> dict[int, Any]:
    """Values of the steps, up to one that cannot be computed."""
    interpreter, scope, facts = Interpreter(names), dict(names), {}
    with rlx.disable_jit(), np.errstate(all="ignore"):
        for x in program.inputs:
            scope[name_of(x.number)], facts[x.number] = rlx.numpy.asarray(input_value(x, names)), EXACT
        for step in program.steps:
            try:
                interpreter.step(step, scope, facts)
            except Exception:
                break
    return {n: scope[name_of(n)] for step in program.steps for n in step.results if name_of(n) in scope}


def _freeze(program: Program, check: Check, chosen: tuple[Step, ...], values: dict[int, Any]) -> Iterator[Candidate]:
    made = [n for step in chosen for n in step.results]
    if not all(n in values and hasattr(values[n], "shape") for n in made):
        return
    inputs = (*program.inputs, *(_held(n, values[n]) for n in made))
    rest = tuple(s for s in program.steps if s not in chosen)
    outputs = tuple(n for n in program.outputs if n not in made)
    if outputs:
        found = live(Program(inputs, rest, outputs))
        yield found, _renumbered(check, program.inputs, found.inputs)


def _held(number: int, value: Any) -> Input:
    """An input with a value, or with others of its kind if it is large."""
    array = np.asarray(value)
    name = dtype_name(value)
    data = tuple(array.ravel().tolist()) if array.size <= LITERAL else None
    if data is not None and kind_of(name) == "f":
        data = tuple(array.astype("float64").ravel().tolist())
    if data is not None and kind_of(name) in "iu":
        data = tuple(map(int, array.ravel()))
    return Input(number, array.shape, name, number, "plain", "quarters", data)


def _replaced(steps: tuple[Step, ...], old: int, new: int) -> tuple[Step, ...]:
    """Steps that read another value."""

    def number(n: int) -> int:
        return new if n == old else n

    def body(b: Body) -> Body:
        return Body(b.parameters, _replaced(b.steps, old, new), tuple(map(number, b.results)))

    return tuple(
        dataclasses.replace(s, operands=tuple(map(number, s.operands)), bodies=tuple(map(body, s.bodies)))
        for s in steps
    )


def _bypassed(best: Candidate, names: dict[str, Any]) -> Iterator[Candidate]:
    """A step's operand in its result's place."""
    program, check = best
    for step in reversed(program.steps):
        for result in step.results:
            for operand in dict.fromkeys(step.operands):
                steps = _replaced(tuple(s for s in program.steps if s != step), result, operand)
                outputs = tuple(operand if n == result else n for n in program.outputs)
                made = {n for s in steps for n in s.results}
                if all(n in made for n in outputs):
                    yield from _with_inputs(Program(program.inputs, steps, outputs), check)


def _bodies(best: Candidate, names: dict[str, Any]) -> Iterator[Candidate]:
    """Bodies without one of their steps, at any depth."""
    program, check = best
    for steps in _thinned(program.steps):
        yield from _with_inputs(dataclasses.replace(program, steps=steps), check)


def _thinned(steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    for place, step in enumerate(steps):
        for k, body in enumerate(step.bodies):
            for smaller in _smaller(body):
                bodies = (*step.bodies[:k], smaller, *step.bodies[k + 1 :])
                yield (*steps[:place], dataclasses.replace(step, bodies=bodies), *steps[place + 1 :])


def _smaller(body: Body) -> Iterator[Body]:
    used = set(body.results).union(*map(used_by, body.steps))
    for step in reversed(body.steps):
        rest = tuple(s for s in body.steps if s != step)
        if not used & set(step.results):
            yield Body(body.parameters, rest, body.results)
        for operand in dict.fromkeys((*step.operands, *body.parameters)):
            steps, results = rest, body.results
            for result in step.results:
                steps = _replaced(steps, result, operand)
                results = tuple(operand if n == result else n for n in results)
            yield Body(body.parameters, steps, results)
    for steps in _thinned(body.steps):
        yield Body(body.parameters, steps, body.results)


def _sizes(best: Candidate, names: dict[str, Any]) -> Iterator[Candidate]:
    """Smaller dimensions: of one size wherever it stands, then of single inputs."""
    program, check = best
    sizes = sorted({n for x in program.inputs for n in x.shape if n > 1}, reverse=True)
    for old in sizes:
        for new in (1, 2, 3, old // 2):
            if new >= old:
                continue

            def changed(value: Any, old: int = old, new: int = new) -> Any:
                return tuple(map(changed, value)) if isinstance(value, tuple) else new if value == old else value

            inputs = tuple(_resized(x, changed(x.shape)) for x in program.inputs)
            yield dataclasses.replace(program, inputs=inputs, steps=_reparametrised(program.steps, changed)), check
            yield dataclasses.replace(program, inputs=inputs), check
    for place, x in enumerate(program.inputs):
        for axis in range(len(x.shape)):
            shapes = [(*x.shape[:axis], *x.shape[axis + 1 :])]
            shapes += [(*x.shape[:axis], n, *x.shape[axis + 1 :]) for n in (1, 2, 3) if n < x.shape[axis]]
            for shape in shapes:
                inputs = (*program.inputs[:place], _resized(x, shape), *program.inputs[place + 1 :])
                yield dataclasses.replace(program, inputs=inputs), check


def _resized(x: Input, shape: tuple[int, ...]) -> Input:
    if shape == x.shape:
        return x
    data = x.data
    if data is not None:
        held = np.empty(len(data), object)
        held[:] = data
        held = held.reshape(x.shape)
        if len(shape) < len(x.shape):
            data = tuple(np.resize(held, shape).ravel().tolist())
        else:
            data = tuple(held[tuple(slice(n) for n in shape)].ravel().tolist())
    return dataclasses.replace(x, shape=shape, data=data)


def _reparametrised(steps: tuple[Step, ...], changed: Callable[[Any], Any]) -> tuple[Step, ...]:
    def body(b: Body) -> Body:
        return Body(b.parameters, _reparametrised(b.steps, changed), b.results)

    return tuple(
        dataclasses.replace(
            s,
            parameters=tuple((k, changed(v) if k in SIZES else v) for k, v in s.parameters),
            bodies=tuple(map(body, s.bodies)),
        )
        for s in steps
    )


def _plain(best: Candidate, names: dict[str, Any]) -> Iterator[Candidate]:
    """Ordinary layouts, dtypes and numbers."""
    program, check = best
    for place, x in enumerate(program.inputs):
        dtype = {"f": "float32", "i": "int32", "u": "int32"}.get(kind_of(x.dtype), x.dtype)
        for changes in ({"layout": "plain"}, {"domain": "quarters"}, {"dtype": dtype}):
            inputs = (*program.inputs[:place], dataclasses.replace(x, **changes), *program.inputs[place + 1 :])
            yield dataclasses.replace(program, inputs=inputs), check
