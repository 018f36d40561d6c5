"""Values at which routines branch: infinities, signed zeros, extremes of dtypes, ties, empty and equal blocks.

Random samples never reach them. Each row states a routine's result there, eagerly and compiled.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import lax, quant
from rlx.ops.arithmetic import remainder
from rlx.ops.rounding import nextafter

INF, NAN = np.inf, np.nan
F = np.float32
NARROW = [np.dtype(n) for n in (ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)]
C_COMPILER = shutil.which("cc") or shutil.which("gcc")
DEVICES = ["cpu", pytest.param("numba", marks=pytest.mark.thorough), *(["c"] if C_COMPILER else [])]


def same(found: Any, expected: Any) -> None:
    """Equal values, NaNs and signs of zeros."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found, expected)
    if expected.dtype.kind not in "biu":
        wide = np.complex128 if expected.dtype.kind == "c" else np.float64
        numbers = [np.where(np.isnan(x), 1, x) for x in (found.astype(wide), expected.astype(wide))]
        np.testing.assert_array_equal(*[np.signbit(x.real) for x in numbers])


# ------------------------------------------------------------------ cumulative and other reductions
CUMULATIVE = np.array([
    [-INF, -INF, 1, 2], [-INF] * 4, [INF, 1, INF, 2], [INF, -INF, 0, 1], [NAN, 1, 2, 3], [1, NAN, 2, 3],
    [-0.0, 0.0, 0, 1], [80, 80, 1, 2], [0, 0, 0, 0], [1, 1, 1, 2], [-INF, 5, -INF, 5], [5, -INF, 5, -INF],
], F)  # fmt: skip


@pytest.mark.selected("all")
@pytest.mark.parametrize("name", ["cumlogsumexp", "cummax", "cummin", "cumsum", "cumprod"])
def test_cumulative_operations(name: str) -> None:
    """Values and derivatives beside jax; the derivative of a finite sum of exponentials by all of it is 1."""
    for reverse in (False, True):
        own, other = (partial(getattr(lib, name), axis=1, reverse=reverse) for lib in (lax, jax.lax))
        ones = np.ones_like(CUMULATIVE)
        expected, slope = map(np.asarray, jax.jvp(other, (CUMULATIVE,), (ones,)))
        defined = np.isfinite(expected if name == "cumlogsumexp" else slope)
        wanted = ones if name == "cumlogsumexp" else slope
        value, found = map(np.asarray, rlx.jvp(own, (CUMULATIVE,), (ones,)))
        np.testing.assert_allclose(value, expected, rtol=1e-6)
        np.testing.assert_allclose(found[defined], wanted[defined], rtol=1e-5)
        np.testing.assert_allclose(rlx.jit(own)(CUMULATIVE), expected, rtol=1e-6)


@pytest.mark.selected("all")
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "and", "or", "xor"])
def test_reductions_of_what_is_repeated(name: str) -> None:
    """A reduction along a broadcast axis needs no loop, but depends on the number of elements."""
    logical = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
    arithmetic = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
    ufunc = {**logical, **arithmetic}[name]
    reduce = getattr(lax, f"reduce_{name}")
    for dtype, count in itertools.product((np.int32, np.bool_), (1, 2, 3, 4)):
        if dtype is np.bool_ and name in ("sum", "prod"):
            continue
        x = np.array([0, 1, 2, 3]).astype(dtype)

        def repeated(x: Any, count: int = count) -> Any:
            return reduce(lax.broadcast(x, (count,)), (0,))

        expected = ufunc.reduce(np.broadcast_to(x, (count, 4)), axis=0).astype(dtype)
        same(rlx.jit(repeated)(x), expected)
        whole = rlx.jit(lambda x, count=count: reduce(lax.broadcast(x, (count,)), (0, 1)))
        same(whole(x), ufunc.reduce(np.broadcast_to(x, (count, 4)), axis=None).astype(dtype))


@pytest.mark.selected("all")
@pytest.mark.parametrize("name", ["nanmax", "nanmin", "nansum", "nanprod"])
def test_reductions_without_nan(name: str) -> None:
    """`initial` and `where`, with rows of NaN alone."""
    x = np.array([[NAN, NAN], [1, NAN], [-3, 2]], F)
    own, other = getattr(jnp, name), getattr(jax.numpy, name)
    for options in ({}, {"initial": 0.0}, {"initial": 0.0, "where": np.array([True, False])}):
        for axis in (None, 1):
            expected = np.asarray(other(x, axis=axis, **options))
            np.testing.assert_array_equal(own(x, axis=axis, **options), expected)
    compiled = rlx.jit(lambda x: (own(x, axis=1), own(x, axis=1, initial=0.0)))(x)
    for found, options in zip(compiled, ({}, {"initial": 0.0}), strict=True):
        np.testing.assert_array_equal(found, other(x, axis=1, **options))


def test_ties_share_a_derivative_and_complex_magnitudes_have_one() -> None:
    for values in ([2, 1, 2], [0.0, -0.0, 0.0], [INF, INF, 1]):
        x = np.array(values, F)
        for name in ("max", "min"):
            expected = jax.grad(lambda x, n=name: getattr(jax.numpy, n)(x))(x)
            np.testing.assert_array_equal(rlx.grad(lambda x, n=name: getattr(jnp, n)(x))(x), expected)
    for z in (-2 - 1j,):
        for f in (lambda m, z: m.abs(z), lambda m, z: m.real(z * m.abs(z))):
            expected = jax.grad(lambda z, f=f: f(jax.numpy, z))(z)
            np.testing.assert_allclose(rlx.grad(lambda z, f=f: f(jnp, z))(z), expected, rtol=1e-6)


# ------------------------------------------------------------------ functions composed of several operations
EDGES = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 30.0, -30.0, 3e38, -3e38, INF, -INF, NAN], F)
LIBRARIES: dict[str, tuple[Any, Any]] = {"numpy": (jnp, jax.numpy), "lax": (lax, jax.lax), "nn": (rlx.nn, jax.nn)}
# SciPy's limit at a pole, where jax has NaN
POLES = {"digamma": [0.0]}


def _of_one_array(module: str) -> dict[str, np.ndarray]:
    """jax's results of the functions that it applies element by element to one array of floats."""
    found = {}
    ours, theirs = LIBRARIES[module]
    for name in dir(theirs):
        function = getattr(theirs, name)
        if name.startswith("_") or isinstance(function, type) or not callable(getattr(ours, name, None)):
            continue
        try:
            out = function(EDGES)
        except Exception:  # not a function of one array of floats
            continue
        if getattr(out, "shape", None) == EDGES.shape and "empty" not in name:
            found[name] = np.asarray(out)
    return found


@pytest.mark.selected("all")
@pytest.mark.parametrize("module", [pytest.param("numpy", marks=pytest.mark.thorough), "lax", "nn"])
def test_composed_functions_are_finite_where_jax_is(module: str) -> None:
    """Eagerly and compiled: a product with 0 that is meant to be zeros is NaN at an infinity."""
    ours, expectations = LIBRARIES[module][0], _of_one_array(module)
    assert len(expectations) > 10

    def every(x: Any) -> dict[str, Any]:
        return {name: getattr(ours, name)(x) for name in expectations}

    for results in (every(jnp.asarray(EDGES)), rlx.jit(every)(EDGES)):
        for name, expected in expectations.items():
            found, known = np.asarray(results[name]), ~np.isin(EDGES, POLES.get(name, []))
            for kind in (np.isnan, np.isinf):
                for x, y in ((found.real, expected.real), (found.imag, expected.imag)):
                    np.testing.assert_array_equal(kind(x)[known], kind(y)[known], err_msg=f"{module}.{name}")


# ------------------------------------------------------------------ products and scatters
AXES = [(None, 0), (0, None), (0, 0), (1, 0), (0, 2), (2, 1)]


@pytest.mark.selected("all")
@pytest.mark.parametrize("dims", AXES, ids=str)
@pytest.mark.parametrize("batched", [0, 1, 2])
def test_a_mapped_product_with_batch_axes_of_its_own(dims: tuple[int | None, int | None], batched: int) -> None:
    rng = np.random.default_rng(0)
    own = tuple(range(2, 2 + batched))  # sizes of the product's batch axes: all differ
    left, right = rng.normal(size=(*own, 5, 6)), rng.normal(size=(*own, 6, 7))
    given = []
    for x, dim in zip((left, right), dims, strict=True):
        given.append(x if dim is None else np.stack([x * n for n in (1, 2, 3)], dim))
    parts = [[x if d is None else np.take(x, n, d) for x, d in zip(given, dims, strict=True)] for n in range(3)]
    expected = np.stack([a @ b for a, b in parts])
    found = rlx.vmap(jnp.matmul, in_axes=dims)(*given)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    numbers = (((left.ndim - 1,), (right.ndim - 2,)), (tuple(range(batched)),) * 2)
    product = rlx.vmap(lambda a, b: lax.dot_general(a, b, numbers), in_axes=dims, out_axes=1)
    np.testing.assert_allclose(product(*given), np.moveaxis(expected, 0, 1), rtol=1e-6)


@pytest.mark.selected("all")
@pytest.mark.parametrize("mode", [None, "drop", "clip", "promise_in_bounds"])
@pytest.mark.parametrize("name", ["set", "add", "min", "max"])
def test_derivatives_of_scatters_to_repeated_places(name: str, mode: Any) -> None:
    """By differences: the last update that is set counts, all that are added do."""
    places = np.array([0, 0, 2] + ([] if mode == "promise_in_bounds" else [7]))
    x, u = np.array([1.0, 2.0, 3.0]), np.array([4.0, 0.5, 6.0, 7.0])[: len(places)]

    def f(x: Any, u: Any) -> Any:
        return (getattr(jnp.asarray(x).at[places], name)(u, mode=mode) * np.array([1.0, 10.0, 100.0])).sum()

    with rlx.enable_x64():
        found = rlx.grad(f, (0, 1))(x, u)
        for n, (value, slope) in enumerate(zip((x, u), found, strict=True)):
            for i in range(len(value)):
                step = np.zeros_like(value)
                step[i] = 1e-4
                ends = [f(*(v + s * step if n == m else v for m, v in enumerate((x, u)))) for s in (1, -1)]
                assert abs(float(ends[0] - ends[1]) / 2e-4 - float(slope[i])) < 1e-6, (n, i)


# ------------------------------------------------------------------ integers and narrow floats on every device
def on(device: str, f: Callable[..., Any], *args: Any) -> np.ndarray:
    return np.asarray(rlx.jit(f, device=device)(*args))


@pytest.mark.selected("all")
@pytest.mark.parametrize("device", DEVICES)
def test_extremes_of_integers(device: str) -> None:
    """Division of the least number by -1 has no result in its dtype; processors stop there."""
    with rlx.enable_x64():
        for dtype in (np.int8, np.int32, np.int64, np.uint64):
            info = np.iinfo(dtype)
            edges = sorted({info.min, info.min + 1, 0, 1, 2, info.max - 1, info.max, *([-1, -2] if info.min else [])})
            pairs = np.array([p for p in itertools.product(edges, edges) if p[1]], dtype)
            x, y = pairs[:, 0], pairs[:, 1]

            def f(x: Any, y: Any) -> Any:
                return remainder(x, y), lax.div(x, y), jnp.mod(x, y), jnp.floor_divide(x, y), jnp.abs(x), -x, x * y

            quotient = [int(abs(int(a)) // abs(int(b))) * (1 if (a < 0) == (b < 0) else -1) for a, b in pairs.tolist()]
            rest = [a - q * b for q, (a, b) in zip(quotient, pairs.tolist(), strict=True)]
            wrapped = [np.array(v, object) for v in (rest, quotient)]
            bits = 8 * dtype().itemsize
            for found, expected in zip(rlx.jit(f, device=device)(x, y), wrapped, strict=False):
                exact = [(int(v) - int(info.min)) % 2**bits + int(info.min) for v in expected]
                np.testing.assert_array_equal(found, np.array(exact, dtype))
            for found, expected in zip(rlx.jit(f, device=device)(x, y), f(x, y), strict=True):
                same(found, expected)


def codes(dtype: np.dtype) -> np.ndarray:
    """Every value of a narrow dtype, or of one of two bytes a sample with its extremes."""
    unsigned = np.dtype(f"u{dtype.itemsize}")
    every = np.arange(256 ** dtype.itemsize).astype(unsigned)
    if dtype.itemsize == 2:
        ends = [every[n - 2 : n + 2] for n in (2, 0x8002, 0x7C00, 0x7F80)]
        every = np.concatenate([every[::97], *ends])
    return every.view(dtype)


@pytest.mark.parametrize("device", DEVICES)
def test_a_fraction_that_becomes_an_integer_loses_its_sign(device: str) -> None:
    """GCC 12 replaced the two conversions by trunc, which keeps the sign of zero."""
    x = np.array([-0.25, 0.25, -0.0, -0.99, -3.7, np.nan, -np.inf, 1e30], "f4")

    def there_and_back(x: Any) -> Any:
        whole = x.astype("int32")
        return whole.astype("float16"), jnp.sort(whole.astype("float32")), x.astype("uint8").astype("float16")

    for found, expected in zip(rlx.jit(there_and_back, device=device)(x), there_and_back(jnp.asarray(x)), strict=True):
        same(found, expected)


@pytest.mark.selected("all")
@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_rounding_to_narrow_floats(device: str, dtype: np.dtype) -> None:
    """Numbers of the format, the middles between neighbours, and what is just beside these."""
    with np.errstate(all="ignore"):
        wide = codes(dtype).astype(F)
        finite = np.unique(wide[np.isfinite(wide)])
        following = np.array([np.nextafter(v, np.array(INF, dtype)) for v in finite.astype(dtype)]).astype(F)
        middles = (finite + (following - finite) / 2)[np.isfinite(following)].astype(F)
        beside = [np.nextafter(middles, F(s * INF)) for s in (1, -1)]
        x = np.concatenate([wide, middles, *beside, np.array([INF, -INF, NAN, 0.0, -0.0, 3e38, 1e-45], F)])
        expected = x.astype(dtype)
        found = on(device, lambda x: x.astype(dtype), x)
        same(found.astype(F), expected.astype(F))


@pytest.mark.selected("all")
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_neighbours_of_narrow_floats(dtype: np.dtype) -> None:
    if dtype.itemsize == 2:
        numbers = [0, 1, 2, 0x3C00, 0x8000, 0x8001, 0xBC00]
        numbers += [0x7BFF, 0x7C00, 0xFC00, 0x7E00] if dtype == np.float16 else [0x7F7F, 0x7F80, 0xFF80, 0x7FC0]
        values = np.array(numbers, np.uint16).view(dtype)
    else:
        values = codes(dtype)[::7]
    x, y = (np.array(v, dtype) for v in zip(*itertools.product(values, values), strict=True))
    with np.errstate(all="ignore"):
        same(rlx.jit(nextafter)(x, y).astype(F), np.asarray(nextafter(x, y)).astype(F))
        equal = x == y
        same(rlx.jit(nextafter)(x[equal], y[equal]), y[equal])


# ------------------------------------------------------------------ random numbers
@pytest.mark.selected("all")
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32])
def test_integers_to_the_ends_of_a_dtype(dtype: Any) -> None:
    """A bound may be one beyond the greatest number, which is then drawn."""
    info, key = np.iinfo(dtype), rlx.random.key(3)
    for low, high in [(info.max - 3, int(info.max) + 1), (info.min, info.min + 2), (info.max, int(info.max) + 1)]:
        found = np.asarray(rlx.random.randint(key, (200,), int(low), int(high), dtype))
        assert found.dtype == dtype
        assert {int(v) for v in np.unique(found)} == set(range(int(low), int(high)))
    for high in (3, 1):  # no number is between the bounds
        np.testing.assert_array_equal(rlx.random.randint(key, (5,), 3, high, dtype), [3] * 5)
    whole = rlx.random.randint(key, (2000,), int(info.min), int(info.max) + 1, dtype)
    spread = np.asarray(whole, np.float64)
    assert spread.min() < info.min + 0.01 * (int(info.max) - int(info.min)) and spread.max() > 0.95 * info.max


@pytest.mark.selected("all")
@pytest.mark.parametrize("mode", ["low", "high"])
def test_small_probabilities(mode: str) -> None:
    """The draws are jax's; those of mode "high" resolve less than a float's last place."""
    for p in (0.0, 1e-9, 1e-6, 1e-4, 0.3, 1 - 1e-6, 1.0):
        own = rlx.random.bernoulli(rlx.random.key(1), F(p), (40_000,), mode=mode)
        other = jax.random.bernoulli(jax.random.key(1), F(p), (40_000,), mode=mode)
        np.testing.assert_array_equal(own, other)


# ------------------------------------------------------------------ blocks of few bits
BLOCKS = {
    "zeros": np.zeros((2, 64), F),
    "equal": np.full((2, 64), 3.0, F),
    "one outlier": np.where(np.arange(128).reshape(2, 64) == 5, F(1000), F(0)),
    "negative": np.full((2, 64), -2.0, F),
    "tiny": np.full((2, 64), 1e-30, F),
}
SCHEMES = ["int8", "int8/32", "int8a/32", "int4/32", "fp8e5m2", "nf4/32", "mxfp4", "nvfp4"]


@pytest.mark.selected("all")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_blocks_without_a_spread(scheme: str) -> None:
    for name, block in BLOCKS.items():
        with np.errstate(all="ignore"):
            packed = quant.quantize(block, scheme)
            found = np.asarray(quant.dequantize(packed), F)
        if scheme.startswith(("int", "nf4")):
            assert (np.asarray(packed.scales) > 0).all(), name  # other programs divide by them
        assert np.isfinite(found).all(), name
        np.testing.assert_allclose(found, block, atol=0.3 * np.abs(block).max() + 1e-5, err_msg=name)
        if name == "zeros":
            np.testing.assert_array_equal(found, block)


def test_a_floored_quotient_is_flat_also_at_a_divisor_of_zero() -> None:
    for x, y in ((1.0, 0.0), (-1.0, -0.0), (0.0, 0.0), (float("inf"), 2.0), (5.0, 2.0)):
        for f in (jnp.floor_divide, rlx.jit(jnp.floor_divide)):
            assert [float(d) for d in rlx.grad(f, (0, 1))(x, y)] == [0.0, 0.0]
            assert float(rlx.jvp(f, (x, y), (1.0, 1.0))[1]) == 0.0


LINEAR_AT_ZERO = "expm1 log1p sin tan arcsin arctan sinh tanh arcsinh arctanh".split()


@pytest.mark.parametrize("device", DEVICES)
def test_functions_of_slope_one_keep_tiny_numbers(device: str) -> None:
    """f(x) rounds to x for f(0) = 0 and f'(0) = 1, down to the least subnormal number, where a halving rounds to 0."""
    for dtype in (np.float32, np.float64):
        limits = np.finfo(dtype)
        least, normal = limits.smallest_subnormal, limits.smallest_normal
        tiny = np.array([0, least, 3 * least, normal - least, normal, normal * 4, limits.eps**2], dtype)
        x = np.concatenate([tiny, -tiny])
        with rlx.enable_x64(True):
            results = rlx.jit(lambda x: {n: getattr(jnp, n)(x) for n in LINEAR_AT_ZERO}, device=device)(x)
            for name, found in results.items():
                np.testing.assert_array_equal(np.asarray(found), x, err_msg=name)
