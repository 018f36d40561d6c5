"""Low-rank updates of linear layers (LoRA): create, train with frozen weights, merge, remove, and batch them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlx import numpy as jnp
from rlx.errors import OptionError, ShapeError
from rlx.quant.arrays import QuantizedArray

__all__ = ["apply_lora", "merge_lora", "new_lora", "stack_lora"]

Path = tuple[Any, ...]


def _linears(parameters: Any, names: Sequence[str]) -> Iterator[Path]:
    for number, layer in enumerate(parameters["layers"]):
        for name in names:
            if name in layer and len(layer[name]["weight"].shape) == 2:
                yield ("layers", number, name)


def _at(parameters: Any, path: Path) -> Any:
    for part in path:
        parameters = parameters[part]
    return parameters


def new_lora(
    parameters: Any, rank: int, alpha: float | None = None, names: Sequence[str] = ("q", "v"), seed: int = 0
) -> dict[str, Any]:
    """Updates for the linears of these names in every layer, which change nothing yet: a tree by path.

    Args:
      parameters: of a decoder; weights may be quantised.
      rank: of the updates.
      alpha: updates count alpha / rank times; None: rank.
      names: such as "q", "k", "v", "o", "gate", "up", "down".

    Returns {"layers.0.q": {"a": [rank, in], "b": [out, rank], "scale": float32[]}, ...}: the trained parameters.

    Raises OptionError for a rank below 1 and for names that no layer has.

    >>> from rlx import lm
    >>> config = lm.DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8)
    >>> sorted(lm.new_lora(lm.random_parameters(config), rank=2))
    ['layers.0.q', 'layers.0.v']
    """
    paths = list(_linears(parameters, names))
    if rank < 1 or not paths:
        raise OptionError(
            f"new_lora got rank {rank} and names {list(names)}.", 'Ranks are 1 or more; names as ("q", "v").'
        )
    draw = np.random.default_rng(seed)
    found = {}
    for path in paths:
        out, inner = _at(parameters, path)["weight"].shape
        a = draw.uniform(-1, 1, (rank, inner)) / math.sqrt(inner)
        scale = np.float32((rank if alpha is None else alpha) / rank)
        found[".".join(map(str, path))] = {
            "a": jnp.asarray(a.astype(np.float32)),
            "b": jnp.zeros((out, rank), np.float32),
            "scale": jnp.asarray(scale),
        }
    return found


def apply_lora(parameters: Any, updates: dict[str, Any]) -> dict[str, Any]:
    """Parameters with updates in addition to their weights. The weights stay unchanged and may be quantised.

    >>> from rlx import lm
    >>> config = lm.DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8)
    >>> parameters = lm.random_parameters(config)
    >>> sorted(lm.apply_lora(parameters, lm.new_lora(parameters, rank=2))["layers"][0]["q"])
    ['lora', 'weight']
    """
    return _with(parameters, {path: lambda part, u=update: {**part, "lora": u} for path, update in updates.items()})


def merge_lora(parameters: Any, updates: dict[str, Any], sign: float = 1.0) -> dict[str, Any]:
    """Parameters with updates added to their weights; with sign=-1 they are taken out again.

    Raises OptionError where a weight is quantised: dequantise it first, or use apply_lora.

    >>> from rlx import lm
    >>> config = lm.DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8)
    >>> parameters = lm.random_parameters(config)
    >>> sorted(lm.merge_lora(parameters, lm.new_lora(parameters, rank=2))["layers"][0]["q"])
    ['weight']
    """

    def merged(part: Any, update: Any) -> Any:
        if isinstance(part["weight"], QuantizedArray):
            raise OptionError(
                "A quantised weight cannot take an update in.", "Use rlx.lm.apply_lora, or dequantise it."
            )
        change = (update["b"] @ update["a"]) * (update["scale"] * np.float32(sign))
        return {**part, "weight": part["weight"] + change}

    return _with(parameters, {path: lambda part, u=update: merged(part, u) for path, update in updates.items()})


def stack_lora(several: Sequence[dict[str, Any]], chosen: Any) -> dict[str, Any]:
    """Updates for a batch in which each sequence uses one of several: `chosen` int [batch], -1 for none.

    The updates have one rank. Raises ShapeError where they differ in paths or shapes.

    >>> from rlx import lm
    >>> config = lm.DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8)
    >>> one = lm.new_lora(lm.random_parameters(config), rank=2)
    >>> lm.stack_lora([one, one], [0, 1, -1])["layers.0.q"]["a"].shape
    (3, 2, 8)
    """
    first = several[0]
    if any(
        one.keys() != first.keys() or any(one[p]["a"].shape != first[p]["a"].shape for p in first) for one in several
    ):
        raise ShapeError(
            "Updates in one batch differ in their linears or ranks.", "Make them with the same rank and names."
        )
    index = jnp.asarray(chosen)
    found = {}
    for path in first:
        a, b, scale = (jnp.stack([one[path][name] for one in several]) for name in ("a", "b", "scale"))
        found[path] = {"a": a[index], "b": b[index], "scale": jnp.where(index < 0, 0, scale[index])}
    return found


def _with(parameters: Any, changes: dict[str, Any]) -> dict[str, Any]:
    layers = [dict(layer) for layer in parameters["layers"]]
    for path, change in changes.items():
        _, number, name = path.split(".")
        layers[int(number)][name] = change(layers[int(number)][name])
    return {**parameters, "layers": layers}
