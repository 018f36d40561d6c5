"""The first steps of the examples' trainings, on any device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from modules import load as load_module

import rlx
import rlx.numpy as jnp

__all__ = ["losses"]

ROOT = Path(__file__).resolve().parents[2]


def losses(device: str, steps: int, example: str) -> list[float]:
    """The losses of an example's first steps of training."""
    module = load_module(ROOT / "examples" / f"{example}.py")
    with rlx.default_device(device):
        return _TRAININGS[example](module, steps)


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


_TRAININGS = {
    "digits": _digits,
    "chargpt": _chargpt,
    "lorenz_fit": _lorenz_fit,
    "private_gradients": _private_gradients,
}
