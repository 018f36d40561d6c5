"""A program for every seed."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import rlx
from rlx.errors import RlxError

from . import (  # noqa: F401  these fill the table
    elementwise_operations,
    index_operations,
    reduction_operations,
    region_operations,
    shape_operations,
)
from .interpret import EXACT, INEXACT, Fact, Interpreter, Unsound, dtype_name, epsilon
from .program import Body, Input, Program, Step, input_value, is_narrow, kind_of, live, name_of, used_by
from .table import OPERATIONS, Draw, NoDraw, Operation

__all__ = ["Generator", "Value", "as_wide", "generate", "started"]

INPUT_DTYPES = (
    *("float32", "float32", "float64", "float16", "bfloat16", "complex64", "complex128", "bool", "int8", "int16"),
    *("int32", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "int4", "uint4", "int2"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e3m4", "float8_e4m3", "float8_e8m0fnu", "float4_e2m1fn", "uint2"),
    *("float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz"),
)
SMOOTH_DTYPES = ("float64", "float64", "complex128", "int32", "bool", "uint8", "int64")
LAYOUTS = ("plain", "plain", "array", "array", "transposed", "strided", "reversed", "shifted", "broadcast")


@dataclasses.dataclass(frozen=True)
class Value:
    """A value of the pool: its number in the program, what it is for the inputs at hand, and what is known of it."""

    number: int
    array: Any
    fact: Fact

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(getattr(self.array, "shape", ()))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def dtype(self) -> str:
        return dtype_name(self.array)

    @property
    def kind(self) -> str:
        return kind_of(self.dtype)

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(as_wide(self.array)).all())


def as_wide(array: Any) -> np.ndarray:
    """A value as NumPy, small floats as float64."""
    found = np.asarray(array)
    return found.astype("float64") if kind_of(found.dtype.name) == "f" else found


MOST_READ = 1 << 22


def _reads_at_most(line: Operation, draw: Draw) -> int:
    """How many elements operands come to that are brought to one shape, or whose rows are taken by numbers."""
    shapes = [v.shape for v in draw.operands]
    numbers = [draw.operands[place].size for place in line.discrete if place]
    taken = math.prod(shapes[0]) // max(min(shapes[0]), 1) * max(numbers) if numbers and shapes[0] else 0
    with contextlib.suppress(ValueError):  # of shapes that do not go together
        return max(taken, math.prod(np.broadcast_shapes(*shapes)))
    return taken


class Generator:
    """Draws steps, and runs each at once, so that the next draw knows shapes, dtypes and values."""

    def __init__(self, source: random.Random, interpreter: Interpreter, palette: Sequence[tuple[int, ...]]) -> None:
        self.random = source
        self.interpreter = interpreter
        self.palette = list(palette)
        self.counter = iter(range(10**6))
        self.scope = dict(interpreter.names)
        self.facts: dict[int, Fact] = {}
        self.pool: list[Value] = []
        self.steps: list[Step] = []
        self.depth = 0
        self.largest = 6000
        self.special = False
        self.broken: str | None = None

    # What draws ask for.

    def coin(self, chance: float = 0.5) -> bool:
        """True with a chance."""
        return self.random.random() < chance

    def choice(self, options: Sequence[Any]) -> Any:
        """One of several."""
        return self.random.choice(list(options))

    def integer(self, low: int, high: int) -> int:
        """An integer, both ends included."""
        return self.random.randint(low, high)

    def axis(self, value: Value) -> int:
        """An axis of a value, counted from either end."""
        return (
            self.random.randrange(value.ndim) if self.coin(0.7) else self.random.randrange(-value.ndim, 0) % value.ndim
        )

    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes that are about."""
        return [*self.palette, *{v.shape: None for v in self.pool[-8:]}]

    def pick(
        self,
        kinds: str,
        *,
        exact: bool = False,
        ndim: int = 0,
        most: int = 5,
        among: Sequence[str] | None = None,
        where: Callable[[Value], Any] | None = None,
    ) -> Value:
        """A value of one of the kinds with ndim to most axes, rather a recent one."""
        found = [
            v
            for v in self.pool
            if v.kind in kinds
            and ndim <= v.ndim <= most
            and (v.fact.exact or not exact)
            and (among is None or v.dtype in among)
            and (where is None or where(v))
        ]
        if not found:
            raise NoDraw
        return self.random.choice(found[-5:] if self.coin(0.6) else found)

    def partner(self, value: Value, kinds: str, exact: bool = False, **options: Any) -> Value:
        """A value whose shape broadcasts with another's."""
        similar = kinds if self.coin(0.2) or value.kind not in kinds else value.kind

        def fits(v: Value) -> bool:
            pairs = zip(v.shape[::-1], value.shape[::-1], strict=False)
            return all(n == m or 1 in (n, m) for n, m in pairs)

        return self.pick(similar, exact=exact, where=fits, **options)

    # Bodies of regions.

    def number(self, value: int) -> Value:
        """A loop's counter."""
        return Value(-1, rlx.numpy.asarray(value), EXACT)

    def row(self, value: Value, axis: int) -> Value:
        """The first row along an axis."""
        return Value(-1, value.array[(slice(None),) * axis + (0,)], INEXACT)

    def function(self, examples: Sequence[Value], derivative: bool = False) -> Body:
        """A body that takes values like the examples."""
        inner, parameters = self._inside(examples, derivative)
        inner.grow(self.integer(1, 4))
        return Body(parameters, tuple(inner.steps), (inner.pool[-1].number,))

    def endomorphism(
        self, examples: Sequence[Value], carry: Value, also: bool = False, derivative: bool = False
    ) -> Body:
        """A body whose result is like one of its parameters; `also`: with any value as a second result."""
        inner, parameters = self._inside(examples, derivative)
        first = len(inner.pool)
        inner.grow(self.integer(1, 5))
        made = [v for v in inner.pool[first:] if v.size] or inner.pool[first - 1 : first]
        other = inner.choice(made)
        place = next(k for k, v in enumerate(examples) if v.array is carry.array)
        result = inner._like(inner.pool[first - len(examples) + place], carry, other)
        return Body(parameters, tuple(inner.steps), (result, *((other.number,) if also else ())))

    def _inside(self, examples: Sequence[Value], derivative: bool) -> tuple[Generator, tuple[int, ...]]:
        if self.depth >= 2:
            raise NoDraw
        mode = self.interpreter
        interpreter = Interpreter(mode.names, None, mode.derivative or derivative, mode.smooth)
        inner = Generator(self.random, interpreter, self.palette)
        inner.counter, inner.depth, inner.largest = self.counter, self.depth + 1, min(self.largest, 2000)
        inner.special = self.special
        inner.scope, inner.facts = dict(self.scope), dict(self.facts)
        inner.pool = self.random.sample(self.pool, min(len(self.pool), self.integer(0, 3)))
        for value in examples:
            inexact = value.kind in "fc"
            inner.add(Value(next(self.counter), value.array, Fact(exact=not inexact, active=inexact)))
        return inner, tuple(v.number for v in inner.pool[-len(examples) :])

    def _like(self, own: Value, carry: Value, other: Value) -> int:
        """The number of a value of the carry's type that depends on `other`."""
        if carry.kind in "iu":
            parameters = {"dtype": carry.dtype}
            return self.push("tie_integer", Draw((own, other), parameters)) if other.kind in "iub" else own.number
        same = other.shape == carry.shape and other.dtype == carry.dtype and other.number != own.number
        if other.kind == "f" and same and self.coin(0.7):
            return self.push("tame", Draw((other,)))
        operand = other if other.kind != "c" else own
        return self.push("tie", Draw((own, operand), {"dtype": carry.dtype}))

    # Growing.

    def add(self, value: Value) -> None:
        """Put a value into the pool."""
        self.scope[name_of(value.number)], self.facts[value.number] = value.array, value.fact
        self.pool.append(value)

    def grow(self, count: int) -> None:
        """Add steps, at least one and about `count`."""
        names = list(OPERATIONS)
        chances = [0.0 if self.depth >= 2 and OPERATIONS[n].results > 1 else OPERATIONS[n].weight for n in names]
        wanted, tries = len(self.steps) + count, 0
        while len(self.steps) < wanted and tries < 60 * count and self.broken is None:
            tries += 1
            name = self.random.choices(names, chances)[0]
            try:
                self.push(name, OPERATIONS[name].draw(self))
            except NoDraw:
                continue
        if not self.steps:
            raise NoDraw

    def push(self, name: str, draw: Draw) -> int:
        """Run a step and add it with its results, tamed; the number of the first. Raises NoDraw if it cannot be run."""
        line = OPERATIONS[name]
        if _reads_at_most(line, draw) > MOST_READ:
            raise NoDraw
        results = tuple(next(self.counter) for _ in range(line.results))
        operands = tuple(v.number for v in draw.operands)
        step = Step(name, operands, results, tuple(draw.parameters.items()), draw.bodies)
        try:
            self.interpreter.step(step, self.scope, self.facts)
        except (RlxError, Unsound, NoDraw) as error:
            raise NoDraw from error
        except Exception as error:
            # no error of rlx's own: a finding, which the checks will meet again
            self.broken = f"{type(error).__name__}: {error}"
            self.steps.append(step)
            return results[0]
        values = [Value(n, self.scope[name_of(n)], self.facts[n]) for n in results]
        given = any(not v.finite for v in draw.operands if v.kind in "fc")
        for value in values:
            if value.size > self.largest or value.ndim > 5 or not (self.special or given or value.finite):
                raise NoDraw
        self.steps.append(step)
        for value in values:
            self.add(value)
        return [self._tamed(value) for value in values][0]

    def _tamed(self, value: Value) -> int:
        """The number of a value of moderate size in a large one's place."""
        if not value.size or value.kind == "b":
            return value.number
        wide = as_wide(value.array)
        if value.kind in "iu":
            large = self.depth > 0 and bool(np.abs(wide.astype("float64")).max() > 1000)
            return self.push("tame_integer", Draw((value,))) if large else value.number
        finite = np.abs(wide[np.isfinite(wide)])
        # narrow floats end early, some of them in NaN
        most = 2.5 if is_narrow(value.dtype) else 30 if epsilon(value.dtype) > 1e-5 else 100
        if not finite.size or finite.max() <= most:
            return value.number
        self.pool.remove(value)
        name = "tame_complex" if value.kind == "c" else self.choice(["tame", "tame", "tame_clip"])
        return self.push(name, Draw((value,)))


def _sizes(source: random.Random) -> tuple[int, int, int]:
    """Three sizes that a program's shapes are made of."""
    kind = source.random()
    if kind < 0.08:
        return source.choice([(0, 3, 4), (2, 0, 3), (3, 4, 0)])
    if kind < 0.2:
        return source.choice([(1, 4, 2), (5, 1, 3), (1, 1, 7)])
    if kind < 0.35:
        return source.choice([(16, 33, 8), (64, 17, 3), (31, 8, 20), (40, 40, 3)])
    if kind < 0.42:
        return source.choice([(300, 130, 2), (1000, 17, 3), (3, 9001, 2), (40, 513, 3)])
    return source.choice([(2, 3, 4), (3, 4, 5), (4, 6, 2), (5, 7, 3), (8, 4, 2), (9, 5, 2), (6, 6, 3)])


def _inputs(
    source: random.Random,
    palette: list[tuple[int, ...]],
    base: str,
    counter: Any,
    special: bool,
    dtypes: Sequence[str],
) -> list[Input]:
    inputs = []
    for _ in range(source.randint(1, 5)):
        dtype = base if source.random() < 0.6 else source.choice(dtypes)
        shape, layout = source.choice(palette), source.choice(LAYOUTS)
        if not shape and source.random() < 0.3 and dtype in ("float64", "int64", "bool", "complex128"):
            layout = "number"
        domain = source.choice(["ordinary", "ordinary", "special" if special else "ordinary", "quarters"])
        domain = "quarters" if is_narrow(dtype) and domain == "ordinary" else domain
        inputs.append(Input(next(counter), shape, dtype, source.randrange(1000), layout, domain))
    if source.random() < 0.85:
        dtype = source.choice(["int32", "int32", "int64", "uint8", "int8"])
        shape = source.choice([s for s in palette if len(s) <= 2])
        inputs.append(Input(next(counter), shape, dtype, source.randrange(1000), source.choice(LAYOUTS)))
    return inputs


def started(seed: int, names: dict[str, Any]) -> tuple[Generator, tuple[Input, ...]]:
    """A generator that has drawn the inputs of a seed's program, and no steps."""
    source = random.Random(seed)
    a, b, c = _sizes(source)
    small = min(a, 8)
    palette = [(), (a,), (b,), (c,), (a, b), (a, b), (a, 1), (1, b), (b, c), (c, a, b), (c, small, small)]
    palette.append((2, c, small, small))
    palette = [s for s in palette if np.prod(s, dtype=np.int64) <= 50000]
    # programs without kinks are compared with finite differences
    smooth = source.random() < 0.2
    special = not smooth and source.random() < 0.1
    base = "float64" if smooth else source.choice(["float32"] * 5 + ["float64"] * 3 + ["float16", "bfloat16"])
    g = Generator(source, Interpreter(names, derivative=smooth, smooth=smooth), palette)
    g.special, g.largest = special, max(6000, 4 * a * b)
    inputs = _inputs(source, palette, base, g.counter, special, SMOOTH_DTYPES if smooth else INPUT_DTYPES)
    for x in inputs:
        g.add(Value(x.number, rlx.numpy.asarray(input_value(x, names)), Fact(active=kind_of(x.dtype) in "fc")))
    return g, tuple(inputs)


def generate(seed: int, names: dict[str, Any]) -> Program:
    """The program of a seed."""
    with rlx.disable_jit(), np.errstate(all="ignore"):
        g, inputs = started(seed, names)
        g.grow(g.choice([3, 4, 6, 8, 8, 12, 12, 16, 20, 30, 40]))
    return live(Program(inputs, tuple(g.steps), _outputs(g.random, g)))


def _outputs(source: random.Random, g: Generator) -> tuple[int, ...]:
    """Values that nothing reads, all or some, and some that are read."""
    if g.broken is not None:
        return (g.steps[-1].results[0],)
    used = set().union(*map(used_by, g.steps))
    made = [v.number for v in g.pool if v.number >= g.steps[0].results[0]]
    ends = [n for n in made if n not in used] or made[-1:]
    if source.random() < 0.5:
        ends = source.sample(ends, min(len(ends), source.randint(1, 4)))
    read = [n for n in made if n in used]
    also = source.sample(read, min(len(read), source.choice([0, 0, 1, 2])))
    return tuple(sorted({*ends, *also}))
