"""The writer of the lines of a function."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from rlx.backends.claims import Claims
from rlx.ir.program import Atom, Equation, Literal, Program, Var
from rlx.ir.types import TensorType, dtype_kind, is_float, is_key, is_narrow
from rlx.passes.decompose_routines import decompose_routines
from rlx.stablehlo.text import Value, array_attribute, attributes, literal

__all__ = ["BOOL", "FLOAT32", "FLOAT64", "FORMAT", "INT32", "INT64", "Rule", "Values", "Writer", "shape_of", "types_of"]

FORMAT = "StableHLO"
Values = list[Value]
Rule = Callable[["Writer", Equation, Values], Values]
INT32, INT64, BOOL = np.dtype(np.int32), np.dtype(np.int64), np.dtype(bool)
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
# the other factorisations and solves become loops and products
ROUTINES = Claims(routines=frozenset({"cholesky", "triangular_solve", "fft"}))


def shape_of(type: TensorType) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype; keys are represented by their words."""
    if is_key(type.dtype):
        key: Any = type.dtype
        return (*type.shape, key.words), np.dtype(np.uint32)
    return type.shape, type.dtype


class Writer:
    """Lines of a function; `rule_of` returns the writer of an equation, or raises UnsupportedError.

    sharding_of: the stated sharding of a variable, as text, or None. emulates_float64: whether the device emulates
    float64, so that special functions of narrower numbers are computed in float32.
    """

    def __init__(
        self,
        rule_of: Callable[[Equation], Rule],
        sharding_of: Callable[[Var, Value], str | None] = lambda *_: None,
        emulates_float64: bool = False,
    ) -> None:
        self.rule_of = rule_of
        self.sharding_of = sharding_of
        self.emulates_float64 = emulates_float64
        self.lines: list[str] = []
        self.depth = 0
        self.numbers = itertools.count()
        self.known: list[dict[Any, Value]] = [{}]  # constants per region

    def put(self, line: str) -> None:
        """Add a line."""
        self.lines.append("  " * self.depth + line)

    def fresh(self, shape: Sequence[int], dtype: Any) -> Value:
        """A new value."""
        return Value(f"%{next(self.numbers)}", shape, dtype)

    def op(self, name: str, inputs: Sequence[Value], shape: Sequence[int], dtype: Any, **values: str) -> Value:
        """The result of an operation."""
        return self.several(name, inputs, [(shape, dtype)], **values)[0]

    def several(self, name: str, inputs: Sequence[Value], results: Sequence[Any], **values: str) -> Values:
        """The results of an operation, of these shapes and dtypes."""
        found = [self.fresh(*r) for r in results]
        self.put(self._head(name, inputs, found) + attributes(values) + self._tail(inputs, found))
        return found

    def _head(self, name: str, inputs: Sequence[Value], found: Values) -> str:
        left = f"{', '.join(found)} = " if found else ""
        return f'{left}"{name}"({", ".join(inputs)})'

    def _tail(self, inputs: Sequence[Value], found: Values) -> str:
        return f" : ({', '.join(v.type for v in inputs)}) -> ({', '.join(v.type for v in found)})"

    def with_regions(
        self,
        name: str,
        inputs: Sequence[Value],
        results: Sequence[Any],
        regions: Sequence[tuple[Sequence[Any], Callable[[Values], Values]]],
        **values: str,
    ) -> Values:
        """The results of an operation with regions, each given as argument types and a function of the arguments."""
        found = [self.fresh(*r) for r in results]
        self.put(self._head(name, inputs, found) + attributes(values) + " ({")
        for number, (types, body) in enumerate(regions):
            if number:
                self.put("}, {")
            with self.region():
                arguments = [self.fresh(*t) for t in types]
                if arguments:
                    self.put(f"^bb0({', '.join(f'{a}: {a.type}' for a in arguments)}):")
                outs = body(arguments)
                self.put(f'"stablehlo.return"({", ".join(outs)}) : ({", ".join(v.type for v in outs)}) -> ()')
        self.put("})" + self._tail(inputs, found))
        return found

    @contextmanager
    def region(self) -> Generator[None]:
        """Start a region with a separate table of constants."""
        self.depth += 1
        self.known.append({})
        yield
        self.known.pop()
        self.depth -= 1

    def constant(self, value: Any, dtype: Any) -> Value:
        """A constant array."""
        array = np.asarray(value).astype(dtype)
        key = (array.dtype, array.shape, array.tobytes())
        found = self.known[-1].get(key)
        if found is None:
            found = self.known[-1][key] = self.fresh(array.shape, array.dtype)
            self.put(
                f'{found} = "stablehlo.constant"() <{{value = {literal(array)} : {found.type}}}> : () -> {found.type}'
            )
        return found

    def spread(self, x: Value, shape: Sequence[int]) -> Value:
        """Broadcast an operand by NumPy's rules."""
        if x.shape == tuple(shape):
            return x
        return self.broadcast(x, shape, range(len(shape) - len(x.shape), len(shape)))

    def broadcast(self, x: Value, shape: Sequence[int], dims: Sequence[int]) -> Value:
        """Broadcast to more or larger axes."""
        return self.op("stablehlo.broadcast_in_dim", [x], shape, x.dtype, broadcast_dimensions=array_attribute(dims))

    def convert(self, x: Value, dtype: Any) -> Value:
        """Convert to another dtype."""
        return x if x.dtype == dtype else self.op("stablehlo.convert", [x], x.shape, dtype)

    def binary(self, name: str, x: Value, y: Value) -> Value:
        """An operation on two arrays of one type."""
        return self.op(f"stablehlo.{name}", [x, self.spread(y, x.shape)], x.shape, x.dtype)

    def compare(self, direction: str, x: Value, y: Value) -> Value:
        """A comparison."""
        kind = {"f": "FLOAT", "c": "FLOAT", "i": "SIGNED"}.get(dtype_kind(x.dtype), "UNSIGNED")
        return self.op(
            "stablehlo.compare",
            [x, self.spread(y, x.shape)],
            x.shape,
            BOOL,
            comparison_direction=f"#stablehlo<comparison_direction {direction}>",
            compare_type=f"#stablehlo<comparison_type {kind}>",
        )

    def select(self, test: Value, x: Value, y: Value) -> Value:
        """x where the test is true, else y."""
        return self.op("stablehlo.select", [self.spread(test, x.shape), x, self.spread(y, x.shape)], x.shape, x.dtype)

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """Reshape."""
        return x if x.shape == tuple(shape) else self.op("stablehlo.reshape", [x], shape, x.dtype)

    def slice(self, x: Value, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int] = ()) -> Value:
        """A part of an array."""
        steps = strides or [1] * len(starts)
        shape = [max(0, -(-(b - a) // s)) for a, b, s in zip(starts, limits, steps, strict=True)]
        return self.op(
            "stablehlo.slice",
            [x],
            shape,
            x.dtype,
            start_indices=array_attribute(starts),
            limit_indices=array_attribute(limits),
            strides=array_attribute(steps),
        )

    def pad(self, x: Value, value: Value, config: Sequence[tuple[int, int, int]]) -> Value:
        """Pad before, after and between elements."""
        shape = [low + high + n + max(n - 1, 0) * d for n, (low, high, d) in zip(x.shape, config, strict=True)]
        lows, highs, between = zip(*config, strict=True) if config else ((), (), ())
        return self.op(
            "stablehlo.pad",
            [x, value],
            shape,
            x.dtype,
            edge_padding_low=array_attribute(lows),
            edge_padding_high=array_attribute(highs),
            interior_padding=array_attribute(between),
        )

    def reduce(self, kind: str, x: Value, axes: Sequence[int], start: Any) -> Value:
        """A reduction by an operation of StableHLO; small floats are reduced in float32."""
        if not axes:
            return x
        wide = self.convert(x, FLOAT32) if is_float(x.dtype) and is_narrow(x.dtype) else x
        shape = [n for a, n in enumerate(x.shape) if a not in axes]
        scalar = ((), wide.dtype)
        body = lambda xs: [self.op(f"stablehlo.{kind}", xs, (), wide.dtype)]  # noqa: E731
        (found,) = self.with_regions(
            "stablehlo.reduce",
            [wide, self.constant(start, wide.dtype)],
            [(shape, wide.dtype)],
            [([scalar, scalar], body)],
            dimensions=array_attribute(axes),
        )
        return self.convert(found, x.dtype)

    def iota(self, shape: Sequence[int], dtype: Any, axis: int) -> Value:
        """The index along an axis."""
        return self.op("stablehlo.iota", [], shape, dtype, iota_dimension=f"{axis} : i64")

    # -------------------------------------------------------------- programs
    def program(self, program: Program, inputs: Sequence[Value]) -> Values:
        """The values of a program's results."""
        program = decompose_routines(program, ROUTINES)
        names: dict[Any, Value] = dict(zip(program.inputs, inputs, strict=True))
        arrays = {v: value.numpy() if hasattr(value, "numpy") else np.asarray(value) for v, value in program.constants}

        def read(atom: Atom) -> Value:
            if isinstance(atom, Literal):
                return self.constant(atom.value, atom.type.dtype)
            if atom not in names:
                array = arrays[atom]
                if is_key(atom.type.dtype):
                    key: Any = atom.type.dtype
                    array = key.words_of(array)
                names[atom] = self.constant(array, array.dtype)
            return names[atom]

        for equation in program.equations:
            found = self.rule_of(equation)(self, equation, list(map(read, equation.inputs)))
            names.update(zip(equation.outputs, map(self._divided, equation.outputs, found), strict=True))
        return list(map(read, program.outputs))

    def _divided(self, variable: Var, value: Value) -> Value:
        """The value, with the sharding that is stated for its variable."""
        sharding = self.sharding_of(variable, value)
        if sharding is None:
            return value
        return self.op("sdy.sharding_constraint", [value], value.shape, value.dtype, sharding=sharding)


def types_of(variables: Sequence[Var]) -> list[Any]:
    """Shapes and dtypes of variables."""
    return [shape_of(v.type) for v in variables]
