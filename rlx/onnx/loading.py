"""A model as a function and its parameters."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import Any

import onnx

import rlx.numpy as jnp
from rlx.errors import FileFormatError, InputTypeError, UnsupportedError
from rlx.onnx import (  # noqa: F401  they register their operators
    control,
    elementwise,
    images,
    quantised,
    recurrent,
    reductions,
    sequences,
    shapes,
    signals,
    windows,
)
from rlx.onnx.graphs import Interpreter, array_of, as_arrays, unsupported_in
from rlx.onnx.nodes import ArraySequence

__all__ = ["load"]

# inputs of operators that set shapes or are read as numbers: never parameters
_DECIDING = {
    "Resize": (1, 2, 3), "Upsample": (1,), "Range": (0, 1, 2), "Dropout": (1,), "Pad": (2,),
    "NonMaxSuppression": (2, 3, 4), "Clip": (1, 2),
}  # fmt: skip


def load(model: Any) -> tuple[Callable[..., Any], dict[str, Any]]:
    """See rlx.onnx.load."""
    proto = _proto(model)
    missing = unsupported_in(proto)
    if missing:
        listed = "\n  ".join(f"{kind}: {', '.join(nodes[:5])}" for kind, nodes in sorted(missing.items()))
        raise UnsupportedError(
            f"The model has operators that rlx.onnx does not support:\n  {listed}",
            "Export it with another operator set version, or replace them: docs/onnx.md lists the operators.",
        )
    weights = {t.name: array_of(t) for t in proto.graph.initializer}
    deciding = _deciding(proto.graph)
    parameters = {
        name: jnp.asarray(array)
        for name, array in weights.items()
        if name not in deciding and jnp.issubdtype(array.dtype, jnp.inexact)
    }
    interpreter = Interpreter(proto)
    constants = {name: array for name, array in weights.items() if name not in parameters}
    names = [i.name for i in proto.graph.input if i.name not in weights]
    title = proto.graph.name or "model"
    typed = {i.name: i.type for i in proto.graph.input}

    def function(parameters: dict[str, Any], *inputs: Any, **named: Any) -> Any:
        given = dict(zip(names, inputs, strict=False)) | named
        if len(inputs) > len(names) or set(given) != set(names):
            raise InputTypeError(
                f"{title} takes the inputs {', '.join(names) or 'none'}, and got {len(inputs)} and by name"
                f" {', '.join(named) or 'none'}.",
                "Pass the parameters first, then the inputs in order or by name.",
            )
        given = {name: _as_type(value, typed[name]) for name, value in given.items()}
        outputs = as_arrays(interpreter.graph(proto.graph, {**constants, **parameters, **given}, {}))
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    function.__name__ = "".join(c if c.isalnum() else "_" for c in title)
    function.__doc__ = proto.graph.doc_string or f"The ONNX model {title}: {', '.join(names)}."
    return function, parameters


def _as_type(value: Any, type: Any) -> Any:
    """An input as the graph has it: a list of arrays as a sequence."""
    if type.HasField("optional_type"):
        return value if value is None else _as_type(value, type.optional_type.elem_type)
    if not type.HasField("sequence_type"):
        return value
    if not isinstance(value, (list, tuple)):
        raise InputTypeError("The model takes a sequence here.", "Pass a list of arrays.")
    return ArraySequence(_as_type(x, type.sequence_type.elem_type) for x in value)


def _deciding(graph: Any) -> set[str]:
    """Weights that set shapes."""
    return {
        node.input[at]
        for node in graph.node
        for at in _DECIDING.get(node.op_type, ())
        if at < len(node.input) and node.input[at]
    }


def _proto(model: Any) -> Any:
    """The model as an onnx.ModelProto."""
    if isinstance(model, onnx.ModelProto):
        return model
    folder = None if isinstance(model, (bytes, bytearray, memoryview)) else Path(os.fspath(model))
    data = bytes(model) if folder is None else folder.read_bytes()
    found = onnx.ModelProto()
    what = "The data" if folder is None else str(folder)
    try:
        found.ParseFromString(data)
        broken = not found.graph.node and not found.graph.output
    except Exception:  # protobuf's own classes differ between its versions
        broken = True
    if broken:
        raise FileFormatError(f"{what} is not an ONNX model.", "Pass a path, bytes or an onnx.ModelProto.")
    _load_external(found, folder, what)
    return found


def _tensors(graph: Any) -> Iterable[Any]:
    """All tensors of a graph and of its subgraphs."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from [attribute.t] if attribute.HasField("t") else []
            yield from attribute.tensors
            for inner in (attribute.g, *attribute.graphs):
                yield from _tensors(inner)


def _load_external(model: Any, path: Path | None, what: str) -> None:
    """Read weights, only from files in the model's folder."""
    outside = [t for t in _tensors(model.graph) if t.data_location == onnx.TensorProto.EXTERNAL]
    if not outside:
        return
    if path is None:
        raise FileFormatError(f"{what} has weights in other files.", "Pass the model's path.")
    folder = path.parent.resolve()
    for tensor in outside:
        entries = {e.key: e.value for e in tensor.external_data}
        location = PurePosixPath(entries.get("location", ""))
        file = (folder / location).resolve()
        if location.is_absolute() or not file.is_relative_to(folder):
            raise FileFormatError(f"{what} has the weights {tensor.name!r} outside of its folder: {location}.")
        start, length = int(entries.get("offset", 0)), entries.get("length")
        with file.open("rb") as opened:
            opened.seek(start)
            tensor.raw_data = opened.read() if length is None else opened.read(int(length))
        if length is not None and len(tensor.raw_data) != int(length):
            raise FileFormatError(f"{file} ends before the weights {tensor.name!r} do.")
        tensor.data_location = onnx.TensorProto.DEFAULT
