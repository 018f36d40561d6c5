"""A classifier of small images with stax and optimizers."""

import itertools

import jax.numpy as jnp
import numpy as onp
from jax import grad, jit, random
from jax.example_libraries import optimizers, stax
from jax.example_libraries.stax import Conv, Dense, Dropout, Flatten, LogSoftmax, MaxPool, Relu


def data():
    rng = onp.random.RandomState(0)
    images = rng.rand(128, 8, 8, 1).astype("float32")
    labels = (images[:, :4].sum((1, 2, 3)) > images[:, 4:].sum((1, 2, 3))).astype(int)
    return images, onp.eye(2, dtype="float32")[labels]


init_fun, predict = stax.serial(
    Conv(8, (3, 3), padding="SAME"),
    Relu,
    MaxPool((2, 2), strides=(2, 2)),
    Flatten,
    Dense(16),
    Relu,
    Dropout(0.9),
    Dense(2),
    LogSoftmax,
)


def loss(params, batch, rng):
    inputs, targets = batch
    return -jnp.mean(jnp.sum(predict(params, inputs, rng=rng) * targets, axis=1))


def accuracy(params, batch):
    inputs, targets = batch
    return jnp.mean(jnp.argmax(predict(params, inputs, rng=random.PRNGKey(5)), axis=1) == jnp.argmax(targets, axis=1))


def run():
    x, y = data()
    opt_init, opt_update, get_params = optimizers.adam(1e-2)
    rng = random.PRNGKey(0)
    _, init_params = init_fun(rng, (-1, 8, 8, 1))
    opt_state = opt_init(init_params)
    itercount = itertools.count()

    @jit
    def update(i, opt_state, batch, rng):
        params = get_params(opt_state)
        return opt_update(i, grad(loss)(params, batch, rng), opt_state)

    losses = []
    for _epoch in range(3):
        for j in range(4):
            rng, key = random.split(rng)
            batch = x[32 * j : 32 * j + 32], y[32 * j : 32 * j + 32]
            opt_state = update(next(itercount), opt_state, batch, key)
        losses.append(loss(get_params(opt_state), (x, y), random.PRNGKey(1)))
    return {
        "losses": jnp.stack(losses),
        "acc": accuracy(get_params(opt_state), (x, y)),
        "params": get_params(opt_state),
    }
