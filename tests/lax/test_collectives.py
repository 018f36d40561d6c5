"""Collectives under vmap with an axis name, against jax."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from control_cases import compare

import rlx
from rlx import errors, lax

F = np.float32
X = np.linspace(-1, 2, 12, dtype=F).reshape(4, 3)
SQUARE = np.linspace(-1, 1, 32, dtype=F).reshape(4, 4, 2)


def mapped(function, *args, gradient=True):
    """Compare vmap of function(lax, ...) with axis name "i", its gradient inside and outside."""

    def build(lib):
        one = lambda *xs: function(lib.lax, *xs)  # noqa: E731
        total = lambda *xs: lib.lax.reduce_sum(one(*xs), tuple(range(one_rank)))  # noqa: E731
        out = lib.vmap(one, axis_name="i")(*args)
        one_rank = out.ndim - 1
        found = [out, lib.jit(lib.vmap(one, axis_name="i"))(*args)]
        if gradient:
            found.append(lib.vmap(lib.grad(total), axis_name="i")(*args))
            every = tuple(range(out.ndim))
            outside = lib.vmap(one, axis_name="i")
            found.append(lib.grad(lambda *xs: lib.lax.reduce_sum(lib.lax.sin(outside(*xs)), every))(*args))
        return found

    compare(build(rlx), build(jax))


CASES = {
    "psum": lambda L, x: L.psum(L.mul(x, x), "i"),
    "psum of psum": lambda L, x: L.mul(x, L.psum(L.sin(x), "i")),
    "pmean": lambda L, x: L.mul(x, L.pmean(x, "i")),
    "all_gather": lambda L, x: L.mul(L.all_gather(L.sin(x), "i"), np.arange(12, dtype=F).reshape(4, 3)),
    "all_gather axis": lambda L, x: L.all_gather(x, "i", axis=1),
    "all_gather tiled": lambda L, x: L.sin(L.all_gather(x, "i", tiled=True)),
    "ppermute": lambda L, x: L.ppermute(L.sin(x), "i", [(0, 1), (1, 2), (2, 3), (3, 0)]),
    "pshuffle": lambda L, x: L.pshuffle(L.sin(x), "i", [2, 0, 3, 1]),
    "axis_index": lambda L, x: L.mul(x, L.convert_element_type(L.axis_index("i"), "float32")),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.selected(1)
def test_collective(name):
    mapped(CASES[name], X)


@pytest.mark.parametrize(("split", "concat"), [(0, 0), (0, 1)])
@pytest.mark.parametrize("tiled", [False, True])
def test_all_to_all(split, concat, tiled):
    mapped(lambda L, x: L.all_to_all(L.sin(x), "i", split, concat, tiled=tiled), SQUARE, gradient=False)


def test_all_to_all_gradient():
    """jax cannot differentiate it; along axis 0 it swaps the mapped axis and that one."""
    weights = np.cos(np.arange(32, dtype=F)).reshape(SQUARE.shape)
    ours = rlx.vmap(lambda x: lax.all_to_all(lax.sin(x), "i", 0, 0), axis_name="i")
    gradient = rlx.grad(lambda x: (ours(x) * weights).sum())(SQUARE)
    compare(gradient, np.cos(SQUARE) * weights.swapaxes(0, 1))


def test_partial_permutation():
    send = rlx.vmap(lambda x: lax.ppermute(lax.sin(x), "i", [(0, 1), (3, 0)]), axis_name="i")
    compare(send(X), np.stack([np.sin(X[3]), np.sin(X[0]), 0 * X[0], 0 * X[0]]))
    gradient = rlx.grad(lambda x: send(x).sum())(X)
    compare(gradient, np.stack([np.cos(X[0]), 0 * X[0], 0 * X[0], np.cos(X[3])]))


def test_psum_scatter():
    mapped(lambda L, x: L.psum_scatter(L.sin(x), "i"), SQUARE)
    mapped(lambda L, x: L.psum_scatter(L.sin(x), "i", tiled=True), SQUARE)


def test_extrema():
    mapped(lambda L, x: L.pmax(x, "i"), X, gradient=False)
    mapped(lambda L, x: L.pmin(x, "i"), X, gradient=False)
    gradient = rlx.grad(lambda x: rlx.vmap(lambda r: lax.pmax(r, "i"), axis_name="i")(x).sum())(X)
    expected = np.zeros_like(X)
    expected[3] = 4  # every member's result depends on the last row
    np.testing.assert_array_equal(np.asarray(gradient), expected)


def test_numbers_and_integers():
    out = rlx.vmap(lambda x: (lax.psum(1, "i"), lax.psum(x, "i"), lax.psum(x > 1, "i")), axis_name="i")(np.arange(4))
    assert [np.asarray(o).tolist() for o in out] == [[4] * 4, [6] * 4, [2] * 4]
    assert rlx.vmap(lambda x: x + isinstance(lax.psum(1, "i"), int), axis_name="i")(np.arange(2)).tolist() == [1, 2]


def test_several_axes():
    def build(lib):
        L = lib.lax

        def one(x):
            both = L.psum(x, ("i", "j"))
            return L.div(L.sub(x, L.pmean(x, "j")), both), L.axis_index(("i", "j"))

        return lib.vmap(lib.vmap(one, axis_name="j"), axis_name="i")

    compare(build(rlx)(X), build(jax)(X))


def test_unmapped_operands():
    def build(lib):
        L = lib.lax
        return lib.vmap(lambda x, c: L.add(L.psum(c, "i"), L.add(x, L.pmax(c, "i"))), in_axes=(0, None), axis_name="i")

    compare(build(rlx)(X[:, 0], F(2)), build(jax)(X[:, 0], F(2)))


def test_inside_control_flow_and_jit():
    def build(lib):
        L = lib.lax

        @lib.jit
        def normalise(x):
            return L.sub(x, L.pmean(x, "i"))

        def one(x):
            return L.scan(lambda c, _: (normalise(L.sin(c)), None), x, None, length=3)[0]

        return lib.vmap(one, axis_name="i")

    compare(build(rlx)(X), build(jax)(X))


def test_unknown_axis():
    with pytest.raises(errors.VmapAxisError, match="'nowhere'"):
        lax.psum(F(1), "nowhere")
    with pytest.raises(errors.VmapAxisError, match="'j'"):
        rlx.vmap(lambda x: lax.axis_index("j"), axis_name="i")(X)


def test_bad_permutations():
    with pytest.raises(errors.ShardingError, match="at most once"):
        rlx.vmap(lambda x: lax.ppermute(x, "i", [(0, 1), (0, 2)]), axis_name="i")(X)
