"""Keys, paths, broadcasting, registration and raveling of trees, as jax does them."""

from __future__ import annotations

import collections
import dataclasses
import functools
import pickle
from typing import Any

import jax
import jax.flatten_util
import numpy as np
import pytest

import rlx
from rlx import tree_util as ours
from rlx.flatten_util import ravel_pytree

theirs = jax.tree_util
Point = collections.namedtuple("Point", "x y")
VALUE: Any = {"b": [1, (2, None)], "a": Point(3, collections.OrderedDict(z=4, y=5)), "c": 6}


def texts(found: Any) -> list[tuple[str, Any]]:
    return [("".join(map(str, path)), leaf) for path, leaf in found]


def test_paths_are_jax_paths() -> None:
    assert texts(ours.tree_leaves_with_path(VALUE)) == texts(theirs.tree_leaves_with_path(VALUE))
    for path, leaf in ours.tree_leaves_with_path(VALUE):
        (other,) = [p for p, x in theirs.tree_leaves_with_path(VALUE) if x == leaf]
        assert [type(k).__name__ for k in path] == [type(k).__name__ for k in other]
        assert ours.keystr(path) == theirs.keystr(other)
        assert ours.keystr(path, simple=True, separator="/") == theirs.keystr(other, simple=True, separator="/")
        assert pickle.loads(pickle.dumps(path)) == path


def test_is_leaf_with_path() -> None:
    stop = lambda path, x: len(path) == 2  # noqa: E731
    a = ours.tree_leaves_with_path(VALUE, is_leaf=stop, is_leaf_takes_path=True)
    b = theirs.tree_leaves_with_path(VALUE, is_leaf=stop, is_leaf_takes_path=True)
    assert texts(a) == texts(b)
    named = ours.tree_map_with_path(lambda path, x, y: (ours.keystr(path), x, y), [1, {"k": 2}], [3, {"k": 4}])
    assert named == [("[0]", 1, 3), {"k": ("[1]['k']", 2, 4)}]


def test_reductions_and_broadcasts() -> None:
    assert ours.tree_reduce(lambda a, b: a + b, [1, (2,)], 10) == 13
    assert ours.tree_reduce_associative(lambda a, b: a + b, ["a", "b", "c", "d", "e"]) == "abcde"
    assert ours.tree_reduce_associative(max, [], identity=7) == 7
    with pytest.raises(TypeError, match="identity"):
        ours.tree_reduce_associative(max, [])
    assert ours.tree_broadcast((1, 2), ((0, [0]), {"k": 0})) == ((1, [1]), {"k": 2})
    with pytest.raises(ValueError):
        ours.tree_broadcast((1, 2), (0, 0, 0))
    assert ours.all_leaves([1, "a"]) and not ours.all_leaves([1, ()])


def test_registration_with_keys_and_statically() -> None:
    class Box:
        def __init__(self, x: Any, y: Any) -> None:
            self.x, self.y = x, y

    pairs = lambda b: ([("first", b.x), (ours.GetAttrKey("y"), b.y)], "data")  # noqa: E731
    ours.register_pytree_with_keys(Box, pairs, lambda _, c: Box(*c))
    assert [path for path, _ in ours.tree_leaves_with_path([Box(1, 2)])] == [
        (ours.SequenceKey(0), "first"),
        (ours.SequenceKey(0), ours.GetAttrKey("y")),
    ]
    assert ours.tree_map(lambda v: v + 1, Box(1, 2)).y == 3

    @ours.register_static
    class Mode(str):
        pass

    assert ours.tree_leaves([Mode("train"), 1]) == [1]
    assert ours.tree_structure(Mode("train")) != ours.tree_structure(Mode("test"))
    assert ours.is_tree_node(Mode) and ours.is_tree_node(Point) and not ours.is_tree_node(int)


def test_dataclasses() -> None:
    @ours.register_dataclass
    @dataclasses.dataclass
    class Layer:
        w: Any
        name: str = rlx.tree.static(default="dense", metadata={"note": 1})

    found = ours.tree_leaves_with_path(Layer(1.0))
    assert [(ours.keystr(path), x) for path, x in found] == [(".w", 1.0)]
    assert ours.tree_map(lambda x: 2 * x, Layer(1.0, "b")) == Layer(2.0, "b")

    @dataclasses.dataclass
    class Loose:
        x: int
        y: int = 0

    for arguments in (["x"], []), (["x", "y"], ["y"]), (["x"], ["y", "z"]):
        with pytest.raises(ValueError):
            ours.register_dataclass(Loose, *arguments)
    with pytest.raises(TypeError):
        ours.register_dataclass(int)
    assert ours.tree_leaves(ours.register_dataclass(Loose, ["x"], [], drop_fields=["y"])(5, 6)) == [5]


def test_one_level_and_structures() -> None:
    assert ours.flatten_one_level({"b": 1, "a": (2, 3)})[0] == [(2, 3), 1]
    with pytest.raises(ValueError, match="leaf"):
        ours.flatten_one_level(3)
    structure = ours.tree_structure((1, [2]))
    assert ours.treedef_tuple(ours.treedef_children(structure)) == structure
    assert ours.treedef_is_leaf(ours.tree_structure(1)) and not ours.treedef_is_leaf(structure)


def test_partials_keep_each_other_apart() -> None:
    inner = functools.partial(max, 2)
    assert ours.Partial(inner, 3).args == (3,) and ours.Partial(inner, 3)() == 3
    assert ours.tree_structure(ours.Partial(inner, 3)) == ours.tree_structure(ours.Partial(inner, 4))


CASES: list[Any] = [
    {"a": np.float32(1), "b": np.arange(6, dtype=np.float32).reshape(2, 3)},
    [np.arange(3, dtype=np.int32), np.float32(2.5)],
    (np.array([True]), np.array([3], np.int32)),
    [np.zeros((0, 2), np.float32), np.complex64(1j)],
    (),
]


@pytest.mark.parametrize("value", CASES)
def test_ravel_pytree(value: Any) -> None:
    with jax.enable_x64(False):
        flat, unravel = ravel_pytree(value)
        expected, _ = jax.flatten_util.ravel_pytree(value)
    assert flat.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(flat), np.asarray(expected))
    for x, y in zip(rlx.tree.leaves(unravel(flat)), rlx.tree.leaves(value), strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        np.testing.assert_array_equal(np.asarray(x), y)
    assert ravel_pytree(value)[1] == unravel and hash(unravel) == hash(ravel_pytree(value)[1])
    with pytest.raises(rlx.errors.ShapeError):
        unravel(np.zeros(flat.size + 1, flat.dtype))


def test_ravel_pytree_is_differentiable_and_checks_dtypes() -> None:
    value = {"a": np.array([1.0, 2.0]), "b": 3.0}
    flat, unravel = ravel_pytree(value)
    slope = rlx.jit(rlx.grad(lambda v: (unravel(v)["a"] ** 2).sum() * unravel(v)["b"]))(flat)
    np.testing.assert_allclose(np.asarray(slope), [6, 12, 5], rtol=1e-6)
    _, mixed = ravel_pytree([np.float32(1), np.int32(2)])
    with pytest.raises(rlx.errors.DtypeError):
        mixed(np.zeros(2, np.float64))
