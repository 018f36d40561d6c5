"""scan, map, associative_scan against jax: values, derivatives, batching."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from control_cases import check, check_forward_only, compare

import rlx
from rlx import errors, lax

F = np.float32


@pytest.mark.thorough
def test_carry_and_results():
    def build(lib):
        L = lib.lax
        return lambda c, xs: L.scan(lambda c, x: (L.add(L.sin(c), x), L.mul(c, x)), c, xs)

    check(build, F(0.5), np.linspace(-1, 1, 5, dtype=F))


@pytest.mark.thorough
def test_reverse_keeps_places():
    def build(lib):
        L = lib.lax
        return lambda c, xs: L.scan(lambda c, x: (L.add(L.mul(c, c), x), c), c, xs, reverse=True)

    check(build, F(0.3), np.linspace(-0.5, 0.5, 4, dtype=F))


@pytest.mark.thorough
def test_trees_in_carry_and_results():
    carry = {"a": np.ones(3, F), "b": np.full(3, 0.5, F)}
    xs = {"w": np.linspace(0, 1, 4, dtype=F), "v": np.linspace(-1, 1, 8, dtype=F).reshape(4, 2)}

    def with_broadcast(lib):
        L = lib.lax

        def step(carry, x):
            w = L.broadcast(x["w"], (3,))
            new = {"a": L.add(carry["a"], L.mul(w, carry["b"])), "b": L.cos(carry["b"])}
            return new, (new["a"], {"s": L.sin(x["v"])})

        return lambda carry, xs: L.scan(step, carry, xs)

    check(with_broadcast, carry, xs)


@pytest.mark.thorough
def test_no_xs():
    def build(lib):
        L = lib.lax
        return lambda c: L.scan(lambda c, _: (L.sin(c), c), c, None, length=6)

    check(build, np.array([0.1, 0.7], F))


def test_zero_length():
    def build(lib):
        L = lib.lax
        return lambda c, xs: L.scan(lambda c, x: (L.add(c, x), L.mul(c, x)), c, xs)

    check_forward_only(build, F(1.5), np.zeros((0,), F))
    total, ys = lax.scan(lambda c, x: (lax.add(c, x), c), 1.5, np.zeros((0, 2), F)[:, 0])
    assert float(np.asarray(total)) == 1.5
    assert ys.shape == (0,)
    gradient = rlx.grad(lambda c: build(rlx)(c, np.zeros((0,), F))[0])(F(1.5))
    assert float(np.asarray(gradient)) == 1.0


@pytest.mark.thorough
def test_closed_over_values():
    weights = np.linspace(-0.5, 0.5, 9, dtype=F).reshape(3, 3)

    def build(lib):
        L = lib.lax

        def function(w, c, xs):
            offset = L.sin(w)
            return L.scan(lambda c, x: (L.tanh(L.add(L.dot(offset, c), x)), L.dot(weights, c)), c, xs)

        return function

    check(build, weights, np.full(3, 0.1, F), np.linspace(-1, 1, 12, dtype=F).reshape(4, 3))


@pytest.mark.thorough
def test_nested():
    def build(lib):
        L = lib.lax

        def inner(c, x):
            return L.scan(lambda d, y: (L.add(L.sin(d), y), L.mul(d, y)), c, x)

        return lambda c, xs: L.scan(inner, c, xs)

    check(build, F(0.2), np.linspace(-1, 1, 6, dtype=F).reshape(2, 3))


@pytest.mark.thorough
def test_integer_carries_beside_floats():
    def build(lib):
        L = lib.lax

        def step(carry, x):
            i, c = carry
            return (L.add(i, np.int32(1)), L.add(c, L.mul(x, L.convert_element_type(i, "float32")))), i

        return lambda c, xs: L.scan(step, (np.int32(0), c), xs)

    check(build, F(0.0), np.linspace(1, 2, 4, dtype=F))


def test_third_derivative():
    def build(lib):
        L = lib.lax

        def power(x):
            return L.scan(lambda c, _: (L.mul(c, x), None), x, None, length=3)[0]

        return lib.grad(lib.grad(lib.grad(power)))

    assert float(np.asarray(build(rlx)(F(2.0)))) == float(build(jax)(F(2.0))) == 48.0


def test_weak_initial_carry_takes_the_bodys_dtype():
    xs = np.ones(3, np.float64)
    total, _ = lax.scan(lambda c, x: (lax.add(c, x), None), 0, xs)
    assert total.dtype == np.float64
    total, _ = lax.scan(lambda c, x: (lax.add(c, x), None), 0.0, xs.astype(np.float16))
    assert total.dtype == np.float16


def test_python_loop_under_disable_jit():
    xs = np.linspace(-1, 1, 5, dtype=F)

    def function(c):
        return lax.scan(lambda c, x: (lax.add(lax.sin(c), x), (c, None)), c, xs, reverse=True)

    with rlx.disable_jit():
        slow = function(F(0.5))
    compare(slow, rlx.tree.map(np.asarray, function(F(0.5))))


@pytest.mark.thorough
def test_map():
    def build(lib):
        L = lib.lax
        return lambda xs: L.map(lambda x: (L.sin(x), L.mul(x, x)), xs)

    check(build, np.linspace(-1, 1, 6, dtype=F).reshape(3, 2))


@pytest.mark.parametrize("batch_size", [0, -2])
def test_map_refuses_batches_of_no_size(batch_size):
    with pytest.raises(errors.ShapeError, match=f"batch_size={batch_size}"):
        lax.map(lax.sin, np.ones(3, np.float32), batch_size=batch_size)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 7, 9])
def test_map_in_batches(batch_size):
    def build(lib):
        L = lib.lax
        return lambda xs: L.map(L.sin, xs, batch_size=batch_size)

    xs = np.linspace(-1, 1, 14, dtype=F).reshape(7, 2)
    compare(build(rlx)(xs), build(jax)(xs))


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9])
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan(count, reverse):
    def build(lib):
        L = lib.lax

        def compose(p, q):
            return L.mul(p[0], q[0]), L.add(L.mul(p[1], q[0]), q[1])

        return lambda a, b: L.associative_scan(compose, (a, b), reverse=reverse, axis=1)

    a = np.linspace(0.5, 1.5, 2 * count, dtype=F).reshape(2, count)
    b = np.linspace(-1, 1, 2 * count, dtype=F).reshape(2, count)
    if count == 9 and not reverse:
        check(build, a, b, second=False)
    else:
        check_forward_only(build, a, b)


# ------------------------------------------------------------- errors
def test_carry_dtype_error_names_the_leaf():
    with pytest.raises(errors.ControlFlowTypeError, match=r"carry\['a'\]\[1\].*float32\[\].*float64\[\]") as caught:
        lax.scan(lambda c, x: ({"a": (c["a"][0], x)}, None), {"a": (F(0), np.asarray(0, F))}, np.ones(2))
    assert "astype" in str(caught.value)


def test_carry_shape_error():
    with pytest.raises(errors.ControlFlowTypeError, match="must keep its shape"):
        lax.scan(lambda c, x: (lax.broadcast(c, (2,)), None), F(0), np.ones(3, F))


def test_carry_structure_error():
    with pytest.raises(errors.ControlFlowTypeError, match="structure"):
        lax.scan(lambda c, x: ((c, c), None), F(0), np.ones(3, F))


def test_result_must_be_a_pair():
    with pytest.raises(errors.ControlFlowTypeError, match="pair"):
        lax.scan(lambda c, x: c, F(0), np.ones(3, F))


def test_length_errors():
    with pytest.raises(ValueError, match="neither xs nor length"):
        lax.scan(lambda c, x: (c, x), F(0))
    with pytest.raises(ValueError, match="length=4"):
        lax.scan(lambda c, x: (c, x), F(0), np.ones(3, F), length=4)
    with pytest.raises(ValueError, match="different sizes"):
        lax.scan(lambda c, x: (c, x), F(0), (np.ones(3, F), np.ones(2, F)))
    with pytest.raises(ValueError, match="scalar"):
        lax.scan(lambda c, x: (c, x), F(0), F(1))


def test_carries_that_the_body_hands_on_stay_what_they_were() -> None:
    """A transform sees that they do not depend on the loop: vmap's out_axes=None holds for them."""

    def scanned(y):
        return rlx.lax.scan(lambda carry, _: (carry, None), y, None, length=2)[0]

    def repeated(y):
        return rlx.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1]), (0, y))[1]

    for keep in (scanned, repeated):
        function = rlx.vmap(lambda x, y, keep=keep: rlx.lax.cond(x < 0, keep, keep, y), (0, None), None)
        assert function(np.arange(3.0), 3.0) == 3.0
        assert rlx.grad(keep)(2.0) == 1.0 and rlx.jit(keep)(2.0) == 2.0


@pytest.mark.parametrize("unroll", [3, True])
def test_unroll_must_be_known(unroll) -> None:
    """A traced one is refused as jax refuses it."""
    with pytest.raises(errors.ConcretizationTypeError, match="unroll"):
        rlx.jit(lambda n: rlx.lax.scan(lambda c, x: (c, x), 1.0, (), 10, unroll=n))(unroll)
