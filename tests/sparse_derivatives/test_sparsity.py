"""Patterns of functions: what is exact, what is assumed and reported, control flow, custom rules, points."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sparse_programs import EXACT, X, steps

import rlx
import rlx.numpy as jnp
from rlx import errors, lax
from rlx.sparse_derivatives import Pattern


def dense(function: Any, x: Any) -> np.ndarray:
    """Where the Jacobian is other than zero at one of three points."""
    generator = np.random.default_rng(3)
    found = None
    for _ in range(3):
        point = (np.asarray(x) + 0.1 * generator.normal(size=np.shape(x))).astype(np.asarray(x).dtype)
        leaves = [np.asarray(a).reshape(-1, point.size) for a in rlx.tree.leaves(rlx.jacfwd(function)(point))]
        matrix = np.concatenate(leaves) != 0
        found = matrix if found is None else found | matrix
    assert found is not None
    return found


@pytest.mark.selected("all")
@pytest.mark.parametrize("name", EXACT)
def test_patterns_are_exact(name: str) -> None:
    function, x = EXACT[name]
    found = rlx.sparsity(function)(x)
    np.testing.assert_array_equal(found.todense(), dense(function, x))
    assert not found.assumptions


def test_the_pattern_is_of_types() -> None:
    """Anything with a shape and a dtype will do, and the result says where, sorted and once."""
    found = rlx.sparsity(lambda x: x[1:] * x[:-1])(rlx.ShapeDtypeStruct((4,), "float32"))
    assert (found.shape, found.nnz) == ((3, 4), 6)
    assert found.rows.tolist() == [0, 0, 1, 1, 2, 2] and found.cols.tolist() == [0, 1, 1, 2, 2, 3]
    assert found == Pattern.of_pairs([2, 0, 0, 1, 2, 1, 1], [3, 1, 0, 2, 2, 1, 1], (3, 4))
    assert hash(found) == hash(rlx.sparsity(lambda x: x[1:] * x[:-1])(np.ones(4)))


def test_structural_zeros_stay() -> None:
    """Products with zero and masks are not looked at: they may hold NaN or change."""
    assert rlx.sparsity(lambda x: x * 0)(X).nnz == 7
    assert rlx.sparsity(lambda x: jnp.where(np.zeros(7, bool), x, x[::-1]))(X).nnz == 13


def test_arguments_and_results_are_counted_in_order() -> None:
    """Several arguments, trees, and integers, which have no columns and no rows."""

    def function(p: Any, n: Any, q: Any) -> Any:
        return [p["b"] * q[0], n * 2, p["a"].sum() + q[1] * n]

    args = ({"a": np.ones(2), "b": np.ones(3)}, np.int32(1), np.ones(2))
    first = rlx.sparsity(function)(*args)
    assert first.shape == (4, 5) and first.todense().sum(1).tolist() == [1, 1, 1, 2]
    both = rlx.sparsity(function, (0, 1, 2))(*args)
    assert both.shape == (4, 7) and both.todense()[3].tolist() == [True, True, False, False, False, False, True]


# ------------------------------------------------------------- what is assumed
def test_unknown_indices_read_a_whole_axis_and_are_reported() -> None:
    found = rlx.sparsity(lambda x, i: x[i] ** 2)(X, np.array([1, 2]))
    assert found.nnz == 14
    (assumption,) = found.assumptions
    assert (assumption.operation, assumption.reason) == ("gather", "the indices are not known")
    assert "test_sparsity.py" in str(assumption)


def test_an_operation_without_a_rule_is_reported() -> None:
    def function(x: Any) -> Any:
        return rlx.pure_callback(lambda a: a, rlx.ShapeDtypeStruct((7,), "float64"), x)

    found = rlx.sparsity(function)(X)
    assert found.nnz == 49 and [a.operation for a in found.assumptions] == ["pure_callback"]


def test_a_pattern_can_be_stated() -> None:
    order = np.array([2, 0, 1])
    near = Pattern.of_pairs([0, 1, 2], order, (3, 3))

    def function(x: Any, i: Any) -> Any:
        return rlx.assume_pattern(x[i], near) ** 2

    found = rlx.sparsity(function)(X[:3], order)
    assert found == near and [a.operation for a in found.assumptions] == ["gather", "assumed_pattern"]
    result = rlx.jit(rlx.jacobian(function, sparse=True))(X[:3], order)
    np.testing.assert_allclose(result.todense(), rlx.jacfwd(function)(X[:3], order), rtol=1e-12)
    with pytest.raises(errors.ShapeError, match="3 columns for arguments of 4"):
        rlx.sparsity(lambda x: rlx.assume_pattern(x[:3], near))(X[:4])
    with pytest.raises(errors.ShapeError, match=r"pattern of shape \(3, 3\)"):
        rlx.assume_pattern(X, near)


def test_a_wrong_statement_is_found_by_the_check() -> None:
    near = Pattern.of_pairs([0, 1, 2], [0, 1, 2], (3, 3))
    function = rlx.jacobian(lambda x: rlx.assume_pattern(x[::-1], near), sparse=True)
    with rlx.scoped(check=True), pytest.raises(errors.VerificationError, match="lacks elements in row 0"):
        function(X[:3])


def test_indices_of_an_enclosing_function_are_known() -> None:
    """Under jit they are traced, but depend on no argument."""
    places = np.array([2, 0, 1])

    @rlx.jit
    def elements(x: Any) -> Any:
        order = jnp.asarray(places)[::-1] + jnp.zeros(3, int)
        return rlx.jacobian(lambda x: x[order] ** 2, sparse=True)(x).data

    assert elements(X[:3]).tolist() == (2 * X[:3][places[::-1]]).tolist()


# ------------------------------------------------------------- control flow
def test_branches_are_united_and_chosen_at_a_point() -> None:
    def function(x: Any) -> Any:
        return lax.cond(x[0] > 0, lambda x: x**2, lambda x: x[::-1], x)

    assert rlx.sparsity(function)(X).nnz == 13
    here = rlx.sparsity(function, at=X)()
    assert here == rlx.sparsity(lambda x: x)(X)
    assert rlx.sparsity(function, at=(-X,))() == rlx.sparsity(lambda x: x[::-1])(X)


def test_a_point_chooses_elements() -> None:
    """Sorted, largest, selected, and gathered at computed places."""
    x = np.array([3.0, 1.0, 2.0])
    assert rlx.sparsity(lambda x: jnp.where(x > 1.5, x, x[::-1]), at=x)().todense().sum() == 3
    found = rlx.sparsity(lambda x: x[jnp.argsort(x)], at=x)()
    assert found.cols.tolist() == [1, 2, 0] and not found.assumptions
    while_small = lambda x: lax.while_loop(lambda u: u[0] < 5, lambda u: u + jnp.roll(u, 1), x)  # noqa: E731
    assert rlx.sparsity(while_small, at=x)().nnz == 6 and rlx.sparsity(while_small, at=x + 9)().nnz == 3


def test_loops_end_at_their_fixed_point() -> None:
    """Loops of unknown length reach everything that is connected; long ones of known length, too."""

    def until(x: Any) -> Any:
        return lax.while_loop(lambda u: u[0] < 1e3, lambda u: u * u[jnp.array([0, 0, 1, 3])], x)

    found = rlx.sparsity(until)(X[:4])
    assert found.todense().astype(int).tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 1]]
    assert rlx.sparsity(steps(100_000))(X).nnz == 49
    counted = rlx.sparsity(steps(3))(np.ones(20))
    assert counted.nnz == 80


def test_a_long_scan_keeps_the_rows_of_its_results_apart() -> None:
    """Its carries at their fixed point, its slices all at once."""
    n = 20_000

    def function(x: Any) -> Any:
        return lax.scan(lambda c, v: (c, v**2 * c), x[0], x[1:])[1]

    found = rlx.sparsity(function)(np.ones(n))
    assert found.nnz == 2 * (n - 1) and found.cols[found.rows == 5].tolist() == [0, 6]


def test_indices_that_a_loop_counts_are_known() -> None:
    def function(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, y: y.at[i].set(x[i + 1] ** 2), jnp.zeros(4, x.dtype))

    assert rlx.sparsity(function)(X).todense().nonzero()[1].tolist() == [1, 2, 3]


# ------------------------------------------------------------- custom rules
def test_a_custom_jvp_counts_as_its_rule_says() -> None:
    @rlx.custom_jvp
    def function(x: Any) -> Any:
        return jnp.cumsum(x)

    @function.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        return function(primals[0]), tangents[0] * primals[0][::-1]

    assert rlx.sparsity(function)(X) == rlx.sparsity(lambda x: x)(X)


def test_a_custom_vjp_counts_as_its_backward_rule_says() -> None:
    """A straight-through estimator has the identity's pattern, and a Jacobian by rows."""

    @rlx.custom_vjp
    def rounded(x: Any) -> Any:
        return jnp.round(x)

    rounded.defvjp(lambda x: (jnp.round(x), x), lambda _, ct: (jnp.roll(ct, 1),))
    found = rlx.sparsity(lambda x: rounded(x) * 2)(X)
    assert found.cols.tolist() == [1, 2, 3, 4, 5, 6, 0]
    result = rlx.jacobian(lambda x: rounded(x) * 2, sparse=True, mode="reverse")(X)
    np.testing.assert_array_equal(result.todense(), rlx.jacrev(lambda x: rounded(x) * 2)(X))


# ------------------------------------------------------------- size
def test_nothing_is_dense_in_between() -> None:
    """Block-diagonal sets are kept by axes: a batch of dense layers needs no memory before its end."""
    weight = np.ones((2000, 2000), np.float32)

    def function(x: Any) -> Any:
        return jnp.tanh(jnp.tanh(x @ weight) @ weight).sum(1)

    found = rlx.sparsity(function)(rlx.ShapeDtypeStruct((1000, 2000), "float32"))
    assert found.nnz == 2_000_000 and not found.assumptions


def test_a_dense_derivative_is_refused() -> None:
    with pytest.raises(errors.UnsupportedError, match="is not sparse"):
        rlx.sparsity(lambda x: x * x.sum())(rlx.ShapeDtypeStruct((10**6,), "float32"))


def test_the_pattern_is_found_once_for_a_program() -> None:
    """A second function of the same program takes the remembered pattern."""
    one = rlx.sparsity(lambda x: x[1:] * 3.25)(X)
    assert rlx.sparsity(lambda x: x[1:] * 3.25)(X) is one
