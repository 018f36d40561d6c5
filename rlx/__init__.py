"""rlx: JAX's transformations on the array libraries that people already have."""

from __future__ import annotations

import importlib
from typing import Any

from rlx import errors, tree
from rlx import numpy as numpy
from rlx.api import ShapeDtypeStruct, clear_caches, eval_shape, jit, make_program
from rlx.array import Array
from rlx.config import config, scoped
from rlx.device import (
    Device,
    block_until_ready,
    default_backend,
    default_device,
    device_get,
    device_put,
    devices,
)
from rlx.trace.primitive import Primitive, primitive
from rlx.transforms.custom import checkpoint, checkpoint_policies, custom_jvp, custom_vjp
from rlx.transforms.forward import jvp, linearize
from rlx.transforms.functional import closure_convert, hessian, hvp, jacfwd, jacrev
from rlx.transforms.reverse import grad, linear_transpose, value_and_grad, vjp
from rlx.transforms.vmap import vmap
from rlx.version import __version__ as __version__

remat = checkpoint
jacobian = jacrev

# imported on first use: submodules, and names that live in one
_SUBMODULES = (
    "autodiff",
    "compile",
    "debug",
    "fusion",
    "graph",
    "lax",
    "nn",
    "opt",
    "optim",
    "random",
    "scipy",
    "testing",
    "tree_util",
)
_ELSEWHERE = {"inspect": "rlx.inspection", "io_callback": "rlx.callback", "pure_callback": "rlx.callback"}
_ELSEWHERE |= {"numba_call": "rlx.numba_functions", "numba_scalar": "rlx.numba_functions"}
_GRAPHS = "CompiledGraph DType Graph GraphModule GraphStage Node NodeId NodeOrigin Op OpKind Session Shape"
_ELSEWHERE.update(dict.fromkeys(_GRAPHS.split(), "rlx.graph"))

__all__ = [
    "Array",
    "Device",
    "Primitive",
    "ShapeDtypeStruct",
    "block_until_ready",
    "checkpoint",
    "checkpoint_policies",
    "clear_caches",
    "closure_convert",
    "config",
    "custom_jvp",
    "custom_vjp",
    "default_backend",
    "default_device",
    "device_get",
    "device_put",
    "devices",
    "disable_jit",
    "errors",
    "eval_shape",
    "get_num_threads",
    "grad",
    "hessian",
    "hvp",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jit",
    "jvp",
    "linear_transpose",
    "linearize",
    "make_program",
    "numpy",
    "primitive",
    "remat",
    "scoped",
    "set_num_threads",
    "tree",
    "value_and_grad",
    "vjp",
    "vmap",
]
__all__.extend(_ELSEWHERE)
__all__.extend(_SUBMODULES)


def disable_jit(disable: bool = True) -> Any:
    """Run jitted functions and control flow op by op inside a `with` block, for debugging.

    >>> import rlx
    >>> with rlx.disable_jit():
    ...     float(rlx.jit(lambda x: x * 2.0)(3.0))
    6.0
    """
    return scoped(disable_jit=disable)


def set_num_threads(count: int) -> None:
    """Use `count` threads for kernels and matrix products from now on.

    >>> import rlx
    >>> rlx.set_num_threads(rlx.get_num_threads())
    """
    importlib.import_module("rlx.backends.numba.threads").set_num_threads(count)


def get_num_threads() -> int:
    """How many threads kernels and matrix products use.

    >>> import rlx
    >>> rlx.get_num_threads() >= 1
    True
    """
    return importlib.import_module("rlx.backends.numba.threads").get_num_threads()


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"rlx.{name}")
    if name in _ELSEWHERE:
        value = globals()[name] = getattr(importlib.import_module(_ELSEWHERE[name]), name)
        return value
    raise AttributeError(f"module 'rlx' has no attribute {name!r}")
