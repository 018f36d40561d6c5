"""rlx.example_libraries.stax: neural networks as pairs of functions.

A layer is a pair (init_fun, apply_fun):

* init_fun(rng, input_shape) -> (output_shape, params)
* apply_fun(params, inputs, rng=None) -> outputs

`serial` and `parallel` combine several layers into one. Layers without options (Relu, Flatten, ...) are pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rlx import lax, nn, random
from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import OptionError
from rlx.nn import (
    elu,
    gelu,
    leaky_relu,
    log_softmax,
    relu,
    selu,
    sigmoid,
    softmax,
    softplus,
    standardize,
)
from rlx.nn.initializers import glorot_normal, normal, ones, zeros
from rlx.numpy.promotion import canonical_axis
from rlx.offered_names import offer_names

__all__ = [
    "AvgPool",
    "BatchNorm",
    "Conv",
    "Conv1DTranspose",
    "ConvTranspose",
    "Dense",
    "Dropout",
    "Elu",
    "Exp",
    "FanInConcat",
    "FanInSum",
    "FanOut",
    "Flatten",
    "Gelu",
    "GeneralConv",
    "GeneralConvTranspose",
    "Identity",
    "LeakyRelu",
    "LogSoftmax",
    "MaxPool",
    "Relu",
    "Selu",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "SumPool",
    "Tanh",
    "elementwise",
    "elu",
    "gelu",
    "glorot",
    "glorot_normal",
    "leaky_relu",
    "log_softmax",
    "logsoftmax",
    "normal",
    "ones",
    "parallel",
    "randn",
    "relu",
    "selu",
    "serial",
    "shape_dependent",
    "sigmoid",
    "softmax",
    "softplus",
    "standardize",
    "zeros",
]

offer_names(globals())

glorot = glorot_normal
randn = normal
logsoftmax = log_softmax

_WEIGHTS, _BIASES, _SMALL = glorot_normal(), normal(), normal(1e-6)

Shape = tuple[int, ...]
Layer = tuple[Callable[..., Any], Callable[..., Any]]


def _stateless(function: Callable[[Any], Any], shape_of: Callable[[Any], Any] = lambda shape: shape) -> Layer:
    """A layer without parameters; `shape_of` gives the output shape."""

    def init_fun(rng: Any, input_shape: Any) -> tuple[Any, tuple[()]]:
        return shape_of(input_shape), ()

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        return function(inputs)

    return init_fun, apply_fun


# ------------------------------------------------------------------ products and convolutions
def Dense(out_dim: int, W_init: Any = _WEIGHTS, b_init: Any = _BIASES) -> Layer:
    """A dense layer: inputs (..., n) @ W (n, out_dim) + b (out_dim,).

    Args:
      W_init, b_init: initialisers of the weights and the biases.

    >>> import rlx
    >>> from rlx.example_libraries import stax
    >>> init_fun, apply_fun = stax.Dense(4)
    >>> shape, (W, b) = init_fun(rlx.random.key(0), (2, 3))
    >>> shape, W.shape, b.shape
    ((2, 4), (3, 4), (4,))
    """

    def init_fun(rng: Any, input_shape: Shape) -> tuple[Shape, tuple[Array, Array]]:
        first, second = random.split(rng)
        params = W_init(first, (input_shape[-1], out_dim)), b_init(second, (out_dim,))
        return (*input_shape[:-1], out_dim), params

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Array:
        W, b = params
        return jnp.dot(inputs, W) + b

    return init_fun, apply_fun


def _convolution(
    dimension_numbers: Sequence[str],
    out_chan: int,
    filter_shape: Sequence[int],
    W_init: Any,
    b_init: Any,
    shape_of: Callable[[Any, Any], Shape],
    convolve: Callable[[Any, Any], Array],
) -> Layer:
    """The shared part of both convolutions: the parameters, and the bias."""
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    W_init = W_init or glorot_normal(rhs_spec.index("I"), rhs_spec.index("O"))

    def init_fun(rng: Any, input_shape: Shape) -> tuple[Shape, tuple[Array, Array]]:
        sizes = iter(filter_shape)
        known = {"O": out_chan, "I": input_shape[lhs_spec.index("C")]}
        kernel_shape = tuple(known[c] if c in known else next(sizes) for c in rhs_spec)
        bias_shape = tuple(out_chan if c == "C" else 1 for c in out_spec)
        first, second = random.split(rng)
        return shape_of(input_shape, kernel_shape), (W_init(first, kernel_shape), b_init(second, bias_shape))

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Array:
        W, b = params
        return convolve(inputs, W) + b

    return init_fun, apply_fun


def GeneralConv(
    dimension_numbers: Sequence[str],
    out_chan: int,
    filter_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Any = "VALID",
    W_init: Any = None,
    b_init: Any = _SMALL,
) -> Layer:
    """A convolution with bias, in the layouts (inputs, kernel, outputs), e.g. ("NHWC", "HWIO", "NHWC").

    Args:
      out_chan: the number of output channels.
      filter_shape: the kernel's size along each spatial axis.
      strides: 1 along each axis unless given.
      padding: "SAME", "VALID", or (low, high) for each spatial axis.

    >>> import rlx
    >>> from rlx.example_libraries import stax
    >>> init_fun, _ = stax.GeneralConv(("NCHW", "OIHW", "NCHW"), 8, (3, 3), padding="SAME")
    >>> shape, (W, b) = init_fun(rlx.random.key(0), (1, 2, 5, 5))
    >>> shape, W.shape, b.shape
    ((1, 8, 5, 5), (8, 2, 3, 3), (1, 8, 1, 1))
    """
    steps = tuple(strides or (1,) * len(filter_shape))
    numbers = tuple(dimension_numbers)
    return _convolution(
        numbers,
        out_chan,
        filter_shape,
        W_init,
        b_init,
        lambda inputs, kernel: lax.conv_general_shape_tuple(inputs, kernel, steps, padding, numbers),
        lambda x, W: lax.conv_general_dilated(x, W, steps, padding, dimension_numbers=numbers),
    )


def GeneralConvTranspose(
    dimension_numbers: Sequence[str],
    out_chan: int,
    filter_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Any = "VALID",
    W_init: Any = None,
    b_init: Any = _SMALL,
) -> Layer:
    """A transposed convolution with bias; the arguments are the same as for GeneralConv.

    >>> import rlx
    >>> from rlx.example_libraries import stax
    >>> init_fun, _ = stax.GeneralConvTranspose(("NHC", "HIO", "NHC"), 4, (3,), strides=(2,), padding="SAME")
    >>> init_fun(rlx.random.key(0), (1, 5, 2))[0]
    (1, 10, 4)
    """
    steps = tuple(strides or (1,) * len(filter_shape))
    numbers: Any = tuple(dimension_numbers)
    return _convolution(
        numbers,
        out_chan,
        filter_shape,
        W_init,
        b_init,
        lambda inputs, kernel: lax.conv_transpose_shape_tuple(inputs, kernel, steps, padding, numbers),
        lambda x, W: lax.conv_transpose(x, W, steps, padding, dimension_numbers=numbers),
    )


Conv = partial(GeneralConv, ("NHWC", "HWIO", "NHWC"))
Conv1DTranspose = partial(GeneralConvTranspose, ("NHC", "HIO", "NHC"))
ConvTranspose = partial(GeneralConvTranspose, ("NHWC", "HWIO", "NHWC"))


# ------------------------------------------------------------------ normalisation and activations
def BatchNorm(
    axis: int | Sequence[int] = (0, 1, 2),
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    beta_init: Any = zeros,
    gamma_init: Any = ones,
) -> Layer:
    """Mean 0 and variance 1 over the axes of the batch, then gamma * x + beta. There are no running averages.

    Args:
      axis: the axes that statistics are taken over.
      epsilon: added to the variance.
      center, scale: whether there is a beta, a gamma.

    >>> import numpy as np
    >>> from rlx.example_libraries import stax
    >>> init_fun, apply_fun = stax.BatchNorm(axis=0, center=False, scale=False)
    >>> print(apply_fun(((), ()), np.array([[1.0], [3.0]])).round(4).tolist())
    [[-1.0], [1.0]]
    """
    axes = (axis,) if isinstance(axis, int) else tuple(axis)

    def init_fun(rng: Any, input_shape: Shape) -> tuple[Shape, tuple[Any, Any]]:
        shape = tuple(d for i, d in enumerate(input_shape) if i not in axes)
        first, second = random.split(rng)
        beta = beta_init(first, shape) if center else ()
        return input_shape, (beta, gamma_init(second, shape) if scale else ())

    def apply_fun(params: Any, x: Any, **kwargs: Any) -> Array:
        beta, gamma = params
        missing = [i for i in range(jnp.ndim(x)) if i in axes]
        z = standardize(x, axes, epsilon=epsilon)
        z = jnp.expand_dims(gamma, missing) * z if scale else z
        return z + jnp.expand_dims(beta, missing) if center else z

    return init_fun, apply_fun


def elementwise(fun: Callable[..., Any], **fun_kwargs: Any) -> Layer:
    """A layer that applies a function to its inputs and keeps their shape.

    >>> import numpy as np
    >>> from rlx.example_libraries import stax
    >>> _, apply_fun = stax.elementwise(np.clip, a_min=0.0, a_max=1.0)
    >>> apply_fun((), np.array([-1.0, 0.5])).tolist()
    [0.0, 0.5]
    """
    return _stateless(partial(fun, **fun_kwargs))


Tanh = elementwise(jnp.tanh)
Relu = elementwise(relu)
Exp = elementwise(jnp.exp)
LogSoftmax = elementwise(log_softmax, axis=-1)
Softmax = elementwise(softmax, axis=-1)
Softplus = elementwise(softplus)
Sigmoid = elementwise(sigmoid)
Elu = elementwise(elu)
LeakyRelu = elementwise(leaky_relu)
Selu = elementwise(selu)
Gelu = elementwise(gelu)
Identity = elementwise(nn.identity)
Flatten = _stateless(
    lambda x: jnp.reshape(x, (jnp.shape(x)[0], -1)),
    lambda shape: (shape[0], math.prod(shape[1:])),
)


# ------------------------------------------------------------------ pooling
def _channels(spec: str | None, ndim: int) -> tuple[int, ...]:
    """The axes of the batch and the channels, in order: the first and the last unless a layout says otherwise."""
    return (0, ndim - 1) if spec is None else tuple(sorted((spec.index("N"), spec.index("C"))))


def _pooling(
    reducer: Any,
    initial: Any,
    window_shape: Sequence[int],
    strides: Sequence[int] | None,
    padding: Any,
    spec: str | None,
    average: bool = False,
) -> Layer:
    """A layer that reduces windows over the spatial axes; `average` divides by the number of elements in each."""
    channels = _channels(spec, len(window_shape) + 2)
    window, steps = list(window_shape), list(strides or (1,) * len(window_shape))
    for i in channels:
        window.insert(i, 1)
        steps.insert(i, 1)

    def pooled(x: Any) -> Array:
        out = lax.reduce_window(x, initial, reducer, window, steps, padding)
        if not average:
            return out
        one = jnp.ones([1 if i in channels else n for i, n in enumerate(x.shape)], x.dtype)
        return out / lax.reduce_window(one, 0.0, lax.add, window, steps, padding)

    def shape_of(shape: Shape) -> Shape:
        """The channels' axes stay; the batch may be -1, for any."""
        sizes = [1 if i in channels else n for i, n in enumerate(shape)]
        found = lax.reduce_window_shape_tuple(sizes, window, steps, padding)
        return tuple(shape[i] if i in channels else n for i, n in enumerate(found))

    return _stateless(pooled, shape_of)


def MaxPool(
    window_shape: Sequence[int], strides: Sequence[int] | None = None, padding: Any = "VALID", spec: str | None = None
) -> Layer:
    """The greatest element of each window.

    Args:
      window_shape: the window's size along each spatial axis.
      strides: 1 along each axis unless given.
      padding: "SAME", "VALID", or (low, high) for every axis of the inputs.
      spec: the layout, e.g. "NCHW"; by default "NHWC" or the equivalent for other ranks.

    >>> import numpy as np
    >>> from rlx.example_libraries import stax
    >>> _, apply_fun = stax.MaxPool((2,), (2,))
    >>> apply_fun((), np.arange(4.0).reshape(1, 4, 1)).tolist()
    [[[1.0], [3.0]]]
    """
    return _pooling(lax.max, -jnp.inf, window_shape, strides, padding, spec)


def SumPool(
    window_shape: Sequence[int], strides: Sequence[int] | None = None, padding: Any = "VALID", spec: str | None = None
) -> Layer:
    """The sum of each window; the arguments are the same as for MaxPool.

    >>> import numpy as np
    >>> from rlx.example_libraries import stax
    >>> _, apply_fun = stax.SumPool((2,), (2,))
    >>> apply_fun((), np.arange(4.0).reshape(1, 4, 1)).tolist()
    [[[1.0], [5.0]]]
    """
    return _pooling(lax.add, 0.0, window_shape, strides, padding, spec)


def AvgPool(
    window_shape: Sequence[int], strides: Sequence[int] | None = None, padding: Any = "VALID", spec: str | None = None
) -> Layer:
    """The mean of the elements in each window without padding; the arguments are the same as for MaxPool.

    >>> import numpy as np
    >>> from rlx.example_libraries import stax
    >>> _, apply_fun = stax.AvgPool((2,), (2,), padding="SAME")
    >>> apply_fun((), np.arange(3.0).reshape(1, 3, 1)).tolist()
    [[[0.5], [2.0]]]
    """
    return _pooling(lax.add, 0.0, window_shape, strides, padding, spec, average=True)


# ------------------------------------------------------------------ several inputs, several outputs
def FanOut(num: int) -> Layer:
    """A layer that returns its input `num` times.

    >>> from rlx.example_libraries import stax
    >>> stax.FanOut(2)[1]((), 5.0)
    [5.0, 5.0]
    """
    return _stateless(lambda x: [x] * num, lambda shape: [shape] * num)


FanInSum = _stateless(sum, lambda shapes: shapes[0])


def FanInConcat(axis: int = -1) -> Layer:
    """A layer that joins its inputs along an axis.

    >>> from rlx.example_libraries import stax
    >>> init_fun, _ = stax.FanInConcat()
    >>> init_fun(None, [(2, 3), (2, 1)])[0]
    (2, 4)
    """

    def joined(shapes: Sequence[Shape]) -> Shape:
        at = canonical_axis(axis, len(shapes[0]), "FanInConcat")
        return (*shapes[0][:at], sum(shape[at] for shape in shapes), *shapes[0][at + 1 :])

    return _stateless(lambda inputs: jnp.concatenate(inputs, axis), joined)


def Dropout(rate: Any, mode: str = "train") -> Layer:
    """Keep each element with probability `rate`, divided by it; in modes other than "train" keep all unchanged.

    apply_fun takes a key as `rng`; it raises OptionError (a ValueError) without one.

    >>> import numpy as np
    >>> import rlx
    >>> from rlx.example_libraries import stax
    >>> _, apply_fun = stax.Dropout(0.5)
    >>> sorted(set(apply_fun((), np.ones(100), rng=rlx.random.key(0)).tolist()))
    [0.0, 2.0]
    """

    def init_fun(rng: Any, input_shape: Shape) -> tuple[Shape, tuple[()]]:
        return input_shape, ()

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        rng = kwargs.get("rng")
        if rng is None:
            raise OptionError(
                "A Dropout layer was applied without a key.", "Call apply_fun(params, inputs, rng=rlx.random.key(0))."
            )
        if mode != "train":
            return inputs
        keep = random.bernoulli(rng, rate, jnp.shape(inputs))
        return jnp.where(keep, inputs / rate, 0)

    return init_fun, apply_fun


# ------------------------------------------------------------------ combinators
def _keys(rng: Any, count: int) -> Any:
    """A key for each of `count` layers; None for each if there is no key."""
    return [None] * count if rng is None else random.split(rng, count)


def serial(*layers: Layer) -> Layer:
    """Layers applied one after another, as one layer. Its parameters are a list of theirs.

    >>> import rlx
    >>> from rlx.example_libraries import stax
    >>> init_fun, apply_fun = stax.serial(stax.Dense(8), stax.Relu, stax.Dense(2))
    >>> shape, params = init_fun(rlx.random.key(0), (5, 3))
    >>> shape, apply_fun(params, rlx.numpy.ones((5, 3))).shape
    ((5, 2), (5, 2))
    """

    def init_fun(rng: Any, input_shape: Any) -> tuple[Any, list[Any]]:
        params = []
        for layer_init, _ in layers:
            rng, layer_rng = random.split(rng)
            input_shape, param = layer_init(layer_rng, input_shape)
            params.append(param)
        return input_shape, params

    def apply_fun(params: Any, inputs: Any, *, rng: Any = None, **kwargs: Any) -> Any:
        for (_, layer), param, key in zip(layers, params, _keys(rng, len(layers)), strict=True):
            inputs = layer(param, inputs, rng=key, **kwargs)
        return inputs

    return init_fun, apply_fun


def parallel(*layers: Layer) -> Layer:
    """Layers side by side: a sequence of inputs to a list of outputs. FanOut and FanIn* go before and after it.

    >>> import rlx
    >>> from rlx.example_libraries import stax
    >>> branches = stax.parallel(stax.Dense(4), stax.Identity)
    >>> init_fun, apply_fun = stax.serial(stax.FanOut(2), branches, stax.FanInConcat())
    >>> init_fun(rlx.random.key(0), (5, 3))[0]
    (5, 7)
    """

    def init_fun(rng: Any, input_shape: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        keys = random.split(rng, len(layers))
        made = [layer[0](key, shape) for layer, key, shape in zip(layers, keys, input_shape, strict=True)]
        return tuple(shape for shape, _ in made), tuple(param for _, param in made)

    def apply_fun(params: Any, inputs: Any, *, rng: Any = None, **kwargs: Any) -> list[Any]:
        rows = zip(layers, params, inputs, _keys(rng, len(layers)), strict=True)
        return [layer[1](param, x, rng=key, **kwargs) for layer, param, x, key in rows]

    return init_fun, apply_fun


def shape_dependent(make_layer: Callable[[Any], Layer]) -> Layer:
    """A layer that is built when the shape of its inputs is known.

    Args:
      make_layer: takes the shape of the inputs, returns a layer.

    >>> import rlx
    >>> from rlx.example_libraries import stax
    >>> same_width = stax.shape_dependent(lambda shape: stax.Dense(shape[-1]))
    >>> same_width[0](rlx.random.key(0), (5, 3))[0]
    (5, 3)
    """

    def init_fun(rng: Any, input_shape: Any) -> tuple[Any, Any]:
        return make_layer(input_shape)[0](rng, input_shape)

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        return make_layer(jnp.shape(inputs))[1](params, inputs, **kwargs)

    return init_fun, apply_fun
