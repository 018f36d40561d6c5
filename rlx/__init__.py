"""rlx: grad, jvp, vmap and jit for NumPy code, compiled for the CPU and other devices."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rlx import errors
from rlx import wiring as _wiring
from rlx.config import config, scoped
from rlx.jaxnames import PATHS
from rlx.offered_names import offer_names
from rlx.version import __version__ as __version__

if TYPE_CHECKING:  # imported on first use, by the tables below
    import rlx.ad as ad
    import rlx.ad_checkpoint as ad_checkpoint
    import rlx.aot as aot
    import rlx.autodiff as autodiff
    import rlx.bench as bench
    import rlx.compat as compat
    import rlx.compile as compile
    import rlx.core as core
    import rlx.custom_batching as custom_batching
    import rlx.custom_derivatives as custom_derivatives
    import rlx.data as data
    import rlx.debug as debug
    import rlx.distributed as distributed
    import rlx.driver as driver
    import rlx.dtypes as dtypes
    import rlx.example_libraries as example_libraries
    import rlx.experimental as experimental
    import rlx.flatten_util as flatten_util
    import rlx.fpga as fpga
    import rlx.fusion as fusion
    import rlx.gguf as gguf
    import rlx.graph as graph
    import rlx.image as image
    import rlx.lax as lax
    import rlx.linalg as linalg
    import rlx.lm as lm
    import rlx.macros as macros
    import rlx.memory as memory
    import rlx.nn as nn
    import rlx.numpy as numpy
    import rlx.onnx as onnx
    import rlx.opt as opt
    import rlx.optim as optim
    import rlx.parallel as parallel
    import rlx.placement as placement
    import rlx.precision as precision
    import rlx.prelude as prelude
    import rlx.profiler as profiler
    import rlx.profiling as profiling
    import rlx.progress as progress
    import rlx.quant as quant
    import rlx.random as random
    import rlx.ref as ref
    import rlx.runtime as runtime
    import rlx.scipy as scipy
    import rlx.segments as segments
    import rlx.serialization as serialization
    import rlx.sharding as sharding
    import rlx.sparse as sparse
    import rlx.splat as splat
    import rlx.test_util as test_util
    import rlx.testing as testing
    import rlx.tree_util as tree_util
    import rlx.typing as typing
    from rlx.array import Array as Array
    from rlx.call.device import Device as Device
    from rlx.call.device import block_until_ready as block_until_ready
    from rlx.call.device import copy_to_host_async as copy_to_host_async
    from rlx.call.device import default_backend as default_backend
    from rlx.call.device import default_device as default_device
    from rlx.call.device import device_count as device_count
    from rlx.call.device import device_get as device_get
    from rlx.call.device import device_put as device_put
    from rlx.call.device import devices as devices
    from rlx.call.device import effects_barrier as effects_barrier
    from rlx.call.device import host_count as host_count
    from rlx.call.device import host_id as host_id
    from rlx.call.device import host_ids as host_ids
    from rlx.call.device import local_device_count as local_device_count
    from rlx.call.device import local_devices as local_devices
    from rlx.call.device import process_count as process_count
    from rlx.call.device import process_index as process_index
    from rlx.call.device import process_indices as process_indices
    from rlx.call.divisions import typeof as typeof
    from rlx.call.forward_backward import fwd_and_bwd as fwd_and_bwd
    from rlx.call.jit import ShapeDtypeStruct as ShapeDtypeStruct
    from rlx.call.jit import clear_caches as clear_caches
    from rlx.call.jit import eval_shape as eval_shape
    from rlx.call.jit import jit as jit
    from rlx.call.jit import make_program as make_program
    from rlx.call.model import model as model
    from rlx.call.parallel import pmap as pmap
    from rlx.call.scopes import debug_infs as debug_infs
    from rlx.call.scopes import debug_nans as debug_nans
    from rlx.call.scopes import default_matmul_precision as default_matmul_precision
    from rlx.call.scopes import enable_x64 as enable_x64
    from rlx.call.scopes import ensure_compile_time_eval as ensure_compile_time_eval
    from rlx.call.scopes import named_call as named_call
    from rlx.call.scopes import named_scope as named_scope
    from rlx.call.switches import allow_f16_reductions as allow_f16_reductions
    from rlx.call.switches import check_tracer_leaks as check_tracer_leaks
    from rlx.call.switches import checking_leaks as checking_leaks
    from rlx.call.switches import debug_key_reuse as debug_key_reuse
    from rlx.call.switches import default_prng_impl as default_prng_impl
    from rlx.call.switches import enable_checks as enable_checks
    from rlx.call.switches import enable_custom_prng as enable_custom_prng
    from rlx.call.switches import explain_cache_misses as explain_cache_misses
    from rlx.call.switches import legacy_prng_key as legacy_prng_key
    from rlx.call.switches import live_arrays as live_arrays
    from rlx.call.switches import log_compiles as log_compiles
    from rlx.call.switches import make_user_context as make_user_context
    from rlx.call.switches import no_execution as no_execution
    from rlx.call.switches import no_tracing as no_tracing
    from rlx.call.switches import numpy_dtype_promotion as numpy_dtype_promotion
    from rlx.call.switches import numpy_rank_promotion as numpy_rank_promotion
    from rlx.call.switches import print_environment_info as print_environment_info
    from rlx.call.switches import softmax_custom_jvp as softmax_custom_jvp
    from rlx.call.switches import threefry_partitionable as threefry_partitionable
    from rlx.call.switches import transfer_guard as transfer_guard
    from rlx.call.switches import transfer_guard_device_to_device as transfer_guard_device_to_device
    from rlx.call.switches import transfer_guard_device_to_host as transfer_guard_device_to_host
    from rlx.call.switches import transfer_guard_host_to_device as transfer_guard_host_to_device
    from rlx.explain.inspection import inspect as inspect
    from rlx.export import load_exported as load_exported
    from rlx.graph import CompiledGraph as CompiledGraph
    from rlx.graph import DType as DType
    from rlx.graph import Graph as Graph
    from rlx.graph import GraphModule as GraphModule
    from rlx.graph import GraphStage as GraphStage
    from rlx.graph import Node as Node
    from rlx.graph import NodeId as NodeId
    from rlx.graph import NodeOrigin as NodeOrigin
    from rlx.graph import Op as Op
    from rlx.graph import OpKind as OpKind
    from rlx.graph import Session as Session
    from rlx.graph import Shape as Shape
    from rlx.graph.schedules import pipeline_schedule as pipeline_schedule
    from rlx.host.callback import io_callback as io_callback
    from rlx.host.callback import pure_callback as pure_callback
    from rlx.host.kernel_calls import cuda_call as cuda_call
    from rlx.host.kernel_calls import opencl_call as opencl_call
    from rlx.host.kernel_calls import wgpu_call as wgpu_call
    from rlx.host.mlx_functions import mlx_call as mlx_call
    from rlx.host.numba_functions import numba_call as numba_call
    from rlx.host.numba_functions import numba_scalar as numba_scalar
    from rlx.ir.types import float0 as float0
    from rlx.jaxnames.core import make_jaxpr as make_jaxpr
    from rlx.jaxnames.custom_derivatives import custom_gradient as custom_gradient
    from rlx.lax.ref import Ref as Ref
    from rlx.lax.ref import empty_ref as empty_ref
    from rlx.lax.ref import free_ref as free_ref
    from rlx.lax.ref import freeze as freeze
    from rlx.lax.ref import new_ref as new_ref
    from rlx.numpy.indexing import ds as ds
    from rlx.placement.regions import on as on
    from rlx.placement.regions import place as place
    from rlx.precision import PrecisionPolicy as PrecisionPolicy
    from rlx.precision import mixed_precision as mixed_precision
    from rlx.profiling import profile as profile
    from rlx.serialization import load as load
    from rlx.serialization import save as save
    from rlx.serialization.manager import CheckpointManager as CheckpointManager
    from rlx.sharding import NamedSharding as NamedSharding
    from rlx.sharding import P as P
    from rlx.sharding import Shard as Shard
    from rlx.sharding import auto_pcast as auto_pcast
    from rlx.sharding import make_array_from_callback as make_array_from_callback
    from rlx.sharding import make_array_from_process_local_data as make_array_from_process_local_data
    from rlx.sharding import make_array_from_single_device_arrays as make_array_from_single_device_arrays
    from rlx.sharding import make_mesh as make_mesh
    from rlx.sharding import reshard as reshard
    from rlx.sharding import set_mesh as set_mesh
    from rlx.sharding import shard_map as shard_map
    from rlx.sharding import smap as smap
    from rlx.sparse_derivatives import Coloring as Coloring
    from rlx.sparse_derivatives import Pattern as Pattern
    from rlx.sparse_derivatives import assume_pattern as assume_pattern
    from rlx.sparse_derivatives import color as color
    from rlx.sparse_derivatives import hessian_sparsity as hessian_sparsity
    from rlx.sparse_derivatives import jacobian as jacobian
    from rlx.sparse_derivatives import sparse_hessian as sparse_hessian
    from rlx.sparse_derivatives import sparsity as sparsity
    from rlx.stablehlo.reading import import_stablehlo as import_stablehlo
    from rlx.standalone.c_files import export_c as export_c
    from rlx.standalone.numba_module import export_numba as export_numba
    from rlx.standalone.wasm import export_wasm as export_wasm
    from rlx.standalone.wgsl_files import export_wgsl as export_wgsl
    from rlx.standalone.wheel import export_wheel as export_wheel
    from rlx.trace.primitive import Primitive as Primitive
    from rlx.trace.primitive import primitive as primitive
    from rlx.transforms.checkpoint import checkpoint as checkpoint
    from rlx.transforms.checkpoint import checkpoint as remat
    from rlx.transforms.checkpoint import checkpoint_name as checkpoint_name
    from rlx.transforms.checkpoint import checkpoint_policies as checkpoint_policies
    from rlx.transforms.custom import custom_jvp as custom_jvp
    from rlx.transforms.custom import custom_vjp as custom_vjp
    from rlx.transforms.forward import jvp as jvp
    from rlx.transforms.forward import linearize as linearize
    from rlx.transforms.functional import closure_convert as closure_convert
    from rlx.transforms.functional import hessian as hessian
    from rlx.transforms.functional import hvp as hvp
    from rlx.transforms.functional import jacfwd as jacfwd
    from rlx.transforms.functional import jacrev as jacrev
    from rlx.transforms.reverse import grad as grad
    from rlx.transforms.reverse import linear_transpose as linear_transpose
    from rlx.transforms.reverse import value_and_grad as value_and_grad
    from rlx.transforms.reverse import vjp as vjp
    from rlx.transforms.vmap import vmap as vmap
    from rlx.trees import tree as tree

    export: Any  # a module that can be called


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
    "driver",
    "dtypes",
    "example_libraries",
    "experimental",
    "export",
    "flatten_util",
    "fpga",
    "fusion",
    "gguf",
    "graph",
    "image",
    "lax",
    "linalg",
    "lm",
    "macros",
    "memory",
    "nn",
    "numpy",
    "onnx",
    "opt",
    "optim",
    "parallel",
    "placement",
    "precision",
    "prelude",
    "profiler",
    "profiling",
    "progress",
    "quant",
    "random",
    "ref",
    "runtime",
    "scipy",
    "segments",
    "serialization",
    "sharding",
    "sparse",
    "splat",
    "test_util",
    "testing",
    "tree_util",
    "typing",
)
_ELSEWHERE = {"inspect": "rlx.explain.inspection"}
_ELSEWHERE |= {"io_callback": "rlx.host.callback", "pure_callback": "rlx.host.callback"}
_ELSEWHERE |= {"numba_call": "rlx.host.numba_functions", "numba_scalar": "rlx.host.numba_functions"}
_ELSEWHERE |= {"mlx_call": "rlx.host.mlx_functions"}
_ELSEWHERE |= dict.fromkeys(("cuda_call", "opencl_call", "wgpu_call"), "rlx.host.kernel_calls")
_ELSEWHERE |= {"load_exported": "rlx.export", "import_stablehlo": "rlx.stablehlo.reading"}
_ELSEWHERE |= {"model": "rlx.call.model", "pipeline_schedule": "rlx.graph.schedules"}
_ELSEWHERE |= {"export_c": "rlx.standalone.c_files", "export_numba": "rlx.standalone.numba_module"}
_ELSEWHERE |= {"export_wasm": "rlx.standalone.wasm", "export_wgsl": "rlx.standalone.wgsl_files"}
_ELSEWHERE |= {"export_wheel": "rlx.standalone.wheel"}
_SWITCHES = """allow_f16_reductions check_tracer_leaks checking_leaks debug_key_reuse default_prng_impl enable_checks
    enable_custom_prng explain_cache_misses legacy_prng_key live_arrays log_compiles make_user_context no_execution
    no_tracing numpy_dtype_promotion numpy_rank_promotion print_environment_info softmax_custom_jvp
    threefry_partitionable transfer_guard transfer_guard_device_to_device transfer_guard_device_to_host
    transfer_guard_host_to_device"""
_ELSEWHERE.update(dict.fromkeys(_SWITCHES.split(), "rlx.call.switches"))
_ELSEWHERE |= {"load": "rlx.serialization", "save": "rlx.serialization"}
_ELSEWHERE |= {"CheckpointManager": "rlx.serialization.manager"}
_ELSEWHERE.update(dict.fromkeys(("host_count", "host_id", "host_ids", "process_indices"), "rlx.call.device"))
_ELSEWHERE |= {"make_jaxpr": "rlx.jaxnames.core", "profile": "rlx.profiling"}
_ELSEWHERE |= {"ds": "rlx.numpy.indexing", "float0": "rlx.ir.types"}
_ELSEWHERE.update(dict.fromkeys(("Ref", "empty_ref", "free_ref", "freeze", "new_ref"), "rlx.lax.ref"))
_SHARDING = "NamedSharding P auto_pcast make_mesh reshard set_mesh shard_map smap Shard"
_SHARDING += " make_array_from_callback make_array_from_process_local_data make_array_from_single_device_arrays"
_ELSEWHERE.update(dict.fromkeys(_SHARDING.split(), "rlx.sharding"))
_ELSEWHERE |= {"pmap": "rlx.call.parallel"}
_ELSEWHERE |= {"on": "rlx.placement.regions", "place": "rlx.placement.regions"}
_ELSEWHERE |= {"custom_gradient": "rlx.jaxnames.custom_derivatives", "fwd_and_bwd": "rlx.call.forward_backward"}
_ELSEWHERE.update(dict.fromkeys(("PrecisionPolicy", "mixed_precision"), "rlx.precision"))
_SPARSE = "Coloring Pattern assume_pattern color hessian_sparsity jacobian sparse_hessian sparsity"
_ELSEWHERE.update(dict.fromkeys(_SPARSE.split(), "rlx.sparse_derivatives"))
_GRAPHS = "CompiledGraph DType Graph GraphModule GraphStage Node NodeId NodeOrigin Op OpKind Session Shape"
_ELSEWHERE.update(dict.fromkeys(_GRAPHS.split(), "rlx.graph"))
_CORE = {
    "rlx.array": "Array",
    "rlx.call.device": "Device block_until_ready copy_to_host_async default_backend default_device device_count"
    " device_get device_put devices effects_barrier local_device_count local_devices process_count process_index",
    "rlx.call.jit": "ShapeDtypeStruct clear_caches eval_shape jit make_program",
    "rlx.call.scopes": "debug_infs debug_nans default_matmul_precision enable_x64 ensure_compile_time_eval named_call"
    " named_scope",
    "rlx.trace.primitive": "Primitive primitive",
    "rlx.transforms.checkpoint": "checkpoint checkpoint_name checkpoint_policies",
    "rlx.transforms.custom": "custom_jvp custom_vjp",
    "rlx.transforms.forward": "jvp linearize",
    "rlx.transforms.functional": "closure_convert hessian hvp jacfwd jacrev",
    "rlx.transforms.reverse": "grad linear_transpose value_and_grad vjp",
    "rlx.transforms.vmap": "vmap",
}
for _module, _names in _CORE.items():
    _ELSEWHERE.update(dict.fromkeys(_names.split(), _module))
_ELSEWHERE |= {"remat": "rlx.transforms.checkpoint:checkpoint", "typeof": "rlx.call.divisions"}

__all__ = ["config", "disable_jit", "errors", "get_num_threads", "scoped", "set_num_threads", "tree"]
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
    """The number of threads of kernels and matrix products.

    >>> import rlx
    >>> rlx.get_num_threads() >= 1
    True
    """
    return importlib.import_module("rlx.backends.cpu.runtime.threads").get_num_threads()


_MODULES = {name: f"rlx.{name}" for name in (*_SUBMODULES, *(path.partition(".")[2] for path in PATHS))}
offer_names(globals(), _MODULES | _ELSEWHERE)
