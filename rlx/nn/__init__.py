"""rlx.nn: activations, normalisation, attention and initialisers, as in jax.nn."""

from __future__ import annotations

from rlx.nn import initializers
from rlx.nn.activations import (
    celu,
    elu,
    gelu,
    glu,
    hard_sigmoid,
    hard_silu,
    hard_swish,
    hard_tanh,
    identity,
    leaky_relu,
    log1mexp,
    log_sigmoid,
    mish,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    soft_sign,
    softplus,
    sparse_plus,
    sparse_sigmoid,
    squareplus,
    swish,
    tanh,
)
from rlx.nn.attention import (
    dot_product_attention,
)
from rlx.nn.normalisation import (
    batch_norm,
    layer_norm,
    log_softmax,
    logmeanexp,
    logsumexp,
    one_hot,
    rms_norm,
    softmax,
    standardize,
)
from rlx.nn.scaled_products import (
    get_scaled_dot_general_config,
    scaled_dot_general,
    scaled_matmul,
)
from rlx.offered_names import offer_names as _offer_names

__all__ = [
    "batch_norm",
    "celu",
    "dot_product_attention",
    "elu",
    "gelu",
    "get_scaled_dot_general_config",
    "glu",
    "hard_sigmoid",
    "hard_silu",
    "hard_swish",
    "hard_tanh",
    "identity",
    "initializers",
    "layer_norm",
    "leaky_relu",
    "log1mexp",
    "log_sigmoid",
    "log_softmax",
    "logmeanexp",
    "logsumexp",
    "mish",
    "one_hot",
    "relu",
    "relu6",
    "rms_norm",
    "scaled_dot_general",
    "scaled_matmul",
    "selu",
    "sigmoid",
    "silu",
    "soft_sign",
    "softmax",
    "softplus",
    "sparse_plus",
    "sparse_sigmoid",
    "squareplus",
    "standardize",
    "swish",
    "tanh",
]

_offer_names(globals())
