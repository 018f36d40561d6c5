"""Random graphs: every plan computes what NumPy computes, fused or not."""

from __future__ import annotations

import random

import numpy as np
import pytest
from graphs import Graph, execute

from rlx.ir.options import FusionLimits, LoweringOptions
from rlx.ir.program import Var
from rlx.ir.types import TensorType
from rlx.passes.pipeline import lower_program

Value = tuple[Var, np.ndarray]


class RandomGraph:
    """Grows a graph by random equations and evaluates each in NumPy beside it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.graph = Graph()
        self.arrays: list[np.ndarray] = []
        self.values: list[Value] = []
        sizes = self.random.choice([(3, 4, 5), (2, 20, 6), (33, 2, 17), (1, 40, 3)])
        for shape in (sizes, sizes[1:], sizes[2:], (sizes[0], 1, sizes[2])):
            self.input(shape)

    def input(self, shape: tuple[int, ...]) -> None:
        array = self.numbers.normal(size=shape)
        self.arrays.append(array)
        self.values.append((self.graph.input(shape, np.float64), array))

    def push(self, lower, array, *operands: Var) -> None:
        array = np.asarray(array, np.float64)
        if array.size > 20_000 or array.size == 0:
            return
        array = np.clip(np.nan_to_num(array, nan=0, posinf=5, neginf=-5), -5, 5)
        type = TensorType(array.shape, np.dtype(np.float64))

        def clipped(k, *xs):
            value = lower(k, *xs)
            return k.elementwise(lambda s, x: self.clip(s, x), (value,), type)

        self.values.append((self.graph.op(lower.__name__, clipped, type, *operands), array))

    @staticmethod
    def clip(s, x):
        x = s.select(s.ne(x, x), s.constant_like(x, 0), x)
        return s.max(s.min(x, 5.0), -5.0)

    def pick(self) -> Value:
        recent = self.values[-6:] if self.random.random() < 0.7 else self.values
        return self.random.choice(recent)

    def grow(self) -> None:
        kinds = [
            self.unary,
            self.binary,
            self.binary,
            self.reduced,
            self.reduced,
            self.transposed,
            self.reshaped,
            self.sliced,
            self.concatenated,
            self.cumulated,
            self.normalised,
            self.contracted,
            self.padded,
            self.updated,
            self.total,
        ]
        self.random.choice(kinds)()

    def unary(self) -> None:
        v, a = self.pick()
        name, function = self.random.choice([("tanh", np.tanh), ("exp", np.exp), ("sin", np.sin), ("neg", np.negative)])

        def map(k, x):
            return k.elementwise(lambda s, p: getattr(s, name)(p), (x,), x.type)

        self.push(map, function(a), v)

    def binary(self) -> None:
        (v, a), (w, b) = self.pick(), self.pick()
        try:
            shape = np.broadcast_shapes(a.shape, b.shape)
        except ValueError:
            return
        name, function = self.random.choice([("add", np.add), ("mul", np.multiply), ("max", np.maximum)])

        def binary(k, x, y):
            type = TensorType(shape, x.dtype)
            return k.elementwise(lambda s, p, q: getattr(s, name)(p, q), (x, y), type)

        self.push(binary, function(a, b), v, w)

    def reduced(self) -> None:
        v, a = self.pick()
        axes = tuple(n for n in range(a.ndim) if self.random.random() < 0.5)
        op, function = self.random.choice([("add", np.mean), ("max", np.max), ("min", np.min)])
        count = np.prod([a.shape[n] for n in axes], initial=1)
        keep = tuple(1 if n in axes else size for n, size in enumerate(a.shape))

        def reduced(k, x):
            value = k.reshape(k.reduce(op, x, axes), keep)
            if op != "add":
                return value
            return k.elementwise(lambda s, p: p / float(count), (value,), value.type)

        self.push(reduced, function(a, axis=axes, keepdims=True) if axes else a, v)

    def total(self) -> None:
        v, a = self.pick()

        def total(k, x):
            return k.reduce("add", x, range(len(x.shape)))

        self.push(total, a.sum(), v)

    def transposed(self) -> None:
        v, a = self.pick()
        permutation = list(range(a.ndim))
        self.random.shuffle(permutation)
        self.push(lambda k, x: k.transpose(x, permutation), a.transpose(permutation), v)

    def reshaped(self) -> None:
        v, a = self.pick()
        shape = self.random.choice([(-1,), (a.shape[0] if a.ndim else 1, -1), (1, *a.shape), (-1, 1)])
        result = a.reshape(shape)
        self.push(lambda k, x: k.reshape(x, result.shape), result, v)

    def sliced(self) -> None:
        v, a = self.pick()
        starts = [self.random.randrange(n) for n in a.shape]
        limits = [self.random.randrange(s, n) + 1 for s, n in zip(starts, a.shape, strict=True)]
        steps = [self.random.choice([1, 1, 2]) for _ in a.shape]
        window = tuple(slice(*t) for t in zip(starts, limits, steps, strict=True))
        flip = [n for n in range(a.ndim) if self.random.random() < 0.2]
        self.push(
            lambda k, x: k.reverse(k.slice(x, starts, limits, steps), flip),
            np.flip(a[window], flip),
            v,
        )

    def concatenated(self) -> None:
        (v, a), (w, b) = self.pick(), self.pick()
        if a.ndim and a.shape == b.shape:
            axis = self.random.randrange(a.ndim)
            self.push(lambda k, x, y: k.concatenate((x, y), axis), np.concatenate((a, b), axis), v, w)

    def cumulated(self) -> None:
        v, a = self.pick()
        if a.ndim:
            axis, reverse = self.random.randrange(a.ndim), self.random.random() < 0.3
            b = np.flip(np.cumsum(np.flip(a, axis), axis), axis) if reverse else np.cumsum(a, axis)
            self.push(lambda k, x: k.cumulate("add", x, axis, reverse), b, v)

    def normalised(self) -> None:
        v, a = self.pick()
        if not a.ndim:
            return

        def softmax(k, x):
            def spread(y):
                return k.broadcast(y, x.shape, range(len(x.shape) - 1))

            last = (len(x.shape) - 1,)
            e = k.elementwise(lambda s, p, q: s.exp(p - q), (x, spread(k.reduce("max", x, last))), x.type)
            return k.elementwise(lambda s, p, q: p / q, (e, spread(k.reduce("add", e, last))), x.type)

        e = np.exp(a - a.max(-1, keepdims=True))
        self.push(softmax, e / e.sum(-1, keepdims=True), v)

    def contracted(self) -> None:
        (v, a), (w, b) = self.pick(), self.pick()
        pairs = [(i, j) for i, n in enumerate(a.shape) for j, m in enumerate(b.shape) if n == m]
        if pairs:
            i, j = self.random.choice(pairs)
            self.push(lambda k, x, y: k.contract(x, y, ([i], [j]), ([], [])), np.tensordot(a, b, (i, j)), v, w)

    def padded(self) -> None:
        v, a = self.pick()
        widths = [(self.random.choice([0, 0, 1, 2]), self.random.choice([0, 0, 1])) for _ in a.shape]
        config = [(low, high, 0) for low, high in widths]

        def pad(k, x):
            return k.pad(x, k.full(TensorType((), x.dtype), 0.5), config)

        self.push(pad, np.pad(a, widths, constant_values=0.5) if a.ndim else a, v)

    def updated(self) -> None:
        (v, a), (w, b) = self.pick(), self.pick()
        if a.ndim != b.ndim or any(m > n for n, m in zip(a.shape, b.shape, strict=True)):
            return
        result = np.array(a)
        result[tuple(slice(n - m, n) for n, m in zip(a.shape, b.shape, strict=True))] = b

        def update(k, x, y):
            starts = [n - m for n, m in zip(x.shape, y.shape, strict=True)]
            return k.scatter(None, x, y, lambda s, *p: [q + n for q, n in zip(p, starts, strict=True)], None)

        self.push(update, result, v, w)


@pytest.mark.parametrize("seed", range(150))
def test_random_graph(seed: int) -> None:
    grown = RandomGraph(seed)
    for _ in range(grown.random.choice([4, 10, 25])):
        grown.grow()
    count = min(len(grown.values), grown.random.choice([1, 2, 4]))
    outputs = grown.random.sample(grown.values[-10:], min(count, 10))
    outputs.append(grown.values[-1])
    program = grown.graph.program(*(v for v, _ in outputs))
    limits = FusionLimits(instructions=grown.random.choice([400, 20]))
    choices = [
        LoweringOptions(fusion=limits, chunk_elements=grown.random.choice([64, 1 << 16])),
        LoweringOptions(recompute_cost=0, free_cost=0, expression_operations=3),
        LoweringOptions(fuse=False),
    ]
    for options in choices:
        plan = lower_program(program, options)
        results = execute(plan, [v.type for v, _ in outputs], grown.arrays)
        for result, (_, expected) in zip(results, outputs, strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-7, atol=1e-7)
