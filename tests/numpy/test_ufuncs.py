"""ufuncs: reduce, accumulate, at, outer, reduceat against NumPy; frompyfunc; what they refuse."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from comparison import draw

import rlx
import rlx.numpy as rnp
from rlx import errors

ARITHMETIC = ["add", "multiply", "subtract", "maximum", "minimum", "logaddexp", "logaddexp2"]
LOGICAL = ["logical_and", "logical_or", "logical_xor"]
BITWISE = ["bitwise_and", "bitwise_or", "bitwise_xor"]
BINARY = [*ARITHMETIC, *LOGICAL, *BITWISE]
WAYS = [lambda f: f, rlx.jit]


def operands(name: str) -> np.ndarray:
    """An array that the function takes."""
    return draw((3, 4, 5), "i4" if name in BITWISE else "f4", -5, 9)


def close(found: Any, expected: Any) -> None:
    """Equal shapes and values, up to rounding."""
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", BINARY)
def test_reduce(name: str) -> None:
    """Along axes, keeping them, with an initial value and a mask."""
    ours, theirs, x = getattr(rnp, name), getattr(np, name), operands(name)
    mask = draw(x.shape, "?")
    axes = (0, 1, -1) if name == "subtract" else (0, 1, -1, None, (0, 2))
    for axis in axes:
        for options in ({}, {"keepdims": True}, {"initial": 2}, {"initial": 2, "where": mask}):
            close(ours.reduce(x, axis=axis, **options), theirs.reduce(x, axis=axis, **options))
    close(rlx.jit(ours.reduce)(x), theirs.reduce(x))


@pytest.mark.parametrize("way", WAYS, ids=["eager", "jit"])
@pytest.mark.parametrize("name", BINARY)
def test_accumulate_and_reduceat(name: str, way: Any) -> None:
    """Running values, and pieces between known and traced indices."""
    ours, theirs, x = getattr(rnp, name), getattr(np, name), operands(name)
    places = np.array([0, 2, 1, 3, 3])
    close(way(lambda x: ours.accumulate(x, axis=1))(x), theirs.accumulate(x, axis=1))
    close(way(lambda x: ours.reduceat(x, places, axis=1))(x), theirs.reduceat(x, places, axis=1))
    close(way(lambda x, i: ours.reduceat(x, i, axis=-2))(x, places), theirs.reduceat(x, places, axis=1))


@pytest.mark.parametrize("way", WAYS, ids=["eager", "jit"])
@pytest.mark.parametrize("name", BINARY)
def test_at_and_outer(name: str, way: Any) -> None:
    """Once for each time that a place is named."""
    ours, theirs, x = getattr(rnp, name), getattr(np, name), operands(name)[0]
    places = np.array([0, 1, 1, -1, 3])
    expected = x.copy()
    theirs.at(expected, places, np.asarray(2, x.dtype))
    close(way(lambda x: ours.at(x, places, 2, inplace=False))(x), expected)
    close(way(ours.outer)(x, x[0]), theirs.outer(x, x[0]))


def test_unary_at() -> None:
    """negative.at turns signs as often as a place is named."""
    x = draw((4,))
    expected = x.copy()
    np.negative.at(expected, [0, 1, 1])
    close(rnp.negative.at(x, np.array([0, 1, 1]), inplace=False), expected)


def test_no_elements() -> None:
    """The identity, or an error where there is none."""
    empty = np.zeros((0, 2), "f4")
    assert rnp.add.reduce(empty).tolist() == [0, 0] and rnp.multiply.reduce(empty).tolist() == [1, 1]
    assert rnp.logaddexp.reduce(empty).tolist() == [-np.inf, -np.inf]
    assert rnp.subtract.accumulate(empty).shape == (0, 2)
    with pytest.raises(ValueError, match="no identity"):
        rnp.subtract.reduce(empty)
    with pytest.raises(ValueError, match="without elements"):
        rnp.maximum.reduce(empty)


def test_logaddexp_reduce_at_infinity() -> None:
    """Infinite elements, and a gradient that is a softmax."""
    x = np.array([-np.inf, -np.inf, 1.0], "f4")
    assert rnp.logaddexp.reduce(x).item() == 1.0
    assert rnp.logaddexp.reduce(x[:2]).item() == -np.inf
    slope = rlx.grad(lambda x: rnp.logaddexp.reduce(x))(rnp.array([1.0, 2.0]))
    close(slope, np.exp([1, 2]) / np.exp([1, 2]).sum())


def test_frompyfunc() -> None:
    """A function of scalars broadcasts, reduces, batches and has derivatives."""

    def scalar(x: Any, y: Any) -> Any:
        assert x.shape == y.shape == ()
        return x * y + 1

    made = rnp.frompyfunc(scalar, 2, 1, identity=0)
    assert (made.nin, made.nout, made.nargs, made.identity, made.__name__) == (2, 1, 2, 0, "scalar")
    assert made(np.ones((2, 1), "f4"), np.ones(3, "f4")).tolist() == [[2, 2, 2]] * 2
    assert made(np.ones((0, 2), "f4"), 1.0).shape == (0, 2)
    x = draw((3, 4))
    expected = ((x[0] * 0 + 1) * x[1] + 1) * x[2] + 1
    close(made.reduce(x), ((0 * x[0] + 1) * x[1] + 1) * x[2] + 1)
    close(rlx.vmap(made.reduce)(x.T), expected)
    close(rlx.grad(lambda x: made.reduce(x).sum())(x)[2], (0 * x[0] + 1) * x[1] + 1)
    two = rnp.frompyfunc(lambda x: (x, -x), 1, 2)
    assert [v.tolist() for v in two(np.arange(2))] == [[0, 1], [0, -1]]


def test_ufuncs_are_values() -> None:
    """Copied, pickled, compared, and static in jit."""
    assert isinstance(rnp.add, rnp.ufunc) and repr(rnp.add) == "<rlx.numpy.ufunc 'add'>"
    assert pickle.loads(pickle.dumps(rnp.add)) is rnp.add and copy.deepcopy(rnp.add) is rnp.add
    assert rnp.add != rnp.subtract and hash(rnp.add) == hash(rnp.add)
    assert rlx.jit(lambda f, x: f.reduce(x), static_argnums=0)(rnp.add, np.arange(4)).item() == 6
    with pytest.raises(AttributeError):
        rnp.add.nin = 3


def test_what_ufuncs_refuse() -> None:
    """Wrong numbers of operands, places outside, writing in place."""
    x = np.arange(4)
    one = rnp.frompyfunc(lambda x: -x, 1, 1)
    for refused in (lambda: one.reduce(x), lambda: one.accumulate(x), lambda: one.outer(x, x)):
        with pytest.raises(ValueError, match="two operands"):
            refused()
    with pytest.raises(ValueError, match="operand"):
        rnp.negative.at(x, [0], 1, inplace=False)
    with pytest.raises(errors.UnsupportedError, match="inplace=False"):
        rnp.add.at(x, [0], 1)
    with pytest.raises(IndexError, match="out of bounds"):
        rnp.add.reduceat(x, [4])
    with pytest.raises(errors.ShapeError, match="1-d"):
        rnp.add.reduceat(x, [[0]])
    with pytest.raises(errors.DtypeError, match="mask"):
        rnp.add.reduce(x, where=x)
    with pytest.raises(ValueError, match="initial="):
        rnp.subtract.reduce(x, where=x > 1)
