"""Low-rank updates of linear layers (LoRA): create, train with frozen weights, merge, remove, and batch them."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from rlx import numpy as jnp
from rlx.errors import FileFormatError, OptionError, ShapeError, UnsupportedError, did_you_mean
from rlx.lm.config import DecoderConfig
from rlx.lm.json_files import read_object
from rlx.lm.tensors import mapped_tensors
from rlx.lm.weights import linear_sources
from rlx.quant.arrays import QuantizedArray

__all__ = ["apply_lora", "load_lora", "merge_lora", "new_lora", "stack_lora"]

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
    known = {".".join(map(str, path)) for path in _linears(parameters, [*{name for layer in layers for name in layer}])}
    for path, change in changes.items():
        if path not in known:
            raise OptionError(
                f"The parameters have no linear layer {path!r}.", did_you_mean(path, known) or "Such as layers.0.q."
            )
        _, number, name = path.split(".")
        layers[int(number)][name] = change(layers[int(number)][name])
    return {**parameters, "layers": layers}


# ---------------------------------------------------------------- folders of peft
def load_lora(folder: str | os.PathLike[str], config: DecoderConfig) -> dict[str, Any]:
    """The updates in a folder that peft wrote, for `apply_lora`: also beside packed weights and GGUF files.

    Args:
      folder: with `adapter_config.json` and `adapter_model.safetensors`.
      config: of the model that they belong to.

    Raises UnsupportedError for adapters that are more than low-rank updates of linear layers, FileFormatError for
    tensors that do not fit the model, all of them by name.

    >>> import json, pathlib, tempfile
    >>> import numpy as np, rlx
    >>> from rlx import lm
    >>> config = lm.DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8)
    >>> module = "base_model.model.model.layers.0.self_attn.q_proj"
    >>> weights = {f"{module}.lora_A.weight": np.ones((2, 8)), f"{module}.lora_B.weight": np.ones((8, 2))}
    >>> with tempfile.TemporaryDirectory() as name:
    ...     folder = pathlib.Path(name)
    ...     said = (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "lora_alpha": 4}))
    ...     rlx.save(folder / "adapter_model.safetensors", weights)
    ...     list(lm.load_lora(folder, config))
    ['layers.0.q']
    """
    folder = FilePath(folder)
    told = read_object(folder / "adapter_config.json")
    _refuse_others(told)
    tensors = mapped_tensors(folder / "adapter_model.safetensors")
    sources = linear_sources(config)
    found: dict[str, Any] = {}
    wrong: list[str] = []
    for name in sorted(tensors):
        match = re.fullmatch(r"(?:base_model\.model\.)?(.+)\.lora_A(?:\.default)?\.weight", name)
        if match is None:
            wrong += [] if ".lora_B" in name else [name]
            continue
        module, other = match[1], name.replace(".lora_A", ".lora_B")
        if module not in sources or other not in tensors:
            wrong.append(name)
            continue
        a, b = (np.asarray(tensors[n]).astype(np.float32) for n in (name, other))
        parts = sources[module]
        if sum(size for _, size in parts) != b.shape[0] or a.shape[0] != b.shape[1]:
            wrong.append(f"{name} {list(a.shape)} and {other} {list(b.shape)}")
            continue
        scale = jnp.asarray(np.float32(_scale(told, module, a.shape[0])))
        starts = np.cumsum([0, *(size for _, size in parts)])
        for (path, size), start in zip(parts, starts, strict=False):
            rows = _in_order(b[start : start + size], path, config)
            found[".".join(map(str, path))] = {"a": jnp.asarray(a), "b": jnp.asarray(rows), "scale": scale}
    if wrong or not found:
        raise FileFormatError(
            f"{folder}: these do not fit a {config.family}: {', '.join(wrong) or 'there are no updates'}.",
            "Use the adapter with the model that it was trained for.",
        )
    return found


def _in_order(rows: np.ndarray, path: Path, config: DecoderConfig) -> np.ndarray:
    """Rows of queries and keys in the order of the model's: some files have pairs beside each other."""
    if config.rope is None or not config.rope.interleaved or path[2] not in ("q", "k"):
        return rows
    heads = config.heads if path[2] == "q" else config.key_heads
    return rows.reshape(heads, 2, -1, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def _scale(told: Mapping[str, Any], module: str, rank: int) -> float:
    alpha = told.get("lora_alpha", rank)
    for pattern, value in (told.get("alpha_pattern") or {}).items():
        alpha = value if re.search(rf"(^|\.){pattern}$", module) else alpha
    return alpha / math.sqrt(rank) if told.get("use_rslora") else alpha / rank


def _refuse_others(told: Mapping[str, Any]) -> None:
    kind = told.get("peft_type")
    if kind != "LORA":
        raise UnsupportedError(f"rlx reads adapters of the type LORA; this is {kind}.", "Merge it with peft.")
    for name, plain in (("use_dora", False), ("modules_to_save", None), ("bias", "none")):
        if told.get(name, plain) not in (plain, [], None):
            raise UnsupportedError(
                f"The adapter has {name} = {told[name]!r}, which rlx does not read.", "Merge it with peft."
            )
