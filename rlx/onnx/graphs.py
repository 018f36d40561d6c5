"""ONNX graphs run node by node on arrays of rlx: known values are computed during tracing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper

import rlx
import rlx.numpy as jnp
from rlx.errors import FileFormatError, RlxError, UnsupportedError
from rlx.onnx.nodes import ArraySequence, Node, operators

__all__ = ["Interpreter", "array_of", "unsupported_in"]

_AI = "ai.onnx"
_CONTROL = {"If", "Loop", "Scan", "SequenceMap"}


def array_of(tensor: Any) -> np.ndarray:
    """The array of a TensorProto. Raises UnsupportedError for strings."""
    if tensor.data_type == onnx.TensorProto.STRING:
        raise UnsupportedError(f"The tensor {tensor.name!r} holds strings, which rlx arrays do not support.")
    return np.asarray(onnx.numpy_helper.to_array(tensor))


def _domain(name: str) -> str:
    return "" if name == _AI else name


def _functions(model: Any) -> dict[tuple[str, str, str], Any]:
    return {(_domain(f.domain), f.name, getattr(f, "overload", "")): f for f in model.functions}


def _schema(domain: str, kind: str, version: int) -> Any:
    """ONNX's schema of an operator, if it defines the operator by others; else None."""
    try:
        schema: Any = onnx.defs.get_schema(kind, version, domain)
    except onnx.defs.SchemaError:
        return None
    return schema if schema.has_function or schema.has_context_dependent_function else None


def _definition(node: Any, inputs: Sequence[Any], domain: str, version: int) -> Any:
    """ONNX's definition of a node by other operators, for inputs of these types; None if there is none."""
    schema = _schema(domain, node.op_type, version)
    if schema is None:
        return None
    if schema.has_function:
        data = schema.get_function_with_opset_version(max(v for v in schema.function_opset_versions if v <= version))
    else:
        versions = schema.context_dependent_function_opset_versions
        types = [b"" if x is None else _type_proto(x).SerializeToString() for x in inputs]
        use = max((v for v in versions if v <= version), default=versions[0])
        data = schema.get_context_dependent_function_with_opset_version(use, node.SerializeToString(), types)
    found = onnx.FunctionProto()
    found.ParseFromString(data)
    return found


def _type_proto(x: Any) -> Any:
    return onnx.helper.make_tensor_type_proto(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(x.dtype)), x.shape)


def unsupported_in(model: Any) -> dict[str, list[str]]:
    """The unsupported operators of a model, each with the names of its nodes."""
    own = _functions(model)
    versions = {_domain(o.domain): o.version for o in model.opset_import}
    found: dict[str, list[str]] = {}

    def look(nodes: Iterable[Any]) -> None:
        for number, node in enumerate(nodes):
            domain = _domain(node.domain)
            if not isinstance(node.op_type, str) or not isinstance(domain, str):  # bytes that are not UTF-8
                raise FileFormatError(f"The ONNX model has an operator named {node.op_type!r:.80}.", "It is damaged.")
            there = (domain, node.op_type) in operators or (domain, node.op_type, node.overload) in own
            if not there and _schema(domain, node.op_type, versions.get(domain, 1)) is None:
                kind = f"{domain}.{node.op_type}" if domain else node.op_type
                found.setdefault(kind, []).append(node.name or f"number {number}")
            for attribute in node.attribute:
                for graph in (attribute.g, *attribute.graphs):
                    look(graph.node)

    look(model.graph.node)
    for function in model.functions:
        look(function.node)
    return found


def _value_of(name: str, values: Mapping[str, Any], reader: str) -> Any:
    """The value with a name. Raises FileFormatError if nothing before it defines one."""
    if name not in values:
        raise FileFormatError(
            f"The ONNX model reads {name!r:.80} ({reader}), which no input, weight or earlier node defines.",
            "The file is damaged, or its nodes are out of order: onnx.checker.check_model tells more.",
        )
    return values[name]


class Interpreter:
    """Runs the graph of a model."""

    def __init__(self, model: Any) -> None:
        self.functions = _functions(model)
        self.versions = {_domain(o.domain): o.version for o in model.opset_import}
        self.held: dict[int, np.ndarray] = {}  # arrays of tensors, read once

    def graph(self, graph: Any, given: Mapping[str, Any], outer: Mapping[str, Any]) -> list[Any]:
        """The outputs of a graph; `given`: its inputs, and weights that are parameters; `outer`: the outer names."""
        values = {**outer}
        for tensor in graph.initializer:
            if tensor.name not in given:
                values[tensor.name] = self.array(tensor)
        for sparse in graph.sparse_initializer:
            values[sparse.values.name] = _dense(sparse)
        values |= given
        self.nodes(graph.node, values, self.versions)
        return [_value_of(output.name, values, "an output") for output in graph.output]

    def array(self, tensor: Any) -> np.ndarray:
        """The array of a tensor of the model."""
        found = self.held.get(id(tensor))
        if found is None:
            found = self.held[id(tensor)] = array_of(tensor)
        return found

    def nodes(self, nodes: Iterable[Any], values: dict[str, Any], versions: Mapping[str, int]) -> None:
        """Run nodes in order; their results are added to `values`."""
        for number, node in enumerate(nodes):
            results = self.node(node, number, values, versions)
            values.update((name, x) for name, x in zip(node.output, results, strict=False) if name)

    def node(self, node: Any, number: int, values: dict[str, Any], versions: Mapping[str, int]) -> Sequence[Any]:
        """The results of a node. Raises UnsupportedError, with the node, for an unknown operator."""
        reader = f"the node {node.name or number!r} ({node.op_type})"
        inputs = [_value_of(name, values, reader) if name else None for name in node.input]
        domain = _domain(node.domain)
        key = domain, node.op_type
        attributes = {a.name: self.attribute(a) for a in node.attribute}
        version = versions.get(domain, 1)
        own = self.functions.get((*key, node.overload))
        body = own if own is not None or key in operators else _definition(node, inputs, domain, version)
        if body is not None:
            usual = {} if own is not None else self.usual_attributes(node, domain, version)
            return self.function(body, inputs, attributes, usual)
        if key not in operators:
            raise UnsupportedError(f"There is no operator {node.op_type!r} (node {node.name or number!r}).")
        names = self._scope(values)
        described = Node(node.op_type, node.name or f"{number}", version, attributes, list(node.output), names)
        operation = operators[key]
        inside = node.op_type in _CONTROL  # its subgraphs also see the outer values
        try:
            if not inside and all(map(_is_constant, inputs)):
                with rlx.ensure_compile_time_eval():
                    return [_numpy(x) for x in _several(operation(described, *inputs))]
            return _several(operation(described, *inputs))
        except RlxError as error:
            error.add_note(f"This happened in the node {described.name!r} ({node.op_type}) of the ONNX model.")
            raise

    def _scope(self, values: dict[str, Any]) -> Callable[[Any, Sequence[Any]], list[Any]]:
        def run(graph: Any, inputs: Sequence[Any]) -> list[Any]:
            given = dict(zip((i.name for i in graph.input), inputs, strict=True))
            return self.graph(graph, given, values)

        return run

    def function(
        self, body: Any, inputs: Sequence[Any], attributes: Mapping[str, Any], usual: Mapping[str, Any]
    ) -> list[Any]:
        """The results of a function of the model or of ONNX; `usual`: the default attributes."""
        values: dict[str, Any] = dict.fromkeys(body.input)
        values.update(zip(body.input, inputs, strict=False))
        known = {a.name: self.attribute(a) for a in body.attribute_proto} | dict(usual) | dict(attributes)
        nodes = [_filled(node, known) for node in body.node]
        versions = {**self.versions, **{_domain(o.domain): o.version for o in body.opset_import}}
        inner = Interpreter.__new__(Interpreter)
        inner.functions, inner.versions, inner.held = self.functions, versions, self.held
        inner.nodes(nodes, values, versions)
        return [values.get(name) for name in body.output]

    def usual_attributes(self, node: Any, domain: str, version: int) -> dict[str, Any]:
        """ONNX's default attributes of a node."""
        found = onnx.defs.get_schema(node.op_type, version, domain).attributes
        return {name: self.attribute(a.default_value) for name, a in found.items() if a.default_value.name}

    def attribute(self, attribute: Any) -> Any:
        """An attribute as a Python value: strings, tensors as arrays, graphs unchanged."""
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            return value.decode(errors="replace")
        if isinstance(value, onnx.TensorProto):
            return array_of(value)
        if isinstance(value, onnx.SparseTensorProto):
            return _dense(value)
        if attribute.type in (onnx.AttributeProto.STRINGS,):
            return [v.decode(errors="replace") for v in value]
        return list(value) if attribute.type in _LISTS else value


_LISTS = (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS, onnx.AttributeProto.GRAPHS, onnx.AttributeProto.TENSORS)


def _filled(node: Any, known: Mapping[str, Any]) -> Any:
    """A node of a function with references replaced by the function's attributes."""
    if not any(a.ref_attr_name for a in node.attribute):
        return node
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            copy.attribute.append(attribute)
        elif known.get(attribute.ref_attr_name) is not None:
            value = known[attribute.ref_attr_name]
            if isinstance(value, np.ndarray):
                value = onnx.numpy_helper.from_array(value)
            kind = attribute.type or None
            copy.attribute.append(onnx.helper.make_attribute(attribute.name, value, attr_type=kind))
    return copy


def _several(results: Any) -> Sequence[Any]:
    alone = isinstance(results, ArraySequence) or not isinstance(results, (tuple, list))
    return (results,) if alone else results


def _is_constant(value: Any) -> bool:
    if isinstance(value, ArraySequence):
        return all(map(_is_constant, value))
    return value is None or isinstance(value, np.ndarray)


def _numpy(value: Any) -> Any:
    if isinstance(value, ArraySequence):
        return ArraySequence(map(_numpy, value))
    return value if value is None or isinstance(value, np.ndarray) else np.asarray(value)


def _dense(sparse: Any) -> np.ndarray:
    """A sparse tensor as an array."""
    values, indices = array_of(sparse.values), array_of(sparse.indices)
    found = np.zeros(tuple(sparse.dims), values.dtype)
    if indices.ndim == 1:
        found.reshape(-1)[indices] = values
    else:
        found[tuple(indices.T)] = values
    return found


def as_arrays(values: Iterable[Any]) -> list[Any]:
    """Results as arrays of rlx, sequences as lists of these."""
    return [
        as_arrays(value) if isinstance(value, ArraySequence) else value if value is None else jnp.asarray(value)
        for value in values
    ]
