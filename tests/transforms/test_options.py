"""What transforms take beyond arrays: values that rules ask for, whatever is not mapped, complex numbers."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from twins import assert_same

import rlx
import rlx.numpy as jnp
from rlx import errors, lax

X = np.linspace(0.1, 2.0, 6, dtype=np.float32)
COMPLEX = np.array([0.3 + 0.2j, -1.0 + 0.5j], np.complex64)


# ------------------------------------------------------------------ rules that ask for values
def _branching(library: Any) -> Any:
    @library.custom_vjp
    def f(x: Any) -> Any:
        return library.numpy.sin(x) if x > 0 else library.numpy.cos(x)

    def ahead(x: Any) -> Any:
        return (f(x), x) if x > 0 else (f(x), 2 * x)

    def behind(x: Any, g: Any) -> Any:
        return (2 * g * x,) if x > 0 else (3 * g * x,)

    f.defvjp(ahead, behind)
    return f


@pytest.mark.parametrize("x", (0.7, -0.7))
def test_both_halves_of_a_rule_may_branch_on_known_values(x: float) -> None:
    point = np.asarray(x)
    assert_same(rlx.grad(_branching(rlx))(point), jax.grad(_branching(jax))(point), 1e-6)


def test_a_rule_that_branches_needs_its_values() -> None:
    with pytest.raises(errors.TracerBoolConversionError, match="needs the value"):
        rlx.jit(rlx.grad(_branching(rlx)))(0.7)
    with pytest.raises(errors.TracerBoolConversionError, match="needs the value"):
        rlx.vmap(rlx.grad(_branching(rlx)))(X)


def test_a_backward_rule_that_branches_under_vmap() -> None:
    f = rlx.custom_vjp(lambda x: x * x)
    f.defvjp(lambda x: (x * x, x), lambda x, g: (g,) if x > 0 else (2 * g,))
    assert float(rlx.grad(f)(-1.0)) == 2.0
    with pytest.raises(errors.TracerBoolConversionError):
        rlx.grad(lambda x: rlx.vmap(f)(x).sum())(X)


# ------------------------------------------------------------------ the two passes apart
@pytest.mark.parametrize("jitted", (True, False))
def test_forward_and_backward_pass(jitted: bool) -> None:
    forward, backward = rlx.fwd_and_bwd(lambda a, x, b: (jnp.sin(a * x) * b, a), (0, 2), True, jitted)
    pull = jax.vjp(lambda a, b: jax.numpy.sin(a * X) * b, 2 * X, X)[1]
    result, residuals, extra = forward(2 * X, X, X)
    assert_same(result, np.sin(2 * X * X) * X, 1e-6)
    assert_same(extra, 2 * X)
    assert_same(backward(residuals, X), pull(X), 1e-5)
    if jitted:
        misses = backward.cache_info().misses
        backward(forward(X, X, X)[1], X)
        assert backward.cache_info().misses == misses == 1


def test_forward_and_backward_of_one_argument() -> None:
    forward, backward = rlx.fwd_and_bwd(lambda x, y: x * y, 1)
    assert float(backward(forward(2.0, 5.0)[1], 1.0)) == 2.0
    with pytest.raises(errors.TreeMismatchError, match="argument 3"):
        rlx.fwd_and_bwd(lambda x: x, 3)[0](1.0)
    with pytest.raises(errors.TreeMismatchError, match="argnums"):
        rlx.fwd_and_bwd(lambda x: x, (0, 0))[0](1.0)


# ------------------------------------------------------------------ vmap
def test_what_is_not_mapped_may_be_anything() -> None:
    mapped = rlx.vmap(lambda f, x, how: f(x) if how == "once" else f(f(x)), in_axes=(None, 0, None))
    assert_same(mapped(lambda x: x + 1, X, "once"), X + 1)
    assert_same(mapped(lambda x: x + 1, X, "twice"), X + 2)
    with pytest.raises(errors.InputTypeError, match="argument of vmap"):
        rlx.vmap(lambda x, y: x, in_axes=(0, 0))(X, "once")
    with pytest.raises(errors.VmapAxisError, match="in_axes"):
        rlx.vmap(lambda x: x["a"], in_axes={"a": 0})  # type: ignore[arg-type]


def _chosen(library: Any, x: Any, y: Any) -> Any:
    return library.lax.cond(x < 3, lambda x, y: (x * 2, y), lambda x, y: (x * 3, y), x, y)


def test_a_mapped_choice_leaves_alone_what_every_branch_returns() -> None:
    numbers = np.arange(5)
    for out_axes in ((0, None), 0):
        ours = rlx.vmap(lambda x, y: _chosen(rlx, x, y), (0, None), out_axes)(numbers, X)
        theirs = jax.vmap(lambda x, y: _chosen(jax, x, y), (0, None), out_axes)(numbers, X)
        assert_same(ours, theirs)
    assert_same(rlx.vmap(lambda x, y: _chosen(rlx, x, y))(numbers, X[:5])[1], X[:5])


def _powers(library: Any, matrix: Any, x: Any, count: Any) -> Any:
    state = (0, x, matrix)
    _, x, same = library.lax.while_loop(lambda s: s[0] < count, lambda s: (s[0] + 1, s[1] @ s[2], s[2]), state)
    return same, x


def test_a_ragged_loop_leaves_alone_what_it_does_not_change() -> None:
    matrix, rows, counts = np.array([[1.0, 2.0], [0.5, 1.0]]), np.arange(8.0).reshape(4, 2), np.arange(4)
    for axes in ((None, 0, 0), (0, 0, 0)):
        given = matrix if axes[0] is None else np.stack([matrix * n for n in range(4)])
        ours = rlx.vmap(lambda *a: _powers(rlx, *a), axes, (axes[0], 0))(given, rows, counts)
        assert_same(ours, jax.vmap(lambda *a: _powers(jax, *a), axes, (axes[0], 0))(given, rows, counts), 1e-12)


# ------------------------------------------------------------------ complex numbers
def test_complex_cotangents_of_real_values_are_refused() -> None:
    """Their imaginary parts would be lost."""
    with pytest.raises(errors.DtypeError, match="cotangent of dtype complex64"):
        rlx.vjp(lambda x: x * 2, 1.0)[1](1j)
    with pytest.raises(errors.DtypeError, match="cotangent of dtype complex64"):
        rlx.linear_transpose(lambda x: x * 2, 1.0)(1j)
    for wrong in (1.0, np.float32(1.0), np.ones((), np.int16)):
        with pytest.raises(errors.DtypeError, match="cotangent of dtype"):
            rlx.linear_transpose(lambda x: x * 2, 1)(wrong)
    assert rlx.linear_transpose(lambda x: x * 2, 1)(3)[0] == 6
    with pytest.raises(errors.DtypeError, match="tangent of dtype complex64"):
        rlx.jvp(lambda x: x * 2, (1.0,), (1j,))
    assert complex(rlx.vjp(lambda z: z * 2j, 1j)[1](1.0)[0]) == 2j


def test_rows_of_real_functions_of_complex_numbers() -> None:
    def norms(library: Any) -> Any:
        return library.jacrev(lambda z: library.numpy.abs(z) ** 2 * library.numpy.real(z))

    assert_same(norms(rlx)(COMPLEX), norms(jax)(COMPLEX), 1e-5)
    with pytest.raises(errors.DtypeError, match="real results"):
        rlx.jacrev(lambda z: z * z)(COMPLEX)
    with pytest.raises(errors.DtypeError, match="jacfwd"):
        rlx.jacfwd(lambda z: jnp.abs(z))(COMPLEX)


# ------------------------------------------------------------------ lax
def test_products_promote() -> None:
    floats, numbers = np.arange(3, dtype=np.float32), np.arange(3, dtype=np.int8)
    pairs = ((floats, floats.astype(np.complex64)), (numbers, floats), (floats, floats.astype(np.float16)))
    for x, y in pairs:
        assert_same(lax.dot(x, y), jax.lax.dot(x, y), 1e-6)
    jacobian = rlx.jacrev(lambda x: lax.dot(x, floats.astype(np.complex64) * 1j).imag)(floats)
    assert jacobian.dtype == np.float32
    assert_same(jacobian, floats)
    tiny = np.ones(2, rlx.numpy.float8_e5m2), np.ones(2, rlx.numpy.float8_e4m3fn)
    with pytest.raises(errors.DtypeError, match="dot_general"):
        lax.dot(*tiny)


@pytest.mark.parametrize("config", ((-4, 0, 0), (-3, -1, 0), (-4, 0, 1), (0, 1, -1)))
def test_padding_that_cuts_off_too_much(config: tuple[int, int, int]) -> None:
    size = 2 if config[2] else 3
    with pytest.raises(errors.ShapeError, match="axis of size"):
        lax.pad(jnp.ones(size), 0.0, [config])


def test_padding_that_cuts_off_everything() -> None:
    for config in ((-3, 0, 0), (-1, -2, 0), (-5, 0, 1)):
        assert lax.pad(jnp.ones(3), 0.0, [config]).shape == (0,) == jax.lax.pad(np.ones(3), 0.0, [config]).shape


def test_weakness_of_filled_arrays() -> None:
    for library, lib in ((rlx, rlx.lax), (jax, jax.lax)):
        number = library.numpy.float32(1.0)
        filled = (lib.full((), 1.0), lib.full((), 1.0, np.float32), lib.full_like(1.0, 2.0), lib.full_like(number, 2.0))
        assert [x.aval.weak_type for x in filled] == [True, False, True, False]
        assert [lib.exp(x).aval.weak_type for x in filled] == [True, False, True, False]


def test_logarithms_of_a_complex_zero() -> None:
    for base in (np.log10, np.log2):
        ours = getattr(jnp, base.__name__)
        with np.errstate(divide="ignore"):
            assert_same(ours(np.zeros(1, np.complex64)), np.array([complex(-np.inf, 0)], np.complex64))
        assert_same(rlx.jit(ours)(COMPLEX), base(COMPLEX), 1e-6)


@pytest.mark.parametrize("unroll", (0, 1, 7, True, False))
def test_unrolling_changes_nothing(unroll: Any) -> None:
    total, _ = lax.scan(lambda c, x: (c + x, None), 0.0, X, unroll=unroll)
    assert_same(total, np.cumsum(X)[-1], 1e-6)
