"""rlx: JAX's transformations on the array libraries that people already have."""

from __future__ import annotations

import gc
import importlib
from typing import Any

from rlx import errors, ops
from rlx import numpy as numpy
from rlx.array import Array
from rlx.call.device import (
    Device,
    block_until_ready,
    copy_to_host_async,
    default_backend,
    default_device,
    device_count,
    device_get,
    device_put,
    devices,
    effects_barrier,
    local_device_count,
    local_devices,
    process_count,
    process_index,
)
from rlx.call.jit import ShapeDtypeStruct, clear_caches, eval_shape, jit, make_program
from rlx.call.scopes import (
    debug_infs,
    debug_nans,
    default_matmul_precision,
    enable_x64,
    ensure_compile_time_eval,
    named_call,
    named_scope,
)
from rlx.config import config, scoped
from rlx.habits import missing_name
from rlx.jaxnames import PATHS, install_paths
from rlx.trace.primitive import Primitive, primitive
from rlx.trace.primitive import type_of as typeof
from rlx.tracebacks import install as _show_the_users_frames
from rlx.transforms.checkpoint import checkpoint, checkpoint_name, checkpoint_policies
from rlx.transforms.custom import custom_jvp, custom_vjp
from rlx.transforms.forward import jvp, linearize
from rlx.transforms.functional import closure_convert, hessian, hvp, jacfwd, jacrev
from rlx.transforms.reverse import grad, linear_transpose, value_and_grad, vjp
from rlx.transforms.vmap import vmap
from rlx.trees import tree
from rlx.version import __version__ as __version__

install_paths()
_show_the_users_frames()
remat = checkpoint
jacobian = jacrev

# imported on first use: submodules, and names that live in one
_SUBMODULES = (
    "ad",
    "ad_checkpoint",
    "aot",
    "autodiff",
    "bench",
    "compat",
    "compile",
    "core",
    "custom_batching",
    "custom_derivatives",
    "data",
    "debug",
    "distributed",
    "dtypes",
    "example_libraries",
    "experimental",
    "export",
    "flatten_util",
    "fusion",
    "gguf",
    "graph",
    "image",
    "lax",
    "lm",
    "memory",
    "nn",
    "onnx",
    "opt",
    "optim",
    "parallel",
    "precision",
    "profiler",
    "profiling",
    "quant",
    "random",
    "ref",
    "scipy",
    "segments",
    "serialization",
    "sharding",
    "test_util",
    "testing",
    "tree_util",
    "typing",
)
_ELSEWHERE = {"inspect": "rlx.call.inspection"}
_ELSEWHERE |= {"io_callback": "rlx.host.callback", "pure_callback": "rlx.host.callback"}
_ELSEWHERE |= {"numba_call": "rlx.host.numba_functions", "numba_scalar": "rlx.host.numba_functions"}
_ELSEWHERE |= {"mlx_call": "rlx.host.mlx_functions"}
_ELSEWHERE |= {"cuda_call": "rlx.host.kernel_calls", "opencl_call": "rlx.host.kernel_calls"}
_ELSEWHERE |= {"load_exported": "rlx.export", "import_stablehlo": "rlx.stablehlo.reading"}
_ELSEWHERE |= {"model": "rlx.call.model", "pipeline_schedule": "rlx.graph.schedules"}
_ELSEWHERE |= {"export_c": "rlx.standalone.c_files", "export_numba": "rlx.standalone.numba_module"}
_SWITCHES = """allow_f16_reductions check_tracer_leaks checking_leaks debug_key_reuse default_prng_impl enable_checks
    enable_custom_prng explain_cache_misses legacy_prng_key live_arrays log_compiles make_user_context no_execution
    no_tracing numpy_dtype_promotion numpy_rank_promotion print_environment_info softmax_custom_jvp
    threefry_partitionable transfer_guard transfer_guard_device_to_device transfer_guard_device_to_host
    transfer_guard_host_to_device"""
_ELSEWHERE.update(dict.fromkeys(_SWITCHES.split(), "rlx.call.switches"))
_ELSEWHERE |= {"load": "rlx.serialization", "save": "rlx.serialization"}
_ELSEWHERE.update(dict.fromkeys(("host_count", "host_id", "host_ids", "process_indices"), "rlx.call.device"))
_ELSEWHERE |= {"make_jaxpr": "rlx.jaxnames.core", "profile": "rlx.profiling"}
_ELSEWHERE |= {"ds": "rlx.numpy.indexing", "float0": "rlx.ir.types"}
_ELSEWHERE.update(dict.fromkeys(("Ref", "empty_ref", "free_ref", "freeze", "new_ref"), "rlx.lax.ref"))
_SHARDING = "NamedSharding P auto_pcast make_mesh reshard set_mesh shard_map smap Shard"
_SHARDING += " make_array_from_callback make_array_from_process_local_data make_array_from_single_device_arrays"
_ELSEWHERE.update(dict.fromkeys(_SHARDING.split(), "rlx.sharding"))
_ELSEWHERE |= {"pmap": "rlx.call.parallel"}
_ELSEWHERE |= {"custom_gradient": "rlx.jaxnames.custom_derivatives", "fwd_and_bwd": "rlx.call.forward_backward"}
_ELSEWHERE.update(dict.fromkeys(("PrecisionPolicy", "mixed_precision"), "rlx.precision"))
_GRAPHS = "CompiledGraph DType Graph GraphModule GraphStage Node NodeId NodeOrigin Op OpKind Session Shape"
_ELSEWHERE.update(dict.fromkeys(_GRAPHS.split(), "rlx.graph"))

__all__ = [
    "Array",
    "Device",
    "Primitive",
    "ShapeDtypeStruct",
    "block_until_ready",
    "checkpoint",
    "checkpoint_name",
    "checkpoint_policies",
    "clear_caches",
    "closure_convert",
    "config",
    "copy_to_host_async",
    "custom_jvp",
    "custom_vjp",
    "debug_infs",
    "debug_nans",
    "default_backend",
    "default_device",
    "default_matmul_precision",
    "device_count",
    "device_get",
    "device_put",
    "devices",
    "disable_jit",
    "effects_barrier",
    "enable_x64",
    "ensure_compile_time_eval",
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
    "local_device_count",
    "local_devices",
    "make_program",
    "named_call",
    "named_scope",
    "numpy",
    "primitive",
    "process_count",
    "process_index",
    "remat",
    "scoped",
    "set_num_threads",
    "tree",
    "typeof",
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
    importlib.import_module("rlx.backends.cpu.runtime.threads").set_num_threads(count)


def get_num_threads() -> int:
    """How many threads kernels and matrix products use.

    >>> import rlx
    >>> rlx.get_num_threads() >= 1
    True
    """
    return importlib.import_module("rlx.backends.cpu.runtime.threads").get_num_threads()


def _segment_function(name: str) -> Any:
    """rlx.ops.segment_sum and its kin: they are made of rlx.numpy, which is made of the primitives in rlx.ops."""
    # inspect and doctest ask every module for such names: no reason to load one
    if not name.startswith("__"):
        segments = importlib.import_module("rlx.jaxnames.segments")
        if name in segments.__all__:
            return getattr(segments, name)
    raise missing_name("rlx.ops", name, dir(ops))


vars(ops)["__getattr__"] = _segment_function


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES or f"rlx.{name}" in PATHS:
        return _loaded(f"rlx.{name}")
    if name in _ELSEWHERE:
        value = globals()[name] = getattr(_loaded(_ELSEWHERE[name]), name)
        return value
    raise missing_name("rlx", name, (*__all__, *_SUBMODULES, *_ELSEWHERE))


def _loaded(path: str) -> Any:
    """A module. What it makes lives on: a collection of garbage meanwhile would look through all that there is."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(path)
    finally:
        if collects:
            gc.enable()
