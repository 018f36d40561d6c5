"""Benchmark programs, each written once for any library with JAX's names.

A program is made by a function of (library, generator): it returns the function to be jitted and its NumPy arguments.
Where NumPy has a natural way to say the same, `numpy` holds it; `torch_programs` holds PyTorch's. Sizes are those of
ordinary work on one CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import rlx

Function = Callable[..., Any]
Case = tuple[Function, tuple[Any, ...]]

__all__ = ["Program", "perceptron", "programs", "transformer"]


class Program(NamedTuple):
    """A benchmark: its name, how to build it for a library, and the same in NumPy if there is a natural way."""

    name: str
    build: Callable[[Any, np.random.Generator], Case]
    numpy: Function | None = None


programs: list[Program] = []


def program(numpy: Function | None = None) -> Callable[[Callable[[Any, np.random.Generator], Case]], Function]:
    """Decorator: list the function under its own name."""

    def add(build: Callable[[Any, np.random.Generator], Case]) -> Function:
        programs.append(Program(build.__name__, build, numpy))
        return build

    return add


def normal(generator: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    """Normal numbers in float32."""
    return (generator.standard_normal(shape) * scale).astype(np.float32)


def one_hot(generator: np.random.Generator, count: int, classes: int) -> np.ndarray:
    """Random labels as rows with a single one."""
    return np.eye(classes, dtype=np.float32)[generator.integers(0, classes, count)]


# ------------------------------------------------------------------ elementwise work
def _damped(xp: Any) -> Function:
    return lambda x, y: xp.sqrt(x * x + y * y + 1.0) - 0.5 * xp.abs(x - y) + 3.0 * x


@program(numpy=_damped(np))
def elementwise_chain(J: Any, generator: np.random.Generator) -> Case:
    """Eight cheap operations on four million elements: memory bound if fused."""
    return _damped(J.numpy), (normal(generator, 4_000_000), normal(generator, 4_000_000))


def _waves(xp: Any) -> Function:
    return lambda x: xp.exp(-0.5 * x * x) * xp.cos(3.0 * x) + xp.tanh(x) * xp.log1p(xp.abs(x))


@program(numpy=_waves(np))
def elementwise_functions(J: Any, generator: np.random.Generator) -> Case:
    """exp, cos, tanh and log1p of four million elements."""
    return _waves(J.numpy), (normal(generator, 4_000_000),)


@program()
def elementwise_gradient(J: Any, generator: np.random.Generator) -> Case:
    """The gradient of a summed chain."""
    function = _waves(J.numpy)
    return J.grad(lambda x: function(x).sum()), (normal(generator, 4_000_000),)


# ------------------------------------------------------------------ rows
@program(numpy=np.sum)
def sum_of_all(J: Any, generator: np.random.Generator) -> Case:
    """The sum of four million elements."""
    return J.numpy.sum, (normal(generator, 4096, 1024),)


@program(numpy=lambda x: (x * x).sum())
def sum_of_squares(J: Any, generator: np.random.Generator) -> Case:
    """The sum of the squares of four million elements."""
    return (lambda x: (x * x).sum()), (normal(generator, 4096, 1024),)


@program(numpy=lambda x: x.sum(axis=0))
def sum_of_columns(J: Any, generator: np.random.Generator) -> Case:
    """Sums along the first axis."""
    return (lambda x: x.sum(axis=0)), (normal(generator, 4096, 1024),)


def _numpy_softmax(x: np.ndarray) -> np.ndarray:
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


@program(numpy=_numpy_softmax)
def softmax_rows(J: Any, generator: np.random.Generator) -> Case:
    """Softmax of 4096 rows of 2048."""
    return (lambda x: J.nn.softmax(x, axis=-1)), (normal(generator, 4096, 2048),)


def _layer_norm(xp: Any, x: Any, scale: Any, shift: Any) -> Any:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / xp.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5) * scale + shift


@program(numpy=lambda x, scale, shift: _layer_norm(np, x, scale, shift))
def layer_norm_rows(J: Any, generator: np.random.Generator) -> Case:
    """Layer norm of 4096 rows of 768."""
    arguments = (normal(generator, 4096, 768), normal(generator, 768), normal(generator, 768))
    return (lambda x, scale, shift: _layer_norm(J.numpy, x, scale, shift)), arguments


@program()
def layer_norm_gradient(J: Any, generator: np.random.Generator) -> Case:
    """Gradients of layer norm with respect to all three operands."""

    def loss(x: Any, scale: Any, shift: Any, weights: Any) -> Any:
        return (_layer_norm(J.numpy, x, scale, shift) * weights).sum()

    rows = (normal(generator, 4096, 768), normal(generator, 4096, 768))
    return J.grad(loss, argnums=(0, 1, 2)), (rows[0], normal(generator, 768), normal(generator, 768), rows[1])


@program(numpy=lambda x: x.var(axis=0))
def variance_of_columns(J: Any, generator: np.random.Generator) -> Case:
    """Variance along the first axis."""
    return (lambda x: x.var(axis=0)), (normal(generator, 8192, 512),)


# ------------------------------------------------------------------ networks
def _mlp(generator: np.random.Generator, sizes: tuple[int, ...]) -> list[dict[str, np.ndarray]]:
    pairs = zip(sizes[:-1], sizes[1:], strict=True)
    return [{"weight": normal(generator, a, b, scale=a**-0.5), "bias": np.zeros(b, np.float32)} for a, b in pairs]


def _mlp_loss(J: Any) -> Function:
    def loss(layers: Any, x: Any, labels: Any) -> Any:
        for layer in layers[:-1]:
            x = J.nn.relu(x @ layer["weight"] + layer["bias"])
        scores = x @ layers[-1]["weight"] + layers[-1]["bias"]
        return -(J.nn.log_softmax(scores) * labels).sum(axis=-1).mean()

    return loss


def perceptron(J: Any, generator: np.random.Generator, examples: int) -> Case:
    """A training step with Adam of a perceptron with two hidden layers, on so many examples at once."""
    jnp, loss = J.numpy, _mlp_loss(J)

    def step(state: Any, x: Any, labels: Any) -> Any:
        layers, mean, square, count = state
        value, gradient = J.value_and_grad(loss)(layers, x, labels)
        count = count + 1.0
        mean = J.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradient)
        square = J.tree.map(lambda s, g: 0.999 * s + 0.001 * g * g, square, gradient)
        rate = 1e-3 * jnp.sqrt(1.0 - 0.999**count) / (1.0 - 0.9**count)
        layers = J.tree.map(lambda p, m, s: p - rate * m / (jnp.sqrt(s) + 1e-8), layers, mean, square)
        return (layers, mean, square, count), value

    layers = _mlp(generator, (784, 384, 384, 10))
    zeros = [{name: np.zeros_like(leaf) for name, leaf in layer.items()} for layer in layers]
    state = (layers, zeros, zeros, np.float32(0.0))
    return step, (state, normal(generator, examples, 784), one_hot(generator, examples, 10))


@program()
def mlp_adam_step(J: Any, generator: np.random.Generator) -> Case:
    """A whole training step of a perceptron with two hidden layers, Adam included."""
    return perceptron(J, generator, examples=100)


@program()
def per_example_gradients(J: Any, generator: np.random.Generator) -> Case:
    """vmap of grad: a gradient for each of 48 examples."""
    function = J.vmap(J.grad(_mlp_loss(J)), in_axes=(None, 0, 0))
    return function, (_mlp(generator, (256, 256, 256, 10)), normal(generator, 48, 256), one_hot(generator, 48, 10))


@program()
def convolution_gradient(J: Any, generator: np.random.Generator) -> Case:
    """Loss and gradient of a network with three strided convolutions."""
    layout = ("NHWC", "HWIO", "NHWC")

    def loss(weights: Any, images: Any, labels: Any) -> Any:
        x = images
        for kernel in weights[:-1]:
            x = J.nn.relu(J.lax.conv_general_dilated(x, kernel, (2, 2), "SAME", dimension_numbers=layout))
        return -(J.nn.log_softmax(x.mean(axis=(1, 2)) @ weights[-1]) * labels).sum(axis=-1).mean()

    shapes = ((3, 3, 3, 16), (3, 3, 16, 32), (3, 3, 32, 64), (64, 10))
    weights = [normal(generator, *shape, scale=0.1) for shape in shapes]
    return J.value_and_grad(loss), (weights, normal(generator, 32, 32, 32, 3), one_hot(generator, 32, 10))


def transformer(J: Any, generator: np.random.Generator, layers: int, sequences: int) -> Case:
    """Loss and gradient of a GPT of width 96 with 3 heads, on so many sequences of 96 tokens."""
    jnp, width, heads, length, words = J.numpy, 96, 3, 96, 200

    def attend(x: Any, block: Any) -> Any:
        batch = x.shape[0]
        parts = jnp.split(x @ block["attend"], 3, axis=-1)
        query, key, value = (p.reshape(batch, length, heads, -1).transpose(0, 2, 1, 3) for p in parts)
        scores = query @ key.transpose(0, 1, 3, 2) * (heads / width) ** 0.5
        visible = jnp.arange(length)[:, None] >= jnp.arange(length)
        mixed = J.nn.softmax(jnp.where(visible, scores, -1e30), axis=-1) @ value
        return mixed.transpose(0, 2, 1, 3).reshape(batch, length, width) @ block["mix"]

    def loss(weights: Any, tokens: Any) -> Any:
        x = weights["words"][tokens[:, :-1]] + weights["places"]
        for block in weights["blocks"]:
            x = x + attend(_layer_norm(jnp, x, *block["norm"]), block)
            x = x + J.nn.gelu(_layer_norm(jnp, x, *block["norm"]) @ block["up"]) @ block["down"]
        scores = J.nn.log_softmax(x @ weights["words"].T)
        return -jnp.take_along_axis(scores, tokens[:, 1:, None], axis=-1).mean()

    shapes = {"attend": (width, 3 * width), "mix": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
    blocks = []
    for _ in range(layers):
        block: dict[str, Any] = {name: normal(generator, *shape, scale=0.03) for name, shape in shapes.items()}
        block["norm"] = (np.ones(width, np.float32), np.zeros(width, np.float32))
        blocks.append(block)
    embeddings = {"words": (words, width), "places": (length, width)}
    weights: dict[str, Any] = {name: normal(generator, *shape, scale=0.03) for name, shape in embeddings.items()}
    tokens = generator.integers(0, words, (sequences, length + 1)).astype(np.int32)
    return J.value_and_grad(loss), (weights | {"blocks": blocks}, tokens)


@program()
def transformer_gradient(J: Any, generator: np.random.Generator) -> Case:
    """Loss and gradient of a GPT: 3 layers, width 96, 3 heads, 8 sequences of 96 tokens."""
    return transformer(J, generator, layers=3, sequences=8)


# ------------------------------------------------------------------ loops
def _pendulum(J: Any, length: int) -> Function:
    jnp = J.numpy

    def path(state: Any, damping: Any) -> Any:
        def advance(state: Any, _: Any) -> Any:
            angle, speed = state
            speed = speed - 0.01 * (jnp.sin(angle) + damping * speed)
            angle = angle + 0.01 * speed
            return (angle, speed), angle

        return J.lax.scan(advance, state, None, length=length)[1]

    return path


@program()
def scan_forward(J: Any, generator: np.random.Generator) -> Case:
    """A damped pendulum for 50 000 steps: a loop with a tiny body."""
    return _pendulum(J, 50_000), ((np.float32(1.0), np.float32(0.0)), np.float32(0.1))


@program()
def scan_gradient(J: Any, generator: np.random.Generator) -> Case:
    """The gradient through 10 000 steps of the pendulum."""
    path, start = _pendulum(J, 10_000), (np.float32(1.0), np.float32(0.0))
    return J.grad(lambda damping, state: (path(state, damping) ** 2).mean()), (np.float32(0.1), start)


def _recurrent(J: Any) -> Function:
    def run(weights: Any, inputs: Any, hidden: Any) -> Any:
        def cell(hidden: Any, x: Any) -> Any:
            forget = J.nn.sigmoid(x @ weights["gate_in"] + hidden @ weights["gate"])
            fresh = J.numpy.tanh(x @ weights["state_in"] + hidden @ weights["state"])
            hidden = forget * hidden + (1.0 - forget) * fresh
            return hidden, hidden

        return J.lax.scan(cell, hidden, inputs)[1]

    return run


def _recurrent_arguments(generator: np.random.Generator) -> tuple[Any, ...]:
    weights = {name: normal(generator, 48, 48, scale=0.1) for name in ("gate_in", "gate", "state_in", "state")}
    return weights, normal(generator, 400, 24, 48), np.zeros((24, 48), np.float32)


@program()
def recurrent_forward(J: Any, generator: np.random.Generator) -> Case:
    """A gated recurrent network over 400 steps."""
    return _recurrent(J), _recurrent_arguments(generator)


@program()
def recurrent_gradient(J: Any, generator: np.random.Generator) -> Case:
    """Its gradient."""
    run = _recurrent(J)

    def loss(weights: Any, inputs: Any, hidden: Any) -> Any:
        return (run(weights, inputs, hidden) ** 2).mean()

    return J.grad(loss), _recurrent_arguments(generator)


# ------------------------------------------------------------------ science
@program()
def hessian_vector_product(J: Any, generator: np.random.Generator) -> Case:
    """Forward over reverse through a logistic regression on 8000 rows."""

    def product(weights: Any, vector: Any, features: Any, labels: Any) -> Any:
        def loss(weights: Any) -> Any:
            scores = features @ weights
            return (J.nn.softplus(scores) - labels * scores).mean()

        return J.jvp(J.grad(loss), (weights,), (vector,))[1]

    labels = (generator.random(8000) < 0.5).astype(np.float32)
    return product, (normal(generator, 160), normal(generator, 160), normal(generator, 8000, 160), labels)


@program()
def nbody_forces(J: Any, generator: np.random.Generator) -> Case:
    """The gradient of the softened potential energy of 800 bodies."""

    def energy(places: Any, masses: Any) -> Any:
        apart = places[:, None, :] - places[None, :, :]
        return -(masses[:, None] * masses / J.numpy.sqrt((apart**2).sum(axis=-1) + 0.01)).sum()

    return J.grad(energy), (normal(generator, 800, 3), generator.random(800).astype(np.float32))


def _brusselator(J: Any, size: int) -> Function:
    """Two fields that react and diffuse on a periodic grid: their time derivative."""
    xp = J.numpy

    def laplacian(w: Any) -> Any:
        return xp.roll(w, 1, 0) + xp.roll(w, -1, 0) + xp.roll(w, 1, 1) + xp.roll(w, -1, 1) - 4.0 * w

    def function(y: Any) -> Any:
        u, v = y.reshape(2, size, size)
        exchange = u * u * v
        du = 1.0 + exchange - 4.4 * u + 0.1 * laplacian(u)
        return xp.concatenate([du.ravel(), (3.4 * u - exchange + 0.1 * laplacian(v)).ravel()])

    return function


@program()
def sparse_jacobian(J: Any, generator: np.random.Generator) -> Case:
    """The Jacobian of a reaction with diffusion, 8192 unknowns: in JAX for a colouring that rlx has found."""
    function, y = _brusselator(J, 64), normal(generator, 2 * 64 * 64)
    if J is rlx:
        return (lambda y: rlx.jacobian(function, sparse=True)(y).data), (y,)
    plan = rlx.color(rlx.sparsity(_brusselator(rlx, 64))(y), "forward")
    return _compressed(J, function, plan), (y,)


def _energy(J: Any) -> Function:
    """The area of a surface over a grid."""
    return lambda u: J.numpy.sqrt(1.0 + (u[1:, :-1] - u[:-1, :-1]) ** 2 + (u[:-1, 1:] - u[:-1, :-1]) ** 2).sum()


@program()
def sparse_hessian(J: Any, generator: np.random.Generator) -> Case:
    """The Hessian of a surface's area, 10,000 unknowns: in JAX for a colouring that rlx has found."""
    function, u = _energy(J), normal(generator, 100, 100)
    if J is rlx:
        return (lambda u: rlx.sparse_hessian(function)(u).data), (u,)
    plan = rlx.color(rlx.hessian_sparsity(_energy(rlx))(u), "symmetric")
    return _compressed(J, J.grad(function), plan), (u,)


def _compressed(J: Any, function: Function, plan: rlx.Coloring) -> Function:
    """The elements of a Jacobian by the products with its colours, as users of JAX write it."""
    columns, positions = np.asarray(plan.columns), np.asarray(plan.positions)
    seeds = columns[None, :] == np.arange(plan.colors)[:, None]

    def elements(x: Any) -> Any:
        directions = J.numpy.asarray(seeds.reshape(-1, *x.shape), x.dtype)
        products = J.vmap(lambda t: J.jvp(function, (x,), (t,))[1])(directions)
        return products.reshape(-1)[positions]

    return elements


# ------------------------------------------------------------------ movement
@program(numpy=np.sort)
def sort_vector(J: Any, generator: np.random.Generator) -> Case:
    """Sort half a million numbers."""
    return J.numpy.sort, (normal(generator, 500_000),)


@program(numpy=lambda x: np.argsort(x, stable=True))
def argsort_vector(J: Any, generator: np.random.Generator) -> Case:
    """The order of half a million numbers, equal ones as they stand."""
    return J.numpy.argsort, (normal(generator, 500_000),)


@program(numpy=lambda x: np.cumsum(x, axis=1))
def cumulative_sum(J: Any, generator: np.random.Generator) -> Case:
    """Running sums along 2000 rows of 2000."""
    return (lambda x: J.numpy.cumsum(x, axis=1)), (normal(generator, 2000, 2000),)


@program(numpy=lambda x, groups: np.bincount(groups, x, 500).astype(np.float32))
def segment_sum(J: Any, generator: np.random.Generator) -> Case:
    """Sums of half a million numbers in 500 groups."""
    groups = generator.integers(0, 500, 500_000).astype(np.int32)
    return (lambda x, groups: J.numpy.zeros(500, x.dtype).at[groups].add(x)), (normal(generator, 500_000), groups)


@program(numpy=lambda table, rows: table[rows])
def gather_rows(J: Any, generator: np.random.Generator) -> Case:
    """Look up 20 000 rows of an embedding table."""
    rows = generator.integers(0, 50_000, 20_000).astype(np.int32)
    return (lambda table, rows: table[rows]), (normal(generator, 50_000, 64), rows)


# ------------------------------------------------------------------ calls, products, random numbers
@program(numpy=lambda x: x * 2.0)
def dispatch_one_array(J: Any, generator: np.random.Generator) -> Case:
    """What a call costs: one array of eight numbers."""
    return (lambda x: x * 2.0), (normal(generator, 8),)


@program()
def dispatch_tree(J: Any, generator: np.random.Generator) -> Case:
    """What a call with a dict of 20 arrays costs."""
    leaves = {f"leaf{i}": normal(generator, 8) for i in range(20)}
    return (lambda leaves: J.tree.map(lambda x: x * 2.0, leaves)), (leaves,)


@program(numpy=np.matmul)
def matrix_product(J: Any, generator: np.random.Generator) -> Case:
    """A product of square matrices of order 768."""
    return (lambda a, b: a @ b), (normal(generator, 768, 768), normal(generator, 768, 768))


@program(numpy=np.matmul)
def batched_matrix_product(J: Any, generator: np.random.Generator) -> Case:
    """96 products of order 96."""
    return (lambda a, b: a @ b), (normal(generator, 96, 96, 96), normal(generator, 96, 96, 96))


@program()
def random_normal(J: Any, generator: np.random.Generator) -> Case:
    """Half a million normal numbers by threefry."""
    return (lambda key: J.random.normal(key, (500_000,))), (np.array([0, 7], np.uint32),)


@program()
def random_uniform(J: Any, generator: np.random.Generator) -> Case:
    """A million uniform numbers by threefry."""
    return (lambda key: J.random.uniform(key, (1_000_000,))), (np.array([0, 7], np.uint32),)
