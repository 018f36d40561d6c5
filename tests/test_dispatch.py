"""Calls of a jitted function find their entry whatever way the arguments are laid out."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
import rlx.numpy as rnp

A = rnp.asarray


def twice(function, *args):
    """The result of the first call, checked against the second, which takes the fast way."""
    first, second = function(*args), function(*args)
    leaves = zip(rlx.tree.leaves(first), rlx.tree.leaves(second), strict=True)
    assert all(np.array_equal(x, y) for x, y in leaves)
    assert rlx.tree.structure(first) == rlx.tree.structure(second)
    return second


def test_the_order_of_keys_does_not_matter():
    f = rlx.jit(lambda d, x: (d["b"] - d["a"]) * x)
    assert float(twice(f, {"b": A(5.0), "a": A(2.0)}, A(2.0))) == 6
    assert float(twice(f, {"a": A(2.0), "b": A(5.0)}, A(2.0))) == 6
    assert f.cache_info().misses == 1


def test_other_keys_are_another_signature():
    f = rlx.jit(lambda d: rlx.tree.map(lambda v: v * 2, d))
    assert set(twice(f, {"a": A(1.0)})) == {"a"}
    assert set(twice(f, {"b": A(1.0)})) == {"b"}
    assert twice(f, {"a": A(1.0), "b": A(3)})["b"].dtype == np.int32
    assert twice(f, {}) == {}
    assert f.cache_info().misses == 4


def test_keys_are_not_mistaken_for_arguments():
    f = rlx.jit(lambda *args: len(rlx.tree.leaves(args[0])) + rnp.float32(0))
    x = A(1.0)
    assert float(twice(f, {"a": x, "b": x})) == 2
    assert float(twice(f, {"a": x}, x)) == 1
    assert float(twice(f, x, {"a": x})) == 1
    assert float(twice(f, {}, x, x)) == 0


@pytest.mark.parametrize(
    "tree",
    [
        {"a": {"b": 1.0}, "c": [2.0]},
        {"a": None, "c": 1.0},
        [(1.0, 2.0), (3.0, 4.0)],
        {"z": 1.0, "y": (2.0, {"x": 3.0, "w": 4.0})},
        {2: 1.0, 1: 5.0},
        (),
    ],
    ids=repr,
)
def test_any_tree(tree):
    f = rlx.jit(lambda t: rlx.tree.map(lambda v: v * 2, t))
    expected = rlx.tree.map(lambda v: v * 2, tree)
    assert rlx.tree.map(float, twice(f, rlx.tree.map(A, tree))) == expected
    assert rlx.tree.map(float, twice(f, tree)) == expected


def test_arrays_and_numbers_alternate():
    f = rlx.jit(lambda d, x: d["a"] + x)
    for a, x in [(A(1.0), A(2.0)), (1.0, A(2.0)), (np.float32(1), 2.0), (A(1.0), 2.0)] * 2:
        assert float(f({"a": a}, x)) == 3


def test_a_donated_array_in_a_dict():
    give = rlx.jit(lambda x: x + 1, donate_argnums=0)
    f = rlx.jit(lambda d: d["a"] + 1)
    x = A(np.ones(3, np.float32))
    f({"a": x})
    give(x)
    with pytest.raises(rlx.errors.DonatedArrayError):
        f({"a": x})


def test_donating_calls_have_the_shorter_way(monkeypatch):
    """From the second call on, with the same errors, and with results that are arguments."""
    f = rlx.jit(lambda x, d: (x + d["b"], d), donate_argnums=(0, 1))

    def arguments():
        return A(np.ones(3, np.float32)), {"b": A(np.full(3, 2.0, np.float32))}

    f(*arguments())
    monkeypatch.setattr(type(f), "_first_call", None)
    x, d = arguments()
    total, same = f(x, d)
    assert x.is_deleted() and total.tolist() == [3, 3, 3] and same["b"].tolist() == [2, 2, 2]
    with pytest.raises(rlx.errors.DonatedArrayError, match="float32"):
        f(x, same)
    y = A(np.ones(3, np.float32))
    with pytest.raises(rlx.errors.DonatedArrayError, match="another argument"):
        f(y, {"b": y})
    assert not y.is_deleted()


def test_arrays_that_do_not_know_their_types_yet(monkeypatch):
    """Views and results of NumPy: the first look at the type makes the key."""
    f = rlx.jit(lambda x, rest: x + rest[0])
    f(A(np.ones(3, np.float32)), [A(np.ones(3, np.float32))])
    monkeypatch.setattr(type(f), "_first_call", None)
    x = A(np.ones(3, np.float32))
    x._type = None
    assert f(x, [x]).tolist() == [2, 2, 2]


def test_static_arguments_and_keywords_have_the_shorter_way(monkeypatch):
    """Values that are equal, but of other types, are other arguments; the order of keywords does not matter."""
    f = rlx.jit(lambda x, n, *, scale=1, y=0: x * n * scale - y, static_argnums=1, static_argnames="scale")
    x, y = A(np.full(2, 3.0, np.float32)), A(np.ones(2, np.float32))
    calls = [((x, 2), {}), ((x, 3), {}), ((x, 2), {"y": y}), ((x, 2), {"scale": 5, "y": y}), ((x, 2.5), {"scale": 1})]
    first = [f(*args, **kwargs).tolist() for args, kwargs in calls]
    assert first == [[6, 6], [9, 9], [5, 5], [29, 29], [7.5, 7.5]]
    monkeypatch.setattr(type(f), "_first_call", None)
    assert [f(*args, **kwargs).tolist() for args, kwargs in calls] == first
    with pytest.raises(TypeError, match="NoneType"):
        f(x, True)


def test_a_keyword_is_not_a_dict():
    f = rlx.jit(lambda x, *rest, static=0, **names: x * (10 if rest else 1 if names else 0), static_argnames="static")
    x = A(2.0)
    for options in ({}, {"static": 1}):
        assert float(twice(lambda x, a, o=options: f(x, {"a": a}, **o), x, x)) == 20
        assert float(twice(lambda x, a, o=options: f(x, a=a, **o), x, x)) == 2


def test_keys_and_arrays_have_one_way(monkeypatch):
    f = rlx.jit(lambda key, d: rlx.random.uniform(key, (2,)) + d["b"] - d["a"])
    key, d = rlx.random.key(1), {"b": A(np.ones(2, np.float32)), "a": A(np.zeros(2, np.float32))}
    first = f(key, d)
    monkeypatch.setattr(type(f), "_first_call", None)
    assert f(key, d).tolist() == first.tolist()
    assert f(rlx.random.key(2), d).tolist() != first.tolist()
