"""rlx.nn against jax.nn: values, first and second derivatives, at kinks and at infinities."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx
from rlx import nn

F = np.float32
POINTS = np.array([-1e30, -1000, -7, -3, -1, -0.5, -1e-3, 0, 1e-3, 0.5, 1, 2, 3, 4, 6, 7, 80, 1000], F)
ACTIVATIONS = [
    "celu", "elu", "gelu", "hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh", "identity",
    "leaky_relu", "log_sigmoid", "mish", "relu", "relu6", "selu", "sigmoid", "silu", "soft_sign",
    "softplus", "sparse_plus", "sparse_sigmoid", "squareplus", "swish",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _default_dtypes():
    with jax.enable_x64(False):
        yield


def close(a, b, tolerance: float = 2e-6) -> None:
    a, b = a.concrete().numpy(), np.asarray(b)
    assert a.shape == b.shape
    assert a.dtype == b.dtype
    if tolerance < np.finfo(np.float16).eps and a.dtype.itemsize == 2:
        tolerance = 1e-2
    wide = np.float64 if a.dtype.kind != "c" else np.complex128
    np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=tolerance, atol=tolerance)


# ------------------------------------------------------------- activations
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name):
    ours, theirs = getattr(nn, name), getattr(jax.nn, name)
    points = POINTS[1:] if name == "squareplus" else POINTS  # x**2 overflows at -1e30
    close(ours(points), theirs(points))
    close(rlx.jit(ours)(points), theirs(points))
    gradient = rlx.grad(lambda x: ours(x).sum())
    close(gradient(points), jax.vmap(jax.grad(theirs))(points), 1e-5)
    close(rlx.jit(gradient)(points), jax.vmap(jax.grad(theirs))(points), 1e-5)
    close(rlx.vmap(rlx.grad(ours))(points), jax.vmap(jax.grad(theirs))(points), 1e-5)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32"])
def test_activation_dtypes(name, dtype):
    x = np.array([-3, -1, 0, 1, 2], jnp.dtype(dtype))
    ours, theirs = getattr(nn, name)(x), getattr(jax.nn, name)
    try:
        expected = theirs(x)
    except TypeError:
        return
    close(ours, expected)


@pytest.mark.parametrize("name", ["gelu", "softplus", "silu", "mish", "elu", "sigmoid"])
def test_second_derivatives(name):
    points = np.linspace(-2.3, 2.3, 8).astype(F)
    ours, theirs = getattr(nn, name), getattr(jax.nn, name)
    close(rlx.vmap(rlx.grad(rlx.grad(ours)))(points), jax.vmap(jax.grad(jax.grad(theirs)))(points), 1e-5)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_activations_at_special_points(name, dtype):
    """Values and derivatives at NaN, infinities, negative zero and far out are jax's."""
    points = np.array([np.nan, np.inf, -np.inf, -0.0, 1e18, -1e18, 1e-18], dtype)
    ours, theirs = getattr(nn, name), getattr(jax.nn, name)
    with jax.enable_x64(True):
        values, slopes = theirs(points), jax.vmap(jax.grad(theirs))(points)
        for wrap in (lambda f: f, rlx.jit):
            np.testing.assert_allclose(wrap(ours)(points), values, rtol=2e-6)
            np.testing.assert_allclose(wrap(rlx.vmap(rlx.grad(ours)))(points), slopes, rtol=2e-6, atol=1e-7)


def test_gelu_exact():
    close(nn.gelu(POINTS, approximate=False), jax.nn.gelu(POINTS, approximate=False))


def test_parameters_of_activations():
    x = POINTS[3:-2]
    close(nn.leaky_relu(x, 0.3), jax.nn.leaky_relu(x, 0.3))
    close(nn.elu(x, 0.5), jax.nn.elu(x, 0.5))
    close(nn.celu(x, 0.5), jax.nn.celu(x, 0.5))
    close(nn.squareplus(x, 2), jax.nn.squareplus(x, 2))


def test_glu():
    x = np.linspace(-2, 2, 24).astype(F).reshape(2, 4, 3)
    close(nn.glu(x, 1), jax.nn.glu(x, 1))
    with pytest.raises(rlx.errors.ShapeError, match="even"):
        nn.glu(x)


def test_log1mexp():
    x = np.array([1e-6, 0.1, 0.69, 0.7, 3.0, 50.0], F)
    close(nn.log1mexp(x), jax.nn.log1mexp(x))
    close(rlx.grad(lambda x: nn.log1mexp(x).sum())(x), jax.vmap(jax.grad(jax.nn.log1mexp))(x), 1e-5)


# ------------------------------------------------------------- along axes
X = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(F) * 3
WHERE = np.random.default_rng(1).random((3, 4, 5)) > 0.3


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("axis", [-1, 0, (1, 2), None])
@pytest.mark.selected(1)
def test_softmax(name, axis):
    ours, theirs = getattr(nn, name), getattr(jax.nn, name)
    close(ours(X, axis), theirs(X, axis))
    weights = np.cos(np.arange(60)).reshape(X.shape).astype(F)
    close(
        rlx.jit(rlx.grad(lambda x: (ours(x, axis) * weights).sum()))(X),
        jax.grad(lambda x: (theirs(x, axis) * weights).sum())(X),
        1e-5,
    )


@pytest.mark.thorough
def test_softmax_second_derivative_and_jacobian():
    x = X[0, 0]
    close(rlx.jacfwd(nn.softmax)(x), jax.jacfwd(jax.nn.softmax)(x))
    close(rlx.jacrev(nn.softmax)(x), jax.jacrev(jax.nn.softmax)(x))
    close(rlx.hessian(lambda x: nn.softmax(x)[0])(x), jax.hessian(lambda x: jax.nn.softmax(x)[0])(x))


def test_softmax_where():
    close(nn.softmax(X, where=WHERE), jax.nn.softmax(X, where=WHERE))
    close(nn.log_softmax(X, where=WHERE), jax.nn.log_softmax(X, where=WHERE))


def test_softmax_of_large_and_infinite_values():
    x = np.array([[1e4, 1e4 - 1, -1e30], [0.0, -np.inf, 1.0]], F)
    close(nn.softmax(x), jax.nn.softmax(x))
    close(nn.log_softmax(x), jax.nn.log_softmax(x))
    half = np.clip(x, -6e4, 6e4).astype(np.float16)
    close(nn.softmax(half), jax.nn.softmax(half))


@pytest.mark.thorough
def test_logsumexp():
    close(nn.logsumexp(X), jax.nn.logsumexp(X))
    close(nn.logsumexp(X, axis=(0, 2), keepdims=True), jax.nn.logsumexp(X, axis=(0, 2), keepdims=True))
    close(nn.logsumexp(X, axis=1, where=WHERE), jax.nn.logsumexp(X, axis=1, where=WHERE))
    factors = np.linspace(-1, 2, 5).astype(F)
    for ours, theirs in zip(
        nn.logsumexp(X, axis=-1, b=factors, return_sign=True),
        jax.nn.logsumexp(X, axis=-1, b=factors, return_sign=True),
        strict=True,
    ):
        close(ours, theirs, 1e-5)
    edge = np.array([[-np.inf, -np.inf], [np.inf, 0.0], [1e30, 0.0]], F)
    close(nn.logsumexp(edge, axis=1), jax.nn.logsumexp(edge, axis=1))
    close(rlx.grad(lambda x: nn.logsumexp(x))(X), jax.grad(lambda x: jax.nn.logsumexp(x))(X))


def test_logmeanexp():
    close(nn.logmeanexp(X, axis=1), jax.nn.logmeanexp(X, axis=1))
    close(nn.logmeanexp(X, axis=1, where=WHERE), jax.nn.logmeanexp(X, axis=1, where=WHERE))


@pytest.mark.parametrize("algorithm", ["fast", "stable"])
def test_standardize(algorithm):
    close(nn.standardize(X, algorithm=algorithm), jax.nn.standardize(X, algorithm=algorithm), 1e-5)
    close(nn.standardize(X, 1, where=WHERE), jax.nn.standardize(X, 1, where=WHERE), 1e-5)
    close(nn.standardize(X, mean=0.5, variance=2.0), jax.nn.standardize(X, mean=0.5, variance=2.0))


def test_one_hot():
    x = np.array([[0, 2], [5, -1]], np.int32)
    for axis in (-1, 0, 1):
        close(nn.one_hot(x, 3, axis=axis), jax.nn.one_hot(x, 3, axis=axis))
    close(nn.one_hot(x, 3, dtype=np.int8), jax.nn.one_hot(x, 3, dtype=np.int8))
    ours = rlx.vmap(lambda x: nn.one_hot(x, 4, axis="i"), axis_name="i")(np.arange(4))
    assert np.asarray(ours).tolist() == [1, 1, 1, 1]


# ------------------------------------------------------------- normalisations
def _layer_norm(x, w, b, axis=-1):
    mean = x.mean(axis, keepdims=True)
    return (x - mean) / jnp.sqrt(((x - mean) ** 2).mean(axis, keepdims=True) + 1e-5) * w + b


def test_layer_norm():
    w, b = np.linspace(0.5, 1.5, 5).astype(F), np.linspace(-1, 1, 5).astype(F)
    close(nn.layer_norm(X, w, b), _layer_norm(X, w, b), 1e-5)
    close(nn.layer_norm(X), _layer_norm(X, 1.0, 0.0), 1e-5)
    ours = rlx.jit(rlx.grad(lambda *args: rlx.numpy.sin(nn.layer_norm(*args)).sum(), (0, 1, 2)))
    theirs = jax.grad(lambda *args: jnp.sin(_layer_norm(*args)).sum(), (0, 1, 2))
    for a, c in zip(ours(X, w, b), theirs(X, w, b), strict=True):
        close(a, c, 1e-4)
    assert nn.layer_norm(X.astype(np.float16), axis=(1, 2)).dtype == np.float16


def test_rms_norm():
    w = np.linspace(0.5, 1.5, 5).astype(F)
    expected = X / np.sqrt((X**2).mean(-1, keepdims=True) + 1e-6) * w
    close(nn.rms_norm(X, w), expected, 1e-5)


def test_batch_norm():
    y, (mean, variance) = nn.batch_norm(X, axis=1)
    close(mean, X.mean((0, 2)), 1e-5)
    close(variance, X.var((0, 2)), 1e-5)
    shape = (1, 4, 1)
    expected = (X - X.mean((0, 2)).reshape(shape)) / np.sqrt(X.var((0, 2)).reshape(shape) + 1e-5)
    close(y, expected, 1e-5)
    again, _ = nn.batch_norm(X[:1], mean=mean, variance=variance, axis=1)
    close(again, expected[:1], 1e-5)


# ------------------------------------------------------------- attention
def _qkv(heads=4, key_heads=4, dtype=F):
    rng = np.random.default_rng(2)
    shapes = (2, 5, heads, 8), (2, 7, key_heads, 8), (2, 7, key_heads, 8)
    return [rng.normal(size=s).astype(dtype) for s in shapes]


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (4, 1)])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"scale": 0.3},
        {"local_window_size": 2},
        {"local_window_size": (1, 3), "is_causal": True},
        {"query_seq_lengths": np.array([3, 5], np.int32), "key_value_seq_lengths": np.array([2, 7], np.int32)},
    ],
    ids=str,
)
def test_attention(heads, options):
    q, k, v = _qkv(*heads)
    close(nn.dot_product_attention(q, k, v, **options), jax.nn.dot_product_attention(q, k, v, **options), 1e-5)


@pytest.mark.parametrize("shape", [(2, 4, 5, 7), (1, 1, 5, 7), (2, 1, 5, 7), (1, 4, 1, 7)])
@pytest.mark.selected(1)
def test_attention_bias_and_mask(shape):
    rng = np.random.default_rng(3)
    bias, mask = rng.normal(size=shape).astype(F), rng.random(shape) > 0.4
    q, k, v = _qkv(4, 2)
    for options in ({"bias": bias}, {"mask": mask}, {"bias": bias, "mask": mask, "is_causal": True}):
        close(nn.dot_product_attention(q, k, v, **options), jax.nn.dot_product_attention(q, k, v, **options), 1e-5)


@pytest.mark.parametrize("shape", [(7,), (5, 1), (5, 7), (4, 1, 7), (2, 1, 1, 1)])
def test_attention_mask_that_broadcasts(shape):
    q, k, v = _qkv(4, 2)
    mask = np.random.default_rng(4).random(shape) > 0.3
    for call in (nn.dot_product_attention, rlx.jit(nn.dot_product_attention)):
        close(call(q, k, v, mask=mask), jax.nn.dot_product_attention(q, k, v, mask=mask), 1e-5)


def test_attention_broadcasts_in_the_open():
    """It runs where ranks may not be promoted."""
    q, k, v = _qkv(4, 2)
    options = {"is_causal": True, "local_window_size": 2, "mask": np.ones((5, 7), bool)}
    expected = nn.dot_product_attention(q, k, v, **options)
    with rlx.numpy_rank_promotion("raise"):
        close(nn.dot_product_attention(q, k, v, **options), expected)


def test_one_hot_of_other_numbers_warns():
    with pytest.warns(DeprecationWarning, match="integers"):
        assert nn.one_hot(np.array([1.0], F), 2).tolist() == [[0.0, 1.0]]


@pytest.mark.thorough
def test_attention_gradient_dtypes_and_rank():
    q, k, v = _qkv(4, 2)
    ours = rlx.jit(rlx.grad(lambda *a: rlx.numpy.sin(nn.dot_product_attention(*a, is_causal=True)).sum(), (0, 1, 2)))
    theirs = jax.grad(lambda *a: jnp.sin(jax.nn.dot_product_attention(*a, is_causal=True)).sum(), (0, 1, 2))
    for a, b in zip(ours(q, k, v), theirs(q, k, v), strict=True):
        close(a, b, 1e-4)
    half = _qkv(dtype=np.float16)
    close(nn.dot_product_attention(*half), jax.nn.dot_product_attention(*half), 2e-3)
    single = [x[0] for x in (q, k, v)]
    close(nn.dot_product_attention(*single), jax.nn.dot_product_attention(*single), 1e-5)
    out, residual = nn.dot_product_attention(q, k, v, return_residual=True)
    expected, expected_residual = jax.nn.dot_product_attention(q, k, v, return_residual=True)
    close(out, expected, 1e-5)
    close(residual, expected_residual, 1e-5)


def test_attention_with_a_cap_and_sinks():
    """Which JAX does not have: against the formula."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(0, 2, (2, 5, heads, 8)).astype(F) for heads in (4, 2, 2))
    sinks, mask = rng.normal(0, 1, 4).astype(F), np.tril(np.ones((5, 5), bool))
    mask[2] = False
    scores = np.einsum("btnh,bsnh->bnts", q, k.repeat(2, axis=2)) / np.sqrt(8)
    scores = np.where(mask, 3 * np.tanh(scores / 3), -np.inf)
    weights = np.exp(scores) / (np.exp(scores).sum(-1) + np.exp(sinks)[:, None])[..., None]
    expected = np.einsum("bnts,bsnh->btnh", weights, v.repeat(2, axis=2)).astype(F)

    def capped(*operands):
        return nn.dot_product_attention(*operands, mask=mask, softcap=3.0, sinks=sinks)

    close(capped(q, k, v), expected, 1e-5)
    close(rlx.jit(capped)(q, k, v), expected, 1e-5)
    slope = rlx.jit(rlx.grad(lambda s: nn.dot_product_attention(q, k, v, softcap=3.0, sinks=s).sum()))(sinks)
    step = np.eye(4, dtype=F)[1] * F(0.01)
    ahead, behind = (nn.dot_product_attention(q, k, v, softcap=3.0, sinks=sinks + s).sum() for s in (step, -step))
    close(slope[1], np.asarray((ahead - behind) / F(0.02)), 1e-2)
    with pytest.raises(rlx.errors.ShapeError, match="one for each of 4 heads"):
        nn.dot_product_attention(q, k, v, sinks=sinks[:2])


def test_attention_errors():
    q, k, v = _qkv()
    with pytest.raises(rlx.errors.ShapeError):
        nn.dot_product_attention(q, k, v[:, :3])
    with pytest.raises(rlx.errors.DtypeError):
        nn.dot_product_attention(q, k, v.astype(np.float16))
    with pytest.raises(rlx.errors.DtypeError, match="bools"):
        nn.dot_product_attention(q, k, v, mask=np.ones((1, 1, 5, 7), F))


# ------------------------------------------------------------- initialisers
@pytest.mark.parametrize(
    "name",
    ["glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "lecun_normal", "lecun_uniform",
     "normal", "uniform", "truncated_normal"],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 5)])
def test_initialisers(name, shape):
    ours = getattr(nn.initializers, name)()(rlx.random.key(1), shape)
    theirs = getattr(jax.nn.initializers, name)()(jax.random.key(1), shape)
    close(ours, theirs)


@pytest.mark.parametrize("mode", ["fan_in", "fan_out", "fan_avg", "fan_geo_avg"])
@pytest.mark.parametrize("distribution", ["uniform", "normal", "truncated_normal"])
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.selected(1)
def test_variance_scaling(mode, distribution, dtype):
    arguments = (0.7, mode, distribution, (0, 1), 2)
    ours = nn.initializers.variance_scaling(*arguments)(rlx.random.key(1), (2, 3, 4), dtype)
    theirs = jax.nn.initializers.variance_scaling(*arguments)(jax.random.key(1), (2, 3, 4), jnp.dtype(dtype))
    close(ours, theirs)


def test_constant_initialisers():
    key = rlx.random.key(0)
    assert np.asarray(nn.initializers.zeros(key, (2,), np.int32)).tolist() == [0, 0]
    assert np.asarray(nn.initializers.ones(key, (2,))).tolist() == [1.0, 1.0]
    assert np.asarray(nn.initializers.constant(np.array([1.0, 2.0]))(key, (2, 2))).tolist() == [[1.0, 2.0]] * 2
    with pytest.raises(rlx.errors.ShapeError, match="input axis"):
        nn.initializers.glorot_normal()(key, (3,))


# ------------------------------------------------------------- orthogonal initializers
@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (4, 2), (2, 3, 4), (0, 3)])
@pytest.mark.parametrize("axis", [-1, 0])
def test_orthogonal_initializer(shape, axis):
    a = nn.initializers.orthogonal(2.0, axis)(rlx.random.key(3), shape)
    b = jax.nn.initializers.orthogonal(2.0, axis)(jax.random.key(3), shape)
    close(a, b, 1e-5)


@pytest.mark.parametrize("shape", [(3, 2, 4), (3, 3, 2, 2), (1, 2, 3, 1, 2)])
def test_delta_orthogonal_initializer(shape):
    a = nn.initializers.delta_orthogonal()(rlx.random.key(3), shape)
    close(a, jax.nn.initializers.delta_orthogonal()(jax.random.key(3), shape), 1e-5)


def test_orthogonal_initializers_refuse_bad_shapes():
    for make, shape in ((nn.initializers.orthogonal, (3,)), (nn.initializers.delta_orthogonal, (3, 4, 2))):
        with pytest.raises(rlx.errors.ShapeError):
            make()(rlx.random.key(0), shape)
