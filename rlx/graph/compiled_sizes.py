"""Compiled graphs that are kept: by a key, by the values of named sizes, and by sizes that inputs are padded to."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from rlx import numpy as jnp
from rlx.array import ConcreteArray
from rlx.errors import RlxError, ShapeError
from rlx.forks import reopen_after_fork
from rlx.graph.compile import CompileOptions
from rlx.graph.graph import Graph
from rlx.graph.session import CompiledGraph, Session
from rlx.graph.types import Shape
from rlx.ir.types import is_inexact

__all__ = ["BucketedCompileCache", "CompileCache", "ModelCompilePipeline"]

Key = TypeVar("Key", bound=Hashable)


class CompileCache(Generic[Key]):
    """The compiled graphs of one device by a key of your own. The least recently used are dropped.

    Two threads that ask for the same key compile once.

    >>> import rlx, rlx.numpy as jnp
    >>> from rlx.runtime import CompileCache
    >>> cache = CompileCache("cpu", capacity=4)
    >>> build = lambda: rlx.Graph.trace(lambda x: x * 2.0, jnp.ones(3))
    >>> cache.get("double", build) is cache.get("double", build), len(cache)
    (True, 1)
    """

    def __init__(self, device: str | None = None, capacity: int = 32, options: CompileOptions | None = None) -> None:
        if capacity < 1:
            raise RlxError(f"CompileCache got capacity={capacity}.", "It is 1 or more.")
        self.capacity, self.options = capacity, options
        self._session = Session(device)
        self._kept: OrderedDict[Key, CompiledGraph] = OrderedDict()
        self._lock = threading.RLock()
        reopen_after_fork(self)

    def get(self, key: Key, build: Callable[[], Graph]) -> CompiledGraph:
        """The compiled graph of the key; `build` is called for a key that is not there."""
        with self._lock:
            if key not in self._kept:
                self._kept[key] = self._session.compile(build(), self.options)
                if len(self._kept) > self.capacity:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            return self._kept[key]

    def __contains__(self, key: Key) -> bool:
        return key in self._kept

    def __len__(self) -> int:
        return len(self._kept)

    def clear(self) -> None:
        """Forget all compiled graphs."""
        with self._lock:
            self._kept.clear()


class ModelCompilePipeline:
    """A graph with named sizes, compiled for the sizes that are asked for, with the same parameters.

    Raises: RlxError for a graph without named sizes, or with a parameter whose shape has one.

    >>> import rlx
    >>> from rlx.runtime import ModelCompilePipeline
    >>> g = rlx.Graph("rows")
    >>> g.set_outputs([g.input("x", rlx.Shape(["batch", 2])) * g.param("w", rlx.Shape([2]))])
    >>> model = ModelCompilePipeline(g)
    >>> model.set_param("w", [2.0, 3.0])
    >>> model.compile(batch=1).run(x=[[1.0, 1.0]])
    [Array([[2., 3.]], dtype=float32)]
    """

    def __init__(self, template: Graph, device: str | None = None, capacity: int = 32) -> None:
        if not template.symbols:
            raise RlxError(f"Graph {template.name!r} has no named sizes.", 'Build it with shapes such as ["batch", 4].')
        if sized := [name for name in template.params if _shape(template, name).symbols]:
            raise RlxError(
                f"The shape of the parameter {sized[0]!r} has a named size.", "Make it an input: its value changes."
            )
        self.template = template
        self._cache: CompileCache[tuple[tuple[str, int], ...]] = CompileCache(device, capacity)
        self._params: dict[str, Any] = {}

    def set_param(self, name: str, value: Any) -> None:
        """Set a parameter for all sizes."""
        if name not in self.template.params:
            raise RlxError(f"Graph {self.template.name!r} has no parameter {name!r}.")
        self._params[name] = value

    def compile(self, **sizes: int) -> CompiledGraph:
        """The graph compiled for these sizes, with the parameters that are set."""
        key = tuple(sorted(sizes.items()))
        found = self._cache.get(key, lambda: self.template.specialize(sizes))
        found.set_params(self._params)
        return found


class BucketedCompileCache:
    """A graph with one named size, compiled for few values of it: inputs are padded with zeros, results are cut.

    buckets: the sizes that are compiled, powers of two by default. A graph must treat the elements along the size
    separately: the first run of a bucket is repeated with other padding, and a result that depends on it is an error.

    Raises: RlxError if the graph does not have one named size, if a result lacks it, or depends on the padding;
    ShapeError for a size beyond the largest bucket.

    >>> import rlx
    >>> from rlx.runtime import BucketedCompileCache
    >>> g = rlx.Graph("rows")
    >>> g.set_outputs([g.relu(g.input("x", rlx.Shape(["batch", 2])))])
    >>> rows = BucketedCompileCache(g)
    >>> rows.run(x=[[1.0, -1.0]] * 3)[0].shape, rows.run(x=[[1.0, -1.0]] * 4)[0].shape, rows.compiled
    ((3, 2), (4, 2), (4,))
    """

    def __init__(self, template: Graph, device: str | None = None, buckets: Sequence[int] | None = None) -> None:
        if len(template.symbols) != 1:
            raise RlxError(f"Graph {template.name!r} has {len(template.symbols)} named sizes.", "Name one size.")
        (self.size,) = template.symbols
        self.buckets = None if buckets is None else tuple(sorted(buckets))
        self._pipeline = ModelCompilePipeline(template, device)
        self._inputs = {name: _axes(_shape(template, name), self.size) for name in template.inputs}
        self._results = [_axes(node.shape, self.size) for node in template.outputs]
        if () in self._results:
            raise RlxError(
                f"Result {self._results.index(())} of graph {template.name!r} has no axis {self.size!r}.",
                "It would depend on the padding: compute it without buckets, by ModelCompilePipeline.",
            )
        self._compiled: set[int] = set()
        self._checked: set[int] = set()

    @property
    def compiled(self) -> tuple[int, ...]:
        """The buckets that have been compiled."""
        return tuple(sorted(self._compiled))

    def set_param(self, name: str, value: Any) -> None:
        """Set a parameter for all buckets."""
        self._pipeline.set_param(name, value)

    def run(self, inputs: Mapping[str, Any] | None = None, **named: Any) -> list[ConcreteArray]:
        """The results for inputs by name, whose sizes must agree."""
        given = {name: jnp.asarray(value) for name, value in {**(inputs or {}), **named}.items()}
        if unknown := given.keys() - self._inputs.keys():
            raise RlxError(f"There is no input {min(unknown)!r}.", f"The inputs are: {', '.join(self._inputs)}.")
        count = self._count(given)
        bucket = self._bucket(count)
        compiled = self._pipeline.compile(**{self.size: bucket})
        results = self._cut(compiled.run(self._padded(given, bucket, 0)), count)
        if count < bucket and bucket not in self._checked:
            self._compare(results, self._cut(compiled.run(self._padded(given, bucket, 1)), count))
            self._checked.add(bucket)
        self._compiled.add(bucket)
        return results

    def _count(self, given: Mapping[str, Any]) -> int:
        counts = {name: [value.shape[axis] for axis in self._inputs[name]] for name, value in given.items()}
        found = {count for sizes in counts.values() for count in sizes}
        if len(found) != 1:
            raise ShapeError(f"The inputs have different sizes {self.size!r}: {counts}.")
        return found.pop()

    def _bucket(self, count: int) -> int:
        if self.buckets is None:
            return 1 << max(count - 1, 0).bit_length()
        if count > self.buckets[-1]:
            raise ShapeError(f"{self.size} is {count}; the largest bucket has {self.buckets[-1]}.")
        return next(bucket for bucket in self.buckets if bucket >= count)

    def _padded(self, given: Mapping[str, Any], bucket: int, attempt: int) -> dict[str, Any]:
        """Inputs of the bucket's size; the second attempt pads with NaN, or with ones."""
        return {name: _with_padding(x, self._inputs[name], bucket, attempt) for name, x in given.items()}

    def _cut(self, results: Sequence[Any], count: int) -> list[Any]:
        parts = [tuple(slice(count if n in axes else None) for n in range(r.ndim))
                 for r, axes in zip(results, self._results, strict=True)]  # fmt: skip
        return [r[part] for r, part in zip(results, parts, strict=True)]

    def _compare(self, first: Sequence[Any], second: Sequence[Any]) -> None:
        for number, (a, b) in enumerate(zip(first, second, strict=True)):
            if not np.array_equal(np.asarray(a), np.asarray(b), equal_nan=is_inexact(a.dtype)):
                raise RlxError(
                    f"Result {number} depends on the padding along {self.size!r}: the graph combines its elements.",
                    "Compile it for each size, by ModelCompilePipeline.",
                )


def _shape(graph: Graph, name: str) -> Shape:
    return graph.signature[name].shape


def _axes(shape: Shape, size: str) -> tuple[int, ...]:
    return tuple(axis for axis, n in enumerate(shape.dims) if n == size)


def _with_padding(value: Any, axes: tuple[int, ...], bucket: int, attempt: int) -> Any:
    filler = 0 if attempt == 0 else np.nan if is_inexact(value.dtype) else 1
    widths = [(0, bucket - n if axis in axes else 0) for axis, n in enumerate(value.shape)]
    return jnp.pad(value, widths, constant_values=filler)
