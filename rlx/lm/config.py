"""The configuration of a decoder: one class for all families, read from `config.json` or a GGUF file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlx.errors import FileFormatError, OptionError, UnsupportedError

__all__ = [
    "DecoderConfig",
    "EncoderConfig",
    "Experts",
    "Rope",
    "config_of_gguf",
    "config_of_hugging_face",
    "encoder_config",
]


@dataclass(frozen=True)
class Rope:
    """Rotary position embeddings: how positions rotate queries and keys.

    Args:
      base: of the wavelengths.
      dims: the number of rotated features of a head.
      interleaved: pairs are neighbours; otherwise they are in the two halves of the rotated features.
      scaling: "linear", "dynamic", "yarn", "longrope", "llama3", or None.
      factors: its numbers, by Hugging Face's names.
      frequency_factors: divisors of the inverse wavelengths, from a file, or empty.

    >>> from rlx.lm import Rope
    >>> Rope(dims=64).base
    10000.0
    """

    base: float = 10_000.0
    dims: int = 64
    interleaved: bool = False
    scaling: str | None = None
    factors: tuple[tuple[str, Any], ...] = ()
    frequency_factors: tuple[float, ...] = ()


@dataclass(frozen=True)
class Experts:
    """A mixture of experts in place of a feed-forward block.

    Args: count: of experts; chosen: by each token; size: of each expert's inner layer; normalised: the weights of the
    chosen are made to sum to one; shared: the size of an expert that all tokens have too, times a gate of theirs, or 0.

    >>> from rlx.lm import Experts
    >>> Experts(count=8, chosen=2, size=64).normalised
    True
    """

    count: int
    chosen: int
    size: int
    normalised: bool = True
    shared: int = 0


@dataclass(frozen=True)
class DecoderConfig:
    """A decoder of any of the families that are known.

    Args:
      family: its name, as `config.json` has it under "model_type".
      vocabulary, width, layers, heads, key_heads, head_dim, inner: sizes; `inner`: of the feed-forward block.
      context: the longest sequence that it was trained for.
      norm: "rms" or "layer"; norm_eps; norm_offset: added to the weights of norms (Gemma: 1).
      activation: "silu", "gelu" or "gelu_tanh"; gated: the feed-forward block has a gate.
      rope: for global attention; local_rope: for layers with a window, if different.
      learned_positions: positions have embeddings instead.
      alibi: scores decrease with the distance of keys instead, with a slope per head.
      sinks: each head has a score that takes part in its softmax without a value.
      tied: logits are products with the embedding.
      embedding_scale, score_scale: factors of embeddings and of attention scores (None: 1 / sqrt(head_dim)).
      attention_softcap, logit_softcap: c of c * tanh(x / c), or None.
      qk_norm: queries and keys are normalised head by head.
      post_norms: the results of attention and feed-forward are normalised before they are added.
      windows: for each layer, the number of positions that its queries see, None for all; () if all layers see all.
      experts: of each feed-forward block, or None; plain_layers: numbers of layers without.
      stop: ids of tokens that end a text.

    >>> from rlx.lm import DecoderConfig
    >>> config = DecoderConfig(vocabulary=100, width=64, layers=2, heads=4, key_heads=2, inner=128)
    >>> config.head_dim, config.groups
    (16, 2)
    """

    vocabulary: int
    width: int
    layers: int
    heads: int
    key_heads: int
    inner: int
    head_dim: int = 0
    family: str = "llama"
    context: int = 2048
    norm: str = "rms"
    norm_eps: float = 1e-5
    norm_offset: float = 0.0
    activation: str = "silu"
    gated: bool = True
    rope: Rope | None = None
    local_rope: Rope | None = None
    learned_positions: bool = False
    alibi: bool = False
    sinks: bool = False
    tied: bool = False
    embedding_scale: float = 1.0
    score_scale: float | None = None
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    qk_norm: bool = False
    post_norms: bool = False
    windows: tuple[int | None, ...] = ()
    experts: Experts | None = None
    plain_layers: tuple[int, ...] = ()
    stop: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.head_dim:
            object.__setattr__(self, "head_dim", self.width // self.heads)
        if self.heads < 1 or self.key_heads < 1 or self.heads % self.key_heads:
            raise OptionError(
                f"{self.heads} heads of queries cannot share {self.key_heads} heads of keys.",
                "The number of key heads divides the number of heads.",
            )

    @property
    def groups(self) -> int:
        """How many heads share a head of keys."""
        return self.heads // self.key_heads

    @property
    def scale(self) -> float:
        """The factor of the scores."""
        return self.head_dim**-0.5 if self.score_scale is None else self.score_scale

    def window(self, layer: int) -> int | None:
        """How many positions the queries of a layer see, None for all."""
        return self.windows[layer] if self.windows else None


# ---------------------------------------------------------------- config.json
def config_of_hugging_face(given: Mapping[str, Any]) -> DecoderConfig:
    """The decoder that a `config.json` describes.

    Raises UnsupportedError, naming the families that are known, for another one, FileFormatError for missing numbers.

    >>> from rlx.lm.config import config_of_hugging_face
    >>> sizes = dict(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    >>> config_of_hugging_face({"model_type": "llama", **sizes}).key_heads
    2
    """
    family = given.get("model_type", "")
    if family == "bert":
        raise UnsupportedError("bert is an encoder: it makes vectors, no texts.", "Use rlx.lm.load_encoder.")
    if family not in _FAMILIES:
        raise UnsupportedError(f"No decoder of the family {family!r} is known.", f"Known: {', '.join(_FAMILIES)}.")
    try:
        return _FAMILIES[family](given)
    except KeyError as missing:
        raise FileFormatError(
            f"The config of this {family} says nothing of {missing.args[0]}.", "Give the config.json of the model."
        ) from missing


def _plain(given: Mapping[str, Any], **more: Any) -> DecoderConfig:
    """The common configuration of Llama and its descendants."""
    heads = given["num_attention_heads"]
    head_dim = given.get("head_dim") or given["hidden_size"] // heads
    stop = given.get("eos_token_id")
    sizes = DecoderConfig(
        family=given["model_type"],
        vocabulary=given["vocab_size"],
        width=given["hidden_size"],
        layers=given["num_hidden_layers"],
        heads=heads,
        key_heads=given.get("num_key_value_heads") or heads,
        inner=given["intermediate_size"],
        head_dim=head_dim,
        context=given.get("max_position_embeddings", 2048),
        norm_eps=given.get("rms_norm_eps", 1e-5),
        activation=_ACTIVATIONS[given.get("hidden_act") or given.get("hidden_activation") or "silu"],
        rope=_rope(given, head_dim),
        tied=bool(given.get("tie_word_embeddings", False)),
        stop=() if stop is None else tuple(stop) if isinstance(stop, list) else (stop,),
    )
    if sizes.rope is not None and sizes.rope.scaling == "dynamic":  # the extended length
        stretched = int(sizes.context * dict(sizes.rope.factors).get("factor", 1.0))
        sizes = replace(sizes, context=stretched)
    return replace(sizes, **more)


_ACTIVATIONS = {
    "silu": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}
_OLD_DEFAULTS = {"rope_theta": 10_000.0}


def _rope(given: Mapping[str, Any], head_dim: int, which: str | None = None, base: float | None = None) -> Rope:
    """Rope of a config; newer files have all of it under "rope_parameters", perhaps for each kind of layer."""
    told: Mapping[str, Any] = given.get("rope_parameters") or given.get("rope_scaling") or {}
    told = told.get(which, told) if which else told
    kind = told.get("rope_type", told.get("type", "default"))
    share = told.get("partial_rotary_factor", given.get("partial_rotary_factor") or 1.0)
    found = base or told.get("rope_theta") or given.get("rope_theta") or _OLD_DEFAULTS["rope_theta"]
    numbers = {name: _frozen(value) for name, value in told.items() if name not in ("rope_type", "type")}
    for name in ("original_max_position_embeddings", "max_position_embeddings"):
        if given.get(name) is not None:
            numbers.setdefault(name, given[name])
    scaling = None if kind == "default" else kind
    return Rope(float(found), int(head_dim * share), False, scaling, tuple(sorted(numbers.items())) if scaling else ())


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _windows(given: Mapping[str, Any], size: int | None) -> tuple[int | None, ...]:
    kinds = given.get("layer_types")
    if size is None:
        return ()
    if kinds is None:
        return (size,) * given["num_hidden_layers"]
    return tuple(size if kind == "sliding_attention" else None for kind in kinds)


def _llama(given: Mapping[str, Any]) -> DecoderConfig:
    return _plain(given)


def _windowed(given: Mapping[str, Any]) -> DecoderConfig:
    return _plain(given, windows=_windows({**given, "layer_types": None}, given.get("sliding_window")))


def _qwen2(given: Mapping[str, Any]) -> DecoderConfig:
    size = given.get("sliding_window") if given.get("use_sliding_window") else None
    return _plain(given, windows=_windows(given, size))


def _qwen3(given: Mapping[str, Any]) -> DecoderConfig:
    return replace(_qwen2(given), qk_norm=True)


def _qwen_moe(given: Mapping[str, Any], found: DecoderConfig) -> DecoderConfig:
    """The decoder with experts in all layers but some."""
    experts = Experts(
        given.get("num_experts") or given["num_local_experts"],
        given["num_experts_per_tok"],
        given["moe_intermediate_size"],
        bool(given.get("norm_topk_prob", False)),
        given.get("shared_expert_intermediate_size", 0),
    )
    step = given.get("decoder_sparse_step", 1)
    plain: set[int] = set(given.get("mlp_only_layers") or ())
    plain |= {layer for layer in range(given["num_hidden_layers"]) if (layer + 1) % step}
    return replace(found, experts=experts, plain_layers=tuple(sorted(plain)))


def _mixtral(given: Mapping[str, Any]) -> DecoderConfig:
    experts = Experts(given["num_local_experts"], given["num_experts_per_tok"], given["intermediate_size"])
    return replace(_windowed(given), experts=experts)


def _gemma(given: Mapping[str, Any]) -> DecoderConfig:
    return _plain(
        given,
        activation="gelu_tanh",
        norm_offset=1.0,
        embedding_scale=float(np.float32(given["hidden_size"] ** 0.5)),
        tied=bool(given.get("tie_word_embeddings", True)),
    )


def _gemma2(given: Mapping[str, Any]) -> DecoderConfig:
    kinds = given.get("layer_types") or [
        "full_attention" if layer % 2 else "sliding_attention" for layer in range(given["num_hidden_layers"])
    ]
    return replace(
        _gemma(given),
        post_norms=True,
        score_scale=given["query_pre_attn_scalar"] ** -0.5,
        attention_softcap=given.get("attn_logit_softcapping"),
        logit_softcap=given.get("final_logit_softcapping"),
        windows=_windows({**given, "layer_types": kinds}, given["sliding_window"]),
    )


def _gemma3(given: Mapping[str, Any]) -> DecoderConfig:
    pattern = given.get("sliding_window_pattern", 6)
    kinds = given.get("layer_types") or [
        "sliding_attention" if (layer + 1) % pattern else "full_attention"
        for layer in range(given["num_hidden_layers"])
    ]
    found = _gemma2({**given, "layer_types": kinds})
    head_dim = found.head_dim
    local = _rope(given, head_dim, "sliding_attention")
    if "rope_local_base_freq" in given:
        local = Rope(given["rope_local_base_freq"], head_dim)
    return replace(found, qk_norm=True, rope=_rope(given, head_dim, "full_attention"), local_rope=local)


def _gpt2(given: Mapping[str, Any]) -> DecoderConfig:
    width = given["n_embd"]
    names = {
        "hidden_size": width,
        "num_hidden_layers": given["n_layer"],
        "num_attention_heads": given["n_head"],
        "intermediate_size": given.get("n_inner") or 4 * width,
        "max_position_embeddings": given["n_positions"],
        "hidden_act": given.get("activation_function", "gelu_new"),
        "tie_word_embeddings": given.get("tie_word_embeddings", True),
    }
    return replace(
        _plain({**given, **names}),
        norm="layer",
        norm_eps=given.get("layer_norm_epsilon", 1e-5),
        gated=False,
        rope=None,
        learned_positions=True,
    )


_FAMILIES: dict[str, Callable[[Mapping[str, Any]], DecoderConfig]] = {
    "llama": _llama,
    "mistral": _windowed,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen2_moe": lambda given: _qwen_moe(given, _qwen2(given)),
    "qwen3": _qwen3,
    "qwen3_moe": lambda given: _qwen_moe(given, _qwen3(given)),
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "phi3": _windowed,
    "gpt2": _gpt2,
}


# ---------------------------------------------------------------- GGUF
def config_of_gguf(
    metadata: Mapping[str, Any],
    factors: Mapping[str, tuple[float, ...]] | None = None,
    tied: bool = False,
    vocabulary: int | None = None,
) -> DecoderConfig:
    """The decoder that a GGUF file's metadata describe.

    Args: factors: the rotation's tensors in a file, by the names "freqs", "factors_long" and "factors_short";
    tied: the output matrix is the embedding; vocabulary: rows of its embedding.

    Raises UnsupportedError for an architecture that is not known, FileFormatError for sizes that are missing.
    """
    family = metadata.get("general.architecture", "")
    if family not in _GGUF_FAMILIES:
        raise UnsupportedError(
            f"No decoder of the architecture {family!r} is known.", f"Known in GGUF files: {', '.join(_GGUF_FAMILIES)}."
        )

    def told(name: str, default: Any = None) -> Any:
        return metadata.get(f"{family}.{name}", default)

    for name in ("attention.head_count", "embedding_length", "block_count"):
        if told(name) is None:
            raise FileFormatError(f"The file says nothing of {family}.{name}.", "Write it anew from the model.")
    heads = int(told("attention.head_count"))
    head_dim = int(told("attention.key_length") or told("embedding_length") // heads)
    eos = metadata.get("tokenizer.ggml.eos_token_id")
    experts = int(told("expert_count", 0))
    inner = int(told("feed_forward_length", 0))
    window = told("attention.sliding_window")
    found = DecoderConfig(
        family=family,
        vocabulary=int(vocabulary or told("vocab_size") or len(metadata["tokenizer.ggml.tokens"])),
        width=int(told("embedding_length")),
        layers=int(told("block_count")),
        heads=heads,
        key_heads=int(told("attention.head_count_kv", heads)),
        inner=inner,
        head_dim=head_dim,
        context=int(told("context_length", 2048)),
        norm_eps=float(told("attention.layer_norm_rms_epsilon", 1e-5)),
        rope=_gguf_rope(told, head_dim, family == "llama", factors or {}),
        tied=tied,
        stop=() if eos is None else (int(eos),),
        windows=(int(window),) * int(told("block_count")) if window else (),
    )
    if experts:
        size = int(told("expert_feed_forward_length", inner))
        found = replace(found, experts=Experts(experts, int(told("expert_used_count")), size))
    return _GGUF_FAMILIES[family](found, told)


Told = Callable[..., Any]


def _gguf_rope(told: Told, head_dim: int, interleaved: bool, factors: Mapping[str, tuple[float, ...]]) -> Rope:
    kind = told("rope.scaling.type")
    kind = kind if kind in ("linear", "yarn") else None
    numbers: dict[str, Any] = {}
    if told("rope.scaling.factor") is not None:
        numbers["factor"] = float(told("rope.scaling.factor"))
    original = told("rope.scaling.original_context_length")
    if original is not None:
        numbers["original_max_position_embeddings"] = int(original)
    if "factors_long" in factors:
        kind = "longrope"
        numbers |= {"long_factor": factors["factors_long"], "short_factor": factors["factors_short"]}
        numbers["max_position_embeddings"] = int(told("context_length"))
        if told("rope.scaling.attn_factor") is not None:
            numbers["attention_factor"] = float(told("rope.scaling.attn_factor"))
    return Rope(
        float(told("rope.freq_base", 10_000.0)),
        int(told("rope.dimension_count", head_dim)),
        interleaved,
        kind,
        tuple(sorted(numbers.items())) if kind else (),
        factors.get("freqs", ()),
    )


def _gguf_gemma(found: DecoderConfig, told: Told) -> DecoderConfig:
    """The weights of norms are stored with the 1 in them."""
    scale = float(np.float32(found.width**0.5))
    return replace(found, activation="gelu_tanh", embedding_scale=scale)


def _gguf_gemma2(found: DecoderConfig, told: Told, pattern: int = 2) -> DecoderConfig:
    pattern = int(told("attention.sliding_window_pattern", pattern))
    windows = tuple(w if (n + 1) % pattern else None for n, w in enumerate(found.windows))
    # the largest models of both families scale by their width
    scale = found.width / found.heads if (found.layers, found.width) in _BY_WIDTH else found.head_dim
    caps = {"attention_softcap": told("attn_logit_softcapping"), "logit_softcap": told("final_logit_softcapping")}
    return replace(_gguf_gemma(found, told), post_norms=True, windows=windows, score_scale=scale**-0.5, **caps)


_BY_WIDTH = ((46, 4608), (62, 5376))


def _gguf_gemma3(found: DecoderConfig, told: Told) -> DecoderConfig:
    local = Rope(float(told("rope.freq_base_swa", 10_000.0)), found.head_dim)
    return replace(_gguf_gemma2(found, told, 6), qk_norm=True, local_rope=local)


def _gguf_gpt2(found: DecoderConfig, told: Told) -> DecoderConfig:
    eps = float(told("attention.layer_norm_epsilon", 1e-5))
    return replace(
        found, norm="layer", norm_eps=eps, activation="gelu_tanh", gated=False, rope=None, learned_positions=True
    )


def _gguf_qwen2_moe(found: DecoderConfig, told: Told) -> DecoderConfig:
    """Files do not say that the chosen experts' weights are left as they are: the architecture means it."""
    if found.experts is None:
        raise FileFormatError("The file says nothing of qwen2moe.expert_count.", "Write it anew from the model.")
    shared = int(told("expert_shared_feed_forward_length", found.inner))
    size = int(told("expert_feed_forward_length", found.inner // found.experts.chosen))
    return replace(found, experts=replace(found.experts, size=size, normalised=False, shared=shared))


_GGUF_FAMILIES: dict[str, Callable[[DecoderConfig, Told], DecoderConfig]] = {
    **dict.fromkeys(("llama", "qwen2", "phi3"), lambda found, told: found),
    "qwen2moe": _gguf_qwen2_moe,
    **dict.fromkeys(("qwen3", "qwen3moe"), lambda found, told: replace(found, qk_norm=True)),
    "gemma": _gguf_gemma,
    "gemma2": _gguf_gemma2,
    "gemma3": _gguf_gemma3,
    "gpt2": _gguf_gpt2,
}


# ---------------------------------------------------------------- encoders
@dataclass(frozen=True)
class EncoderConfig:
    """An encoder as BERT.

    Args: vocabulary, width, layers, heads, inner, context: sizes; kinds: of tokens (first and second text); pooled: the
    first token has an additional output; masked: there are logits for masked tokens; others as DecoderConfig's.

    >>> from rlx.lm import EncoderConfig
    >>> EncoderConfig(vocabulary=99, width=32, layers=2, heads=4, inner=64).context
    512
    """

    vocabulary: int
    width: int
    layers: int
    heads: int
    inner: int
    context: int = 512
    kinds: int = 2
    norm_eps: float = 1e-12
    activation: str = "gelu"
    pooled: bool = False
    masked: bool = False
    family: str = "bert"

    def __post_init__(self) -> None:
        if self.heads < 1 or self.width % self.heads:
            raise OptionError(f"{self.heads} heads cannot share a width of {self.width}.", "It is a multiple of heads.")


def encoder_config(given: Mapping[str, Any], pooled: bool = False, masked: bool = False) -> EncoderConfig:
    """The encoder that a `config.json` describes. Raises UnsupportedError for another family than bert."""
    family = given.get("model_type", "")
    if family != "bert" or given.get("is_decoder"):
        raise UnsupportedError(
            f"No encoder of the family {family!r} is known.", "Known: bert. Decoders are read by rlx.lm.load."
        )
    return EncoderConfig(
        vocabulary=given["vocab_size"],
        width=given["hidden_size"],
        layers=given["num_hidden_layers"],
        heads=given["num_attention_heads"],
        inner=given["intermediate_size"],
        context=given.get("max_position_embeddings", 512),
        kinds=given.get("type_vocab_size", 2),
        norm_eps=given.get("layer_norm_eps", 1e-12),
        activation=_ACTIVATIONS[given.get("hidden_act", "gelu")],
        pooled=pooled,
        masked=masked,
    )
