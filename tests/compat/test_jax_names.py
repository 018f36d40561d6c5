"""Names of JAX beside the main ones: functions that libraries call, and private names that several of them import."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import jax
import numpy as np
import pytest

import rlx
import rlx.compat
from rlx.errors import ConcretizationTypeError, NonHashableStaticArgumentError, TreeMismatchError, UnsupportedError
from rlx.jaxnames import api_util, extend_core, linear_util, private, source_info
from rlx.jaxnames.refused import REFUSALS

# of each, names that libraries import from private modules of JAX
PRIVATE = {
    "jax._src.ad_util": "add_any_p stop_gradient_p Zero",
    "jax._src.api_util": "flatten_axes infer_argnums_and_argnames",
    "jax._src.core": "Primitive ShapedArray Tracer Trace get_aval",
    "jax._src.dtypes": "to_complex_dtype canonicalize_dtype",
    "jax._src.interpreters.batching": "primitive_batchers",
    "jax._src.lax.lax": "add add_p",
    "jax._src.lib.xla_client": "XlaRuntimeError",
    "jax._src.literals": "TypedFloat TypedInt",
    "jax._src.numpy.ufuncs": "ufunc",
    "jax._src.numpy.util": "promote_dtypes promote_dtypes_complex promote_dtypes_inexact",
    "jax._src.pjit": "auto_axes jit_p",
    "jax._src.random": "normal",
    "jax._src.scipy.special": "gammaln logsumexp",
    "jax._src.sharding_impls": "canonicalize_sharding",
    "jax._src.source_info_util": "summarize",
    "jax._src.tree_util": "_registry tree_map",
    "jax._src.typing": "Array ArrayLike DType DTypeLike Shape SupportsDType",
    "jax._src.util": "safe_map safe_zip split_list unzip2",
    "jax._src.xla_bridge": "get_backend",
}


@pytest.mark.parametrize("path", PRIVATE)
def test_private_names_that_several_libraries_import(path: str) -> None:
    with rlx.compat.as_jax():
        module = importlib.import_module(path)
        assert not [name for name in PRIVATE[path].split() if not hasattr(module, name)]


def test_modules_that_are_refused_can_be_imported_and_say_why() -> None:
    with rlx.compat.as_jax():
        pl = importlib.import_module("jax.experimental.pallas")
        tpu = importlib.import_module("jax.experimental.pallas.tpu")
        flash = importlib.import_module("jax.experimental.pallas.ops.tpu.flash_attention").flash_attention
        assert pl.tpu is tpu and pl.BlockSpec is pl.BlockSpec
        assert not isinstance(3, tpu.GridDimensionSemantics.PARALLEL)
        for value in (pl.pallas_call, tpu.CompilerParams, flash):
            with pytest.raises(UnsupportedError, match=r"rlx\.cuda_call, rlx\.opencl_call"):
                value()
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("jax.experimental.nothing")
    verbs = "is calls computes defines passes reads runs sends translates writes".split()
    assert {row.reason.split()[0] for row in REFUSALS.values()} <= set(verbs)


def test_concrete_or_error() -> None:
    assert extend_core.concrete_or_error(int, 3.0) == 3 and extend_core.is_concrete(np.ones(2))

    def f(x: Any) -> Any:
        assert not extend_core.is_concrete(x)
        with pytest.raises(ConcretizationTypeError, match="a size"):
            extend_core.concrete_or_error(int, x, "a size")
        return x

    rlx.jit(f)(1.0)


TREES = [([1, (2, 3)], [0, None]), ({"a": 1, "b": [2, 3]}, {"a": 0, "b": 1}), ((1, 2), None), ((1, 2), 7), ((), 3)]


@pytest.mark.parametrize(("value", "axes"), TREES, ids=str)
def test_flatten_axes_is_jax_s(value: Any, axes: Any) -> None:
    wanted = jax.api_util.flatten_axes("axes", jax.tree.structure(value), axes)
    assert api_util.flatten_axes("axes", rlx.tree.structure(value), axes) == list(wanted)


def test_flatten_axes_refuses_what_is_not_a_prefix() -> None:
    with pytest.raises(TreeMismatchError, match="in_axes specification must be a tree prefix"):
        api_util.flatten_axes("in_axes", rlx.tree.structure([1, 2]), [0, 1, 2])


@pytest.mark.parametrize("numbers", [None, 0, (1,), (0, 2)])
@pytest.mark.parametrize("names", [None, "y", ("x", "k")])
def test_infer_argnums_and_argnames_is_jax_s(numbers: Any, names: Any) -> None:
    from jax._src.api_util import infer_argnums_and_argnames

    signature = inspect.signature(lambda x, y, *, k=1: x)
    assert api_util.infer_argnums_and_argnames(signature, numbers, names) == infer_argnums_and_argnames(
        signature, numbers, names
    )


def test_arguments_bound_and_donated() -> None:
    fun, left = api_util.argnums_partial(linear_util.wrap_init(lambda x, y, z: (x, y, z)), (0, -1), (1, 2, 3))
    assert fun.call_wrapped(10, 30) == (10, 2, 30) and left == (1, 3)
    with pytest.raises(NonHashableStaticArgumentError, match="argument 1 of type list"):
        api_util.argnums_partial(fun, 0, (1, [2]))
    call = ((1, [2, 3]), {"k": 4, "a": (5, 6)})
    wanted = jax.api_util.donation_vector((1,), ("k",), jax.tree.structure(call))
    assert api_util.donation_vector((1,), ("k",), rlx.tree.structure(call)) == wanted
    assert api_util.rebase_donate_argnums((3, 4), (0, 1)) == jax.api_util.rebase_donate_argnums((3, 4), (0, 1))


def test_node_types_take_nodes_apart() -> None:
    class Pair:
        def __init__(self, x: Any, y: Any) -> None:
            self.x, self.y = x, y

    rlx.tree.register_node(Pair, lambda p: ((p.x, p.y), None), lambda _, xy: Pair(*xy))
    for node in ((1, 2), [1, 2], {"b": 1, "a": 2}):
        entry = private.NODE_TYPES[type(node)]
        children, data = entry.to_iter(node)
        assert len({data, data}) == 1 and entry.from_iter(data, children) == node
    entry = private.NODE_TYPES[Pair]
    children, data = entry.to_iter(Pair(1, 2))
    assert entry.from_iter(data, children).y == 2
    assert float not in private.NODE_TYPES
    with pytest.raises(KeyError):
        private.NODE_TYPES[float]


def test_name_stacks_and_source_lines() -> None:
    with source_info.extend_name_stack("layer"), source_info.transform_name_stack("jvp"):
        with source_info.extend_name_stack("norm"):
            assert str(source_info.current_name_stack()) == "layer/jvp(norm)"
        with source_info.reset_name_stack():
            assert str(source_info.current_name_stack()) == ""
    assert "test_name_stacks_and_source_lines" in source_info.summarize(source_info.current())
    with source_info.user_context(source_info.current().traceback):
        assert source_info.current().traceback is not None


def test_platforms_as_objects() -> None:
    with rlx.compat.as_jax():
        backend = importlib.import_module("jax.extend.backend")
        found = backend.get_backend()
        assert found.devices() == rlx.devices() and backend.get_backend(found) is found
        assert backend.backends()["cpu"].device_count() == rlx.device_count()
        assert backend.get_default_device() == rlx.devices()[0]


def test_hints_change_no_value() -> None:
    with rlx.compat.as_jax():
        compute_on = importlib.import_module("jax.experimental.compute_on").compute_on
        custom = importlib.import_module("jax.experimental.custom_partitioning").custom_partitioning
        group = importlib.import_module("jax.experimental.scheduling_groups").scheduling_group
    own = custom(lambda x: x * x)
    own.def_partition(partition=None, infer_sharding_from_operands=None)
    with compute_on("device_host"):
        assert float(rlx.jit(rlx.grad(group("a")(own)))(3.0)) == 6.0
    with pytest.raises(rlx.errors.OptionError, match="device_host"), compute_on("elsewhere"):
        pass
