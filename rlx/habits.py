"""Names that people bring from other libraries, and what to write here in their place."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from rlx.errors import MissingNameError

__all__ = ["ARRAY_NAMES", "missing_attribute", "missing_name", "refuse_unknown"]

_DERIVATIVE = "Derivatives are of functions: rlx.grad(f)(x)."
_IN_PLACE = "Arrays are immutable: x = x.at[index].set(value), or .add, .multiply, ...; rlx.numpy makes new ones."
_CAST = "Write x.astype(rlx.numpy.{})."
_FUNCTIONS_ONLY = "rlx.nn holds functions of arrays; rlx.example_libraries.stax makes layers of them."
_NO_STATE = "Random numbers are functions of a key, without state: key = rlx.random.key(seed)."

# methods of other libraries' arrays and tensors that are functions here
_FUNCTIONS = """abs add arccos arcsin arctan ceil concatenate cos cosh cross diff divide equal erf exp exp2 expm1 flip
    floor histogram isfinite isinf isnan log log10 log1p log2 matmul maximum median minimum multiply nan_to_num negative
    nansum outer pad power quantile reciprocal relu roll sigmoid sign sin sinh split sqrt square stack subtract tan tanh
    tile tril triu unique where"""
# and those that write into their operand
_WRITERS = "add_ clamp_ copy_ div_ exp_ fill_ mul_ normal_ relu_ sub_ uniform_ zero_ setfield setflags"
# what methods of other libraries' arrays and tensors are here; nothing: the function of that name
ARRAY_NAMES: dict[str, str] = {
    **dict.fromkeys(_FUNCTIONS.split(), ""),
    **dict.fromkeys(_WRITERS.split(), _IN_PLACE),
    "append": "Write x = rlx.numpy.append(x, values); in a loop, collect in a list and stack it, or use rlx.lax.scan.",
    "extend": "Write x = rlx.numpy.concatenate([x, values]).",
    "insert": "Write x = rlx.numpy.insert(x, index, values).",
    "pop": "Write x = x[:-1], or rlx.numpy.delete(x, index).",
    "unsqueeze": "Write rlx.numpy.expand_dims(x, axis), or x[None].",
    "detach": "Write rlx.lax.stop_gradient(x).",
    "backward": _DERIVATIVE,
    "grad": _DERIVATIVE,
    "requires_grad": _DERIVATIVE,
    "requires_grad_": _DERIVATIVE,
    "numpy": "Write np.asarray(x), outside of traced functions.",
    "get": "Write np.asarray(x), outside of traced functions.",
    "cpu": "Write rlx.device_put(x, device); np.asarray(x) gives NumPy's array.",
    "cuda": "Write rlx.device_put(x, device).",
    "to": "Write x.astype(dtype) for another dtype, rlx.device_put(x, device) for another device.",
    "float": _CAST.format("float32"),
    "double": _CAST.format("float64"),
    "half": _CAST.format("float16"),
    "bfloat16": _CAST.format("bfloat16"),
    "int": _CAST.format("int32"),
    "long": _CAST.format("int64"),
    "bool": _CAST.format("bool"),
    "permute": "Write x.transpose(axes).",
    "t": "Write x.T.",
    "H": "Write x.mT.conj().",
    "dim": "Write x.ndim.",
    "numel": "Write x.size.",
    "nelement": "Write x.size.",
    "get_shape": "Write x.shape.",
    "contiguous": "Leave it out: memory is laid out by the compiler.",
    "is_contiguous": "Leave it out: memory is laid out by the compiler.",
    "expand": "Write rlx.numpy.broadcast_to(x, shape).",
    "expand_as": "Write rlx.numpy.broadcast_to(x, other.shape).",
    "view_as": "Write x.reshape(other.shape).",
    "repeat_interleave": "Write x.repeat(repeats, axis).",
    "masked_fill": "Write rlx.numpy.where(mask, value, x).",
    "masked_select": "Write x[mask]; in jit, rlx.numpy.where(mask, x, other).",
    "index_select": "Write rlx.numpy.take(x, indices, axis).",
    "gather": "Write rlx.numpy.take_along_axis(x, indices, axis).",
    "scatter": "Write x.at[indices].set(values).",
    "scatter_add": "Write x.at[indices].add(values).",
    "index_add": "Write x.at[indices].add(values).",
    "clamp": "Write x.clip(low, high).",
    "mm": "Write x @ y.",
    "bmm": "Write x @ y.",
    "topk": "Write rlx.lax.top_k(x, k).",
    "softmax": "Write rlx.nn.softmax(x, axis).",
    "log_softmax": "Write rlx.nn.log_softmax(x, axis).",
    "norm": "Write rlx.numpy.linalg.norm(x).",
    "inverse": "Write rlx.numpy.linalg.inv(x).",
    "values": "An array is its values: write x.",
    "fill": "Write x = rlx.numpy.full_like(x, value).",
    "put": "Write x = x.at[indices].set(values).",
    "itemset": "Write x = x.at[index].set(value).",
    "resize": "Write x = rlx.numpy.resize(x, shape).",
    "partition": "Write x = rlx.numpy.partition(x, kth).",
    "tofile": "Write np.asarray(x).tofile(file), or rlx.save.",
    "dump": "Write rlx.save(file, x).",
    "tostring": "Write x.tobytes().",
    "strides": "Memory is laid out by the compiler; np.asarray(x).strides are NumPy's.",
    "flags": "Memory is laid out by the compiler; np.asarray(x).flags are NumPy's.",
    "ctypes": "Write np.asarray(x).ctypes.",
    "base": "Arrays are values: none is a view of another.",
}
_MODULE_NAMES: dict[str, dict[str, str]] = {
    "rlx.numpy": {
        "cat": "Write rlx.numpy.concatenate(arrays, axis).",
        "clamp": "Write rlx.numpy.clip(x, low, high).",
        "unsqueeze": "Write rlx.numpy.expand_dims(x, axis).",
        "mm": "Write x @ y.",
        "tensor": "Write rlx.numpy.array(values).",
        "random": "Write rlx.random, whose functions take a key: rlx.random.normal(rlx.random.key(0), shape).",
        "rand": "Write rlx.random.uniform(key, shape).",
        "randn": "Write rlx.random.normal(key, shape).",
        "ndindex": "Write np.ndindex(shape): it gives Python's numbers.",
        "matrix": "Write rlx.numpy.array(values), and x @ y for the product.",
        "copyto": _IN_PLACE,
        "putmask": "Write x = rlx.numpy.where(mask, values, x).",
    },
    "rlx.nn": {
        "dropout": "Write rlx.numpy.where(rlx.random.bernoulli(key, keep, x.shape), x / keep, 0).",
        **dict.fromkeys(("Module", "Linear", "Dense", "Conv", "Conv2d", "Sequential", "Embedding"), _FUNCTIONS_ONLY),
        "cross_entropy": "Write -(labels * rlx.nn.log_softmax(logits)).sum(-1).mean().",
        "mse_loss": "Write rlx.numpy.square(prediction - target).mean().",
    },
    "rlx.random": {
        "seed": _NO_STATE,
        "default_rng": _NO_STATE,
        "manual_seed": _NO_STATE,
        "RandomState": _NO_STATE,
        "rand": "Write rlx.random.uniform(key, shape).",
        "random": "Write rlx.random.uniform(key, shape).",
        "randn": "Write rlx.random.normal(key, shape).",
        "shuffle": "Write rlx.random.permutation(key, x).",
        "integers": "Write rlx.random.randint(key, shape, low, high).",
    },
    "rlx.optim": {
        "step": "Write updates, state = optimizer.update(grads, state), and rlx.optim.apply_updates(params, updates).",
    },
    "rlx": {
        "xla_computation": "Write rlx.jit(f).lower(*args).as_text().",
        "tree_map": "Write rlx.tree.map(function, tree).",
    },
}
# where a name may be that is looked for elsewhere, and the module that this is
_NAMESPACES = {name: name for name in ("rlx", "rlx.numpy", "rlx.lax", "rlx.nn", "rlx.random", "rlx.numpy.linalg")}
_NAMESPACES |= {"rlx.tree": "rlx.trees.tree", "rlx.optim": "rlx.optim"}


def missing_name(module: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error for a name that one of rlx's modules does not have; `known`: those that it has."""
    if name.startswith("_"):  # asked by import, inspect and doctest
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    return MissingNameError(
        f"{module} has no {name}.", _MODULE_NAMES.get(module, {}).get(name) or _elsewhere(name), name=name, known=known
    )


def refuse_unknown(namespace: dict[str, Any]) -> None:
    """Let a module say what comes near a name that it does not have; unseen by type checkers, which know its names."""

    def missing(name: str) -> Any:
        raise missing_name(namespace["__name__"], name, namespace["__all__"])

    namespace["__getattr__"] = missing


def missing_attribute(name: str) -> MissingNameError:
    """The error for an attribute that arrays of other libraries have."""
    instead = ARRAY_NAMES[name] or _elsewhere(name, "(x)")
    return MissingNameError(f"An array has no attribute {name}.", instead, name=name)


def _elsewhere(name: str, call: str = "") -> str:
    """Where among rlx's loaded modules a name is, as a sentence; empty if nowhere."""
    for path, module in _NAMESPACES.items():
        if name in getattr(sys.modules.get(module), "__all__", ()):
            return f"Write {path}.{name}{call}."
    return ""
