"""Private functions of JAX that several libraries import, as thin wrappers of rlx's functions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import optree

from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import TreeMismatchError
from rlx.sharding import AbstractMesh, NamedSharding, PartitionSpec, get_abstract_mesh
from rlx.trace.flat import as_array
from rlx.trees import tree, tree_util

__all__ = [
    "NODE_TYPES",
    "NodeType",
    "canonicalize_sharding",
    "promote_dtypes",
    "promote_dtypes_complex",
    "promote_dtypes_inexact",
    "promote_dtypes_numeric",
    "pycapsule",
    "safe_zip",
    "split_list",
    "unzip2",
]


# ------------------------------------------------------------- jax._src.numpy.util
def _converted(args: Sequence[Any], least: Any) -> list[Array]:
    """Arrays promoted to one dtype for all arguments, and `least` if it is given."""
    extra = () if least is None else (least,)
    dtype = jnp.result_type(*args, *extra)
    return [as_array(x).astype(dtype) for x in args]


def promote_dtypes(*args: Any) -> list[Array]:
    """Arrays promoted to one dtype.

    >>> import numpy as np
    >>> from rlx.jaxnames.private import promote_dtypes
    >>> [x.dtype.name for x in promote_dtypes(np.int8(1), np.float32(2))]
    ['float32', 'float32']
    """
    return _converted(args, None)


def promote_dtypes_numeric(*args: Any) -> list[Array]:
    """Arrays promoted to one dtype other than bool."""
    return _converted(args, jnp.int8 if jnp.result_type(*args).kind == "b" else None)


def promote_dtypes_inexact(*args: Any) -> list[Array]:
    """Arrays promoted to one floating or complex dtype."""
    inexact = jnp.issubdtype(jnp.result_type(*args), jnp.inexact)
    return _converted(args, None if inexact else jnp.result_type(float))


def promote_dtypes_complex(*args: Any) -> list[Array]:
    """Arrays promoted to one complex dtype.

    >>> import numpy as np
    >>> from rlx.jaxnames.private import promote_dtypes_complex
    >>> promote_dtypes_complex(np.float32(1))[0].dtype
    dtype('complex64')
    """
    return _converted(promote_dtypes_inexact(*args), jnp.complex64)


# ------------------------------------------------------------- jax._src.util
def safe_zip(*args: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The list of tuples of sequences of one length. Raises TreeMismatchError if the lengths differ."""
    lists = [list(a) for a in args]
    if len({len(a) for a in lists}) > 1:
        lengths = ", ".join(str(len(a)) for a in lists)
        raise TreeMismatchError(f"safe_zip got sequences of lengths {lengths}.", "The lengths must be equal.")
    return list(zip(*lists, strict=True))


def unzip2(xys: Iterable[tuple[Any, Any]]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The first and the second elements of pairs.

    >>> from rlx.jaxnames.private import unzip2
    >>> unzip2([(1, 2), (3, 4)])
    ((1, 3), (2, 4))
    """
    pairs = list(xys)
    return tuple(x for x, _ in pairs), tuple(y for _, y in pairs)


def split_list(args: Sequence[Any], ns: Sequence[int]) -> list[list[Any]]:
    """A list split into parts of the given lengths, and the rest.

    >>> from rlx.jaxnames.private import split_list
    >>> split_list([1, 2, 3], [1])
    [[1], [2, 3]]
    """
    parts, left = [], list(args)
    for n in ns:
        parts.append(left[:n])
        left = left[n:]
    return [*parts, left]


# ------------------------------------------------------------- jax._src.sharding_impls
def canonicalize_sharding(sharding: Any, api_name: str, check_mesh_consistency: bool = True) -> NamedSharding | None:
    """A spec as a sharding over the current mesh; None if there is none.

    >>> from rlx.jaxnames.private import canonicalize_sharding
    >>> canonicalize_sharding(None, "f") is None
    True
    """
    if isinstance(sharding, PartitionSpec):
        mesh: AbstractMesh = get_abstract_mesh()
        sharding = NamedSharding(mesh, sharding)
    return None if sharding is None or sharding.mesh.empty else sharding


# ------------------------------------------------------------- jax.ffi
def pycapsule(funcptr: Any) -> Any:
    """A ctypes function as a PyCapsule (jaxkd, mujoco.mjx).

    >>> import ctypes
    >>> from rlx.jaxnames.private import pycapsule
    >>> type(pycapsule(ctypes.pythonapi.PyObject_Repr)).__name__
    'PyCapsule'
    """
    make = ctypes.pythonapi.PyCapsule_New
    make.argtypes, make.restype = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p), ctypes.py_object
    return make(ctypes.cast(funcptr, ctypes.c_void_p), None, None)


# ------------------------------------------------------------- jax._src.tree_util
class NodeType(NamedTuple):
    """How nodes of a type are flattened: to_iter(x) -> (children, data), from_iter(data, children) -> x."""

    to_iter: Callable[[Any], tuple[Any, Any]]
    from_iter: Callable[[Any, Any], Any]


class _NodeTypes:
    """The node types of trees, as flax.nnx (`in`) and jaxlie (`[...]`) look them up.

    >>> from rlx.jaxnames.private import NODE_TYPES
    >>> NODE_TYPES[dict].to_iter({"b": 1, "a": 2}), NODE_TYPES[dict].from_iter(("a", "b"), (2, 1))
    (((2, 1), ('a', 'b')), {'a': 2, 'b': 1})
    """

    def __contains__(self, kind: type) -> bool:
        return optree.register_pytree_node.get(kind, namespace=tree.NAMESPACE) is not None

    def __getitem__(self, kind: type) -> NodeType:
        if kind not in self:
            raise KeyError(kind)
        if kind is dict:
            return NodeType(_taken, lambda keys, children: dict(zip(keys, children, strict=True)))
        entry: Any = optree.register_pytree_node.get(kind, namespace=tree.NAMESPACE)
        return NodeType(_taken, entry.unflatten_func)


def _taken(node: Any) -> tuple[tuple[Any, ...], Any]:
    children, data = tree_util.flatten_one_level(node)
    return tuple(children), data


NODE_TYPES = _NodeTypes()
