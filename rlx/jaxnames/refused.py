"""Names of JAX that rlx does not support: each can be imported, and raises an error with the reason when it is used.

Libraries import many of these names for annotations, isinstance tests, or code for other devices. A name is a class
without instances, which suffices for these uses, and raises UnsupportedError when it is called.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rlx.errors import UnsupportedError

__all__ = ["REFUSALS", "Refusal", "is_refused_module", "refused_names", "refused_value"]

ALL = "*"


class Refusal(NamedTuple):
    """Names of one module that are refused, listed or all of them, with the reason and advice.

    >>> from rlx.jaxnames.refused import REFUSALS
    >>> REFUSALS["jax.ffi"].reason
    'calls functions that were compiled for XLA'
    """

    names: str
    reason: str
    advice: str = "docs/ecosystem.md lists the names of JAX that rlx has."


_KERNELS = Refusal(
    ALL, "is for kernels in JAX's languages for GPUs and TPUs",
    "rlx compiles array code to kernels; rlx.cuda_call, rlx.opencl_call, rlx.wgpu_call and rlx.numba_call run your own"
    " kernels.",
)  # fmt: skip
_XLA = Refusal(ALL, "is part of XLA's compiler", "rlx has its own; rlx.inspect(f)(*args) shows what it does.")
_MLIR = _XLA._replace(advice="Register a lowering by jax.interpreters.mlir.lower_fun of a function.")
_FFI = Refusal(
    "build_ffi_lowering_function ffi_call ffi_lowering include_dir register_ffi_target register_ffi_type"
    " register_ffi_target_as_batch_partitionable register_ffi_type_id",
    "calls functions that were compiled for XLA",
    "rlx.numba_call and rlx.pure_callback call compiled functions.",
)
_COLOCATED = Refusal(
    ALL, "runs Python on hosts of other machines' devices (Pathways)", "rlx.distributed has processes."
)
_EXECUTABLES = Refusal(
    ALL, "is about XLA executables for devices that are described but absent",
    "rlx.export saves functions; compiled kernels are cached on disk.",
)  # fmt: skip
_SPARSE = Refusal(
    ALL,
    "computes with sparse arrays",
    "BCOO and BCSR have todense(), @, sums and elementwise products, and sparsify; rlx.sparse has more.",
)
_EXTENDED = "is about JAX's extended dtypes; rlx only has key dtypes"
_TRACE_CLASSES = "is the state of JAX's tracer, which rlx implements differently"
_TRANSFER = Refusal(ALL, "sends arrays between processes by JAX's server", "rlx.distributed exchanges arrays.")
_MLIR_NAMES = (
    "AxisContext ConstantHandler DEVICE_TO_DEVICE_TYPE LoweringParameters LoweringResult LoweringRule"
    " LoweringRuleContext Mesh MeshAxisName ModuleContext RECV_FROM_HOST_TYPE SEND_TO_HOST_TYPE SPMDAxisContext"
    " ShapePolyLoweringState ShardingContext Token TokenSet Value aval_to_ir_type aval_to_ir_types core_call_lowering"
    " dense_int_array dense_int_elements dtype_to_ir_type flatten_ir_types flatten_ir_values i32_attr i64_attr ir"
    " ir_attribute ir_constants ir_tree_registry ir_type_handlers jaxpr_subcomp lower_jaxpr_to_fun"
    " lower_jaxpr_to_module lowerable_effects make_ir_context merge_mlir_modules module_to_bytecode module_to_string"
    " register_constant_handler shape_tensor token_type unflatten_ir_values_like_types"
)
_PXLA_NAMES = (
    "ArrayMapping Index MeshAxisName MeshComputation MeshExecutable are_hlo_shardings_equal"
    " array_mapping_to_axis_resources create_compile_options global_aval_to_result_handler"
    " global_avals_to_results_handler is_hlo_sharding_replicated op_sharding_to_indices thread_resources"
)
_JET_NAMES = (
    "JetTrace JetTracer ZeroSeries ZeroTerm call_param_updaters def_comp def_deriv deflinear defzero deriv_prop fact"
    " jet2 jet_fun jet_rules jet_subtrace linear_prop traceable zero_prop zero_series zero_term"
)
_ODE_NAMES = (
    "abs2 fit_4th_order_polynomial initial_step_size interp_fit_dopri mean_error_ratio optimal_step_size"
    " ravel_first_arg ravel_first_arg_ runge_kutta_step"
)
_MULTIHOST_NAMES = (
    "ProcessFailureError global_array_to_host_local_array_impl global_array_to_host_local_array_p gtl_abstract_eval"
    " host_local_array_to_global_array_impl host_local_array_to_global_array_p live_devices ltg_abstract_eval"
    " ltg_batcher"
)

_SPARSE_MODULES = ("ad", "api", "bcoo", "bcsr", "coo", "csr", "random", "test_util", "transform", "util")
_SPARSE_NAMES = (
    "COO CSC CSR SparseTracer bcoo_broadcast_in_dim bcoo_concatenate bcoo_conv_general_dilated "
    "bcoo_dot_general_p bcoo_dot_general_sampled bcoo_dot_general_sampled_p bcoo_dynamic_slice "
    "bcoo_extract bcoo_extract_p bcoo_fromdense_p bcoo_gather bcoo_multiply_sparse bcoo_rev "
    "bcoo_slice bcoo_sort_indices bcoo_sort_indices_p bcoo_spdot_general_p bcoo_squeeze "
    "bcoo_sum_duplicates_p bcoo_todense_p bcoo_transpose_p bcoo_update_layout "
    "bcsr_broadcast_in_dim bcsr_concatenate bcsr_dot_general_p bcsr_extract bcsr_extract_p "
    "bcsr_fromdense_p bcsr_sum_duplicates bcsr_todense_p coo_fromdense coo_fromdense_p coo_matmat "
    "coo_matmat_p coo_matvec coo_matvec_p coo_todense coo_todense_p csr_fromdense csr_fromdense_p "
    "csr_matmat csr_matmat_p csr_matvec csr_matvec_p csr_todense csr_todense_p jacfwd jacobian jacrev "
    "random_bcoo todense_p"
)

REFUSALS: dict[str, Refusal] = {
    # whole modules, including their submodules
    "jax.experimental.pallas": _KERNELS,
    "jax.experimental.mosaic": _KERNELS,
    "jax.extend.pallas": _KERNELS,
    "jax.experimental.fused": _KERNELS,
    "jax.extend.mlir": _MLIR,
    "jax.extend.lowering": _MLIR,
    "jax.extend.xla": _XLA,
    "jax.extend.sharding": _XLA._replace(advice="jax.sharding has the shardings of arrays."),
    "jax.extend.ifrt_programs": _EXECUTABLES,  # orbax
    "jax.experimental.topologies": _EXECUTABLES,
    "jax.experimental.serialize_executable": _EXECUTABLES,
    "jax.experimental.profiler": _XLA._replace(advice="rlx.profile times the kernels of a function."),
    "jax.experimental.roofline": _XLA._replace(advice="rlx.inspect(f)(*args) counts operations and bytes."),
    "jax.experimental.source_mapper": _XLA,
    "jax.experimental.transfer": _TRANSFER,
    "jax.experimental.colocated_python": _COLOCATED,
    "jax.experimental.buffer_callback": Refusal(
        ALL, "passes device memory to Python inside of XLA", "rlx.pure_callback and rlx.io_callback pass arrays."
    ),
    "jax.experimental.jax2tf": Refusal(ALL, "translates to TensorFlow", "rlx.export saves functions, also as ONNX."),
    "jax.experimental.rnn": Refusal(ALL, "is cuDNN's LSTM", "jax.lax.scan over a cell computes the same."),
    "jax.experimental.array_serialization.pytree_serialization": Refusal(
        ALL, "writes files by TensorStore", "rlx.save writes trees of arrays."
    ),
    "jax.experimental.array_serialization.pytree_serialization_utils": Refusal(
        ALL, "writes files by TensorStore", "rlx.save writes trees of arrays."
    ),
    "jax.experimental.array_serialization.tensorstore_impl": Refusal(
        ALL, "writes files by TensorStore", "rlx.save writes trees of arrays."
    ),
    "jax.tools": _XLA,
    # names of modules whose other names rlx has
    "jax": Refusal(
        "array_garbage_collection_guard jax2tf_associative_scan_reductions remove_size_one_mesh_axis_from_type"
        " thread_guard",
        "is a switch of JAX's runtime",
    ),
    "jax.stages": Refusal("Compiled Lowered Traced Wrapped CompilerOptions", "is created only by jax.jit(f)"),
    "jax.ffi": _FFI,
    "jax.core": Refusal(
        "CallPrimitive JaxprPpContext JaxprPpSettings OutputType Trace abstract_token call"
        " concretization_function_error trace_ctx",
        _TRACE_CLASSES,
    ),
    "jax.extend.core": Refusal(
        "CallPrimitive TraceTag Token AbstractToken call_impl set_current_trace take_current_trace",
        _TRACE_CLASSES,
    ),
    "jax.interpreters.ad": Refusal("JVPTrace jvp linearize", _TRACE_CLASSES, "Call jax.jvp or jax.linearize."),
    "jax.interpreters.mlir": Refusal(_MLIR_NAMES, *_MLIR[1:]),
    "jax.interpreters.pxla": Refusal(_PXLA_NAMES, *_XLA[1:]),
    "jax.interpreters.xla": Refusal("Backend", *_XLA[1:]),
    "jax.interpreters.partial_eval": Refusal(
        "DynamicJaxprTracer JaxprTracer Val dce_jaxpr dce_jaxpr_call_rule dce_jaxpr_closed_call_rule dce_jaxpr_consts",
        _TRACE_CLASSES,
    ),
    "jax.experimental": Refusal("EArray primal_tangent_dtype", _EXTENDED),
    "jax.custom_derivatives": Refusal("remat_opt_p", "is an equation that rlx does not have"),
    "jax.experimental.custom_partitioning": Refusal(
        "ArrayMapping BATCHING CompoundFactor SdyShardingRule custom_partitioning_p", "is a rule of XLA's partitioner"
    ),
    "jax.experimental.scheduling_groups": Refusal(
        "attr_get dce_jaxpr_xla_metadata_rule xla_metadata_call_p", "is an internal part of JAX's scheduling_group"
    ),
    "jax.extend.random": Refusal(
        "define_prng_impl", "defines a random number generator", "rlx.random.key(seed, impl=...) has six."
    ),
    "jax.extend.backend": Refusal(
        "get_compile_options ifrt_proxy register_backend_factory", "is about XLA's clients", "docs/backends.md says how"
        " a backend is added to rlx.",
    ),
    "jax.experimental.jet": Refusal(_JET_NAMES, "is an internal part of JAX's jet", "Call jet."),
    "jax.experimental.ode": Refusal(_ODE_NAMES, "is an internal part of JAX's odeint", "Call odeint."),
    "jax.experimental.multihost_utils": Refusal(
        _MULTIHOST_NAMES, "is an internal part of JAX's multihost_utils", "Call host_local_array_to_global_array."
    ),
    "jax.experimental.hijax": Refusal(
        "HiPspec TransformedRef VJPHiPrimitive", "is about values of hijax types, which rlx does not have"
    ),
    "jax.lax": Refusal(
        "precv psend ragged_all_to_all", "sends data of different sizes or at different times", "jax.lax.ppermute"
        " and all_to_all exchange arrays of one size.",
    ),
    "jax.profiler": Refusal(
        "ProfileData ProfileEvent ProfileOptions ProfilePlane device_memory_profile register_subprocess"
        " save_device_memory_profile start_server stop_server",
        "reads or serves profiles of XLA",
        "rlx.profile times the kernels of a function, rlx.profiler.trace writes a file for Perfetto.",
    ),
    "jax.random": Refusal("random_gamma_p", "is an equation that rlx does not have", "Call jax.random.gamma."),
    "jax.experimental.sparse": Refusal(_SPARSE_NAMES, *_SPARSE[1:]),
    **{f"jax.experimental.sparse.{name}": _SPARSE for name in _SPARSE_MODULES},
    "jax.experimental.sparse.linalg": Refusal("spsolve_p", "is an equation that rlx does not have", "Call spsolve."),
    # private names that two or more libraries import, for isinstance and annotations
    "jax._src.core": Refusal("Trace TraceTag set_current_trace take_current_trace full_lower", _TRACE_CLASSES),
    "jax._src.earray": Refusal("EArray", _EXTENDED),
    "jax._src.literals": Refusal(
        "TypedNdArray TypedInt TypedFloat TypedComplex", "is a literal of JAX's jaxprs", "rlx's literals are numbers."
    ),
}  # fmt: skip


def is_refused_module(path: str) -> bool:
    """Whether a module of jax, or a parent module, is refused as a whole.

    >>> from rlx.jaxnames.refused import is_refused_module
    >>> is_refused_module("jax.experimental.pallas.triton"), is_refused_module("jax.ffi")
    (True, False)
    """
    return _whole(path) is not None


def _whole(path: str) -> Refusal | None:
    """The refusal of the nearest module at or above `path` that is refused as a whole."""
    while path:
        found = REFUSALS.get(path)
        if found is not None and found.names == ALL:
            return found
        path = path.rpartition(".")[0]
    return None


def refused_names(path: str) -> list[str]:
    """The names that a module lists as refused: empty if all are refused."""
    found = REFUSALS.get(path)
    return [] if found is None or found.names == ALL else found.names.split()


def refused_value(path: str, name: str) -> type | None:
    """The placeholder class for a refused name of a module of jax; None for a name that is not refused."""
    refusal = _whole(path)
    if refusal is None and name in refused_names(path):
        refusal = REFUSALS[path]
    return None if refusal is None else _placeholder(f"{path}.{name}", refusal)


class _Refused(type):
    """The class of placeholders. In modules that are refused as a whole their attributes are placeholders as well."""

    refusal: Refusal

    def __getattr__(cls, name: str) -> type:
        path = f"{cls.__module__}.{cls.__name__}"
        if name.startswith("__") or cls.refusal.names != ALL:
            raise AttributeError(f"{path} is not part of rlx, and has no attribute {name}")
        found = _placeholder(f"{path}.{name}", cls.refusal)
        setattr(cls, name, found)
        return found


def _placeholder(path: str, refusal: Refusal) -> type:
    """A placeholder class for a name of JAX: usable in annotations and isinstance, raises when it is called."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise UnsupportedError(f"{path} is not part of rlx: it {refusal.reason}.", refusal.advice)

    module, _, name = path.rpartition(".")
    doc = f"Placeholder for {path}, which is not part of rlx: it {refusal.reason}."
    return _Refused(name, (), {"__new__": refuse, "__doc__": doc, "__module__": module, "refusal": refusal})
