"""ONNX models as functions of rlx, and functions as ONNX models (`pip install ".[onnx]"`).

`rlx.onnx.load(model)` returns a function, which supports jit, grad and vmap, and its parameters.
`rlx.onnx.export(f, *types)` returns a model of `f`.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from rlx.errors import UnsupportedError
from rlx.installation import install_command
from rlx.offered_names import offer_names

__all__ = ["export", "load"]

offer_names(globals())


def load(model: Any) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Convert an ONNX model to a function (parameters, *inputs) -> result, and its parameters.

    Args:
      model: a path, the bytes of a file, or an onnx.ModelProto.

    Returns: the function, which takes the parameters and the model's inputs in order, or by name, and returns its
      output or a tuple of outputs; and the parameters, a dict of the weights of real dtype by name. The function
      consists of rlx operations and supports jit, grad and vmap. Inputs that set shapes must be known at trace time.

    Raises: UnsupportedError, which lists all unsupported operators with their nodes, or if the package onnx is not
      installed; FileFormatError for a file that is not a model, and for weights outside its folder; OSError if a file
      cannot be read.

    >>> import onnx.parser, rlx, numpy as np
    >>> model = onnx.parser.parse_model('''
    ...     <ir_version: 10, opset_import: ["" : 21]>
    ...     line (float[N, 2] x) => (float[N, 3] y) <float[2, 3] w = {1, 2, 3, 4, 5, 6}> { y = MatMul(x, w) }''')
    >>> function, parameters = rlx.onnx.load(model)
    >>> rlx.jit(function)(parameters, np.ones((1, 2), np.float32)).tolist()
    [[5.0, 7.0, 9.0]]
    """
    return _module("loading").load(model)


def export(f: Callable[..., Any], *types: Any, path: Any = None, opset: int = 21) -> Any:
    """Convert a function to an ONNX model, for onnxruntime and others.

    Args:
      f: a function of arrays, as for jit; also its derivatives. Or a rlx.export.Exported, without types.
      types: an array, a number or a rlx.ShapeDtypeStruct for each argument, or a tree of those. Their shapes may
        contain the symbolic sizes of rlx.export.symbolic_shape, which the model takes with any value.
      path: the file to write the model to.
      opset: the version of ONNX's operator set, from 17 to the newest that the package onnx knows.

    Returns: an onnx.ModelProto. Its inputs are the leaves of the arguments in order (x0, x1, ...), its outputs the
      leaves of the result (y0, y1, ...); a complex leaf is two, x0_real and x0_imag. Values captured by f are included.

    Raises: UnsupportedError, by name, for operations without ONNX operators in this version (callbacks, eig, ...), or
      if the package onnx is not installed; ShapeError if no single model serves all values of the sizes; OptionError
      for an opset out of range.

    >>> import rlx, rlx.numpy as jnp, numpy as np
    >>> model = rlx.onnx.export(lambda x: jnp.tanh(x).sum(axis=1), np.ones((2, 3), np.float32))
    >>> [node.op_type for node in model.graph.node]
    ['Tanh', 'ReduceSum']
    >>> batch = rlx.ShapeDtypeStruct(rlx.export.symbolic_shape("batch, 3"), "float32")
    >>> model = rlx.onnx.export(jnp.tanh, batch, opset=18)
    >>> model.graph.output[0].type.tensor_type.shape.dim[0].dim_param
    'batch'
    """
    return _module("exporting").export(f, *types, path=path, opset=opset)


def _module(name: str) -> Any:
    """A module that needs the package onnx."""
    if importlib.util.find_spec("onnx") is None:
        raise UnsupportedError("rlx.onnx needs the package onnx, which is not installed.", install_command("onnx"))
    return importlib.import_module(f"rlx.onnx.{name}")
