"""Pytrees: structure, maps, paths, registered classes, prefixes; rlx.tree and rlx.tree_util."""

from __future__ import annotations

import dataclasses
import pickle
from collections import OrderedDict, defaultdict, namedtuple
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import rlx
import rlx.tree_util as tree_util
from rlx import tree

Point = namedtuple("Point", "x y")


@tree.register_dataclass
@dataclasses.dataclass(frozen=True)
class Block:
    """A registered dataclass in one line, with a static field."""

    weight: Any
    inner: Any = None
    name: str = dataclasses.field(default="block", metadata={"static": True})


@tree.register_dataclass
@dataclasses.dataclass
class Empty:
    """A node without fields."""


class Box:
    """A registered plain class."""

    def __init__(self, value: Any, label: str) -> None:
        self.value, self.label = value, label


tree.register_node(Box, lambda b: ((b.value,), b.label), lambda label, children: Box(*children, label))

PLAIN = [
    1,
    None,
    (),
    [],
    {},
    (1, [2, {"b": 3, "a": (4, None)}], Point(5, 6)),
    OrderedDict([("z", 1), ("a", 2)]),
    defaultdict(list, {"b": 1, "a": 2}),
    {"c": None, "a": {"y": 1, "x": 2}},
]


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_leaves_are_in_jax_order(value: Any) -> None:
    """Dicts by sorted keys, ordered dicts as they are, None holds nothing."""
    assert tree.leaves(value) == jax.tree.leaves(value)
    leaves, structure = tree.flatten(value)
    assert tree.unflatten(structure, leaves) == value
    assert structure == tree.structure(value)
    assert structure.num_leaves == jax.tree.structure(value).num_leaves


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_map_keeps_the_structure(value: Any) -> None:
    """Of every container, and its type."""
    out = tree.map(lambda x: x * 10, value)
    assert out == jax.tree.map(lambda x: x * 10, value)
    assert type(out) is type(value)


def test_registered_classes() -> None:
    """Fields are children, static ones part of the structure."""
    block = Block(1, Block((2, 3)), name="outer")
    assert tree.leaves(block) == [1, 2, 3]
    doubled = tree.map(lambda x: 2 * x, block)
    assert doubled == Block(2, Block((4, 6)), name="outer")
    assert tree.structure(Block(1)) != tree.structure(Block(1, name="other"))
    assert tree.leaves(Empty()) == [] and tree.map(lambda x: x, Empty()) == Empty()
    box = tree.map(lambda x: x + 1, Box(1, "a"))
    assert (box.value, box.label) == (2, "a")
    assert tree.structure(Box(1, "a")) != tree.structure(Box(1, "b"))


def test_registered_classes_under_every_transform() -> None:
    """jit, grad, vmap and scan take and return them."""
    block = Block(np.arange(3.0), Block(np.ones(3)))

    def loss(b: Block) -> Any:
        return (b.weight * b.inner.weight**2).sum()

    gradient = rlx.jit(rlx.grad(loss))(block)
    assert isinstance(gradient, Block) and gradient.name == "block"
    np.testing.assert_array_equal(gradient.inner.weight, 2 * np.arange(3.0))
    mapped = rlx.vmap(lambda b: Block(b.weight * b.inner.weight))(block)
    np.testing.assert_array_equal(mapped.weight, np.arange(3.0))
    carry, _ = rlx.lax.scan(lambda b, x: (Block(b.weight + x, b.inner), None), block, np.ones(2))
    np.testing.assert_array_equal(carry.weight, np.arange(3.0) + 2)


def test_map_of_several_trees() -> None:
    """Corresponding leaves; a mismatch names the difference."""
    assert tree.map(lambda a, b: a + b, {"x": 1, "y": (2,)}, {"x": 10, "y": (20,)}) == {"x": 11, "y": (22,)}
    with pytest.raises(ValueError, match="key"):
        tree.map(lambda a, b: a, {"x": 1}, {"y": 1})
    assert tree.map(lambda a, b: (a, b), [1, None], [{"k": 2}, None]) == [(1, {"k": 2}), None]


def test_is_leaf() -> None:
    """What the predicate accepts is not entered."""
    value = {"a": (1, 2), "b": None}
    assert tree.leaves(value, is_leaf=lambda x: isinstance(x, tuple)) == [(1, 2)]
    assert tree.leaves(value, is_leaf=lambda x: x is None) == jax.tree.leaves(value, is_leaf=lambda x: x is None)
    assert tree.map(len, {"a": [1, 2]}, is_leaf=lambda x: isinstance(x, list)) == {"a": 2}


def test_reduce_and_all() -> None:
    """As functools.reduce and all, over leaves."""
    assert tree.reduce(lambda a, b: a + b, {"x": 1, "y": (2, 3)}) == 6
    assert tree.reduce(lambda a, b: a + b, {}, 7) == 7
    assert tree.all({"a": True, "b": ()}) and not tree.all([True, (0,)])


def test_transpose() -> None:
    """Lists of dicts to dicts of lists, the inner structure given or found."""
    value = [{"x": 1, "y": 2}, {"x": 3, "y": 4}]
    outer, inner = tree.structure([0, 0]), tree.structure({"x": 0, "y": 0})
    assert tree.transpose(outer, inner, value) == {"x": [1, 3], "y": [2, 4]}
    assert tree.transpose(outer, None, value) == {"x": [1, 3], "y": [2, 4]}


def test_paths() -> None:
    """Each leaf with where it stands, and as text."""
    found = tree.leaves_with_path({"a": [1, Point(2, 3)], "b": Block(4)})
    assert [value for _, value in found] == [1, 2, 3, 4]
    assert tree.path_text(found[0][0]) == "['a'][0]"
    named = tree.map_with_path(lambda path, x: (len(path), x), {"a": {"b": 5}})
    assert named == {"a": {"b": (2, 5)}}


def test_tree_util_has_jax_names() -> None:
    """The functions of jax.tree_util that user code calls."""
    value = {"a": (1, 2), "b": 3}
    leaves, structure = tree_util.tree_flatten(value)
    assert tree_util.tree_unflatten(structure, leaves) == value
    assert tree_util.tree_map(lambda x: -x, value) == {"a": (-1, -2), "b": -3}
    assert tree_util.tree_leaves(value) == [1, 2, 3]
    assert tree_util.tree_structure(value) == structure
    assert tree_util.tree_reduce(lambda a, b: a + b, value) == 6
    assert tree_util.tree_all({"a": True})

    @tree_util.register_pytree_node_class
    class Wrapped:
        def __init__(self, value: Any) -> None:
            self.value = value

        def tree_flatten(self) -> Any:
            return (self.value,), None

        @classmethod
        def tree_unflatten(cls, data: Any, children: Any) -> Any:
            return cls(*children)

    assert tree.map(lambda x: x * 2, Wrapped(3)).value == 6


@pytest.mark.parametrize("value", [*PLAIN, (1,), [()]], ids=repr)
def test_structures_are_described_as_in_jax(value: Any) -> None:
    """Text, data of the root, children, walks, and what composition and pickling give."""
    structure, expected = tree.structure(value), jax.tree.structure(value)
    assert str(structure) == repr(structure) == str(expected)
    assert structure.node_data() == expected.node_data()
    assert [str(c) for c in structure.children()] == [str(c) for c in expected.children()]
    assert structure.num_nodes == expected.num_nodes
    numbers = range(structure.num_leaves)
    visit = lambda found, data: [data, *found]  # noqa: E731
    assert structure.walk(visit, str, numbers) == expected.walk(visit, str, numbers)
    assert structure.walk(visit, None, numbers) == structure.walk(visit, lambda leaf: leaf, numbers)
    inner = (0, {"k": 0})
    composed = structure.compose(tree.structure(inner))
    assert str(composed) == str(expected.compose(jax.tree.structure(inner)))
    again = pickle.loads(pickle.dumps(structure))
    assert again == structure and hash(again) == hash(structure) and again != tree.structure((value, 0))


def test_structures_of_registered_classes_are_described() -> None:
    """By their names and what they keep."""
    assert str(tree.structure([Box(1, "a")])) == "PyTreeDef([CustomNode(Box[a], [*])])"
    assert tree.structure(Block(1)).node_data() == (Block, ("block",))
    assert tree.structure(3) != 3
    with pytest.raises(ValueError, match="2"):
        tree.structure((1, 2)).unflatten([1])


def test_one_level() -> None:
    """Children and data of a node, in JAX's form; leaves have none."""
    for value in ({"b": 1, "a": [2]}, OrderedDict(b=1, a=2), defaultdict(list, b=1), (1, 2), [1], Point(1, 2), None):
        children, data = tree_util.default_registry.flatten_one_level(value)
        expected, expected_data = jax.tree_util.default_registry.flatten_one_level(value)
        assert list(children) == list(expected) and data == expected_data
    assert tree_util.default_registry.flatten_one_level(1) is None
    with pytest.raises(ValueError, match="leaf"):
        tree_util.flatten_one_level(1)
    assert tree_util.default_registry.flatten((1, None))[0] == [1]


def test_dataclass_fields_that_the_constructor_does_not_take_are_named() -> None:
    """They are dropped by name only, as in JAX."""

    @dataclasses.dataclass
    class Counted:
        x: Any
        count: int = dataclasses.field(default=0, init=False)

    with pytest.raises(ValueError, match="count"):
        tree.register_dataclass(Counted)
    tree.register_dataclass(Counted, drop_fields=("count",))
    assert tree.map(lambda x: x + 1, Counted(1)) == Counted(2)


def test_registering_twice_is_refused() -> None:
    """A class has one way to be a tree."""
    with pytest.raises(ValueError, match="registered"):
        tree.register_node(Box, lambda b: ((), None), lambda data, children: Box(0, ""))


def test_arrays_are_leaves() -> None:
    """rlx and NumPy arrays, numbers and unknown objects."""
    value = object()
    assert tree.leaves([rlx.numpy.ones(2), np.ones(2), 1, value])[3] is value
    assert tree.is_leaf_type(rlx.numpy.ones(2)) and not tree.is_leaf_type([1]) and not tree.is_leaf_type(None)


def test_a_named_tuple_can_be_another_node() -> None:
    class Pair(NamedTuple):
        left: float
        name: str

    rlx.tree.register_node(Pair, lambda p: ((p.left,), p.name), lambda name, left: Pair(left[0], name))
    assert rlx.tree.leaves(Pair(1.0, "a")) == [1.0]
    assert rlx.tree.map(lambda x: x + 1, Pair(1.0, "a")) == Pair(2.0, "a")
