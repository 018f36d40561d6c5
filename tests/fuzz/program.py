"""A program as data, and as Python source."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import ml_dtypes  # noqa: F401  names such as "bfloat16" become known to NumPy

__all__ = [
    "Body",
    "Input",
    "Program",
    "Step",
    "all_steps",
    "body_name",
    "expression",
    "input_value",
    "is_narrow",
    "kind_of",
    "live",
    "name_of",
    "source_lines",
    "used_by",
]


@dataclasses.dataclass(frozen=True)
class Input:
    """An argument of a program: numbers drawn from a seed, or `data` as they stand.

    layout: how it lies in memory: "plain", "transposed", "strided", "reversed", "shifted" (starts inside a block),
    "broadcast" (stride 0 along the first axis), "array" (rlx's own), "number" (Python's own).
    domain: "ordinary", "quarters" (multiples of 1/4, so that sums are exact), or "special" (with NaN, infinities, -0).
    """

    number: int
    shape: tuple[int, ...]
    dtype: str
    seed: int = 0
    layout: str = "plain"
    domain: str = "ordinary"
    data: tuple[Any, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Body:
    """A function inside a program: its parameters, steps and results. It may read values of what is around it."""

    parameters: tuple[int, ...]
    steps: tuple[Step, ...]
    results: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Step:
    """One operation of the table on earlier values."""

    operation: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    parameters: tuple[tuple[str, Any], ...] = ()
    bodies: tuple[Body, ...] = ()


@dataclasses.dataclass(frozen=True)
class Program:
    """What is checked: a function of its inputs."""

    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]


def name_of(number: int) -> str:
    """How a value is called in the source."""
    return f"v{number}"


def used_by(step: Step) -> set[int]:
    """Values that a step reads, also from within its bodies."""
    used = set(step.operands)
    for body in step.bodies:
        made = set(body.parameters)
        used |= set(body.results)
        for inner in body.steps:
            used |= used_by(inner)
            made |= set(inner.results)
        used -= made
    return used


def all_steps(steps: tuple[Step, ...]) -> Iterator[Step]:
    """Steps and those of their bodies."""
    for step in steps:
        yield step
        for body in step.bodies:
            yield from all_steps(body.steps)


def is_narrow(dtype: str) -> bool:
    """Whether a dtype is a float of eight bits or fewer."""
    return dtype.startswith(("float8", "float4"))


def live(program: Program) -> Program:
    """A program without steps and inputs that its outputs do not depend on."""
    needed, kept = set(program.outputs), []
    for step in reversed(program.steps):
        if needed & set(step.results):
            kept.append(step)
            needed |= used_by(step)
    inputs = tuple(x for x in program.inputs if x.number in needed)
    return Program(inputs, tuple(reversed(kept)), program.outputs)


_SPECIAL = "[np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0]"


def _numbers(dtype: str, shape: tuple[int, ...], seed: int, domain: str) -> str:
    """An expression for an array of a dtype."""
    kind = kind_of(dtype)
    draw = f"np.random.default_rng({seed})"
    if kind == "b":
        return f"{draw}.integers(0, 2, {shape}).astype(bool)"
    if kind in "iu":
        low, high = (0 if kind == "u" else -4), 4 if dtype.endswith(("t2", "t4")) else 9
        return f"{draw}.integers({low}, {high}, {shape}).astype({dtype!r})"
    if dtype == "float8_e8m0fnu":  # powers of two
        return f"(2.0 ** {draw}.integers(-3, 3, {shape})).astype({dtype!r})"
    if domain == "quarters":
        return f"({draw}.integers(-9, 10, {shape}) / 4).astype({dtype!r})"
    if domain == "special" and kind == "f":
        return f"{draw}.choice({_SPECIAL}, {shape}).astype({dtype!r})"
    if kind == "c":
        return f"np.exp(1j * {draw}.normal(size={shape})).astype({dtype!r})"
    return f"{draw}.normal(size={shape}).astype({dtype!r})"


def kind_of(dtype: str) -> str:
    """One of b, i, u, f, c."""
    if dtype.startswith(("int", "uint")):
        return dtype[0]
    return {"bool": "b", "complex64": "c", "complex128": "c"}.get(dtype, "f")


def input_expression(x: Input) -> str:
    """Python for the value of an input."""
    if x.data is not None:
        flat = ", ".join(repr(n).replace("nan", "np.nan").replace("inf", "np.inf") for n in x.data)
        text = f"np.array([{flat}]).astype({x.dtype!r}).reshape({x.shape})"
        return f"jnp.asarray({text})" if x.layout == "array" else text

    def like(shape: tuple[int, ...]) -> str:
        return _numbers(x.dtype, shape, x.seed, x.domain)

    if x.layout == "number":
        return f"np.asarray({like(())}).item()"
    if x.layout == "array":
        return f"jnp.asarray({like(x.shape)})"
    if not x.shape:
        return f"np.asarray({like(())})"
    if x.layout == "plain":
        return like(x.shape)

    *front, last = x.shape
    if x.layout == "transposed":
        return f"{like(x.shape[::-1])}.T"
    if x.layout == "strided":
        return f"{like((*front, 2 * last))}[..., ::2]"
    if x.layout == "reversed":
        return f"{like(x.shape)}[::-1]"
    if x.layout == "shifted":
        return f"{like((*front, last + 1))}[..., 1:]"
    if x.layout == "broadcast":
        return f"np.broadcast_to({like((1, *x.shape[1:]))}, {x.shape})"
    raise ValueError(f"no such layout: {x.layout}")


def input_value(x: Input, scope: dict[str, Any]) -> Any:
    """The value of an input. scope: np and jnp."""
    return eval(input_expression(x), scope)


def step_lines(step: Step, templates: dict[str, str]) -> list[str]:
    """Python for a step: its bodies as functions, then an assignment."""
    lines = []
    for place, body in enumerate(step.bodies):
        parameters = ", ".join(map(name_of, body.parameters))
        lines.append(f"def {body_name(step, place)}({parameters}):")
        inner = [line for s in body.steps for line in step_lines(s, templates)]
        lines += [f"    {line}" for line in (*inner, f"return {returned(body)}")]
    targets = ", ".join(map(name_of, step.results))
    return [*lines, f"{targets} = {expression(step, templates[step.operation])}"]


def returned(body: Body) -> str:
    """What a body returns: one value, or a tuple."""
    return ", ".join(map(name_of, body.results))


def body_name(step: Step, place: int) -> str:
    """How a body is called in the source."""
    return f"f{step.results[0]}{'abcdef'[place]}"


def expression(step: Step, template: str) -> str:
    """The right-hand side of a step."""
    bodies = {f"body{place}": body_name(step, place) for place in range(len(step.bodies))}
    parameters = {name: value if name.endswith("_") else repr(value) for name, value in step.parameters}
    return template.format(*map(name_of, step.operands), **parameters, **bodies)


def source_lines(program: Program, templates: dict[str, str]) -> list[str]:
    """Python for a program: the function `program`, and the list `inputs`."""
    parameters = ", ".join(name_of(x.number) for x in program.inputs)
    lines = [f"def program({parameters}):"]
    for step in program.steps:
        lines += [f"    {line}" for line in step_lines(step, templates)]
    lines += [f"    return {', '.join(map(name_of, program.outputs))},", "", "inputs = ["]
    lines += [f"    {input_expression(x)}," for x in program.inputs]
    return [*lines, "]"]
