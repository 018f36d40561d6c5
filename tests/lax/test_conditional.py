"""cond and switch against jax."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from control_cases import check, compare

import rlx
from rlx import errors, lax

F = np.float32


@pytest.mark.selected(1)
@pytest.mark.parametrize("x", [-0.4, 0.7])
def test_cond(x):
    def build(lib):
        L = lib.lax
        return lambda x, y: L.cond(L.gt(x, F(0)), lambda a, b: L.sin(L.mul(a, b)), lambda a, b: L.mul(a, a), x, y)

    check(build, F(x), F(0.3))


@pytest.mark.thorough
def test_batched_predicate():
    def build(lib):
        L = lib.lax

        def one(x):
            scale = L.sin(x)
            return L.cond(L.gt(x, F(0)), lambda: L.mul(scale, x), lambda: L.exp(x))

        return lib.vmap(one)

    check(build, np.array([-1.0, 0.5, 2.0], F))


def test_batched_operand_unbatched_predicate():
    def build(lib):
        L = lib.lax

        def choose(p, x):
            return L.cond(p, lambda v: (v, L.sin(v)), lambda v: (L.cos(v), v), x)

        return lib.vmap(choose, in_axes=(None, 0))

    x = np.linspace(-1, 1, 3, dtype=F)
    for p in (True, False):
        compare(build(rlx)(p, x), build(jax)(p, x))


@pytest.mark.parametrize("index", [-3, 0, 1, 2, 9])
def test_switch(index):
    def build(lib):
        L = lib.lax
        branches = [L.sin, lambda v: L.mul(v, v), lambda v: L.exp(v)]
        return lambda i, x: L.switch(i, branches, x)

    x = F(0.4)
    i = np.int32(index)
    for transform in ("jit", None):
        ours, theirs = (build(lib) if transform is None else lib.jit(build(lib)) for lib in (rlx, jax))
        compare(ours(i, x), theirs(i, x))
    compare(rlx.grad(build(rlx), 1)(i, x), jax.grad(build(jax), 1)(i, x))


def test_batched_switch():
    def build(lib):
        L = lib.lax
        branches = [L.sin, lambda v: L.mul(v, v), lambda v: L.exp(v)]
        return lib.vmap(lambda i, x: L.switch(i, branches, x))

    indices = np.array([-5, 0, 1, 2, 7], np.int32)
    x = np.linspace(-1, 1, 5, dtype=F)
    compare(build(rlx)(indices, x), build(jax)(indices, x))


def test_wide_and_narrow_indices():
    branches = [lambda: 10, lambda: 20, lambda: 30]
    function = rlx.jit(lambda i: lax.switch(i, branches))
    for dtype, value, expected in [
        (np.int64, 2**40, 30),
        (np.int64, -(2**40), 10),
        (np.uint8, 1, 20),
        (np.uint64, 2**63, 30),
        (np.int8, -1, 10),
    ]:
        assert int(np.asarray(function(dtype(value)))) == expected


def test_operand_keyword_and_trees():
    result = lax.cond(False, lambda t: t["a"], lambda t: t["b"], operand={"a": F(1), "b": F(2)})
    assert float(np.asarray(result)) == 2.0
    jitted = rlx.jit(lambda p: lax.cond(p, lambda n: (n, 1.0), lambda n: (n, 2.0), operand=None))
    assert jitted(True)[0] is None
    assert float(np.asarray(jitted(False)[1])) == 2.0


def test_captured_values_of_both_branches():
    def build(lib):
        L = lib.lax

        def function(p, x, y):
            a, b = L.sin(x), L.cos(y)
            return L.cond(L.gt(p, F(0)), lambda: L.mul(a, b), lambda: L.add(b, y))

        return function

    check(build, F(1.0), F(0.3), F(0.6))
    check(build, F(-1.0), F(0.3), F(0.6))


def test_weak_results_are_joined():
    jitted = rlx.jit(lambda p, x: lax.cond(p, lambda: x, lambda: 1))
    assert jitted(False, np.float16(3)).dtype == np.float16
    jitted = rlx.jit(lambda p: lax.cond(p, lambda: 2.5, lambda: 1))
    assert float(np.asarray(jitted(True))) == 2.5


@pytest.mark.parametrize("under", [lambda f: f, rlx.jit], ids=["eager", "jit"])
def test_of_one_dtype_the_first_branch_says_whether_it_is_weak(under):
    weak, strong = (lambda x: x), (lambda x: x.astype(x.dtype))  # the first branch of cond is that of False
    x = rlx.numpy.where(True, 2, 1)
    assert under(lambda p: lax.cond(p, strong, weak, x))(True).weak_type
    assert not under(lambda p: lax.cond(p, weak, strong, x))(True).weak_type
    assert under(lambda i: lax.switch(i, [weak, strong], x))(1).weak_type


# ------------------------------------------------------------- errors
def test_result_types_are_named():
    message = r"result\[1\].*int32\[\] from false_fun.*float32\[\] from true_fun"
    with pytest.raises(errors.ControlFlowTypeError, match=message):
        rlx.jit(lambda p: lax.cond(p, lambda: (F(1), F(2)), lambda: (F(1), np.int32(2))))(True)


def test_structures_are_named():
    with pytest.raises(errors.ControlFlowTypeError, match="structure"):
        rlx.jit(lambda p: lax.cond(p, lambda: (F(1),), lambda: F(1)))(True)


def test_shapes_are_named():
    with pytest.raises(errors.ControlFlowTypeError, match="different types"):
        rlx.jit(lambda p, x: lax.cond(p, lambda: x, lambda: F(1)))(True, np.ones(2, F))


def test_predicate_must_be_scalar():
    with pytest.raises(TypeError, match="predicate of type bool"):
        lax.cond(np.array([True, False]), lambda: 1, lambda: 2)


def test_functions_are_functions():
    with pytest.raises(errors.ControlFlowTypeError, match="false_fun"):
        lax.cond(True, lambda: 1, 2)
    with pytest.raises(errors.ControlFlowTypeError, match="no branches"):
        lax.switch(0, [])
    with pytest.raises(errors.ControlFlowTypeError, match="integer scalar"):
        lax.switch(0.5, [lambda: 1])


def test_cond_as_it_was_called_with_two_operands() -> None:
    for p in (True, False):
        assert float(rlx.lax.cond(p, 3.0, lambda x: x + 1, 5.0, lambda y: y - 1)) == 4.0
    assert (
        float(rlx.jit(lambda p, x: rlx.lax.cond(p, x, lambda x: x + 1, (x, x), lambda y: y[0] * y[1]))(False, 3.0))
        == 9.0
    )
