"""The table of jax's paths: modules of rlx, names that rlx has elsewhere, and names that it lacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

import rlx
from rlx.array import Device
from rlx.call import stages
from rlx.call.jitted import Jitted
from rlx.ir.extended import KeyDtype
from rlx.jaxnames import (
    ad,
    api_util,
    avals,
    backend,
    callbacks,
    dtypes,
    extend_core,
    hijax,
    layout,
    numpy_names,
    private,
    views,
)
from rlx.jaxnames.named_primitives import PRIMITIVES
from rlx.lax import linalg, ref
from rlx.sharding.shardings import Sharding

__all__ = ["EMPTY", "LOCATED", "SAME", "VERSION", "own_names"]

VERSION = "0.10.2"  # the version of JAX with these names

# modules of jax that are modules of rlx of the same name, including their submodules
SAME = frozenset(
    "ad ad_checkpoint custom_batching custom_derivatives debug distributed dtypes errors example_libraries"
    " experimental flatten_util image lax nn memory numpy ops profiler random scipy sharding test_util tree tree_util"
    " typing".split()
)
LOCATED = {
    "jax": "rlx",
    "jax.ops": "rlx.jaxnames.segments",
    "jax.export": "rlx.jaxnames.exporting",
    "jax.ad_checkpoint": "rlx.jaxnames.ad_checkpoint",
    "jax.api_util": "rlx.jaxnames.api_util",
    "jax.core": "rlx.jaxnames.extend_core",
    "jax.extend.core": "rlx.jaxnames.extend_core",
    "jax.extend.linear_util": "rlx.jaxnames.linear_util",
    "jax.interpreters.ad": "rlx.jaxnames.ad",
    "jax._src.interpreters.ad": "rlx.jaxnames.ad",  # diffrax's tests
    "jax.interpreters.batching": "rlx.jaxnames.batching",
    "jax.interpreters.mlir": "rlx.jaxnames.mlir",
    "jax.interpreters.partial_eval": "rlx.jaxnames.partial_eval",
    "jax.monitoring": "rlx.jaxnames.monitoring",
    "jax.experimental.sparse": "rlx.experimental.sparse",
    "jax.experimental.hijax": "rlx.jaxnames.hijax",
    "jax.experimental.layout": "rlx.jaxnames.layout",
    "jax.experimental.xla_metadata": "rlx.jaxnames.xla_metadata",
    "jax._src.core": "rlx.jaxnames.extend_core",  # flax (8-bit floats), numpyro
    "jax._src.checkify": "rlx.experimental.checkify",  # flax.nnx
    "jax._src.flatten_util": "rlx.jaxnames.flatten_util",  # blackjax
    "jax._src.traceback_util": "rlx.jaxnames.tracebacks",  # flax, equinox, jaxtyping
    "jax.extend.backend": "rlx.jaxnames.backend",
    "jax.extend.random": "rlx.jaxnames.extend_random",
    "jax.extend.source_info_util": "rlx.jaxnames.source_info",
    "jax.experimental.compute_on": "rlx.jaxnames.hints",
    "jax.experimental.control_deps": "rlx.jaxnames.hints",
    "jax.experimental.custom_partitioning": "rlx.jaxnames.hints",
    "jax.experimental.scheduling_groups": "rlx.jaxnames.hints",
    "jax.experimental.shard_alike": "rlx.jaxnames.hints",
    "jax.experimental.sparse.linalg": "rlx.experimental.sparse.linalg",
    "jax.experimental.sparse.bcoo": "rlx.experimental.sparse",
    "jax.experimental.sparse.bcsr": "rlx.experimental.sparse",
    "jax.experimental.sparse.transform": "rlx.experimental.sparse",
    "jax.experimental.sparse.util": "rlx.experimental.sparse",
    "jax.experimental.array_serialization.serialization": "rlx.jaxnames.array_serialization",  # flax, orbax
    # private modules from which libraries import public names
    "jax._src.ad_checkpoint": "rlx.jaxnames.ad_checkpoint",
    "jax._src.api": "rlx",
    "jax._src.api_util": "rlx.jaxnames.api_util",
    "jax._src.custom_derivatives": "rlx.jaxnames.custom_derivatives",
    "jax._src.interpreters.batching": "rlx.jaxnames.batching",
    "jax._src.interpreters.mlir": "rlx.jaxnames.mlir",
    "jax._src.interpreters.partial_eval": "rlx.jaxnames.partial_eval",
    "jax._src.lax.control_flow": "rlx.lax",
    "jax._src.lax.lax": "rlx.lax",
    "jax._src.lax.linalg": "rlx.lax.linalg",
    "jax._src.lax.slicing": "rlx.lax",
    "jax._src.linear_util": "rlx.jaxnames.linear_util",
    "jax._src.nn.functions": "rlx.nn",
    "jax._src.nn.initializers": "rlx.nn.initializers",
    "jax._src.numpy.lax_numpy": "rlx.numpy",
    "jax._src.numpy.linalg": "rlx.numpy.linalg",
    "jax._src.numpy.ufuncs": "rlx.numpy",
    "jax._src.random": "rlx.random",
    "jax._src.scipy.linalg": "rlx.scipy.linalg",
    "jax._src.scipy.special": "rlx.scipy.special",
    "jax._src.scipy.stats": "rlx.scipy.stats",
    "jax._src.source_info_util": "rlx.jaxnames.source_info",
    "jax._src.stages": "rlx.call.stages",
    "jax._src.tree_util": "rlx.trees.tree_util",
    "jax._src.typing": "rlx.typing",
}
# modules of jax that contain only modules, or nothing
EMPTY = frozenset(
    "jax.cloud_tpu_init jax.extend jax.interpreters jax.lib jax.experimental.array_serialization"
    " jax.experimental.key_reuse".split()
)


def _client(device: Device) -> Any:
    return SimpleNamespace(platform=device.platform, runtime_type="rlx", process_index=lambda: device.process_index)


# orbax asks a device for its runtime, and for its memory kinds
setattr(Device, "client", property(_client))  # noqa: B010
setattr(Device, "addressable_memories", lambda device: [SimpleNamespace(kind="unpinned_host")])  # noqa: B010
setattr(Sharding, "_addressable_device_assignment", property(lambda sharding: tuple(sharding.device_set)))  # noqa: B010


def _from_dlpack(external_array: Any, device: Any = None, copy: bool | None = None) -> Any:
    return rlx.numpy.from_dlpack(external_array, device=device, copy=copy)


class _Backends(Mapping[str, Any]):
    """A device of each platform. Their number is determined on first use."""

    def _devices(self) -> dict[str, Any]:
        return {device.platform: device for device in rlx.devices()}

    def __getitem__(self, platform: str) -> Any:
        return self._devices()[platform]

    def __iter__(self) -> Iterator[str]:
        return iter(self._devices())

    def __len__(self) -> int:
        return len(self._devices())


@cache
def own_names() -> dict[str, dict[str, Any]]:
    """Names of jax's modules that rlx has under another name, or only for JAX's libraries."""
    version = {"__version__": VERSION, "__version_info__": tuple(map(int, VERSION.split(".")))}
    linear = {name: PRIMITIVES[name] for name in PRIMITIVES if hasattr(linalg, name.removesuffix("_p"))}
    stop_gradient_p = {"stop_gradient_p": PRIMITIVES["stop_gradient_p"]}
    return {
        "jax": {
            **version,
            "typeof": avals.typeof,
            "float0": rlx.dtypes.float0,
            "make_jaxpr": views.make_jaxpr,
            "pure_callback": callbacks.pure_callback,
            "device_put": layout.device_put,
        },
        "jax.numpy": {name: getattr(numpy_names, name) for name in numpy_names.__all__},
        "jax.core": {
            "ConcretizationTypeError": rlx.errors.ConcretizationTypeError,
            # tensorflow_probability reads its class of arrays from here
            "pytype_aval_mappings": {np.ndarray: avals.typeof},
        },
        "jax.extend.core.primitives": PRIMITIVES,
        "jax.ref": {"AbstractRef": avals.AbstractRef, **{name: getattr(ref, name) for name in ref.__all__}},
        "jax.dlpack": {
            "from_dlpack": _from_dlpack,
            "is_supported_dtype": lambda dtype: rlx.numpy.dtype(dtype).kind in "biufc",
        },
        "jax.experimental": {
            "enable_x64": rlx.enable_x64,
            "io_callback": callbacks.io_callback,
            "cur_qdd": hijax.cur_qdd,
        },
        "jax.custom_derivatives": {name: PRIMITIVES[name] for name in ("custom_jvp_call_p", "custom_vjp_call_p")},
        "jax.lax": PRIMITIVES,
        "jax.lax.linalg": linear,
        "jax.experimental.compilation_cache": {},
        "jax.experimental.compilation_cache.compilation_cache": {
            "reset_cache": rlx.clear_caches,
            "set_cache_dir": lambda path: rlx.config.update("compilation_cache_dir", path),
        },
        "jax.ffi": {"pycapsule": private.pycapsule},
        "jax.debug": {"DebugEffect": extend_core.Effect, "OrderedDebugEffect": extend_core.Effect},
        "jax.example_libraries.optimizers": {"Array": Any},
        "jax.experimental.mesh_utils": {"device_kind_handler_dict": {}},
        "jax.interpreters.xla": {
            "canonicalize_dtype_handlers": {np.ndarray: np.asarray},  # tensorflow_probability
            "apply_primitive": lambda prim, *args, **params: prim.bind(*args, **params),  # s2fft
        },
        "jax.interpreters.partial_eval": {
            name: {} for name in ("custom_partial_eval_rules", "dce_rules", "partial_eval_jaxpr_custom_rules")
        },
        "jax.interpreters.pxla": {"global_result_handlers": {}},  # flax, orbax
        "jax.stages": {name: getattr(stages, name) for name in ("ArgInfo", "Compiled", "Lowered", "Traced")}
        | {"Wrapped": Jitted},
        "jax.version": version,
        "jax.lib": {"__version__": VERSION},
        # private names that libraries use
        **{f"jax._src{below}": {} for below in ("", ".interpreters", ".lax", ".nn", ".numpy", ".scipy", ".state")},
        "jax._src.ad_util": {  # lineax, folx
            "Zero": ad.Zero,
            "add_any_p": PRIMITIVES["add_jaxvals_p"],
            "add_jaxvals": ad.add_jaxvals,
            "instantiate": ad.instantiate_zeros,
            **stop_gradient_p,
        },
        "jax._src.compiler": {"backend_compile_and_load": api_util.safe_map},  # chex replaces it
        "jax._src.config": {"config": rlx.config},
        "jax._src.dispatch": {"wait_for_tokens": rlx.effects_barrier},  # equinox
        "jax._src.distributed": {"global_state": SimpleNamespace(client=None, process_id=0)},  # orbax
        "jax._src.core": {name: PRIMITIVES[name] for name in ("call_p", "closed_call_p")},
        "jax._src.dtypes": {  # equinox, flax
            **{name: getattr(dtypes, name) for name in dtypes.__all__},
            "TypePromotionError": rlx.errors.TypePromotionError,
            "DType": np.dtype,
            "ExtendedDType": KeyDtype,
            "supports_inf": lambda dtype: bool(np.isinf(np.asarray(np.inf).astype(dtype).astype(np.float32))),
            "to_complex_dtype": lambda dtype: private.promote_dtypes_complex(np.zeros((), dtype))[0].dtype,  # tinygp
            "to_inexact_dtype": lambda dtype: private.promote_dtypes_inexact(np.zeros((), dtype))[0].dtype,
        },
        "jax._src.interpreters.pxla": {"global_result_handlers": {}},  # flax (8-bit floats)
        "jax._src.lax.lax": PRIMITIVES,
        "jax._src.lib": {},
        "jax._src.lib.xla_client": {"XlaRuntimeError": rlx.errors.JaxRuntimeError},  # dynamiqs
        "jax._src.numpy.util": {  # s2fft
            name: getattr(private, name) for name in private.__all__ if name.startswith("promote_dtypes")
        },
        "jax._src.pjit": {"auto_axes": rlx.sharding.auto_axes, "jit_p": PRIMITIVES["jit_p"]},  # jaxns, quax
        "jax._src.sharding_impls": {  # jaxns
            "canonicalize_sharding": private.canonicalize_sharding,
            **{name: getattr(rlx.sharding, name) for name in ("NamedSharding", "PartitionSpec")},
        },
        "jax._src.state.types": {"AbstractRef": avals.AbstractRef},  # flax.nnx
        "jax._src.tree_util": {"_registry": private.NODE_TYPES},  # flax.nnx, jaxlie
        "jax._src.typing": {"DType": np.dtype, "Shape": tuple[int, ...]},
        "jax._src.util": {  # JAX's guide to interpreters
            "safe_map": api_util.safe_map,
            **{name: getattr(private, name) for name in ("safe_zip", "split_list", "unzip2")},
        },
        "jax._src.xla_bridge": {  # chex
            "_backends": _Backends(),
            **{name: getattr(backend, name) for name in ("backends", "get_backend")},
        },
    }
