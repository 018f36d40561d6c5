"""stax's layers against jax's: equal shapes, parameters and results for equal keys."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax.example_libraries import stax as jax_stax

import rlx
from rlx.example_libraries import stax
from rlx.testing import check_grads

IMAGES = (2, 6, 7, 3)
WHNC = ("WHNC", "HWOI", "WHNC")

LAYERS: dict[str, tuple[Any, Any]] = {
    "dense": (lambda s: s.Dense(4), (5, 3)),
    "conv": (lambda s: s.Conv(4, (2, 3), (2, 1), "SAME"), IMAGES),
    "general conv": (lambda s: s.GeneralConv(("NCHW", "OIHW", "NHWC"), 4, (2, 2)), IMAGES),
    "conv transpose": (lambda s: s.ConvTranspose(4, (3, 2), (2, 1), "SAME"), IMAGES),
    "conv 1d transpose": (lambda s: s.Conv1DTranspose(4, (3,), (2,)), (2, 5, 3)),
    "batch norm": (lambda s: s.BatchNorm(), IMAGES),
    "batch norm of channels first": (lambda s: s.BatchNorm(axis=(0, 2, 3), scale=False), IMAGES),
    "max pool": (lambda s: s.MaxPool((2, 3), (2, 1)), IMAGES),
    "sum pool": (lambda s: s.SumPool((2, 2), padding="SAME"), IMAGES),
    "average pool": (lambda s: s.AvgPool((3, 3), (2, 2), padding="SAME"), IMAGES),
    "average pool of a layout": (lambda s: s.AvgPool((2, 3), spec="WHNC"), IMAGES),
    "fan": (
        lambda s: s.serial(
            s.FanOut(3), s.parallel(s.Dense(2), s.Tanh, s.serial(s.Dense(5), s.Softplus)), s.FanInConcat(-1)
        ),
        (4, 3),
    ),
    "residual": (
        lambda s: s.serial(
            s.FanOut(2), s.parallel(s.shape_dependent(lambda d: s.Dense(d[-1])), s.Identity), s.FanInSum
        ),
        (4, 3),
    ),
    "classifier": (
        lambda s: s.serial(
            s.Conv(4, (3, 3), padding="SAME"), s.Relu, s.MaxPool((2, 2), (2, 2)), s.Flatten, s.Dense(5), s.LogSoftmax
        ),
        IMAGES,
    ),
    "dropout": (lambda s: s.serial(s.Dense(50), s.Dropout(0.7), s.Dense(2)), (4, 3)),
    "no dropout": (lambda s: s.Dropout(0.5, mode="test"), (4, 3)),
} | {
    name: (lambda s, name=name: getattr(s, name), (4, 3))
    for name in "Tanh Relu Exp LogSoftmax Softmax Softplus Sigmoid Elu LeakyRelu Selu Gelu Identity Flatten".split()
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_agrees_with_jax(name: str) -> None:
    make, shape = LAYERS[name]
    init_fun, apply_fun = make(stax)
    found_shape, params = init_fun(rlx.random.PRNGKey(7), shape)
    inputs = np.random.default_rng(3).normal(size=shape).astype(np.float32)
    with jax.enable_x64(False):
        jax_init, jax_apply = make(jax_stax)
        jax_shape, jax_params = jax_init(jax.random.PRNGKey(7), shape)
        wanted = jax_apply(jax_params, inputs, rng=jax.random.PRNGKey(1))
    assert tuple(found_shape) == tuple(jax_shape)
    found = rlx.jit(apply_fun)(params, inputs, rng=rlx.random.PRNGKey(1))
    assert found.shape == wanted.shape == tuple(found_shape) and found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(found, apply_fun(params, inputs, rng=rlx.random.PRNGKey(1)), rtol=2e-5, atol=2e-6)
    mine, theirs = rlx.tree.leaves(params), jax.tree.leaves(jax_params)
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_network_is_differentiable_and_batches() -> None:
    init_fun, apply_fun = stax.serial(stax.Conv(2, (2, 2)), stax.Softplus, stax.Flatten, stax.Dense(1))
    _, params = init_fun(rlx.random.key(0), (1, 4, 4, 1))
    images = np.random.default_rng(0).normal(size=(3, 1, 4, 4, 1))
    params = rlx.tree.map(lambda x: x.astype("float64"), params)
    check_grads(lambda p: apply_fun(p, images[0]), (params,), order=1)
    batched = rlx.vmap(apply_fun, (None, 0))(params, images)
    np.testing.assert_allclose(batched, np.stack([apply_fun(params, x) for x in images]), rtol=1e-6)


def test_a_batch_of_any_size() -> None:
    layers = stax.Conv(2, (3, 3), (2, 2), "SAME"), stax.AvgPool((2, 2), padding="SAME"), stax.Flatten, stax.Dense(3)
    init_fun, apply_fun = stax.serial(*layers)
    shape, params = init_fun(rlx.random.key(0), (-1, 8, 8, 1))
    assert shape == (-1, 3) and apply_fun(params, np.ones((5, 8, 8, 1), "f4")).shape == (5, 3)


def test_dropout_needs_a_key() -> None:
    with pytest.raises(ValueError, match="without a key"):
        stax.Dropout(0.5)[1]((), np.ones(3))
