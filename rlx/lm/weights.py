"""Parameters of decoders: from safetensors and GGUF files by tables of names, or at random."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rlx import numpy as jnp
from rlx.errors import FileFormatError
from rlx.gguf.file import GGUFFile, GGUFTensor
from rlx.gguf.types import plain_dtype
from rlx.lm.config import DecoderConfig, EncoderConfig
from rlx.quant.arrays import QuantizedArray
from rlx.quant.schemes import scheme_of

__all__ = [
    "gguf_names",
    "hugging_face_names",
    "linear_sources",
    "parameters_of_gguf",
    "parameters_of_tensors",
    "random_parameters",
    "shapes_of",
]

Path = tuple[Any, ...]


# ---------------------------------------------------------------- names and shapes
def shapes_of(config: DecoderConfig | EncoderConfig) -> dict[Path, tuple[int, ...]]:
    """The shape of every parameter, by its path: products are [out, in].

    >>> from rlx.lm import DecoderConfig
    >>> config = DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8)
    >>> shapes_of(config)["layers", 0, "k", "weight"]
    (4, 8)
    """
    if isinstance(config, EncoderConfig):
        return _encoder_shapes(config)
    width, dim = config.width, config.head_dim
    found: dict[Path, tuple[int, ...]] = {("embedding", "weight"): (config.vocabulary, width)}
    if config.learned_positions:
        found["positions", "weight"] = (config.context, width)
    norms = ["attention_norm", "ffn_norm", *(["post_attention_norm", "post_ffn_norm"] if config.post_norms else [])]
    products = {"q": config.heads * dim, "k": config.key_heads * dim, "v": config.key_heads * dim}
    biased = config.norm == "layer"
    for layer in range(config.layers):
        at: Callable[..., Path] = lambda *names, layer=layer: ("layers", layer, *names)  # noqa: E731
        for norm in norms:
            found[at(norm, "weight")] = (width,)
            if biased:
                found[at(norm, "bias")] = (width,)
        if config.qk_norm:
            found[at("q_norm", "weight")] = found[at("k_norm", "weight")] = (dim,)
        if config.sinks:
            found[at("sinks", "weight")] = (config.heads,)
        for name, size in products.items():
            found[at(name, "weight")] = (size, width)
            if biased or name in config.biases:
                found[at(name, "bias")] = (size,)
        found[at("o", "weight")] = (width, config.heads * dim)
        if biased or "o" in config.biases:
            found[at("o", "bias")] = (width,)
        parts = ("gate", "up", "down") if config.gated else ("up", "down")
        experts = None if layer in config.plain_layers else config.experts
        if experts is not None:
            found[at("router", "weight")] = (experts.count, width)
            if experts.shared:
                found[at("shared_router", "weight")] = (1, width)
                found[at("shared_gate", "weight")] = found[at("shared_up", "weight")] = (experts.shared, width)
                found[at("shared_down", "weight")] = (width, experts.shared)
        for name in parts:
            inner = config.inner if experts is None else experts.size
            shape = (width, inner) if name == "down" else (inner, width)
            found[at(name, "weight")] = shape if experts is None else (experts.count, *shape)
            if biased or name in config.biases:
                found[at(name, "bias")] = shape[:1]
    found["norm", "weight"] = (width,)
    if biased:
        found["norm", "bias"] = (width,)
    if not config.tied:
        found["head", "weight"] = (config.vocabulary, width)
    return found


def _encoder_shapes(config: EncoderConfig) -> dict[Path, tuple[int, ...]]:
    """The shape of every parameter, by its path."""
    width = config.width
    found: dict[Path, tuple[int, ...]] = {
        ("embedding", "weight"): (config.vocabulary, width),
        ("positions", "weight"): (config.context, width),
        ("kinds", "weight"): (config.kinds, width),
    }

    def norm(*path: Any) -> None:
        found[(*path, "weight")] = found[(*path, "bias")] = (width,)

    def product(out: int, inner: int, *path: Any) -> None:
        found[(*path, "weight")], found[(*path, "bias")] = (out, inner), (out,)

    norm("embedding_norm")
    for layer in range(config.layers):
        for name in ("q", "k", "v", "o"):
            product(width, width, "layers", layer, name)
        product(config.inner, width, "layers", layer, "up")
        product(width, config.inner, "layers", layer, "down")
        norm("layers", layer, "attention_norm")
        norm("layers", layer, "ffn_norm")
    if config.pooled:
        product(width, width, "pooler")
    if config.masked:
        product(width, width, "guess")
        norm("guess_norm")
        found["guess_bias", "bias"] = (config.vocabulary,)
    return found


def _tree(flat: Mapping[Path, Any]) -> dict[str, Any]:
    layers = max((path[1] + 1 for path in flat if path[0] == "layers"), default=0)
    found: dict[str, Any] = {"layers": [{} for _ in range(layers)]}
    for path, value in flat.items():
        place: Any = found
        for name in path[:-1]:
            place = place[name] if isinstance(place, list) else place.setdefault(name, {})
        place[path[-1]] = value
    return found


def random_parameters(config: DecoderConfig | EncoderConfig, seed: int = 0) -> dict[str, Any]:
    """Random parameters for `forward` or `encode`: weights from normal distributions, norms of 1.

    >>> from rlx import lm
    >>> config = lm.DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8)
    >>> sorted(lm.random_parameters(config))
    ['embedding', 'head', 'layers', 'norm']
    """
    draw = np.random.default_rng(seed)
    offset = config.norm_offset if isinstance(config, DecoderConfig) else 0.0
    flat = {}
    for path, shape in shapes_of(config).items():
        if len(shape) == 1:
            value = np.full(shape, (path[-1] == "weight") * (1.0 - offset), np.float32)
        else:
            value = draw.normal(0, 1 / math.sqrt(shape[-1]), shape).astype(np.float32)
        flat[path] = jnp.asarray(value)
    return _tree(flat)


# ---------------------------------------------------------------- Hugging Face's names
_LAYER = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
    "shared_gate": "mlp.shared_expert.gate_proj",
    "shared_up": "mlp.shared_expert.up_proj",
    "shared_down": "mlp.shared_expert.down_proj",
    "shared_router": "mlp.shared_expert_gate",
    "attention_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_GEMMA = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffn_norm": "post_feedforward_layernorm",
}
_EXPERT = {"gate": "w1", "up": "w3", "down": "w2"}
_STARCODER = {**_LAYER, "up": "mlp.c_fc", "down": "mlp.c_proj"}
_GPT2 = {
    "attention_norm": "ln_1",
    "ffn_norm": "ln_2",
    "o": "attn.c_proj",
    "up": "mlp.c_fc",
    "down": "mlp.c_proj",
}
# one tensor contains several parameters, concatenated
_JOINED = {
    "phi3": {"self_attn.qkv_proj": ("q", "k", "v"), "mlp.gate_up_proj": ("gate", "up")},
    "gpt2": {"attn.c_attn": ("q", "k", "v")},
}
_TOP = {"embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}
_GPT2_TOP = {
    "embedding": "transformer.wte",
    "positions": "transformer.wpe",
    "norm": "transformer.ln_f",
    "head": "lm_head",
}

_BERT = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "o": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "ffn_norm": "output.LayerNorm",
}
_BERT_TOP = {
    "embedding": "bert.embeddings.word_embeddings",
    "positions": "bert.embeddings.position_embeddings",
    "kinds": "bert.embeddings.token_type_embeddings",
    "embedding_norm": "bert.embeddings.LayerNorm",
    "pooler": "bert.pooler.dense",
    "guess": "cls.predictions.transform.dense",
    "guess_norm": "cls.predictions.transform.LayerNorm",
    "guess_bias": "cls.predictions",
}


def hugging_face_names(config: DecoderConfig | EncoderConfig) -> dict[Path, str]:
    """The name of the tensor that holds a parameter; joined ones and experts, which are several, are left out.

    >>> from rlx.lm import DecoderConfig
    >>> config = DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8)
    >>> hugging_face_names(config)["norm", "weight"]
    'model.norm.weight'
    """
    if isinstance(config, EncoderConfig):
        return {path: _encoder_name(path) for path in shapes_of(config)}
    gpt2 = config.family == "gpt2"
    names = {"gpt2": _GPT2, "starcoder2": _STARCODER}.get(config.family, _LAYER)
    names = {**names, **(_GEMMA if config.post_norms else {})}
    top = _GPT2_TOP if gpt2 else _TOP
    joined = {part for parts in _JOINED.get(config.family, {}).values() for part in parts}
    found = {}
    for path in shapes_of(config):
        if path[0] != "layers":
            found[path] = f"{top[path[0]]}.{path[1]}"
            continue
        _, layer, part, kind = path
        prefix = f"transformer.h.{layer}" if gpt2 else f"model.layers.{layer}"
        if part in joined or (
            config.experts is not None and part in ("router", *_EXPERT) and layer not in config.plain_layers
        ):
            continue
        found[path] = f"{prefix}.{names[part]}.{kind}"
    return found


def linear_sources(config: DecoderConfig) -> dict[str, list[tuple[Path, int]]]:
    """The linears that are made of each of Hugging Face's modules: paths without "weight", and their rows, in order.

    >>> from rlx.lm import DecoderConfig
    >>> config = DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8)
    >>> linear_sources(config)["model.layers.0.self_attn.k_proj"]
    [(('layers', 0, 'k'), 4)]
    """
    target = replace(config, family=_OTHER_NAMES.get(config.family, config.family))
    shapes, found = shapes_of(config), {}
    for path, name in hugging_face_names(target).items():
        if path[0] == "layers" and len(shapes[path]) == 2:
            found[name.removesuffix(".weight")] = [(path[:-1], shapes[path][0])]
    for layer in range(config.layers):
        for module, parts in _JOINED.get(target.family, {}).items():
            prefix = f"transformer.h.{layer}" if target.family == "gpt2" else f"model.layers.{layer}"
            paths = [("layers", layer, part) for part in parts]
            found[f"{prefix}.{module}"] = [(path, shapes[(*path, "weight")][0]) for path in paths]
    return found


# architectures of GGUF files whose modules have the names of a family
_OTHER_NAMES = {"gemma3": "gemma3_text", "qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe"}


def _encoder_name(path: Path) -> str:
    if path[0] != "layers":
        return f"{_BERT_TOP[path[0]]}.{path[1]}"
    _, layer, part, kind = path
    return f"bert.encoder.layer.{layer}.{_BERT[part]}.{kind}"


def _pieces(config: DecoderConfig, get: Callable[[str], Any]) -> Iterator[tuple[Path, Any]]:
    """Parameters that are not single tensors: concatenated ones, and experts."""
    shapes = shapes_of(config)
    gpt2 = config.family == "gpt2"
    for layer in range(config.layers):
        prefix = f"transformer.h.{layer}" if gpt2 else f"model.layers.{layer}"
        for name, parts in _JOINED.get(config.family, {}).items():
            for kind in ("weight", "bias"):
                if ("layers", layer, parts[0], kind) not in shapes:
                    continue
                whole = get(f"{prefix}.{name}.{kind}")
                whole = whole.T if gpt2 and kind == "weight" else whole
                start = 0
                for part in parts:
                    path: Path = ("layers", layer, part, kind)
                    yield path, whole[start : start + shapes[path][0]]
                    start += shapes[path][0]
        if config.experts is not None and layer not in config.plain_layers:
            mixtral = config.family == "mixtral"
            block = f"{prefix}.block_sparse_moe" if mixtral else f"{prefix}.mlp"
            yield ("layers", layer, "router", "weight"), get(f"{block}.gate.weight")
            for part in _EXPERT:
                name = _EXPERT[part] if mixtral else f"{part}_proj"
                yield (
                    ("layers", layer, part, "weight"),
                    np.stack([get(f"{block}.experts.{e}.{name}.weight") for e in range(config.experts.count)]),
                )


def parameters_of_tensors(config: DecoderConfig | EncoderConfig, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The tree of parameters from tensors by Hugging Face's names (array-like).

    Raises FileFormatError that lists everything that is missing, has another shape, or is there and has no place.
    """
    missing: list[str] = []
    get = _getter(tensors, missing)
    turned = config.family == "gpt2"
    flat: dict[Path, Any] = {}
    for path, name in hugging_face_names(config).items():
        value = get(name)
        products = path[0] == "layers" and path[-1] == "weight" and value.ndim == 2
        flat[path] = value.T if turned and products else value
    if not missing and isinstance(config, DecoderConfig):
        flat.update(_pieces(config, get))
    shapes = shapes_of(config)
    _refuse(shapes, config.family, flat, missing, _without_place(tensors, config))
    return _tree({path: _floats(flat[path]) for path in shapes})


_NOTHING = np.zeros(0, np.float32)
_PREFIXES = ("transformer.", "model.", "bert.")  # which files of a model without a head leave out


def _floats(value: Any) -> Any:
    """A parameter: products keep the precision of the file, and are mapped from it; the rest is float32."""
    if value.dtype.kind not in "fV" or (value.ndim < 2 or value.dtype.itemsize not in (2, 4)):
        value = value.astype(np.float32)
    return jnp.asarray(np.ascontiguousarray(value))


# buffers that older files have among their weights, and heads that a model has for training alone
_IDLE = (".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".position_ids", "cls.seq_relationship.weight")
_IDLE += ("cls.seq_relationship.bias", "cls.predictions.decoder.weight", "cls.predictions.decoder.bias")


def _without_place(tensors: Mapping[str, Any], config: DecoderConfig | EncoderConfig) -> list[str]:
    """Names of tensors that no parameter is made of, but for those that may be there."""
    names = list(hugging_face_names(config).values())
    if isinstance(config, DecoderConfig):
        list(_pieces(config, lambda name: names.append(name) or _NOTHING))
        names += ["lm_head.weight"] if config.tied else []
    known = {short for name in names for short in (name, _without_prefix(name))}
    return [name for name in tensors if name not in known and not name.endswith(_IDLE)]


def _without_prefix(name: str) -> str:
    return next((name.removeprefix(prefix) for prefix in _PREFIXES if name.startswith(prefix)), name)


def _getter(tensors: Mapping[str, Any], missing: list[str]) -> Callable[[str], Any]:
    """Tensors by name, with or without the base model's prefix; missing names are recorded."""

    def get(name: str) -> Any:
        for candidate in (name, _without_prefix(name)):
            if candidate in tensors:
                return np.asarray(tensors[candidate])
        missing.append(name)
        return _NOTHING

    return get


def _refuse(
    shapes: Mapping[Path, tuple[int, ...]],
    family: str,
    flat: Mapping[Path, Any],
    missing: list[str],
    extra: list[str],
) -> None:
    """FileFormatError where a parameter is missing or has another shape, or a tensor has no place."""
    wrong = [
        f"{'.'.join(map(str, path))} is {list(value.shape)} instead of {list(shapes[path])}"
        for path, value in flat.items()
        if value is not _NOTHING and value.shape != shapes[path]
    ]
    said = [f"there is no {name}" for name in missing] + wrong + [f"{name} has no place" for name in extra]
    if said:
        raise FileFormatError(
            f"The weights do not match this {family}: {'; '.join(said)}.",
            "Pass the weights that belong to the config.",
        )


# ---------------------------------------------------------------- GGUF
_GGUF_TOP = {"embedding": "token_embd", "positions": "position_embd", "norm": "output_norm", "head": "output"}
_GGUF_LAYER = {
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "sinks": "attn_sinks",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
    "router": "ffn_gate_inp",
    "shared_router": "ffn_gate_inp_shexp",
    "shared_gate": "ffn_gate_shexp",
    "shared_up": "ffn_up_shexp",
    "shared_down": "ffn_down_shexp",
    "attention_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
    "post_attention_norm": "post_attention_norm",
    "post_ffn_norm": "post_ffw_norm",
}
_QKV = {"q": "attn_qkv", "k": "attn_qkv", "v": "attn_qkv"}
# one tensor contains the rows of several parameters
_GGUF_JOINED = {"phi3": {**_QKV, "gate": "ffn_up", "up": "ffn_up"}, "gpt2": _QKV}


def gguf_names(config: DecoderConfig) -> dict[Path, str]:
    """The name of the GGUF tensor with each parameter, alone or concatenated in this order.

    >>> from rlx.lm import DecoderConfig
    >>> gguf_names(DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8))["head", "weight"]
    'output.weight'
    """
    joined = _GGUF_JOINED.get(config.family, {})
    found = {}
    for path, shape in shapes_of(config).items():
        if path[0] != "layers":
            stem = _GGUF_TOP[path[0]]
        else:
            stem = f"blk.{path[1]}.{joined.get(path[2], _GGUF_LAYER[path[2]])}" + "_exps" * (len(shape) == 3)
        found[path] = f"{stem}.{path[-1]}"
    return found


def parameters_of_gguf(config: DecoderConfig, file: GGUFFile) -> dict[str, Any]:
    """The tree of parameters of a GGUF file: packed ones stay packed, over the mapped file."""
    flat: dict[Path, Any] = {}
    missing = []
    shapes = shapes_of(config)
    names = gguf_names(config)
    several = {name for name, count in Counter(names.values()).items() if count > 1}
    used: dict[str, int] = {}  # rows of joined tensors that have been given out
    for path, name in names.items():
        if name not in file:
            missing.append(name)
            flat[path] = _NOTHING
        elif name in several:
            start = used.get(name, 0)
            used[name] = start + shapes[path][0]
            flat[path] = _of_tensor(file[name], slice(start, used[name]))
        else:
            found = _of_tensor(file[name])
            flat[path] = found[None] if shapes[path] == (1, *found.shape) else found  # files drop axes of one
    # rlx.lm.load reads the tensors of the rotation
    extra = [name for name in file if name not in names.values() and not name.startswith("rope_")]
    _refuse(shapes, config.family, flat, sorted(set(missing)), extra)
    return _tree(flat)


def _of_tensor(tensor: GGUFTensor, rows: slice = slice(None)) -> Any:
    if plain_dtype(tensor.kind) is not None or tensor.ndim < 2:
        return _floats(tensor.numpy()[rows])
    return QuantizedArray(jnp.asarray(tensor.packed[rows]), None, None, None, scheme_of(tensor.kind))
