"""Shapes, joining, padding, sets, sorting, creation: one table of calls, all compared with jax."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from comparison import agree, draw

import rlx
import rlx.numpy as rnp
from rlx import errors

X = draw((2, 3, 4))
M = draw((4, 4), seed=3)
V = draw((5,), seed=5)
WHOLE = draw((2, 3, 4), "i4")
EMPTY = draw((0, 3))

CALLS: list[tuple[Any, ...]] = [
    ("reshape", X, (4, -1)),
    ("reshape", X, (3, 8), "F"),
    ("reshape", EMPTY, (3, 0)),
    ("ravel", X),
    ("ravel", X, "F"),
    ("transpose", X),
    ("transpose", X, (1, 2, 0)),
    ("permute_dims", X, (2, 0, 1)),
    ("matrix_transpose", X),
    ("swapaxes", X, 0, -1),
    ("moveaxis", X, (0, 1), (-1, 0)),
    ("moveaxis", X, 2, 0),
    ("rollaxis", X, 2),
    ("rollaxis", X, 0, 3),
    ("expand_dims", X, (0, -1)),
    ("squeeze", X[None, :, :1]),
    ("squeeze", X[None], 0),
    ("broadcast_to", V, (2, 1, 5)),
    ("broadcast_arrays", V, X[..., :1]),
    ("atleast_1d", np.float32(1)),
    ("atleast_2d", V),
    ("atleast_3d", V),
    ("atleast_3d", M),
    ("flip", X),
    ("flip", X, (0, 2)),
    ("fliplr", X),
    ("flipud", X),
    ("rot90", M),
    ("rot90", X, 3, (2, 0)),
    ("rot90", X, 2),
    ("roll", X, 5),
    ("roll", X, (1, -2), (0, 2)),
    ("roll", X, 1, (0, 1)),
    ("tile", X, (2, 1, 1, 3)),
    ("tile", V, 0),
    ("repeat", X, 3),
    ("repeat", X, 2, 1),
    ("repeat", V, np.array([0, 1, 2, 0, 3]), 0),
    ("concatenate", [X, WHOLE], 1),
    ("concatenate", [X, EMPTY.reshape(2, 0, 4)], 1),
    ("concatenate", [X, V], None),
    ("stack", [V, V], -1),
    ("vstack", [V, V]),
    ("hstack", [V, V]),
    ("dstack", [M, M]),
    ("column_stack", [V, V]),
    ("block", [[M, M], [M, M]]),
    ("append", V, 3.0),
    ("append", M, M, 0),
    ("split", X, 3, 1),
    ("split", X, [1, 3], -1),
    ("array_split", V, 3),
    ("hsplit", M, 2),
    ("vsplit", M, [1]),
    ("dsplit", X, 2),
    ("unstack", X),
    ("resize", X, (5, 7)),
    ("resize", X, 3),
    ("delete", X, 1, 2),
    ("delete", V, np.array([0, 3])),
    ("delete", V, slice(None, None, 2)),
    ("insert", V, 2, 9.0),
    ("insert", V, np.array([0, 3]), np.array([7.0, 8.0])),
    ("insert", M, 1, V[:4], 0),
    ("insert", M, 1, V[:4], 1),
    ("insert", M, np.array([0, 4]), 5.0, 1),
    ("trim_zeros", np.array([0, 0, 1, 0, 2, 0])),
    ("take", X, np.array([[0, -1], [2, 1]]), 1),
    ("take", X, np.array([7, 30, -1])),
    ("take", X, np.array([5, -7]), 2, None, "clip"),
    ("take", X, np.array([5, -7]), 2, None, "wrap"),
    ("take", X, 1, 0),
    ("take_along_axis", X, np.argsort(X, 1), 1),
    ("take_along_axis", X, np.array([[[3, 9]]]), 2),
    ("take_along_axis", X, np.array([3, -9, 23]), None),
    ("diag", V, 1),
    ("diag", V, -2),
    ("diag", M, 1),
    ("diagflat", M, -1),
    ("diagonal", X, 1, 2, 1),
    ("diagonal", X, -1),
    ("diagonal", X, 9),
    ("trace", X, 0, 1, 2),
    ("tril", X, -1),
    ("triu", X, 1),
    ("triu", EMPTY),
    ("vander", V),
    ("vander", np.array([1, 2, 3]), 2, True),
    ("meshgrid", V, np.arange(3)),
    ("ix_", np.array([1, 2]), np.array([0, 1, 3])),
    ("unravel_index", np.array([0, 5, 23, -1]), (2, 3, 4)),
    ("sort", X),
    ("sort", X, 0),
    ("sort", X, None),
    ("sort", np.array([2.0, np.nan, -np.inf, -0.0, 0.0])),
    ("sort", draw((6,), "c8")),
    ("sort", draw((6,), "?")),
    ("argsort", X, 1),
    ("argsort", np.array([1, 0, 1, 0, 2])),
    ("lexsort", (np.array([1, 0, 1, 0]), np.array([1, 1, 0, 0]))),
    ("sort_complex", WHOLE),
    ("unravel_index", np.array(7), (2, 4)),
    ("ravel_multi_index", (np.array([0, 1]), np.array([2, 5])), (2, 4), "clip"),
    ("ravel_multi_index", (np.array([0, 1]), np.array([2, 5])), (2, 4), "wrap"),
    ("isin", WHOLE, np.array([1, 2])),
    ("convolve", V, draw((3,))),
    ("convolve", draw((3,)), V, "same"),
    ("convolve", draw((2,), "i4"), np.array([1, 2, 3]), "valid"),
    ("correlate", V, draw((3,), "c8"), "full"),
    ("correlate", draw((3,)), V, "same"),
    ("correlate", V, draw((2,))),
    ("polyval", np.array([1.0, 2.0, 3.0]), X),
    ("polyadd", V, draw((3,))),
    ("polysub", draw((2,)), V),
    ("polymul", V, draw((3,))),
    ("polyder", V, 2),
    ("polyint", V, 2),
    ("polydiv", draw((5,), "f8", 1), np.array([1.0, 2.0])),
    ("poly", V),
    ("array_equal", V, V),
    ("array_equal", V, M),
    ("array_equiv", V, np.stack([V, V])),
    ("allclose", V, V + 1e-9),
    ("fill_diagonal", M, 3.0),
    ("cross", draw((2, 3)), draw((3,))),
    ("cross", draw((2, 3)), draw((2,))),
    ("cross", draw((4, 2)), draw((4, 2), seed=2)),
    ("put_along_axis", X, np.argmax(X, 1)[:, None], 9.0, 1),
    ("put", V, np.array([0, 3]), np.array([7.0], "f4")),
    ("place", V, V > 0, np.array([7.0, 8.0], "f4")),
    ("extract", V > 0, V),
    ("compress", np.array([True, False, True]), X, 1),
    ("apply_along_axis", np.cumsum, 1, X),
]
OPTIONS: dict[str, dict[str, Any]] = {
    "fill_diagonal": {"inplace": False},
    "put_along_axis": {"inplace": False},
    "put": {"inplace": False},
    "place": {"inplace": False},
}
UNTRACED = {"repeat", "delete", "insert", "trim_zeros", "extract", "compress", "meshgrid", "ix_"}
# rlx takes NumPy scalars as 0-d arrays; jax's own corner cases
LOOSE = {"atleast_1d"}


@pytest.mark.parametrize("call", CALLS, ids=lambda c: c[0])
def test_calls(call: tuple[Any, ...]) -> None:
    """Each call gives what jax gives, traced too."""
    name, *args = call
    if name == "apply_along_axis":
        found = rnp.apply_along_axis(rnp.cumsum, 1, X)
        np.testing.assert_allclose(found, np.cumsum(X, 1), 1e-6)
        return
    agree(name, *args, traced=name not in UNTRACED, weak=name not in LOOSE, **OPTIONS.get(name, {}))


CREATIONS: list[tuple[Any, ...]] = [
    ("zeros", (2, 3)),
    ("ones", 3, "int8"),
    ("full", (2,), 7),
    ("full", (2,), 1.5, "int32"),
    ("full_like", X, 2),
    ("zeros_like", WHOLE),
    ("ones_like", X, "bool"),
    ("empty_like", X, None, (0, 2)),
    ("arange", 5),
    ("arange", 1.0, 2.0, 0.25),
    ("arange", 5, 1, -2),
    ("arange", 3, None, None, "float32"),
    ("arange", 0, 0),
    ("linspace", 0, 1, 7),
    ("linspace", 0, 1, 7, False),
    ("linspace", 2.0, -3.0, 4, True, True),
    ("linspace", 0, 10, 5, True, False, "int32"),
    ("linspace", V, V * 2, 3, True, False, None, 1),
    ("linspace", 0.0, 1.0, 1),
    ("linspace", 0.0, 1.0, 0),
    ("logspace", 0, 2, 5),
    ("logspace", 0, 3, 4, True, 2.0),
    ("geomspace", 1, 1000, 4),
    ("geomspace", -1.0, -8.0, 4),
    ("eye", 3),
    ("eye", 3, 4, 1, "int32"),
    ("identity", 2),
    ("tri", 3, 4, 1, "int32"),
    ("indices", (2, 3)),
    ("tril_indices", 3, 1),
    ("triu_indices", 3, -1, 4),
    ("diag_indices", 3),
    ("array", [[1, 2], [3, 4]]),
    ("array", [1, 2.5]),
    ("array", [True, False]),
    ("array", [1j, 2]),
    ("array", 3),
    ("array", 2.5),
    ("array", [np.float32(1), np.float32(2)]),
    ("array", [[], []]),
    ("array", [1, 2], "float32"),
    ("asarray", 1, "int8"),
    ("blackman", 6),
    ("hamming", 5),
    ("hanning", 5),
    ("bartlett", 6),
    ("kaiser", 6, 14.0),
    ("broadcast_shapes", (2, 1), (3,)),
    ("iscomplexobj", X),
    ("result_type", "int32", 1.5),
]


@pytest.mark.parametrize("call", CREATIONS, ids=lambda c: c[0])
def test_creation(call: tuple[Any, ...]) -> None:
    """Each creation gives what jax gives."""
    name, *args = call
    agree(name, *args, weak=name != "array")


PAD_CASES: list[tuple[Any, dict[str, Any]]] = [
    ("constant", {"constant_values": 3.0}),
    ("constant", {"constant_values": ((1.0, 2.0), (3.0, 4.0))}),
    ("edge", {}),
    ("linear_ramp", {"end_values": 5.0}),
    ("maximum", {}),
    ("minimum", {"stat_length": 2}),
    ("mean", {}),
    ("median", {}),
    ("reflect", {}),
    ("reflect", {"reflect_type": "odd"}),
    ("symmetric", {}),
    ("symmetric", {"reflect_type": "odd"}),
    ("wrap", {}),
]


@pytest.mark.parametrize("case", PAD_CASES, ids=lambda c: c[0])
def test_padding(case: tuple[str, dict[str, Any]]) -> None:
    """All modes, widths larger than the array."""
    mode, options = case
    for width in (1, (2, 3), ((5, 0), (1, 9))):
        agree("pad", draw((3, 4), "f8"), width, mode=mode, **options)
    if mode not in ("constant", "linear_ramp"):
        agree("pad", draw((5,), "i4"), (3, 2), mode=mode, **options)


@pytest.mark.selected(1)
@pytest.mark.parametrize("size", [None, 2, 6])
def test_sets(size: int | None) -> None:
    """unique and set operations, concrete and with a static size."""
    x, y = np.array([3, 1, 3, 2, 1]), np.array([2, 5, 3, 5])
    traced = size is not None
    agree("unique", x, True, True, True, size=size, traced=traced)
    agree("unique", np.array([[1, 2], [0, 2], [1, 2]]), True, True, True, axis=0, size=size, traced=traced)
    agree("unique", np.array([1.0, np.nan, 1.0, np.nan]), size=size, traced=traced)
    for name in ("union1d", "setdiff1d", "intersect1d", "setxor1d"):
        agree(name, x, y, traced=False)
    if size is not None:
        agree("unique", x, size=size, fill_value=-7)
        agree("union1d", x, y, size=size)
        agree("nonzero", x - 3, size=size, fill_value=9)
        agree("argwhere", np.array([[0, 1], [1, 0]]), size=size)
        agree("flatnonzero", x - 1, size=size)


def test_traced_repeats_and_shifts() -> None:
    """What needs a static length under jit takes it."""
    agree("repeat", V, np.array([0, 1, 2, 0, 3]), total_repeat_length=8)
    agree("repeat", V, np.array([0, 1, 2, 0, 3]), total_repeat_length=4)
    agree("roll", V, np.int64(3))
    agree("roll", X, np.int64(-1), axis=1)


def test_mistakes_are_explained() -> None:
    """Errors name shapes and axes."""
    x = rnp.ones((2, 3))
    with pytest.raises(errors.ShapeError, match=r"\(2, 3\).*\(4, -1\)"):
        rnp.reshape(x, (4, -1))
    with pytest.raises(errors.ShapeError, match="axis 5"):
        rnp.sum(x, axis=5)
    with pytest.raises(errors.ShapeError, match="array_split"):
        rnp.split(x, 2, 1)
    with pytest.raises(errors.ShapeError, match="different shapes"):
        rnp.stack([x, rnp.ones(3)])
    with pytest.raises(errors.InputTypeError, match="sequence"):
        rnp.concatenate(3)
    with pytest.raises(errors.DtypeError, match="does not fit int8"):
        rnp.int8(1) + 300


def test_lists_that_hold_arrays_keep_their_derivatives() -> None:
    """Joining nested lists is no detour through NumPy."""
    for join in (rlx.grad, lambda f: rlx.jit(rlx.grad(f))):
        assert float(join(lambda x: rnp.sum(rnp.concatenate([[x, 2 * x], [x]])))(2.0)) == 4.0
        assert float(join(lambda x: rnp.sum(rnp.vstack([[[x, 1.0]], [[x, x]]])))(2.0)) == 3.0


@pytest.mark.parametrize("function", [rnp.tril, rnp.triu, rnp.linalg.inv])
def test_functions_of_stacks_run_where_ranks_may_not_be_promoted(function: Any) -> None:
    """What they broadcast themselves is theirs."""
    x = np.eye(3) + draw((2, 3, 3), "f8")
    with rlx.numpy_rank_promotion("raise"):
        found = function(x)
    np.testing.assert_array_equal(found, function(x))


def test_a_shape_in_an_array_may_leave_one_size_open():
    for shape in (np.array([-1, 3]), rnp.array([-1, 3])):
        assert rnp.reshape(rnp.ones((2, 3, 2)), shape).shape == (4, 3)
    with pytest.raises(errors.ShapeError, match="Sizes"):
        rnp.reshape(rnp.ones(4), np.array([-2, 2]))
