"""Every sampler against jax.random, bit for bit where no transcendental function is involved."""

from __future__ import annotations

import jax
import jax.random as theirs
import numpy as np
import pytest

import rlx
from rlx import random as ours

SEEDS = (0, 42, 2**31 - 1)
SHAPES = ((), (7,), (3, 5), (2, 0, 3))
LOGITS = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(autouse=True)
def _default_dtypes():
    """jax with the 32-bit defaults that rlx has."""
    with jax.enable_x64(False):
        yield


def host(x) -> np.ndarray:
    """A concrete rlx array as NumPy, small floats included."""
    return x.concrete().numpy()


def ulps(a: np.ndarray, b: np.ndarray) -> float:
    """The largest distance in units of the last place; infinities and NaNs must agree."""
    if a.dtype.kind not in "fV" and a.dtype != np.dtype("float16"):
        return float((a != b).sum())
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    np.testing.assert_array_equal(np.isfinite(wide_a), np.isfinite(wide_b))
    finite = np.isfinite(wide_b)
    if not finite.any():
        return 0.0
    spacing = np.abs(np.spacing(np.abs(b[finite]))).astype(np.float64)
    return float(np.max(np.abs(wide_a[finite] - wide_b[finite]) / spacing))


def compare(name: str, *args, bound: float = 0, absolute: float = 0, seed: int = 0, **kwargs) -> None:
    a = host(getattr(ours, name)(ours.key(seed), *args, **kwargs))
    b = np.asarray(getattr(theirs, name)(theirs.key(seed), *args, **kwargs))
    assert a.shape == b.shape
    assert a.dtype == b.dtype
    if absolute:
        close = np.abs(a.astype(np.float64) - b.astype(np.float64)) <= absolute
        a, b = np.where(close, b, a), b
    assert ulps(a, b) <= bound


# ------------------------------------------------------------- keys
@pytest.mark.parametrize("seed", [*SEEDS, -1, 123456789012])
def test_keys(seed):
    a, b = ours.PRNGKey(seed), theirs.PRNGKey(seed)
    np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    np.testing.assert_array_equal(np.asarray(ours.key_data(ours.key(seed))), np.asarray(b))
    for num in (2, 5, (2, 3)):
        np.testing.assert_array_equal(np.asarray(ours.split(a, num)), np.asarray(theirs.split(b, num)))
    for data in (0, 1, 2**32 - 1):
        np.testing.assert_array_equal(np.asarray(ours.fold_in(a, data)), np.asarray(theirs.fold_in(b, data)))


def test_sixty_four_bit_seeds():
    with jax.enable_x64(True), rlx.scoped(default_int=np.dtype("i8")):
        for seed in (-1, 2**40 + 5):
            np.testing.assert_array_equal(np.asarray(ours.PRNGKey(seed)), np.asarray(theirs.PRNGKey(seed)))


def test_traced_seeds_and_data():
    for seed in (np.int32(-7), np.uint8(200)):
        expected = np.asarray(jax.jit(theirs.PRNGKey)(seed))
        np.testing.assert_array_equal(np.asarray(rlx.jit(ours.PRNGKey)(seed)), expected)
    seeds = np.arange(4, dtype=np.int32)
    np.testing.assert_array_equal(
        np.asarray(rlx.vmap(ours.PRNGKey)(seeds)), np.asarray(jax.vmap(theirs.PRNGKey)(seeds))
    )
    key = ours.PRNGKey(1)
    folded = rlx.vmap(lambda i: ours.fold_in(key, i))(seeds)
    expected = jax.vmap(lambda i: theirs.fold_in(theirs.PRNGKey(1), i))(seeds)
    np.testing.assert_array_equal(np.asarray(folded), np.asarray(expected))


# ------------------------------------------------------------- exact ones
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32"])
def test_bits(shape, dtype):
    for seed in SEEDS:
        compare("bits", shape, dtype, seed=seed)
    compare("bits", (3, 3000), dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.selected(1)
def test_uniform(dtype):
    dtype = jax.numpy.dtype(dtype)
    for seed in SEEDS:
        for shape in SHAPES:
            compare("uniform", shape, dtype, seed=seed)
        # XLA rounds the product of half precision or not, as the processor has it
        absolute = 2.0**-8 if dtype == np.float16 else 0
        for count in (100, 10000):
            compare("uniform", (count,), dtype, minval=-2.5, maxval=3.0, seed=seed, absolute=absolute)


def test_sixty_four_bits():
    with jax.enable_x64(True):
        for seed in SEEDS:
            compare("bits", (5,), "uint64", seed=seed)
            compare("uniform", (50,), "float64", -2.5, 3.0, seed=seed)
            compare("randint", (50,), -(2**40), 2**50, "int64", seed=seed)
            compare("normal", (50,), "float64", seed=seed, bound=1000)


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int8", "uint8", "int16"])
@pytest.mark.parametrize("bounds", [(0, 10), (-5, 100), (0, 256), (3, 3), (7, 2), (-(2**31), 2**31 - 1)])
def test_randint(dtype, bounds):
    if bounds[0] < 0 and dtype == "uint32":
        pytest.skip("jax refuses negative bounds of unsigned integers")
    for seed in SEEDS:
        compare("randint", (50,), *bounds, dtype, seed=seed)


def test_randint_with_array_bounds():
    low, high = np.arange(5, dtype=np.int32), np.arange(10, 15, dtype=np.int32)
    compare("randint", (3, 5), low, high)


@pytest.mark.parametrize("mode", ["low", "high"])
@pytest.mark.selected(1)
def test_bernoulli(mode):
    compare("bernoulli", 0.3, (100,), mode)
    compare("bernoulli", np.linspace(0, 1, 5, dtype=np.float32), (4, 5), mode)


def test_rademacher():
    compare("rademacher", (100,))
    compare("rademacher", (100,), "float32")


@pytest.mark.parametrize("x", [1, 2, 10, 1000, np.arange(12).reshape(4, 3).astype(np.float32)], ids=str)
def test_permutation(x):
    for seed in SEEDS:
        compare("permutation", x, seed=seed)
    if isinstance(x, np.ndarray):
        compare("permutation", x, axis=1)
        compare("permutation", x, axis=-1, independent=True)


@pytest.mark.thorough
def test_choice():
    a = np.arange(10, 16, dtype=np.float32)
    p = np.array([0.1, 0.2, 0.3, 0.05, 0.05, 0.3], np.float32)
    table = np.arange(12, dtype=np.int32).reshape(3, 4)
    for replace in (True, False):
        compare("choice", a, (4,), replace)
        compare("choice", a, (2, 3), replace, p)
        compare("choice", 6, (3,), replace, p)
        compare("choice", table, (2,), replace, axis=1)
    compare("choice", 5, ())


@pytest.mark.thorough
def test_categorical():
    compare("categorical", LOGITS)
    compare("categorical", LOGITS, 0)
    compare("categorical", LOGITS, -1, (5, 3))
    compare("categorical", LOGITS, -1, (2, 3), False)
    compare("categorical", LOGITS, mode="high")


@pytest.mark.thorough
def test_discrete():
    compare("poisson", np.array([0.0, 0.5, 3.0, 9.9, 20.0, 1000.0], np.float32), (30, 6))
    compare("geometric", np.array([0.1, 0.5, 0.9], np.float32), (30, 3))
    compare("binomial", np.array([3.0, 40.0, 1000.0], np.float32), np.array([0.2, 0.5, 0.9], np.float32), (30, 3))
    compare("multinomial", np.float32(20), np.array([0.2, 0.3, 0.5], np.float32))


# ------------------------------------------------------------- through transcendental functions
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "complex64"])
@pytest.mark.selected(1)
def test_normal(dtype):
    dtype = jax.numpy.dtype(dtype)
    for seed in SEEDS:
        if dtype.kind == "c":
            a = np.asarray(ours.normal(ours.key(seed), (50,), dtype)).view(np.float32)
            b = np.asarray(theirs.normal(theirs.key(seed), (50,), dtype)).view(np.float32)
            assert ulps(a, b) <= 4
        else:
            compare("normal", (200,), dtype, seed=seed, bound=0 if dtype == np.float32 else 1)
            compare("normal", (8192,), dtype, seed=seed, bound=0 if dtype == np.float32 else 1)


TRANSCENDENTAL = [
    ("truncated_normal", (-2.0, 1.5, (200,)), 8),
    ("exponential", ((200,),), 0),
    ("gumbel", ((200,),), 0),
    ("laplace", ((200,),), 0),
    ("logistic", ((200,),), 0),
    ("cauchy", ((200,),), 2),
    ("lognormal", (np.float32(0.5), (200,)), 4),
    ("pareto", (np.float32(2.0), (200,)), 4),
    ("rayleigh", (np.float32(2.0), (200,)), 0),
    ("triangular", (np.float32(0), np.float32(1), np.float32(3), (200,)), 0),
    ("weibull_min", (np.float32(2), np.float32(3), (200,)), 2),
    ("wald", (np.float32(2), (200,)), 0),
    ("maxwell", ((200,),), 2),
    ("double_sided_maxwell", (np.float32(1), np.float32(2), (200,)), 8),
    ("gamma", (np.array([0.3, 1.0, 5.0], np.float32), (20, 3)), 4),
    # XLA contracts a product and a sum into one operation, where rlx rounds both
    ("loggamma", (np.array([0.3, 1.0, 5.0], np.float32), (20, 3)), 8),
    ("beta", (np.float32(0.7), np.float32(2), (20,)), 32),
    ("dirichlet", (np.array([0.5, 1.0, 2.0], np.float32), (10,)), 8),
    ("chisquare", (np.float32(3), (20,)), 4),
    ("f", (np.float32(3), np.float32(4), (20,)), 8),
    ("t", (np.float32(3), (20,)), 4),
    ("generalized_normal", (1.5, (20,)), 8),
    ("ball", (3, 2, (10,)), 4),
]


@pytest.mark.parametrize(("name", "args", "bound"), TRANSCENDENTAL, ids=[t[0] for t in TRANSCENDENTAL])
@pytest.mark.selected(1)
def test_transcendental(name, args, bound):
    for seed in SEEDS[:2]:
        compare(name, *args, seed=seed, bound=bound, absolute=1e-6 if bound else 0)


def test_gumbel_high():
    compare("gumbel", (200,), "float32", "high")


@pytest.mark.thorough
def test_gamma_gradient():
    alpha = np.array([0.4, 1.0, 6.0], np.float32)
    for name in ("gamma", "loggamma"):
        a = rlx.grad(lambda x, name=name: getattr(ours, name)(ours.key(3), x).sum())(alpha)
        b = jax.grad(lambda x, name=name: getattr(theirs, name)(theirs.key(3), x).sum())(alpha)
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-4)


# ------------------------------------------------------------- transformations
def test_under_jit_vmap_and_scan():
    def build(lib):
        return lambda key: lib.random.normal(key, (3,))

    keys, their_keys = ours.split(ours.key(5), 4), theirs.split(theirs.key(5), 4)
    assert keys.shape == (4,)
    np.testing.assert_allclose(
        np.asarray(rlx.vmap(build(rlx))(keys)), np.asarray(jax.vmap(build(jax))(their_keys)), rtol=1e-6
    )
    np.testing.assert_allclose(
        np.asarray(rlx.jit(build(rlx))(keys[1])), np.asarray(build(jax)(their_keys[1])), rtol=1e-6
    )

    def walk(lib):
        def step(key, _):
            key, own = lib.random.split(key)
            return key, lib.random.uniform(own)

        return lambda key: lib.lax.scan(step, key, None, length=4)[1]

    np.testing.assert_array_equal(np.asarray(walk(rlx)(ours.key(1))), np.asarray(walk(jax)(theirs.key(1))))
    rows = rlx.lax.map(lambda key: ours.uniform(key), keys)
    expected = jax.vmap(theirs.uniform)(their_keys)
    np.testing.assert_array_equal(np.asarray(rows), np.asarray(expected))


def test_uniform_gradient_with_respect_to_bounds():
    def build(lib):
        def total(low, high):
            return lib.random.uniform(lib.random.key(0), (5,), np.float32, low, high).sum()

        return lib.grad(total, (0, 1))

    for a, b in zip(build(rlx)(-1.0, 2.0), build(jax)(-1.0, 2.0), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-6)


# ------------------------------------------------------------- errors, key arrays
def test_key_arrays():
    keys = ours.split(ours.key(0), (2, 3))
    assert keys.shape == (2, 3)
    assert keys[0].shape == (3,)
    assert keys[1, 2].shape == ()
    assert keys.flatten().shape == (6,)
    assert len(list(keys)) == 2
    first, second = ours.split(ours.key(0))
    assert not np.array_equal(np.asarray(ours.key_data(first)), np.asarray(ours.key_data(second)))
    wrapped = ours.wrap_key_data(ours.key_data(keys))
    assert wrapped.shape == (2, 3)
    assert ours.key_impl(keys) == "threefry2x32"


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: ours.normal(3, (2,)), "takes a key"),
        (lambda: ours.normal(np.zeros(2, np.float32), (2,)), "takes a key"),
        (lambda: ours.normal(ours.split(ours.key(0)), (2,)), "one key"),
        (lambda: ours.uniform(ours.key(0), (2,), np.int32), "floating"),
        (lambda: ours.randint(ours.key(0), (2,), 0, 3, np.float32), "integer"),
        (lambda: ours.bits(ours.key(0), (2,), np.int32), "unsigned"),
        (lambda: ours.bernoulli(ours.key(0), np.array([0.1, 0.2]), (3,)), "broadcast"),
        (lambda: ours.choice(ours.key(0), 3, (4,), replace=False), "without replacement"),
        (lambda: ours.key(0.5), "integer"),
        (lambda: ours.key(0, impl="dice"), "no random number generator"),
    ],
)
def test_errors(call, match):
    with pytest.raises(rlx.errors.RlxError, match=match):
        call()


# ------------------------------------------------------------- matrices
@pytest.mark.parametrize("shape", [(), (2,), (0,)])
@pytest.mark.parametrize(("n", "m"), [(3, None), (2, 4), (4, 2), (1, 1)])
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_orthogonal(shape, n, m, dtype):
    a = host(ours.orthogonal(ours.key(7), n, shape, dtype, m))
    b = np.asarray(theirs.orthogonal(theirs.key(7), n, shape, dtype, m))
    assert (a.shape, a.dtype) == (b.shape, b.dtype)
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", ["cholesky", "eigh", "svd"])
@pytest.mark.selected(1)
def test_multivariate_normal(method):
    mean = np.array([[1.0, -2.0], [0.5, 0.0]], np.float32)
    cov = np.array([[2.0, 0.3], [0.3, 1.0]], np.float32)
    for shape in (None, (2,), (3, 2)):
        a = host(ours.multivariate_normal(ours.key(1), mean, cov, shape, method=method))
        b = np.asarray(theirs.multivariate_normal(theirs.key(1), mean, cov, shape, method=method))
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if method == "cholesky":  # the other factors are unique but for signs
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    many = host(rlx.jit(lambda k: ours.multivariate_normal(k, mean[0], cov, (20000,), method=method))(ours.key(2)))
    np.testing.assert_allclose(np.cov(many.T), cov, atol=0.06)
    np.testing.assert_allclose(many.mean(0), mean[0], atol=0.05)


def test_matrices_refuse_bad_input():
    key = ours.key(0)
    with pytest.raises(rlx.errors.ShapeError):
        ours.multivariate_normal(key, np.zeros(2), np.eye(3))
    with pytest.raises(rlx.errors.ShapeError):
        ours.multivariate_normal(key, np.zeros((3, 2)), np.eye(2), (2,))
    with pytest.raises(rlx.errors.UnsupportedError):
        ours.multivariate_normal(key, np.zeros(2), np.eye(2), method="qr")
    for arguments in ({"impl": "dice"}, {"impl": "threefry2x32", "dtype": ours.key_dtype()}):
        with pytest.raises(rlx.errors.OptionError):
            ours.key(0, **arguments)
    for wrong in (np.dtype("f4"), 3, object()):
        with pytest.raises(rlx.errors.InputTypeError):
            ours.key(0, dtype=wrong)


def test_keys_compare():
    keys = ours.split(ours.key(0), 3)
    assert (keys == keys).tolist() == [True] * 3
    assert (keys == keys[1]).tolist() == [False, True, False]
    with pytest.raises(TypeError):
        hash(keys)


@pytest.mark.parametrize("name", ["gamma", "loggamma", "beta", "chisquare", "poisson"])
@pytest.mark.selected(1)
def test_only_exact_samplers(name):
    parameters = (2.0, 3.0) if name == "beta" else (2.0,)
    draw = getattr(ours, name)
    plain, named = draw(ours.key(0), *parameters, (4,)), draw(ours.key(0), *parameters, (4,), method="exact")
    np.testing.assert_array_equal(host(plain), host(named))
    with pytest.raises(rlx.errors.UnsupportedError, match="no method"):
        draw(ours.key(0), *parameters, method="approximate")
