"""Dead results of control flow: unread outputs, and carries that only feed themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rlx.ir.loop_parts import fixpoint
from rlx.ir.program import Equation, Program, Var

__all__ = ["prune"]


def prune(program: Program, used_outputs: Iterable[bool] | None = None) -> Program:
    """The program without dead equations, and its control flow without dead results.

    `used_outputs` keeps only the marked outputs; inputs stay as they are.
    """
    outputs = program.outputs
    if used_outputs is not None:
        outputs = tuple(a for a, keep in zip(outputs, used_outputs, strict=True) if keep)
    live = {a for a in outputs if isinstance(a, Var)}
    kept: list[Equation] = []
    for equation in reversed(program.equations):
        wanted = [v in live for v in equation.outputs]
        if not any(wanted) and not equation.primitive.effect(**equation.params):
            continue
        narrow = _NARROWERS.get(equation.primitive.name)
        if narrow is not None and not all(wanted):
            equation = narrow(equation, wanted)
        kept.append(equation)
        live.update(a for a in equation.inputs if isinstance(a, Var))
    if len(kept) == len(program.equations) and used_outputs is None:
        if all(a is b for a, b in zip(reversed(kept), program.equations, strict=True)):
            return program
    constants = tuple((v, c) for v, c in program.constants if v in live)
    return Program(program.inputs, reversed(kept), outputs, constants, program.name)


def _keep(values: Sequence[Any], mask: Sequence[bool]) -> list[Any]:
    return [v for v, m in zip(values, mask, strict=True) if m]


def _rebuilt(equation: Equation, inputs: Sequence[Any], wanted: Sequence[bool], **params: Any) -> Equation:
    return Equation(
        equation.primitive, tuple(inputs), {**equation.params, **params},
        tuple(_keep(equation.outputs, wanted)), equation.origin,
    )  # fmt: skip


def _cond(equation: Equation, wanted: Sequence[bool]) -> Equation:
    branches = tuple(prune(b, wanted) for b in equation.params["branches"])
    return _rebuilt(equation, equation.inputs, wanted, branches=branches)


def _needed(program: Program, used_outputs: Sequence[bool]) -> set[Any]:
    """Variables that the marked outputs, or effects, are computed from."""
    half = prune(program, used_outputs)
    needed = {a for e in half.equations for a in e.inputs}
    needed.update(half.outputs)
    return needed


def _live_carries(
    body: Program, inputs: Sequence[Var], live: list[bool], rest: Sequence[bool]
) -> list[bool]:
    """Carries that are live, or that a live one's next value is computed from."""

    def step(live: list[bool]) -> tuple[None, list[bool]]:
        needed = _needed(body, [*live, *rest])
        return None, [alive or v in needed for alive, v in zip(live, inputs, strict=True)]

    return fixpoint(step, live)[1]


def _scan(equation: Equation, wanted: Sequence[bool]) -> Equation:
    p = equation.params
    body, constants, carries = p["body"], p["constants"], p["carries"]
    end = constants + carries
    ys = list(wanted[carries:])
    live = _live_carries(body, body.inputs[constants:end], list(wanted[:carries]), ys)
    mask = [*[True] * constants, *live, *[True] * (len(body.inputs) - end)]
    if all(live) and all(ys):
        return equation
    shorter = prune(body, [*live, *ys]).replace(inputs=_keep(body.inputs, mask))
    return _rebuilt(equation, _keep(equation.inputs, mask), [*live, *ys], body=shorter, carries=sum(live))


def _while(equation: Equation, wanted: Sequence[bool]) -> Equation:
    p = equation.params
    condition, body = p["condition"], p["body"]
    n, b = p["condition_constants"], p["body_constants"]
    tested = _needed(condition, [True])
    first = [w or v in tested for w, v in zip(wanted, condition.inputs[n:], strict=True)]
    live = _live_carries(body, body.inputs[b:], first, [])
    if all(live):
        return equation
    return _rebuilt(
        equation,
        _keep(equation.inputs, [*[True] * (n + b), *live]),
        live,
        condition=condition.replace(inputs=_keep(condition.inputs, [*[True] * n, *live])),
        body=prune(body, live).replace(inputs=_keep(body.inputs, [*[True] * b, *live])),
    )


_NARROWERS: dict[str, Callable[[Equation, Sequence[bool]], Equation]] = {
    "cond": _cond,
    "scan": _scan,
    "while_loop": _while,
}
