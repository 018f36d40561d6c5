"""Sessions: compile a graph for a device, set its parameters, run it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rlx.array import ConcreteArray, arrays_over, asarray_numpy, is_concrete, moved
from rlx.backends import backend_named, meant_device
from rlx.call.compiled import CompiledProgram
from rlx.call.device import Device
from rlx.config import config
from rlx.errors import DtypeError, RlxError, ShapeError
from rlx.graph.compile import CompileOptions, pipeline_for
from rlx.graph.graph import Graph, fit
from rlx.graph.legalize import KernelDispatchConfig, KernelDispatchReport, legalize_or_rewrite
from rlx.graph.module import GraphModule
from rlx.graph.types import DType
from rlx.ir.kernels import Plan
from rlx.ir.types import TensorType, dtype_kind
from rlx.passes.pipeline import executable_of, optimize

__all__ = ["CompiledGraph", "Session"]


class CompiledGraph:
    """A graph compiled for a device. `run` computes the outputs; parameters are set once.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> g = rlx.Graph.trace(lambda w, x: w * x, jnp.ones(2), jnp.ones(2), params=["w"])
    >>> compiled = rlx.Session("cpu").compile(g)
    >>> compiled.set_param("w", [2.0, 3.0])
    >>> compiled.run({"x": [1.0, 10.0]})
    [Array([ 2., 30.], dtype=float32)]
    """

    def __init__(
        self,
        graph: Graph,
        device: str,
        supported_ops: Iterable[str] | None = None,
        kernel_dispatch: KernelDispatchConfig | None = None,
        options: CompileOptions | None = None,
    ) -> None:
        if options is not None and options.dim_binding is not None:
            graph, options = graph.specialize(options.dim_binding), replace(options, dim_binding=None)
        self.graph = graph
        self.device = device
        self.dispatch_report: KernelDispatchReport | None = None
        self._types = {name: node.atom.type for name, node in graph.signature.items()}
        self._held: dict[str, ConcreteArray] = {}
        self._fed: dict[str, int] = {}  # the result that replaces a kept input
        self._params = frozenset(graph.params)
        program = graph.program
        backend = backend_named(device)
        if supported_ops is None and kernel_dispatch is None and options is None:
            compiled = CompiledProgram(program, backend)
            self._run = compiled.run
            self.plan: Plan | None = None if compiled.executable is None else compiled.executable.plan
            return
        if options is not None:
            result = pipeline_for(device, options).compile(graph)
            legal, self.dispatch_report = result.mir, result.dispatch
            executable = backend.compile(result.lir)
        else:
            legal, self.dispatch_report = legalize_or_rewrite(
                optimize(program), supported_ops, kernel_dispatch, device
            )
            executable = executable_of(legal, backend)
        self.plan = executable.plan
        memory = backend.memory
        types = [t if memory.host else t.placed(memory) for t in legal.output_types]
        self._run = lambda values: arrays_over(executable.run([moved(v, memory).storage() for v in values]), types)

    # ------------------------------------------------------------------ parameters
    def set_param(self, name: str, value: Any) -> None:
        """Set a parameter; `value` may be a flat list of its elements."""
        if name not in self._params:
            raise RlxError(
                f"Graph {self.graph.name!r} has no parameter {name!r}.",
                f"Its parameters are: {', '.join(sorted(self._params)) or 'none'}.",
            )
        self._held[name] = self._fitted(name, value)

    def set_params(self, values: Mapping[str, Any]) -> None:
        """Set several parameters."""
        for name, value in values.items():
            self.set_param(name, value)

    def param(self, name: str) -> ConcreteArray:
        """The value of a parameter, which must have been set."""
        return self._held[name]

    def _fitted(self, name: str, value: Any) -> ConcreteArray:
        type = self._types[name]
        if isinstance(value, (list, tuple)):
            value = _from_numbers(value, type, name)
        shape = getattr(value, "shape", type.shape)
        if shape != type.shape and len(shape) == 1 and shape[0] == type.size:
            value = np.asarray(value).reshape(type.shape)
        found = fit(value, type, name)
        assert is_concrete(found), "a compiled graph runs on arrays"
        return found

    # ------------------------------------------------------------------ running
    def run(self, inputs: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), **named: Any) -> list[ConcreteArray]:
        """The outputs for inputs by name: a mapping, pairs (name, value), or keywords."""
        given = {**dict(inputs), **named}
        missing = [n for n in self._types if n not in given and n not in self._held]
        if missing:
            how = "set_param" if missing[0] in self._params else "run"
            raise RlxError(f"Graph {self.graph.name!r} has no value for: {', '.join(missing)}.",
                           f"Give {missing[0]!r} with {how}.")  # fmt: skip
        unknown = sorted(given.keys() - self._types.keys())
        if unknown:
            raise RlxError(f"Graph {self.graph.name!r} has no input {unknown[0]!r}.",
                           f"Its inputs are: {', '.join(self.graph.inputs) or 'none'}.")  # fmt: skip
        fitted = {name: self._fitted(name, value) for name, value in given.items()}
        results = self._run([fitted[n] if n in fitted else self._held[n] for n in self._types])
        self._held.update((name, results[output]) for name, output in self._fed.items())
        return results

    __call__ = run

    def run_raw(self, *values: Any) -> list[ConcreteArray]:
        """The outputs for the inputs in the order of `graph.inputs`."""
        names = list(self.graph.inputs)
        if len(values) != len(names):
            raise RlxError(f"Graph {self.graph.name!r} has {len(names)} inputs, and run_raw got {len(values)}.")
        return self.run(dict(zip(names, values, strict=True)))

    def run_typed(self, inputs: Mapping[str, tuple[bytes, DType]]) -> list[tuple[bytes, DType]]:
        """The outputs as bytes in memory order with their element types, for inputs of the same form.

        Raises: DtypeError for another element type than the input's, ShapeError for another number of bytes.
        """
        given = {}
        for name, (data, dtype) in inputs.items():
            type = self._types.get(name)
            if type is not None and type.dtype != dtype.dtype:
                raise DtypeError(f"{name!r} is of dtype {type.dtype.name}, and got {dtype.dtype.name}.")
            if type is not None and type.nbytes != len(data):
                raise ShapeError(f"{name!r} has {type.nbytes} bytes, and got {len(data)}.")
            given[name] = np.frombuffer(data, dtype.dtype)
        arrays = map(np.asarray, self.run(given))
        return [(x.tobytes(), DType.of(x.dtype)) for x in arrays]

    def run_pipelined(self, batches: Iterable[Mapping[str, Any]]) -> list[list[ConcreteArray]]:
        """The outputs for several sets of inputs. All runs are started before the first result is waited for."""
        started = [self.run(batch) for batch in batches]
        for array in itertools.chain.from_iterable(started):
            array.block_until_ready()
        return started

    def bind_handle(self, name: str, value: Any, output: int | None = None) -> None:
        """Keep a value of an input between runs. With `output`, each run replaces it by that result.

        >>> import rlx
        >>> g = rlx.Graph("counter")
        >>> g.set_outputs([g.input("count", rlx.Shape([1])) + 1.0])
        >>> compiled = rlx.Session("cpu").compile(g)
        >>> compiled.bind_handle("count", [0.0], output=0)
        >>> _ = compiled.run(), compiled.run()
        >>> compiled.read_handle("count")
        Array([2.], dtype=float32)
        """
        if name not in self.graph.inputs:
            known = ", ".join(self.graph.inputs)
            raise RlxError(f"Graph {self.graph.name!r} has no input {name!r}.", f"Its inputs are: {known}.")
        outputs = self.graph.outputs
        if output is not None and not (0 <= output < len(outputs) and outputs[output].atom.type == self._types[name]):
            raise RlxError(f"Result {output} cannot replace {name!r}: it does not exist, or has another type.")
        self._held[name] = self._fitted(name, value)
        self._fed.pop(name, None)
        if output is not None:
            self._fed[name] = output

    def read_handle(self, name: str) -> ConcreteArray:
        """The value that bind_handle keeps. Raises RlxError if there is none."""
        if name not in self._held or name in self._params:
            raise RlxError(f"No value of {name!r} is kept.", "Set it with bind_handle.")
        return self._held[name]

    def __repr__(self) -> str:
        return f"<compiled graph {self.graph.name} on {self.device}>"


def _from_numbers(value: Sequence[Any], type: TensorType, name: str) -> np.ndarray:
    """Convert Python numbers to an array of a type. Raises RlxError unless all are of its kind."""
    found = asarray_numpy(np.asarray(value))
    converted = found.astype(type.dtype)
    exact = dtype_kind(found.dtype) in "biu" or dtype_kind(type.dtype) not in "biu"
    if not exact or (dtype_kind(type.dtype) in "biu" and not np.array_equal(found, converted)):
        raise RlxError(f"{name!r} is of dtype {type.dtype.name}, and got numbers of {found.dtype.name}.")
    return converted


class Session:
    """Compiles graphs for one device.

    >>> import rlx
    >>> g = rlx.Graph("hello")
    >>> x = g.input("x", rlx.Shape([1, 4], rlx.DType.F32))
    >>> w = g.param("w", rlx.Shape([4, 2], rlx.DType.F32))
    >>> g.set_outputs([g.matmul(x, w, rlx.Shape([1, 2], rlx.DType.F32))])
    >>> compiled = rlx.Session("cpu").compile(g)
    >>> compiled.set_param("w", [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0])
    >>> compiled.run({"x": [1.0, 2.0, 3.0, 4.0]})
    [Array([[4., 6.]], dtype=float32)]
    """

    def __init__(self, device: str | Device | None = None) -> None:
        self.device = device.name if isinstance(device, Device) else meant_device(device or config.device)
        backend_named(self.device)

    def compile(
        self,
        graph: Graph | GraphModule,
        options: CompileOptions | None = None,
        *,
        supported_ops: Iterable[str] | None = None,
        kernel_dispatch: KernelDispatchConfig | None = None,
    ) -> CompiledGraph:
        """Compile a graph.

        options: rlx.compile.CompileOptions, among them the values of named sizes.
        supported_ops: the kinds of operations that may reach the backend; others are rewritten, and
          kinds that cannot be rewritten raise LegalizeError. All kinds by default.
        kernel_dispatch: which kinds are rewritten although they are supported.
        """
        found = graph.graph() if isinstance(graph, GraphModule) else graph
        if options is not None and (supported_ops is not None or kernel_dispatch is not None):
            raise RlxError("Session.compile got options, and supported_ops or kernel_dispatch.", "Put all in options.")
        return CompiledGraph(found, self.device, supported_ops, kernel_dispatch, options)

    def __repr__(self) -> str:
        return f"Session({self.device!r})"
