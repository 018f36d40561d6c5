"""Typical programs for timing, each written once with names that rlx.numpy, NumPy and jax.numpy share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx.bench.harness import ROUNDS, Result, run
from rlx.errors import OptionError, did_you_mean

__all__ = ["PATTERNS", "BenchmarkPattern", "run_benchmark"]

Function = Callable[..., Any]


@dataclass(frozen=True)
class BenchmarkPattern:
    """A program: `build(namespace)` returns its function for an array library; `shapes` are its arguments' shapes.

    >>> from rlx.bench import PATTERNS
    >>> PATTERNS["matmul"].shapes
    ((512, 512), (512, 512))
    """

    name: str
    build: Callable[[Any], Function]
    shapes: tuple[tuple[int, ...], ...]

    def function(self, namespace: ModuleType | Any = jnp) -> Function:
        """The program in one library's names.

        >>> import numpy as np
        >>> from rlx.bench import PATTERNS
        >>> PATTERNS["matmul"].function(np)(np.eye(2), np.ones((2, 2))).sum()
        np.float64(4.0)
        """
        return self.build(namespace)

    def arguments(self, seed: int = 0) -> list[np.ndarray]:
        """Normally distributed float32 numbers, scaled to keep the results moderate."""
        generator = np.random.default_rng(seed)
        return [(generator.standard_normal(shape) / math.sqrt(shape[0])).astype(np.float32) for shape in self.shapes]


def run_benchmark(
    pattern: str | BenchmarkPattern, peers: dict[str, Any] | None = None, rounds: int = ROUNDS, seed: int = 0
) -> Result:
    """Time one of PATTERNS, or one of your own.

    Args:
      pattern: its name, or the pattern.
      peers: namespaces of other libraries by name, such as {"numpy": numpy}, whose version of the program takes turns
        with rlx's.
      rounds: how many turns each has.
      seed: of the arguments.

    Returns: as rlx.bench.run. Raises OptionError for a name that there is not.

    >>> import numpy
    >>> from rlx import bench
    >>> small = bench.BenchmarkPattern("scaled", lambda xp: lambda x: xp.tanh(x) * 2, ((64, 64),))
    >>> bench.run_benchmark(small, {"numpy": numpy}, rounds=1).peers["numpy"].parity.holds
    True
    """
    if isinstance(pattern, str):
        if pattern not in PATTERNS:
            near = did_you_mean(pattern, PATTERNS)
            raise OptionError(f"There is no pattern {pattern!r}.", near or f"There are: {', '.join(PATTERNS)}.")
        pattern = PATTERNS[pattern]
    others = {name: pattern.function(namespace) for name, namespace in (peers or {}).items()}
    return run(pattern.function(), pattern.arguments(seed), others, rounds, pattern.name)


# ------------------------------------------------------------------ programs
def _matmul(xp: Any) -> Function:
    return lambda x, y: x @ y


def _normalised(xp: Any, x: Any) -> Any:
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    return centred / xp.sqrt(xp.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)


def _layer_norm(xp: Any) -> Function:
    return lambda x, weight, bias: _normalised(xp, x) * weight + bias


def _gelu(xp: Any, x: Any) -> Any:
    return 0.5 * x * (1 + xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def _feed_forward(xp: Any) -> Function:
    return lambda x, w1, b1, w2, b2: _gelu(xp, x @ w1 + b1) @ w2 + b2


def _softmax(xp: Any, x: Any) -> Any:
    powers = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return powers / xp.sum(powers, axis=-1, keepdims=True)


def _attention(xp: Any) -> Function:
    """Of heads x positions x features."""
    return lambda q, k, v: _softmax(xp, q @ xp.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])) @ v


def _bert_layer(xp: Any) -> Function:
    """Post-normalised: attention of 12 heads, then a feed-forward network."""
    attention, feed_forward, heads = _attention(xp), _feed_forward(xp), 12

    def split(x: Any) -> Any:
        return xp.swapaxes(xp.reshape(x, (x.shape[0], heads, x.shape[1] // heads)), 0, 1)

    def layer(x: Any, wq: Any, wk: Any, wv: Any, wo: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
        mixed = xp.swapaxes(attention(split(x @ wq), split(x @ wk), split(x @ wv)), 0, 1)
        x = _normalised(xp, x + xp.reshape(mixed, x.shape) @ wo)
        return _normalised(xp, x + feed_forward(x, w1, b1, w2, b2))

    return layer


def _fft(xp: Any) -> Function:
    return lambda x: xp.abs(xp.fft.rfft(x)) ** 2


def _splat(xp: Any) -> Function:
    """Gaussians of a plane, composited from front to back: places, widths, opacities and colours to an image."""
    grid = (np.arange(64, dtype=np.float32) / 32 - 1)[:, None]

    def image(places: Any, widths: Any, opacities: Any, colours: Any) -> Any:
        scale = 1 / (0.02 + widths * widths)
        across = xp.exp(-((grid - places[:, 0]) ** 2) * scale)
        down = xp.exp(-((grid - places[:, 1]) ** 2) * scale)
        alpha = down[:, None, :] * across[None, :, :] / (1 + xp.exp(-opacities))
        clear = xp.cumprod(1 - alpha, axis=-1) / (1 - alpha)
        return (alpha * clear) @ colours

    return image


_MODEL, _HIDDEN, _POSITIONS = 768, 3072, 128
_PROGRAMS: tuple[tuple[str, Callable[[Any], Function], tuple[tuple[int, ...], ...]], ...] = (
    ("matmul", _matmul, ((512, 512), (512, 512))),
    ("layer_norm", _layer_norm, ((512, _MODEL), (_MODEL,), (_MODEL,))),
    ("ffn", _feed_forward, ((_POSITIONS, _MODEL), (_MODEL, _HIDDEN), (_HIDDEN,), (_HIDDEN, _MODEL), (_MODEL,))),
    ("attention", _attention, ((12, _POSITIONS, 64),) * 3),
    (
        "bert_layer",
        _bert_layer,
        (
            (_POSITIONS, _MODEL),
            *((_MODEL, _MODEL),) * 4,
            *((_MODEL, _HIDDEN), (_HIDDEN,), (_HIDDEN, _MODEL), (_MODEL,)),
        ),
    ),
    ("fft", _fft, ((256, 1024),)),
    ("splat", _splat, ((128, 2), (128,), (128,), (128, 3))),
)
PATTERNS = {name: BenchmarkPattern(name, build, shapes) for name, build, shapes in _PROGRAMS}
