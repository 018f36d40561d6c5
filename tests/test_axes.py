"""Every public function with an axis takes the axes that there are, and refuses every other with an error of rlx."""

from __future__ import annotations

import importlib
import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from test_docstrings import DISTRIBUTIONS, PUBLIC

import rlx
import rlx.numpy as jnp
from rlx import lax, quant
from rlx.errors import RlxError
from rlx.example_libraries import stax
from rlx.nn import initializers

Call = Callable[[Any], Any]

AXIS = re.compile(r"(.*_)?(axis|axes|dimensions?|dims?|axis[a-c12])|source|destination")
NO_AXES = {
    "allow_split_physical_axes": "a flag",
    "dims": "the sizes of a shape",
    "out_dim": "a size",
    "reduce_axes": "names of mapped axes",
    "window_dimensions": "sizes",
    "head_dim": "a size",
    "CalibrationEntry.axis": "what was found along one",
    "QuantizedArray.axis": "what was quantised along one",
    "AxisTraffic.axes": "names of a mesh's axes",
    "CompileResult.source": "a graph",
    "Exported.source": "the traced function",
    "cuda_call.source": "the text of a kernel",
    "opencl_call.source": "the text of a kernel",
    "wgpu_call.source": "the text of a kernel",
    "auto_axes.axes": "names of a mesh's axes",
    "explicit_axes.axes": "names of a mesh's axes",
    "indices.dimensions": "sizes",
    "inline_into.source": "a graph",
    "pbroadcast.source": "a position along a mapped axis",
    "repack_gguf.source": "a file",
}
"""Parameters that are named like an axis and are none, and why."""

CUBE = np.linspace(0.1, 0.9, 27, dtype=np.float32).reshape(3, 3, 3)
INTEGERS = np.ones((3, 3, 3), np.int32)
THIN = np.ones((1, 1, 1), np.float32)
ROW = np.ones(3, np.float32)
KEY = rlx.random.key(0)
NAMES = "Zxx a ar arr array ary b data elems f filt in1 in2 keys lhs logits m operand p src update v values x x1 x2 y"
NAMES += " predictions targets log_predictions log_targets labels anchors positives negatives"
ARGUMENTS = dict.fromkeys(NAMES.split(), CUBE) | {
    "alpha": 0.1,
    "arrays": (CUBE, CUBE),
    "axis_name": "members",
    "tree_of_arrays": CUBE,
    "computation": jnp.add,
    "condition": [True, False, True],
    "fn": jnp.add,
    "func": jnp.sum,
    "func1d": jnp.sum,
    "index": 0,
    "index_dtype": np.int32,
    "indices": INTEGERS,
    "indices_or_sections": 3,
    "init_values": 0.0,
    "k": 1,
    "key": KEY,
    "kth": 1,
    "num_classes": 3,
    "obj": 0,
    "operands": (CUBE, CUBE),
    "q": 0.5,
    "repeats": 2,
    "shift": 1,
    "sizes": (1, 2),
    "slice_size": 1,
    "start": CUBE,
    "start_index": 0,
    "limit_index": 2,
    "stop": CUBE + 1,
}
"""What is passed for a parameter of a name, where SPECIAL says nothing else."""

TRIED = range(-9, 10)
"""Beyond twice the rank on either side, so that an axis taken modulo the rank shows."""


def mapped(function: Callable[[Any], Any]) -> Any:
    """The function over the members of a mapped axis of three, each a cube."""
    return rlx.vmap(function, axis_name="members")(np.stack([CUBE] * 3))


def initialised(make: Callable[..., Any], **options: Any) -> Any:
    """What an initializer draws."""
    return make(**options)(KEY, (3, 3, 3))


def gathered(**options: Any) -> Any:
    """A gather of which one field of the dimension numbers is given."""
    fields = {"offset_dims": (1, 2), "collapsed_slice_dims": (0,), "start_index_map": (0,)} | options
    sizes = [1 if i in fields["collapsed_slice_dims"] else 3 for i in range(3)]
    return lax.gather(CUBE, np.zeros((2, 1), np.int32), lax.GatherDimensionNumbers(**fields), sizes)


def scattered(**options: Any) -> Any:
    """A scatter of which one field of the dimension numbers is given."""
    fields = {"update_window_dims": (1, 2), "inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,)}
    numbers = lax.ScatterDimensionNumbers(**(fields | options))
    return lax.scatter(CUBE, np.zeros((3, 1), np.int32), CUBE, numbers)


def batched(gather: bool, operand: Any, indices: Any) -> Any:
    """A gather or scatter in which one axis is shared by operand and indices."""
    starts = np.zeros((3, 1), np.int32)
    batching = {"operand_batching_dims": operand, "X_indices_batching_dims": indices}
    if gather:
        numbers = {name.replace("X", "start"): axes for name, axes in batching.items()}
        return lax.gather(CUBE, starts, lax.GatherDimensionNumbers((1,), (1,), (1,), **numbers), (1, 1, 3))
    numbers = {name.replace("X", "scatter"): axes for name, axes in batching.items()}
    return lax.scatter(CUBE, starts, CUBE[0], lax.ScatterDimensionNumbers((1,), (1,), (1,), **numbers))


def ragged(**options: Any) -> Any:
    """A ragged product of which one field of the dimension numbers is given."""
    fields = {
        "dot_dimension_numbers": (((1,), (1,)), ((), ())),
        "lhs_ragged_dimensions": (0,),
        "rhs_group_dimensions": (0,),
    }
    numbers = lax.RaggedDotDimensionNumbers(**(fields | options))
    return lax.ragged_dot_general(CUBE[0], CUBE, np.ones(3, np.int32), numbers)


def applied(layer: Any, *shapes: tuple[int, ...]) -> Any:
    """A layer of stax, initialised and used."""
    init, apply = layer
    _, parameters = init(KEY, list(shapes) if len(shapes) > 1 else shapes[0])
    inputs = [np.ones(shape, np.float32) for shape in shapes]
    return apply(parameters, inputs if len(inputs) > 1 else inputs[0])


def in_graph(method: str, *before: Any, **options: Any) -> Any:
    """A method of a graph, on a cube."""
    built = rlx.Graph("axes")
    x = built.input("x", rlx.Shape((3, 3, 3)))
    return getattr(built, method)(*before, (x, x) if method == "concat" else x, **options)


def on_one_device(**options: Any) -> Any:
    """A function mapped over a mesh of one device."""
    with rlx.set_mesh(rlx.make_mesh((1,), ("d",))):
        return rlx.smap(lambda x: x, axis_name="d", **options)(THIN)


SPECIAL: dict[str, Call] = {
    "softmax_cross_entropy_with_integer_labels.axis": lambda i: rlx.optim.softmax_cross_entropy_with_integer_labels(
        CUBE, np.zeros((3, 3), np.int32), i
    ),
    "reduce_scatter.axis": lambda i: rlx.distributed.reduce_scatter(CUBE, axis=i, tiled=True),
    "BatchNorm.axis": lambda i: applied(stax.BatchNorm(i), (3, 3, 3)),
    "FanInConcat.axis": lambda i: applied(stax.FanInConcat(i), (3, 3, 3), (3, 3, 3)),
    "GatherDimensionNumbers.collapsed_slice_dims": lambda i: gathered(collapsed_slice_dims=(i,)),
    "GatherDimensionNumbers.offset_dims": lambda i: gathered(offset_dims=(0, i)),
    "GatherDimensionNumbers.operand_batching_dims": lambda i: batched(True, (i,), (0,)),
    "GatherDimensionNumbers.start_indices_batching_dims": lambda i: batched(True, (0,), (i,)),
    "RaggedDotDimensionNumbers.lhs_ragged_dimensions": lambda i: ragged(lhs_ragged_dimensions=(i,)),
    "RaggedDotDimensionNumbers.rhs_group_dimensions": lambda i: ragged(rhs_group_dimensions=(i,)),
    "ScatterDimensionNumbers.inserted_window_dims": lambda i: scattered(inserted_window_dims=(i,)),
    "ScatterDimensionNumbers.operand_batching_dims": lambda i: batched(False, (i,), (0,)),
    "ScatterDimensionNumbers.scatter_dims_to_operand_dims": lambda i: scattered(scatter_dims_to_operand_dims=(i,)),
    "ScatterDimensionNumbers.scatter_indices_batching_dims": lambda i: batched(False, (0,), (i,)),
    "ScatterDimensionNumbers.update_window_dims": lambda i: scattered(update_window_dims=(0, i)),
    "all_gather.axis": lambda i: mapped(lambda x: lax.all_gather(x, "members", axis=i)),
    "all_to_all.concat_axis": lambda i: mapped(lambda x: lax.all_to_all(x, "members", 0, i)),
    "all_to_all.split_axis": lambda i: mapped(lambda x: lax.all_to_all(x, "members", i, 0)),
    "broadcast_in_dim.broadcast_dimensions": lambda i: lax.broadcast_in_dim(ROW, (3, 3, 3), (i,)),
    "broadcasted_iota.dimension": lambda i: lax.broadcasted_iota(np.int32, (3, 3, 3), i),
    "collapse.start_dimension": lambda i: lax.collapse(CUBE, i, 3),
    "collapse.stop_dimension": lambda i: lax.collapse(CUBE, 0, i),
    "delta_orthogonal.column_axis": lambda i: initialised(initializers.delta_orthogonal, column_axis=i),
    "fft2.axes": lambda i: jnp.fft.fft2(CUBE, axes=(0, i)),
    "glu.axis": lambda i: rlx.nn.glu(np.ones((2, 2, 2), np.float32), i),
    "ifft2.axes": lambda i: jnp.fft.ifft2(CUBE, axes=(0, i)),
    "index_take.axes": lambda i: lax.index_take(CUBE, (np.array([0, 2]),), (i,)),
    "irfft2.axes": lambda i: jnp.fft.irfft2(CUBE, axes=(0, i)),
    "mapped_aval.axis": lambda i: rlx.core.mapped_aval(3, i, rlx.core.ShapedArray((3, 3, 3), np.dtype("f4"))),
    "moveaxis.destination": lambda i: jnp.moveaxis(CUBE, 0, i),
    "moveaxis.source": lambda i: jnp.moveaxis(CUBE, i, 0),
    "glorot.batch_axis": lambda i: initialised(stax.glorot, batch_axis=i, in_axis=0, out_axis=1),
    "glorot.in_axis": lambda i: initialised(stax.glorot, in_axis=i, out_axis=0),
    "glorot.out_axis": lambda i: initialised(stax.glorot, in_axis=0, out_axis=i),
    "one_hot.axis": lambda i: rlx.nn.one_hot(INTEGERS, 3, axis=i),
    "lsq.axis": lambda i: quant.lsq(CUBE, ROW, axis=i),
    "quantize.axis": lambda i: quant.quantize(CUBE, "int8/3", i),
    "orthogonal.column_axis": lambda i: initialised(initializers.orthogonal, column_axis=i),
    "packbits.axis": lambda i: jnp.packbits(INTEGERS.astype(bool), axis=i),
    "permute_dims.axes": lambda i: jnp.permute_dims(CUBE, (0, 1, i)),
    "pmap.in_axes": lambda i: rlx.pmap(jnp.sum, in_axes=i)(THIN),
    "pmap.out_axes": lambda i: rlx.pmap(lambda x: x, out_axes=i)(THIN),
    "psum_scatter.scatter_dimension": lambda i: mapped(lambda x: lax.psum_scatter(x, "members", scatter_dimension=i)),
    "pswapaxes.axis": lambda i: mapped(lambda x: lax.pswapaxes(x, "members", i)),
    "put_along_axis.axis": lambda i: jnp.put_along_axis(CUBE, INTEGERS, 0.0, i, inplace=False),
    "reduce.dimensions": lambda i: lax.reduce(CUBE, 0.0, jnp.add, (i,)),
    "reduce_and.axes": lambda i: lax.reduce_and(INTEGERS, (i,)),
    "reduce_or.axes": lambda i: lax.reduce_or(INTEGERS, (i,)),
    "reduce_xor.axes": lambda i: lax.reduce_xor(INTEGERS, (i,)),
    "reshape.dimensions": lambda i: lax.reshape(CUBE, (27,), (0, 1, i)),
    "rfft2.axes": lambda i: jnp.fft.rfft2(CUBE, axes=(0, i)),
    "rot90.axes": lambda i: jnp.rot90(CUBE, axes=(0, i)),
    "scale_and_translate.spatial_dims": lambda i: rlx.image.scale_and_translate(
        CUBE, (3, 3, 3), (i,), np.ones(1, np.float32), np.zeros(1, np.float32), "linear"
    ),
    "searchsorted.axis": lambda i: jnp.searchsorted(ROW, CUBE, axis=i),
    "smap.in_axes": lambda i: on_one_device(in_axes=i, out_axes=0),
    "smap.out_axes": lambda i: on_one_device(in_axes=0, out_axes=i),
    "squeeze.axis": lambda i: jnp.squeeze(THIN, i),
    "squeeze.dimensions": lambda i: lax.squeeze(THIN, (i,)),
    "swapaxes.axis1": lambda i: jnp.swapaxes(CUBE, i, 0),
    "swapaxes.axis2": lambda i: jnp.swapaxes(CUBE, 0, i),
    "tensordot.axes": lambda i: jnp.tensordot(CUBE, CUBE, ([i], [0])),
    "tensorsolve.axes": lambda i: jnp.linalg.tensorsolve(np.eye(3, dtype=np.float32), ROW, (i,)),
    "transpose.axes": lambda i: jnp.transpose(CUBE, (0, 1, i)),
    "unmapped_aval.axis": lambda i: rlx.core.unmapped_aval(3, i, rlx.core.ShapedArray((3, 3), np.dtype("f4"))),
    "unpackbits.axis": lambda i: jnp.unpackbits(INTEGERS.astype(np.uint8), axis=i),
    "vmap.in_axes": lambda i: rlx.vmap(jnp.sum, in_axes=i)(CUBE),
    "vmap.out_axes": lambda i: rlx.vmap(lambda x: x, out_axes=i)(CUBE),
    # several in one parameter, methods, and what no signature shows
    "Graph.concat.axis": lambda i: in_graph("concat", axis=i),
    "Graph.cumsum.axis": lambda i: in_graph("cumsum", axis=i, exclusive=True),
    "Graph.gather.axis": lambda i: in_graph("gather", indices=np.array([0, 2]), axis=i),
    "Graph.layer_norm.axis": lambda i: in_graph("layer_norm", axis=i),
    "Graph.narrow.axis": lambda i: in_graph("narrow", axis=i, start=0, length=2),
    "Graph.reduce.axes": lambda i: in_graph("reduce", "sum", axes=i),
    "Graph.rms_norm.axis": lambda i: in_graph("rms_norm", axis=i),
    "Graph.softmax.axis": lambda i: in_graph("softmax", axis=i),
    "dot_general.batch": lambda i: lax.dot_general(CUBE, CUBE, (((), ()), ((i,), (0,)))),
    "dot_general.contracting": lambda i: lax.dot_general(CUBE, CUBE, (((0,), (i,)), ((), ()))),
    "rollaxis.start": lambda i: jnp.rollaxis(CUBE, 0, i),
    "tensordot.second": lambda i: jnp.tensordot(CUBE, CUBE, ([0], [i])),
    "ufunc.accumulate.axis": lambda i: jnp.add.accumulate(CUBE, i),
    "ufunc.reduce.axis": lambda i: jnp.add.reduce(CUBE, i),
    "ufunc.reduceat.axis": lambda i: jnp.add.reduceat(CUBE, np.array([0, 1]), i),
}
for _name in ("glorot_uniform", "he_normal", "he_uniform", "lecun_normal", "lecun_uniform", "variance_scaling"):
    _make = getattr(initializers, _name)
    _fixed = {"scale": 1.0, "mode": "fan_in", "distribution": "normal"} if _name == "variance_scaling" else {}
    for _axis, _others in (
        ("in_axis", {"out_axis": 0}),
        ("out_axis", {"in_axis": 0}),
        ("batch_axis", {"in_axis": 0, "out_axis": 1}),
    ):
        SPECIAL[f"{_name}.{_axis}"] = lambda i, m=_make, a=_axis, o=_fixed | _others: initialised(m, **{a: i}, **o)

PLACES = """
    all_gather.axis collapse.start_dimension collapse.stop_dimension expand_dims.axis expand_dims.dimensions
    geomspace.axis linspace.axis logspace.axis one_hot.axis rollaxis.start stack.axis
"""
RANKS = dict.fromkeys(PLACES.split(), 4) | {
    "Array.searchsorted.axis": 1,
    "RaggedDotDimensionNumbers.lhs_ragged_dimensions": 2,
    "delta_orthogonal.column_axis": 2,
    "lexsort.axis": 2,
    "searchsorted.axis": 1,
    "tensorsolve.axes": 2,
}
"""How many axes there are to choose from, where it is not the three of a cube: one more for a place between axes."""
ONE_CHOICE = {
    "GatherDimensionNumbers.operand_batching_dims",
    "GatherDimensionNumbers.start_indices_batching_dims",
    "RaggedDotDimensionNumbers.lhs_ragged_dimensions",
    "ScatterDimensionNumbers.scatter_indices_batching_dims",
    "istft.freq_axis",
}
"""Parameters of which the other arguments here leave out the last axis."""
TWICE = {"apply_over_axes.axes", "roll.axis"}
"""Parameters that may name an axis twice, as NumPy's do."""


class Case(NamedTuple):
    """An axis parameter of a public function, and how the function is called with an axis for it."""

    name: str
    call: Call


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """What the public modules offer, once each, and the methods of arrays."""
    seen = set()
    for module in map(importlib.import_module, PUBLIC + DISTRIBUTIONS):
        for name in module.__all__:
            value = getattr(module, name)
            if not callable(value) or inspect.ismodule(value) or id(value) in seen:
                continue
            seen.add(id(value))
            if not (isinstance(value, type) and issubclass(value, (np.generic, Exception))):
                yield name, value
    for name in dir(rlx.Array):
        method = getattr(rlx.Array, name, None)  # a name that arrays lack on purpose has none
        if not name.startswith("_") and callable(method):
            yield f"Array.{name}", method


def axes_of(function: Callable[..., Any]) -> list[str]:
    """The names of the parameters that look like axes."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return []
    return [name for name in parameters if AXIS.fullmatch(name)]


def filled(function: Callable[..., Any], parameter: str) -> Call:
    """A call with ARGUMENTS for what has no default, and an axis for the parameter."""
    required = [
        p
        for p in inspect.signature(function).parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name != parameter
    ]
    unknown = [p.name for p in required if p.name not in ARGUMENTS and p.name != "self"]
    assert not unknown, f"ARGUMENTS or SPECIAL must say what {function} gets for {unknown}"
    values = {p.name: CUBE if p.name == "self" else ARGUMENTS[p.name] for p in required}
    positional = [values.pop(p.name) for p in required if p.kind is p.POSITIONAL_ONLY or p.name == "self"]
    return lambda axis: function(*positional, **values, **{parameter: axis})


def cases() -> Iterator[Case]:
    """Every axis parameter."""
    rest = dict(SPECIAL)
    for name, function in public_functions():
        for parameter in axes_of(function):
            key = f"{name}.{parameter}"
            if parameter in NO_AXES or key in NO_AXES:
                continue
            special = rest.pop(key, None) or SPECIAL.get(key.removeprefix("Array."))
            yield Case(key, special or filled(function, parameter))
    yield from (Case(key, call) for key, call in rest.items())


CASES = list(cases())


def taken(call: Call, values: Any) -> list[Any]:
    """The values that a call takes; the others raise an error of rlx, or TypeError for an int or a tuple as such."""
    found = []
    for value in values:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call(value)
        except (RlxError, TypeError):
            continue
        except ValueError:
            if isinstance(value, tuple):
                continue
            raise
        found.append(value)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_axis_that_is_not_there_is_refused(case: Case) -> None:
    """Ints and tuples of one int: those from -rank to rank - 1 may be taken, no other."""
    rank = RANKS.get(case.name, 3)
    ints = set(taken(case.call, TRIED))
    singles = {axis for (axis,) in taken(case.call, [(axis,) for axis in TRIED])}
    assert ints | singles, "no axis was taken: say in SPECIAL how the function is called"
    assert ints | singles <= set(range(-rank, rank))
    assert rank - 1 in ints | singles or case.name in ONE_CHOICE, "the last axis is there"
    if ints and singles:
        assert ints == singles
    traced = taken(lambda axis: rlx.eval_shape(lambda: case.call(axis)), set(TRIED) - set(range(-rank, rank)))
    assert not traced


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_axis_is_named_once_and_by_an_integer(case: Case) -> None:
    """Where two axes are taken, the same one twice is refused; fractions and texts always are."""
    pairs = taken(case.call, [(0, 1), (1, 2)])
    if pairs and case.name not in TWICE:
        again = [(1, 1), (2, 2), (1, -2)] if case.name not in RANKS else [(1, 1), (2, 2)]
        assert not taken(case.call, again)
    for wrong in (0.5, "0", (0.5,)):
        with pytest.raises((TypeError, ValueError)):
            case.call(wrong)


def test_every_axis_is_looked_at() -> None:
    """The walk finds parameters of functions, of methods, and those that a table adds."""
    names = {case.name for case in CASES}
    assert len(CASES) > 250
    assert {"softmax.axis", "batch_norm.axis", "cross.axisb", "Array.sum.axis", "ufunc.reduce.axis"} <= names
    wrapping = Case("wrapping", lambda axis: CUBE.shape[axis % 3])
    with pytest.raises(AssertionError):
        test_an_axis_that_is_not_there_is_refused(wrapping)
