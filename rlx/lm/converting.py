"""Models as GGUF files, with the names and the metadata that llama.cpp reads; and GGUF files packed otherwise."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rlx.errors import UnsupportedError
from rlx.gguf.file import GGUFFile
from rlx.gguf.tokenizer import TOKEN_TYPES
from rlx.gguf.types import StorageType
from rlx.gguf.write import GGUFWriter
from rlx.lm.config import DecoderConfig, Rope
from rlx.lm.families import GGUF, INTERLEAVED
from rlx.lm.generation import Model
from rlx.lm.recipes import numbers_of, storage_of
from rlx.lm.rope import frequencies
from rlx.lm.tokens import TextTokenizer, rule_of
from rlx.lm.weights import gguf_names, shapes_of
from rlx.quant.arrays import QuantizedArray

__all__ = ["repack_gguf", "save_gguf"]

_ARCHITECTURES = {"mistral": "llama", "mixtral": "llama", "gemma3_text": "gemma3", "qwen2_moe": "qwen2moe"}
_ARCHITECTURES |= {"qwen3_moe": "qwen3moe"}
_TYPES = {name: number for number, name in TOKEN_TYPES.items()}
_ROLES = ("bos", "eos", "unknown", "padding")


def save_gguf(model: Model, path: str | os.PathLike[str], recipe: str = "q8_0", name: str = "") -> None:
    """Write a model that was loaded from a folder as a GGUF file, which rlx and llama.cpp read.

    Args:
      model: of `rlx.lm.load`, with its tokenizer if the file is to have one.
      path: of the file.
      recipe: how weights are packed: "f32", "f16", "bf16", "q8_0", "q4_0", "q4_k_m", ...
      name: of the model, for those who list files.

    Rows whose length is not a multiple of a block are packed in smaller blocks, as llama.cpp does.

    Raises UnsupportedError for families and tokenizers that the format has no name for, OptionError for an unknown
    recipe.

    >>> import pathlib, tempfile
    >>> from rlx import lm
    >>> sizes = dict(vocabulary=9, width=32, layers=1, heads=2, key_heads=1, inner=32)
    >>> config = lm.DecoderConfig(**sizes, rope=lm.Rope(dims=16))
    >>> model = lm.Model(config, lm.random_parameters(config))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lm.save_gguf(model, pathlib.Path(folder) / "m.gguf")
    ...     again = lm.load(pathlib.Path(folder) / "m.gguf")
    >>> again
    Model(llama, 1 layers of 32, 9 tokens)
    """
    config = model.config
    architecture = _ARCHITECTURES.get(config.family, config.family)
    if architecture not in GGUF:
        raise UnsupportedError(
            f"There is no architecture of GGUF files for {config.family}.", f"There are: {', '.join(GGUF)}."
        )
    writer = GGUFWriter(architecture)
    if name:
        writer.add_metadata("general.name", name)
    for key, value in {**_sizes(config), **_scales(config)}.items():
        writer.add_metadata(f"{architecture}.{key}", value)
    if model.tokenizer is not None:
        for key, value in _tokenizer(model.tokenizer, config).items():
            writer.add_metadata(f"tokenizer.{key}", value)
    target = replace(config, family=architecture)
    if config.rope is not None:
        _add_rope(writer, architecture, config.rope, config)
    values: dict[str, list[Any]] = {}
    kinds: dict[str, StorageType] = {}
    shapes = shapes_of(config)
    for place, tensor in gguf_names(target).items():
        values.setdefault(tensor, []).append(_stored(model.parameters, place, target, config.norm_offset))
        kinds.setdefault(tensor, storage_of(config, place, shapes[place], recipe))
    for tensor, parts in values.items():
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
        whole = whole.reshape(whole.shape[len(whole) == 1 :])  # the format drops axes of one
        writer.add_tensor(tensor, whole, kinds[tensor] if whole.ndim > 1 else "F32")
    writer.write(path)


def _stored(parameters: Any, place: tuple[Any, ...], config: DecoderConfig, norm_offset: float) -> np.ndarray:
    """A parameter as files have it; the numbers of packed ones."""
    value = parameters
    for part in place:
        value = value[part]
    found = numbers_of(value) if isinstance(value, QuantizedArray) else np.asarray(value)
    if config.family in INTERLEAVED and not (config.rope is not None and config.rope.interleaved):
        if place[0] == "layers" and place[2] in ("q", "k"):
            heads = config.heads if place[2] == "q" else config.key_heads
            found = found.reshape(heads, 2, -1, *found.shape[1:]).swapaxes(1, 2).reshape(found.shape)
    return found + np.float32(norm_offset) if norm_offset and "norm" in str(place[-2]) else found


def _sizes(config: DecoderConfig) -> dict[str, Any]:
    found: dict[str, Any] = {
        "embedding_length": config.width,
        "block_count": config.layers,
        "feed_forward_length": config.inner,
        "context_length": config.context,
        "attention.head_count": config.heads,
        "attention.head_count_kv": config.key_heads,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        "vocab_size": config.vocabulary,
    }
    if config.experts is not None:
        found |= {"expert_count": config.experts.count, "expert_used_count": config.experts.chosen}
        found["expert_feed_forward_length"] = config.experts.size
        if config.experts.shared:
            found["expert_shared_feed_forward_length"] = config.experts.shared
    return found


def _scales(config: DecoderConfig) -> dict[str, Any]:
    eps = "attention.layer_norm_epsilon" if config.norm == "layer" else "attention.layer_norm_rms_epsilon"
    found: dict[str, Any] = {eps: config.norm_eps}
    if any(config.windows):
        found["attention.sliding_window"] = next(filter(None, config.windows))
    for key, value in (
        ("attn_logit_softcapping", config.attention_softcap),
        ("final_logit_softcapping", config.logit_softcap),
    ):
        if value is not None:
            found[key] = value
    if config.family == "granite":
        found |= {"embedding_scale": config.embedding_scale, "residual_scale": config.residual_scale}
        found |= {"attention.scale": config.scale, "logit_scale": 1 / config.logit_scale}
    return found


# ---------------------------------------------------------------- rotary positions
def _add_rope(writer: GGUFWriter, architecture: str, rope: Rope, config: DecoderConfig) -> None:
    numbers = dict(rope.factors)
    told: dict[str, Any] = {"freq_base": rope.base, "dimension_count": rope.dims}
    if config.local_rope is not None:
        told["freq_base_swa"] = config.local_rope.base
    if rope.scaling in ("linear", "yarn"):
        told |= {"scaling.type": rope.scaling, "scaling.factor": float(numbers["factor"])}
        if rope.scaling == "yarn":
            original = numbers.get("original_max_position_embeddings", config.context)
            told["scaling.original_context_length"] = int(original)
    elif rope.scaling == "llama3":
        plain = frequencies(replace(rope, scaling=None), 0)[0]
        factors = np.asarray(plain / frequencies(rope, 0)[0], np.float32)
        writer.add_tensor("rope_freqs.weight", factors, "F32")
    elif rope.scaling == "longrope":
        told["scaling.original_context_length"] = int(numbers["original_max_position_embeddings"])
        for length in ("long", "short"):
            writer.add_tensor(f"rope_factors_{length}.weight", np.array(numbers[f"{length}_factor"], np.float32), "F32")
    elif rope.scaling is not None:
        raise UnsupportedError(f"GGUF files have no rotary scaling {rope.scaling!r}.", "Load the folder itself.")
    elif rope.frequency_factors:
        writer.add_tensor("rope_freqs.weight", np.array(rope.frequency_factors, np.float32), "F32")
    for key, value in told.items():
        writer.add_metadata(f"{architecture}.rope.{key}", value)


# ---------------------------------------------------------------- tokenizers
def _tokenizer(tokenizer: TextTokenizer, config: DecoderConfig) -> dict[str, Any]:
    """The metadata of a tokenizer, without the prefix "tokenizer."."""
    told = json.loads(tokenizer.library.to_str())
    model = told["model"]
    if model.get("type") != "BPE":
        raise UnsupportedError(
            f"A tokenizer of the type {model.get('type')} cannot be written.", "GGUF files of rlx have BPE tokenizers."
        )
    pieces = bool(model.get("byte_fallback"))
    tokens = [f"[PAD{n}]" for n in range(config.vocabulary)]
    types = np.full(config.vocabulary, _TYPES["unused"], np.int32)
    for text, number in model["vocab"].items():
        tokens[number], types[number] = text, _TYPES["normal"]
        if pieces and len(text) == 6 and text.startswith("<0x"):
            types[number] = _TYPES["byte"]
    for added in told.get("added_tokens", ()):
        tokens[added["id"]] = added["content"]
        types[added["id"]] = _TYPES["control" if added["special"] else "user"]
    if tokenizer.special.get("unknown") is not None and pieces:
        types[tokenizer.special["unknown"]] = _TYPES["unknown"]
    around = tokenizer.encode("")
    found: dict[str, Any] = {
        "ggml.model": "llama" if pieces else "gpt2",
        "ggml.tokens": tokens,
        "ggml.token_type": types,
        "ggml.add_bos_token": tokenizer.special.get("bos") in around,
        "ggml.add_eos_token": tokenizer.special.get("eos") in around,
    }
    found |= {f"ggml.{role}_token_id": np.uint32(n) for role, n in tokenizer.special.items() if role in _ROLES}
    others = [n for n in tokenizer.stop if n != tokenizer.special.get("eos") and types[n] == _TYPES["control"]]
    if others:
        found["ggml.eot_token_id"] = np.uint32(others[-1])
    if tokenizer.chat_template is not None:
        found["chat_template"] = tokenizer.chat_template
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    if not pieces:
        return found | {"ggml.pre": rule_of(told["pre_tokenizer"]), "ggml.merges": merges}
    return found | {
        "ggml.scores": _scores(tokens, types, model["merges"]),
        "ggml.add_space_prefix": "Prepend" in json.dumps([told["normalizer"], told["pre_tokenizer"]])
        or (told["pre_tokenizer"] or {}).get("prepend_scheme") in ("first", "always"),
    }


def _scores(tokens: list[str], types: np.ndarray, merges: list[Any]) -> np.ndarray:
    """SentencePiece's scores: earlier merges have greater ones."""
    ranks: dict[str, int] = {}
    for rank, merge in enumerate(merges):
        ranks.setdefault("".join(merge.split(" ", 1) if isinstance(merge, str) else merge), rank)
    last = float(len(merges))
    return np.array(
        [-float(ranks.get(t, last)) if k == _TYPES["normal"] else 0.0 for t, k in zip(tokens, types, strict=True)],
        np.float32,
    )


# ---------------------------------------------------------------- from GGUF
def repack_gguf(
    source: str | os.PathLike[str], path: str | os.PathLike[str], recipe: str, config: DecoderConfig
) -> None:
    """Write a GGUF file again with its weights packed by a recipe; its metadata stay as they are.

    config: of the model in the file, as `rlx.lm.load(source).config`.

    >>> import pathlib, tempfile
    >>> from rlx import gguf, lm
    >>> config = lm.DecoderConfig(vocabulary=9, width=32, layers=1, heads=2, key_heads=1, inner=32)
    >>> with tempfile.TemporaryDirectory() as name:
    ...     source, target = pathlib.Path(name) / "f32.gguf", pathlib.Path(name) / "q4.gguf"
    ...     lm.save_gguf(lm.Model(config, lm.random_parameters(config)), source, "f32")
    ...     lm.repack_gguf(source, target, "q4_0", lm.load(source).config)
    ...     gguf.GGUFFile(target)["blk.0.ffn_up.weight"].kind.name
    'Q4_0'
    """
    file = GGUFFile(source)
    writer = GGUFWriter().add_all_metadata(file.metadata)
    kinds: Mapping[str, StorageType] = {
        name: storage_of(config, place, file[name].shape, recipe)
        for place, name in gguf_names(config).items()
        if name in file
    }
    for name, tensor in file.items():
        kind = kinds.get(name, tensor.kind)
        writer.add_tensor(name, tensor, kind if tensor.ndim > 1 else tensor.kind)
    writer.write(path)
