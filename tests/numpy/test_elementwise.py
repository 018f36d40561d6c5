"""Elementwise functions: every one on every dtype, with broadcasting and special values."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparison import agree, agree_in_type, bfloat16, draw

import rlx
import rlx.lax
import rlx.numpy as rnp
from rlx import errors

DTYPES = ["f4", "f8", "i4", "i8", "u1", "?", "c8", bfloat16, "f2"]
VALUED = ["f4", "i4", "c8"]  # the others differ in nothing but dtype
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.7, np.inf, -np.inf, np.nan], "f8")

UNARY = """
    sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh exp exp2 expm1 log log1p log2 log10
    sqrt cbrt square reciprocal negative positive absolute fabs sign floor ceil trunc rint conj real imag angle
    isnan isinf isfinite isneginf isposinf signbit isreal iscomplex deg2rad rad2deg sinc i0 logical_not bitwise_not
    bitwise_count nan_to_num frexp modf round
""".split()
BINARY = """
    add subtract multiply divide floor_divide remainder fmod divmod power float_power maximum minimum fmax fmin
    arctan2 hypot logaddexp logaddexp2 copysign nextafter heaviside equal not_equal less less_equal greater
    greater_equal logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor left_shift right_shift
    gcd lcm isclose
""".split()


def refused(name: str, *args: Any) -> bool:
    """Whether jax refuses these operands."""
    try:
        jax.eval_shape(lambda *xs: getattr(jnp, name)(*xs), *args)
    except (TypeError, ValueError):
        return True
    return False


def refuses_too(name: str, *args: Any) -> None:
    """rlx raises an error of its own for what jax refuses."""
    with pytest.raises((errors.RlxError, TypeError, ValueError)):
        getattr(rnp, name)(*args)


@pytest.mark.parametrize("name", UNARY)
def test_unary_on_every_dtype(name: str) -> None:
    """Values, dtypes, shapes; refusals where jax refuses."""
    for dtype in DTYPES:
        for shape in ((2, 3), (), (0, 2)):
            x = draw(shape, dtype, 0.1, 0.9) if "arc" in name or name.startswith("log") else draw(shape, dtype)
            if name == "angle" and not shape:  # jax 0.10 widens 0-d operands
                continue
            if refused(name, jnp.asarray(x)):
                refuses_too(name, x)
                continue
            if shape == (2, 3) and dtype in VALUED:
                agree(name, x)
            else:
                agree_in_type(name, x)


@pytest.mark.parametrize("name", [n for n in UNARY if n not in ("bitwise_not", "bitwise_count", "modf")])
def test_unary_on_special_values(name: str) -> None:
    """Zeros with signs, infinities, NaN."""
    agree(name, SPECIAL[~np.isinf(SPECIAL)] if name == "sinc" else SPECIAL)  # 0 at infinity since jax 0.11


@pytest.mark.parametrize("name", BINARY)
def test_binary_on_every_dtype(name: str) -> None:
    """Values, dtypes, broadcasting, zero sizes."""
    for dtype in DTYPES:
        for first, second in (((2, 3), (3,)), ((), (2,)), ((0, 1), (1, 3))):
            x, y = draw(first, dtype, seed=1), draw(second, dtype, 1, 4, seed=2)
            y = np.ones_like(y) if dtype == "?" and "div" in name else y  # XLA's own idea of 1 // 0
            if name == "arctan2" and dtype == "c8":
                refuses_too(name, x, y)
                continue
            if name == "logaddexp2" and dtype == "c8":
                got = np.asarray(rnp.logaddexp2(x, y))
                np.testing.assert_allclose(2**got, 2**x + 2**y, rtol=1e-5)
                continue
            if refused(name, jnp.asarray(x), jnp.asarray(y)):
                refuses_too(name, x, y)
                continue
            if first == (2, 3) and dtype in VALUED:
                agree(name, x, y)
            else:
                agree_in_type(name, x, y)


@pytest.mark.parametrize(
    "name", [n for n in BINARY if n.split("_")[0] not in ("bitwise", "left", "right", "gcd", "lcm")]
)
def test_binary_on_special_values(name: str) -> None:
    """All pairs of zeros with signs, infinities, NaN and numbers."""
    agree(name, SPECIAL[:, None], SPECIAL[None, :])


@pytest.mark.parametrize("name", ["add", "multiply", "divide", "power", "maximum", "equal", "bitwise_and", "remainder"])
def test_promotion_of_pairs(name: str) -> None:
    """The dtype and weakness of every pair of dtypes, and of Python scalars."""
    for first in DTYPES:
        for second in [*DTYPES, True, 2, 2.0, 2j]:
            x = draw((2,), first, 1, 3)
            y = second if isinstance(second, (bool, int, float, complex)) else draw((2,), second, 1, 3, seed=1)
            if name == "power" and first == "?" and isinstance(second, str) and second == "c8":
                continue  # 0 ** z is 0 here, as in NumPy
            if refused(name, jnp.asarray(x), y):
                refuses_too(name, x, y)
                continue
            agree_in_type(name, x, y)
            if name != "power" or not isinstance(y, (bool, int, float, complex)):  # jax calls 2 ** x strong
                agree_in_type(name, y, x)


@pytest.mark.parametrize("dtype", ["i4", "u1", "i8", "f4", "c8"])
@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 5, -1, -2, 0.5, 2.0])
def test_powers_by_python_numbers(dtype: str, exponent: float) -> None:
    """Static exponents; integers refuse negative ones."""
    x = draw((4,), dtype, 1, 5)
    if isinstance(exponent, int) and exponent < 0 and dtype in ("i4", "u1", "i8"):
        with pytest.raises(errors.DtypeError, match="negative power"):
            rnp.power(x, exponent)
        return
    agree("power", x, exponent)


def test_integers_to_integer_arrays() -> None:
    """Every exponent, also negative ones, wrap-around included."""
    for dtype in ("i1", "u1", "i4", "i8"):
        base = np.array([0, 1, 2, 3, 7], dtype)
        agree("power", base[:, None], np.array([0, 1, 2, 5, 63], dtype))
    assert np.array_equal(rnp.power(rnp.array([2, -1, 1]), rnp.array([-1, -3, -2])), [0, -1, 1])


@pytest.mark.parametrize("dtype", ["f4", "f8", "c16"])
def test_powers_with_integer_arrays_have_slopes_at_zero(dtype: str) -> None:
    """Three derivatives in the base."""
    x, y = np.array([0, 0, 0, 0, 2, -1], dtype), np.array([0, 1, 2, 3, -1, 0], np.int8)
    slopes = ([0, 1, 0, 0, -0.25, 0], [0, 0, 2, 0, 0.25, 0], [0, 0, 0, 6, -0.375, 0])
    derived = lambda v: (v ** rnp.asarray(y)).sum()  # noqa: E731
    for expected in slopes:
        derived = rlx.grad(derived, holomorphic=dtype[0] == "c")
        np.testing.assert_allclose(derived(x), expected, rtol=1e-6)
        np.testing.assert_allclose(rlx.jit(derived)(x), expected, rtol=1e-6)
        derived = (lambda inner: lambda v: inner(v).sum())(derived)
    assert rlx.jit(rlx.grad(rlx.jit(lambda x, n: x**n)))(0.0, 0) == 0
    agree("power", np.float32(2), np.array([0, 2], np.int8))
    assert rlx.lax.pow(rnp.float16(3), rnp.array([2, -1])).dtype == np.float16


@pytest.mark.thorough
def test_clip_where_select_piecewise_choose() -> None:
    """Selections."""
    x = draw((3, 4))
    agree("clip", x, -1.0, 1.0)
    agree("clip", draw((5,), "i4", -9, 9), -2, None)
    agree("clip", x, draw((4,), seed=3), np.float32(2))
    agree("where", x > 0, x, 0.0)
    agree("where", x > 0, 1, 0)
    agree("where", x, draw((4,), "i4"), x)
    agree("select", [x > 1, x < -1], [x, -x], 7.0)
    agree("piecewise", x, [x > 1, x < -1], [lambda v: v * 2, 3.0, -1.0])
    agree("choose", np.array([[0, 1], [2, 0]]), [np.arange(2), np.arange(2) * 10, np.array(7)], traced=False)
    agree("choose", np.array([5, -1, 1]), [1, 2, 3], mode="clip", weak=False)
    agree("choose", np.array([5, -1, 1]), [1, 2, 3], mode="wrap", weak=False)


def test_ldexp_frexp_spacing_of_extremes() -> None:
    """Denormals, huge exponents."""
    x = np.array([0.0, 1.0, -3.5, 5e-324, 2.2e-308, 1.7e308, np.inf, np.nan])
    for value, expected in zip(rnp.frexp(x), np.frexp(x), strict=True):
        np.testing.assert_array_equal(np.asarray(value)[np.isfinite(x)], expected[np.isfinite(x)])
    for exponent in (-1100, -3, 0, 5, 1100):
        with np.errstate(all="ignore"):
            expected = np.ldexp(x, exponent)
        np.testing.assert_array_equal(np.asarray(rnp.ldexp(x, exponent)), expected)
    agree("spacing", np.array([1.0, -2.0, 1e10]))


def test_modf_of_infinity_has_no_fraction() -> None:
    """As in C and NumPy."""
    fraction, whole = rnp.modf(np.array([-np.inf, np.inf, -2.5]))
    assert np.array_equal(fraction, [0, 0, -0.5]) and np.array_equal(whole, [-np.inf, np.inf, -2])


def test_shapes_that_do_not_broadcast_are_refused() -> None:
    """The message shows both shapes."""
    with pytest.raises(errors.ShapeError, match=r"\[2\].*\[3\]"):
        rnp.add(rnp.ones(2), rnp.ones(3))


def test_lists_are_refused_with_advice() -> None:
    """As in jax; asarray is named."""
    with pytest.raises(errors.InputTypeError, match="asarray"):
        rnp.sin([1.0, 2.0])


@pytest.mark.parametrize("compiled", [False, True])
def test_derivatives_of_hypot_where_the_sides_are_equal(compiled: bool) -> None:
    """First and second ones are those of sqrt(x**2 + y**2), ties and huge sides included."""
    for a, b in ((2.0, 2.0), (-2.0, 2.0), (3.0, -4.0), (0.0, 1.0), (1e200, 1e200)):
        x, y = np.array(a), np.array(b)
        slope, curvature = rlx.grad(rnp.hypot, (0, 1)), rlx.hessian(rnp.hypot, (0, 1))
        found, second = (rlx.jit(slope), rlx.jit(curvature)) if compiled else (slope, curvature)
        r = np.hypot(x, y)
        np.testing.assert_allclose(found(x, y), [x / r, y / r], rtol=1e-14)
        expected = [[y / r * (y / r) / r, -x / r * (y / r) / r], [-x / r * (y / r) / r, x / r * (x / r) / r]]
        np.testing.assert_allclose(second(x, y), expected, rtol=1e-13)


@pytest.mark.parametrize("compiled", [False, True])
def test_derivatives_of_powers_at_zero(compiled: bool) -> None:
    """x ** 0 is constant at 0 too; x ** 1 has slope 1 there, and x ** 2 curvature 2."""
    slope = rlx.grad(rnp.power)
    curvature = rlx.grad(slope)
    for exponent, first, second in ((0.0, 0.0, 0.0), (1.0, 1.0, 0.0), (2.0, 0.0, 2.0)):
        at = (np.array(0.0), np.array(exponent))
        assert float((rlx.jit(slope) if compiled else slope)(*at)) == first
        assert float((rlx.jit(curvature) if compiled else curvature)(*at)) == second


FAR = np.array([0.0, -0.0, 1e-30, 1.0, -1.0, 3.0, 1e30, -1e30, np.inf, -np.inf, np.nan])
SMOOTH = [n for n in UNARY if n not in ("bitwise_not", "bitwise_count", "frexp", "modf", "i0") and not refused(n, FAR)]


@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives_at_special_points(name: str) -> None:
    """Near and far from 0, at infinities and NaN, compiled and not: jax's, but for i0, where jax's overflows."""
    try:
        expected = jax.vmap(jax.grad(getattr(jnp, name)))(FAR)
    except TypeError:  # results without derivatives
        return
    points = FAR[np.isfinite(FAR)] if name == "sinc" else FAR  # 0 at infinity since jax 0.11
    slope = rlx.vmap(rlx.grad(getattr(rnp, name)))
    for run in (slope, rlx.jit(slope)):
        np.testing.assert_allclose(run(points), expected[: len(points)], rtol=1e-6, atol=1e-25)


def test_logaddexp_at_its_limits() -> None:
    """Values beside JAX's, also of infinities and NaN; derivatives of finite numbers, however far apart."""
    ends = [-np.inf, -1e38, -1000.0, -1.0, -0.0, 1.0, 40.0, 1000.0, 1e38, np.inf, np.nan]
    x, y = (v.ravel() for v in np.meshgrid(ends, ends))
    agree("logaddexp", x, y)
    agree("logaddexp", x.astype("f4"), y.astype("f4"))
    finite = (np.abs(x) <= 1000) & (np.abs(y) <= 1000)
    points = np.stack([x, y], 1)[finite]
    for of in (lambda m, f: m.grad(f), lambda m, f: m.jacfwd(m.grad(f))):
        ours, theirs = (
            np.asarray(m.vmap(of(m, lambda v, f=f: f(v[0], v[1])))(points))
            for m, f in ((rlx, rnp.logaddexp), (jax, jnp.logaddexp))
        )
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-16)


def test_derivatives_of_logaddexp_at_infinities() -> None:
    """Limits along equal operands: 1/2 each; what an infinite operand outweighs has none. Second ones are 0 or 1/4."""
    slopes = rlx.vmap(rlx.grad(rnp.logaddexp, (0, 1)))
    x, y = np.array([np.inf, -np.inf, -1.0, np.inf, -np.inf]), np.array([np.inf, -np.inf, np.inf, 0.0, 0.0])
    np.testing.assert_array_equal(np.stack(slopes(x, y)), [[0.5, 0.5, 0, 1, 0], [0.5, 0.5, 1, 0, 1]])
    second = rlx.grad(rlx.grad(rlx.nn.softplus))
    assert [float(second(v)) for v in (0.0, np.inf, -np.inf)] == [0.25, 0.0, 0.0]
