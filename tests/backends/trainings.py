"""The first steps of the examples' trainings, on any device."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import numpy as np
from modules import load as load_module

import rlx
import rlx.numpy as jnp
from rlx import lm, nn, quant

__all__ = ["TRAININGS", "decoder", "losses"]

ROOT = Path(__file__).resolve().parents[2]


def decoder(rope: lm.Rope) -> tuple[lm.DecoderConfig, Any, np.ndarray]:
    """A small decoder, its parameters and tokens of two sequences."""
    config = lm.DecoderConfig(vocabulary=19, width=32, layers=2, heads=4, key_heads=2, inner=16, context=64, rope=rope)
    return config, lm.random_parameters(config, seed=0), np.arange(14).reshape(2, 7) % 19


def losses(device: str, steps: int, example: str) -> list[float]:
    """The losses of an example's first steps of training."""
    module = load_module(ROOT / "examples" / f"{example}.py")
    with rlx.default_device(device):
        return TRAININGS[example](module, steps)


def _digits(module: Any, steps: int) -> list[float]:
    images, _, labels, _ = module.load()
    parameters = module.initial_parameters(rlx.random.key(0))
    zeros = rlx.tree.map(jnp.zeros_like, parameters)
    state, found = (parameters, zeros, zeros, 0.0), []
    for count in range(steps):
        rows = slice(count % 20 * 64, count % 20 * 64 + 64)
        state, value = module.step(state, rlx.random.fold_in(rlx.random.key(1), count), images[rows], labels[rows])
        found.append(float(value))
    return found


def _chargpt(module: Any, steps: int) -> list[float]:
    alphabet, text = module.corpus()
    parameters = module.initial_parameters(rlx.random.key(0), len(alphabet))
    optimiser = rlx.optim.adam(1e-3, b2=0.99)
    state, step = optimiser.init(parameters), module.training_step(optimiser)
    found, generator = [], np.random.default_rng(0)
    for _ in range(steps):
        places = generator.integers(0, len(text) - module.CONTEXT - 1, 8)
        parameters, state, value = step(parameters, state, text[places[:, None] + np.arange(module.CONTEXT + 1)])
        found.append(float(value))
    return found


def _lorenz_fit(module: Any, steps: int) -> list[float]:
    recorded = np.asarray(rlx.jit(module.trajectory, static_argnums=2)(np.ones(3, np.float32), module.TRUTH, 1001))
    segments = recorded[1:].reshape(-1, module.SEGMENT, 3)
    scale, velocity, found = jnp.ones(3), jnp.zeros(3), []
    for _ in range(steps):
        scale, velocity, value = module.step(scale, velocity, np.float32(0.01), segments[:-1, -1], segments[1:])
        found.append(float(value))
    return found


def _private_gradients(module: Any, steps: int) -> list[float]:
    generator = np.random.default_rng(0)
    images, labels = generator.uniform(size=(256, 64)).astype(np.float32), generator.integers(0, 10, 256)
    first, second = rlx.random.split(rlx.random.key(0))
    parameters = {
        "in": rlx.random.normal(first, (64, 32)) / 8.0,
        "shift": jnp.zeros(32),
        "out": rlx.random.normal(second, (32, 10)) / 6.0,
    }
    found = []
    for count in range(steps):
        key = rlx.random.fold_in(rlx.random.key(1), count)
        parameters, _, before = module.step(parameters, key, images, labels.astype(np.int32))
        found.append(float(before.max()))
    return found


def _quantised_digits(module: Any, steps: int) -> list[float]:
    """Of the float32 network behind some epochs, of its int8 form, and of the one that learns its scales."""
    images, _, labels, _ = (part[:256] for part in module.load())
    start = module.initial_parameters(rlx.random.key(0))
    parameters = module.trained(start, images, labels, steps, module.RATE, module.logits)
    whole, network = module.with_learned_scales(parameters, images, 4)

    def loss(scores: Any) -> float:
        return float(-jnp.take_along_axis(nn.log_softmax(scores), labels[:, None], axis=1).mean())

    found = [loss(rlx.jit(module.logits)(p, images)) for p in (start, parameters)]
    return [*found, loss(module.after_training(parameters, images)(images)), loss(rlx.jit(network)(whole, images))]


def _finetune(module: Any, steps: int) -> list[float]:
    """Updates beside weights of four bits, of a small decoder in place of the example's model."""
    config, parameters, _ = decoder(lm.Rope(dims=8))
    for layer in parameters["layers"]:
        for name in ("q", "k", "v", "o"):
            layer[name] = {"weight": quant.quantize(layer[name]["weight"], "int4/32")}
    model = types.SimpleNamespace(config=config, parameters=parameters)
    moving = rlx.optim.masked(rlx.optim.adamw(0.03), lambda tree: module.marked(tree, ("a", "b")))
    frozen = rlx.optim.masked(rlx.optim.set_to_zero(), lambda tree: module.marked(tree, ("scale",)))
    rule = rlx.optim.chain(rlx.optim.clip_by_global_norm(1.0), moving, frozen)
    state, step, found = module.first_state(model, rule), module.make_step(model, rule), []
    updates, adam = state["updates"], state["adam"]
    for _ in range(steps):
        tokens = module.batch_of(np.arange(40) ** 2 % config.vocabulary, 0)
        updates, adam, value = step(updates, adam, parameters, tokens)
        found.append(float(value))
    return found


TRAININGS = {
    "finetune": _finetune,
    "quantised_digits": _quantised_digits,
    "digits": _digits,
    "chargpt": _chargpt,
    "lorenz_fit": _lorenz_fit,
    "private_gradients": _private_gradients,
}
