"""Where each path of jax leads: modules of rlx, and names that rlx keeps elsewhere or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import optree

import rlx
from rlx.array import Device
from rlx.errors import UnsupportedError
from rlx.ir.extended import KeyDtype
from rlx.jaxnames import (
    ad,
    api_util,
    avals,
    callbacks,
    dtypes,
    hijax,
    layout,
    numpy_names,
    tracebacks,
    views,
)
from rlx.jaxnames.named_primitives import PRIMITIVES
from rlx.lax import linalg
from rlx.sharding.shardings import Sharding
from rlx.trees import tree, tree_util

__all__ = ["LOCATED", "PLACEHOLDERS", "SAME", "VERSION", "own_names", "placeholder"]

VERSION = "0.10.2"  # the JAX whose names these are

# modules of jax that are modules of rlx of the same name, with all that is below them
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
    "jax.experimental.sparse": "rlx.jaxnames.sparse",
    "jax.experimental.hijax": "rlx.jaxnames.hijax",
    "jax.experimental.layout": "rlx.jaxnames.layout",
    "jax.experimental.xla_metadata": "rlx.jaxnames.xla_metadata",
    "jax._src.core": "rlx.jaxnames.extend_core",  # flax (8-bit floats), numpyro
    "jax._src.checkify": "rlx.experimental.checkify",  # flax.nnx
    "jax._src.flatten_util": "rlx.jaxnames.flatten_util",  # blackjax
    "jax._src.traceback_util": "rlx.jaxnames.tracebacks",  # flax, equinox, jaxtyping
    "jax.extend.source_info_util": "rlx.jaxnames.tracebacks",  # flax
    "jax.experimental.array_serialization.serialization": "rlx.jaxnames.array_serialization",  # flax, orbax
}
# names that JAX's users know elsewhere than rlx's
PLACEHOLDERS: dict[str, str] = {
    "jax.stages": "Compiled Lowered Traced Wrapped CompilerOptions",
    "jax.ffi": "ffi_call register_ffi_target",
    "jax.core": "Trace",
    "jax.extend.core": "Trace TraceTag set_current_trace take_current_trace",
    "jax.extend": "",
    "jax.interpreters": "",
    "jax.experimental.pallas": "",
    "jax.experimental.array_serialization": "",
    "jax.extend.ifrt_programs": "ifrt_programs",  # orbax
    "jax.experimental.colocated_python": "colocated_cpu_devices colocated_python colocated_python_class",  # orbax
    "jax.experimental.colocated_python.func": "",
    "jax.experimental.colocated_python.serialization": "DeviceList _get_cpu_device_map _reduce_device_list _reduce_mesh"
    " _reduce_single_device_sharding xb",
    "jax.lib": "",
}


def placeholder(path: str) -> type:
    """A class that stands for a name of JAX's that rlx does not have: good for isinstance, an error when made."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise UnsupportedError(
            f"{path} is not part of rlx.",
            "See docs/coverage.md for what is there.",
        )

    return type(path.rpartition(".")[2], (), {"__new__": refuse, "__doc__": f"Stands for {path}, which rlx lacks."})


class _NodeTypes:
    """The types that are nodes of trees: what flax.nnx asks a registry for."""

    def __contains__(self, kind: type) -> bool:
        return optree.register_pytree_node.get(kind, namespace=tree.NAMESPACE) is not None


def _client(device: Device) -> Any:
    return SimpleNamespace(platform=device.platform, runtime_type="rlx", process_index=lambda: device.process_index)


# orbax asks a device for the runtime behind it, and for kinds of memory
setattr(Device, "client", property(_client))  # noqa: B010
setattr(Device, "addressable_memories", lambda device: [SimpleNamespace(kind="unpinned_host")])  # noqa: B010
setattr(Sharding, "_addressable_device_assignment", property(lambda sharding: tuple(sharding.device_set)))  # noqa: B010


class _Backends(Mapping[str, Any]):
    """A device of each platform. How many there are is settled when somebody looks, not before."""

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
    """Names of jax's modules that rlx keeps under another name, or for JAX's libraries alone."""
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
            # tensorflow_probability names its class of arrays here
            "pytype_aval_mappings": {np.ndarray: avals.typeof},
        },
        "jax.extend.core.primitives": PRIMITIVES,
        "jax.ref": {"AbstractRef": avals.AbstractRef, **{name: getattr(rlx.ref, name) for name in rlx.ref.__all__}},
        "jax.dlpack": {
            "from_dlpack": rlx.numpy.from_dlpack,
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
        "jax.extend.source_info_util": {"register_exclusion": tracebacks.register_exclusion},
        "jax.interpreters.xla": {"canonicalize_dtype_handlers": {np.ndarray: np.asarray}},  # tensorflow_probability
        "jax.interpreters.pxla": {"global_result_handlers": {}},  # flax, orbax
        "jax.version": version,
        "jax.lib": {"__version__": VERSION},
        # private names that libraries use all the same, and which
        "jax._src": {},
        "jax._src.ad_util": {"Zero": ad.Zero, **stop_gradient_p},  # lineax
        "jax._src.compiler": {"backend_compile_and_load": api_util.safe_map},  # chex (which puts its own in its place)
        "jax._src.dispatch": {"wait_for_tokens": rlx.effects_barrier},  # equinox
        "jax._src.distributed": {"global_state": SimpleNamespace(client=None, process_id=0)},  # orbax
        "jax._src.core": {name: PRIMITIVES[name] for name in ("call_p", "closed_call_p")},
        "jax._src.dtypes": {  # equinox, flax
            **{name: getattr(dtypes, name) for name in dtypes.__all__},
            "TypePromotionError": rlx.errors.TypePromotionError,
            "DType": np.dtype,
            "ExtendedDType": KeyDtype,
            "supports_inf": lambda dtype: bool(np.isinf(np.asarray(np.inf).astype(dtype).astype(np.float32))),
        },
        "jax._src.earray": {"EArray": placeholder("jax._src.earray.EArray")},  # flax (8-bit floats)
        "jax._src.interpreters": {},
        "jax._src.interpreters.pxla": {"global_result_handlers": {}},  # flax (8-bit floats)
        "jax._src.literals": {"TypedNdArray": placeholder("jax._src.literals.TypedNdArray")},  # equinox
        "jax._src.state": {},
        "jax._src.state.types": {"AbstractRef": avals.AbstractRef},  # flax.nnx
        "jax._src.tree_util": {  # flax.nnx, orbax
            **{name: getattr(tree_util, name) for name in tree_util.__all__},
            "_registry": _NodeTypes(),
        },
        "jax._src.util": {"safe_map": api_util.safe_map},  # JAX's guide to interpreters
        "jax._src.xla_bridge": {"_backends": _Backends()},  # chex
    }
