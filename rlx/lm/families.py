"""The families of decoders as rows of two tables, and the configurations that files describe by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import FileFormatError, UnsupportedError
from rlx.lm.config import DecoderConfig, EncoderConfig, Experts, Rope

__all__ = ["GGUF", "HUGGING_FACE", "INTERLEAVED", "config_of_gguf", "config_of_hugging_face", "encoder_config"]

_NEEDED = object()
_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu2": "relu2",
}
_QKV = ("q", "k", "v")


class Row(NamedTuple):
    """How a family in `config.json` differs from Llama.

    Fields:
      fixed: fields of DecoderConfig that all its models share.
      renamed: Llama's keys by the name that this family uses.
      numbers: fields of DecoderConfig by the keys that this family has in addition.
      defaults: values of keys that files may leave out.
      window: the layers with a window of "sliding_window" where the file does not list them: "all"; "switched": all, if
        "use_sliding_window" is set; "alternating": all but every second, or every "sliding_window_pattern"th; "".
      experts: keys of their count, of the chosen ones and of the size, or ().
      ropeless: the file lists layers without rotary positions, or leaves out every fourth.
      scaled_embedding: embeddings are multiplied by the square root of the width.
      local_rope: layers with a window have a rotation of their own.
    """

    fixed: Mapping[str, Any] = {}
    renamed: Mapping[str, str] = {}
    numbers: Mapping[str, str] = {}
    defaults: Mapping[str, Any] = {}
    window: str = ""
    experts: tuple[str, ...] = ()
    ropeless: bool = False
    scaled_embedding: bool = False
    local_rope: bool = False


class GGUFRow(NamedTuple):
    """How an architecture of GGUF files differs from Llama.

    Fields:
      fixed: fields of DecoderConfig that all its models share.
      numbers: fields of DecoderConfig by keys.
      pattern: every layer with this number has no window, where the file does not say another number; 0: all have one.
      shared_experts: an expert that all tokens have; the weights of chosen ones are not normalised.
      scaled_embedding, local_rope, ropeless: as in Row.
      by_width: models of these (layers, width) scale scores by width / heads, others by the head size; or None.
    """

    fixed: Mapping[str, Any] = {}
    numbers: Mapping[str, str] = {}
    pattern: int = 0
    shared_experts: bool = False
    scaled_embedding: bool = False
    local_rope: bool = False
    ropeless: bool = False
    by_width: tuple[tuple[int, int], ...] | None = None


_GEMMA: dict[str, Any] = {"activation": "gelu_tanh", "norm_offset": 1.0}
_LAYER_NORM: dict[str, Any] = {"norm": "layer", "gated": False}
_GPT2: dict[str, Any] = {**_LAYER_NORM, "rope": None, "learned_positions": True}
_CAPS = {"attention_softcap": "attn_logit_softcapping", "logit_softcap": "final_logit_softcapping"}
_QWEN_MOE = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")

HUGGING_FACE: dict[str, Row] = {
    "llama": Row(),
    "mistral": Row(window="all"),
    "ministral": Row(window="all"),
    "mixtral": Row(window="all", experts=("num_local_experts", "num_experts_per_tok", "intermediate_size")),
    "qwen2": Row(fixed={"biases": _QKV}, window="switched"),
    "qwen2_moe": Row(fixed={"biases": _QKV}, window="switched", experts=_QWEN_MOE),
    "qwen3": Row(fixed={"qk_norm": True}, window="switched"),
    "qwen3_moe": Row(fixed={"qk_norm": True}, window="switched", experts=_QWEN_MOE),
    "gemma": Row(fixed=_GEMMA, defaults={"tie_word_embeddings": True}, scaled_embedding=True),
    "gemma2": Row(
        fixed={**_GEMMA, "post_norms": True},
        numbers=_CAPS,
        defaults={"tie_word_embeddings": True, "sliding_window_pattern": 2},
        window="alternating",
        scaled_embedding=True,
    ),
    "gemma3_text": Row(
        fixed={**_GEMMA, "post_norms": True, "qk_norm": True},
        numbers=_CAPS,
        defaults={"tie_word_embeddings": True, "sliding_window_pattern": 6},
        window="alternating",
        scaled_embedding=True,
        local_rope=True,
    ),
    "phi3": Row(window="all"),
    "gpt2": Row(
        fixed=_GPT2,
        renamed={
            "hidden_size": "n_embd",
            "num_hidden_layers": "n_layer",
            "num_attention_heads": "n_head",
            "intermediate_size": "n_inner",
            "max_position_embeddings": "n_positions",
            "hidden_act": "activation_function",
            "rms_norm_eps": "layer_norm_epsilon",
        },
        defaults={"tie_word_embeddings": True, "activation_function": "gelu_new"},
    ),
    "starcoder2": Row(
        fixed=_LAYER_NORM,
        renamed={"rms_norm_eps": "norm_epsilon"},
        defaults={"tie_word_embeddings": True, "hidden_act": "gelu_pytorch_tanh"},
        window="all",
    ),
    "granite": Row(
        numbers={
            "embedding_scale": "embedding_multiplier",
            "residual_scale": "residual_multiplier",
            "score_scale": "attention_multiplier",
        },
    ),
    "smollm3": Row(ropeless=True, window="switched", defaults={"tie_word_embeddings": True}),
    "arcee": Row(fixed={"activation": "relu2", "gated": False}),
}

_GGUF_GEMMA: dict[str, Any] = {"activation": "gelu_tanh"}  # the weights of norms are stored with the 1 in them
_GGUF_GEMMA2 = {**_GGUF_GEMMA, "post_norms": True}
GGUF: dict[str, GGUFRow] = {
    "llama": GGUFRow(),
    "qwen2": GGUFRow(fixed={"biases": _QKV}),
    "qwen2moe": GGUFRow(fixed={"biases": _QKV}, shared_experts=True),
    "qwen3": GGUFRow(fixed={"qk_norm": True}),
    "qwen3moe": GGUFRow(fixed={"qk_norm": True}),
    "gemma": GGUFRow(fixed=_GGUF_GEMMA, scaled_embedding=True),
    "gemma2": GGUFRow(
        fixed=_GGUF_GEMMA2, numbers=_CAPS, pattern=2, scaled_embedding=True, by_width=((46, 4608), (62, 5376))
    ),
    "gemma3": GGUFRow(
        fixed={**_GGUF_GEMMA2, "qk_norm": True},
        numbers=_CAPS,
        pattern=6,
        scaled_embedding=True,
        local_rope=True,
        by_width=((46, 4608), (62, 5376)),
    ),
    "phi3": GGUFRow(),
    "gpt2": GGUFRow(fixed={**_GPT2, "activation": "gelu_tanh"}),
    "starcoder2": GGUFRow(fixed={**_LAYER_NORM, "activation": "gelu_tanh"}),
    "granite": GGUFRow(
        numbers={
            "embedding_scale": "embedding_scale",
            "residual_scale": "residual_scale",
            "score_scale": "attention.scale",
        },
    ),
    "smollm3": GGUFRow(ropeless=True),
    "arcee": GGUFRow(fixed={"activation": "relu2", "gated": False}),
}


# ---------------------------------------------------------------- typed access
class Fields:
    """Typed access to the values of a config: an error names the value and what it must be."""

    def __init__(self, given: Mapping[str, Any], what: str, renamed: Mapping[str, str] | None = None) -> None:
        self.given, self.what, self.renamed = given, what, {} if renamed is None else renamed

    def __call__(self, key: str, default: Any = None) -> Any:
        """A value as it is; the default where there is none, or null."""
        found = self.given.get(self.renamed.get(key, key))
        if found is None and default is _NEEDED:
            raise FileFormatError(
                f"The config of this {self.what} says nothing of {self.renamed.get(key, key)}.",
                "Take the file from the model's own folder.",
            )
        return default if found is None else found

    def size(self, key: str, default: Any = _NEEDED) -> int:
        """A whole number of at least 1."""
        found = self(key, default)
        if isinstance(found, bool) or not isinstance(found, (int, np.integer)) or found < 1:
            raise self.wrong(key, found, "a whole number of at least 1")
        return int(found)

    def number(self, key: str, default: Any = _NEEDED) -> float:
        """A finite number."""
        found = self(key, default)
        if isinstance(found, bool) or not isinstance(found, (int, float, np.number)) or not np.isfinite(found):
            raise self.wrong(key, found, "a number")
        return float(found)

    def wrong(self, key: str, found: Any, wanted: str) -> FileFormatError:
        """The error for a value of another form."""
        return FileFormatError(
            f"The config of this {self.what} has {self.renamed.get(key, key)} = {found!r}; it must be {wanted}.",
            "Take the file from the model's own folder.",
        )


# ---------------------------------------------------------------- config.json
def config_of_hugging_face(given: Mapping[str, Any]) -> DecoderConfig:
    """The decoder that a `config.json` describes.

    Raises UnsupportedError for a family that is not known, and for weights that were quantised elsewhere;
    FileFormatError for values that are missing or of another form.

    >>> from rlx.lm.families import config_of_hugging_face
    >>> sizes = dict(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    >>> config_of_hugging_face({"model_type": "llama", **sizes}).key_heads
    2
    """
    if not isinstance(given, Mapping):
        raise FileFormatError("config.json is not an object.", "Take the file from the model's own folder.")
    family = given.get("model_type", "")
    if family == "gemma3" and isinstance(given.get("text_config"), Mapping):
        raise UnsupportedError(
            "This Gemma 3 also reads images, which rlx does not.", "Use the folder of a text model: gemma3_text."
        )
    if family in ("bert", "roberta", "distilbert"):
        raise UnsupportedError(f"{family} is an encoder: it makes vectors, no texts.", "Use rlx.lm.load_encoder.")
    if family not in HUGGING_FACE:
        raise UnsupportedError(f"No decoder of the family {family!r} is known.", f"Known: {', '.join(HUGGING_FACE)}.")
    method = (given.get("quantization_config") or {}).get("quant_method")
    if method is not None:
        raise UnsupportedError(
            f"The weights of this folder were quantised by {method!r}, which rlx does not read.",
            "Load the original folder: rlx.lm.load(folder, quantize='q4_k').",
        )
    row = HUGGING_FACE[family]
    fields = Fields({**row.defaults, **given}, family, row.renamed)
    found = _plain(fields, family)
    found = replace(found, **_differing(fields, row, found))
    return replace(found, experts=_experts(fields, row), plain_layers=_plain_layers(fields, row))


def _plain(fields: Fields, family: str) -> DecoderConfig:
    """The common configuration of Llama and its descendants."""
    heads, width = fields.size("num_attention_heads"), fields.size("hidden_size")
    head_dim = fields.size("head_dim", width // heads)
    layers = fields.size("num_hidden_layers")
    rope = _rope(fields, head_dim)
    context = fields.size("max_position_embeddings", 2048)
    if rope.scaling == "dynamic":  # the extended length
        context = int(context * dict(rope.factors).get("factor", 1.0))
    biases = ("q", "k", "v", "o") if fields("attention_bias") else ()
    return DecoderConfig(
        family=family,
        vocabulary=fields.size("vocab_size"),
        width=width,
        layers=layers,
        heads=heads,
        key_heads=fields.size("num_key_value_heads", heads),
        inner=fields.size("intermediate_size", 4 * width if family == "gpt2" else _NEEDED),
        head_dim=head_dim,
        context=context,
        norm_eps=fields.number("rms_norm_eps", 1e-5),
        activation=_activation(fields),
        biases=(*biases, *(("gate", "up", "down") if fields("mlp_bias") else ())),
        rope=rope,
        tied=bool(fields("tie_word_embeddings", False)),
    )


def _differing(fields: Fields, row: Row, found: DecoderConfig) -> dict[str, Any]:
    """The fields in which a family differs from Llama."""
    changes: dict[str, Any] = {
        field: fields.number(key) for field, key in row.numbers.items() if fields(key) is not None
    }
    if row.scaled_embedding:
        changes["embedding_scale"] = float(np.float32(found.width**0.5))
    if fields("query_pre_attn_scalar") is not None and row.numbers is _CAPS:
        changes["score_scale"] = fields.number("query_pre_attn_scalar") ** -0.5
    if fields("logits_scaling") is not None:
        changes["logit_scale"] = 1 / fields.number("logits_scaling")
    if row.local_rope:
        changes["rope"] = _rope(fields, found.head_dim, "full_attention")
        changes["local_rope"] = _rope(fields, found.head_dim, "sliding_attention")
        if fields("rope_local_base_freq") is not None:
            changes["local_rope"] = Rope(fields.number("rope_local_base_freq"), found.head_dim)
    if row.ropeless:
        uses = fields("no_rope_layers") or [(n + 1) % 4 != 0 for n in range(found.layers)]
        changes["ropeless"] = tuple(n for n, used in enumerate(uses) if not used)
    return changes | dict(row.fixed) | {"windows": _windows(fields, row, found.layers)}


def _activation(fields: Fields) -> str:
    name = fields("hidden_act") or fields("hidden_activation") or "silu"
    if name not in _ACTIVATIONS:
        raise UnsupportedError(
            f"This {fields.what} has the activation {name!r}, which is not known.", f"Known: {', '.join(_ACTIVATIONS)}."
        )
    return _ACTIVATIONS[name]


def _rope(fields: Fields, head_dim: int, which: str | None = None) -> Rope:
    """Rope of a config; newer files have all of it under "rope_parameters", perhaps for each kind of layer."""
    told: Any = fields("rope_parameters") or fields("rope_scaling") or {}
    told = told.get(which, told) if which else told
    if not isinstance(told, Mapping):
        raise fields.wrong("rope_parameters", told, "an object")
    kind = told.get("rope_type", told.get("type", "default"))
    share = told.get("partial_rotary_factor", fields("partial_rotary_factor", 1.0))
    base = told.get("rope_theta") or fields.number("rope_theta", 10_000.0)
    numbers = {name: _frozen(value) for name, value in told.items() if name not in ("rope_type", "type")}
    for name in ("original_max_position_embeddings", "max_position_embeddings"):
        if fields(name) is not None:
            numbers.setdefault(name, fields(name))
    scaling = None if kind == "default" else kind
    return Rope(float(base), int(head_dim * share), False, scaling, tuple(sorted(numbers.items())) if scaling else ())


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _windows(fields: Fields, row: Row, layers: int) -> tuple[int | None, ...]:
    if (
        not row.window
        or fields("sliding_window") is None
        or (row.window == "switched" and not fields("use_sliding_window"))
    ):
        return ()
    size, kinds = fields.size("sliding_window"), fields("layer_types")
    if kinds is not None:
        return tuple(size if kind == "sliding_attention" else None for kind in kinds)
    if row.window != "alternating":
        return (size,) * layers
    pattern = fields.size("sliding_window_pattern")
    return tuple(size if (layer + 1) % pattern else None for layer in range(layers))


def _experts(fields: Fields, row: Row) -> Experts | None:
    if not row.experts:
        return None
    count, chosen, size = row.experts
    found = fields("num_experts") or fields("num_local_experts")
    if found is None:
        fields(count, _NEEDED)
    normalised = count == "num_local_experts" or bool(fields("norm_topk_prob", False))
    return Experts(
        int(found), fields.size(chosen), fields.size(size), normalised, fields("shared_expert_intermediate_size", 0)
    )


def _plain_layers(fields: Fields, row: Row) -> tuple[int, ...]:
    if not row.experts:
        return ()
    step = fields.size("decoder_sparse_step", 1)
    plain: set[int] = set(fields("mlp_only_layers", ()))
    plain |= {layer for layer in range(fields.size("num_hidden_layers")) if (layer + 1) % step}
    return tuple(sorted(plain))


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
    if family not in GGUF:
        raise UnsupportedError(
            f"No decoder of the architecture {family!r} is known.", f"Known in GGUF files: {', '.join(GGUF)}."
        )
    row = GGUF[family]
    fields = Fields(metadata, f"{family} file", _Prefixed(family))
    heads, width, layers = (fields.size(key) for key in ("attention.head_count", "embedding_length", "block_count"))
    head_dim = fields.size("attention.key_length", width // heads)
    tokens = len(metadata.get("tokenizer.ggml.tokens", ()))
    inner = int(fields("feed_forward_length", 0))
    layer_norm = row.fixed.get("norm") == "layer"
    eps = "attention.layer_norm_epsilon" if layer_norm else "attention.layer_norm_rms_epsilon"
    found = DecoderConfig(
        family=family,
        vocabulary=vocabulary or fields.size("vocab_size", tokens or _NEEDED),
        width=width,
        layers=layers,
        heads=heads,
        key_heads=fields.size("attention.head_count_kv", heads),
        inner=inner,
        head_dim=head_dim,
        context=fields.size("context_length", 2048),
        norm_eps=fields.number(eps, 1e-5),
        rope=_gguf_rope(fields, head_dim, family in INTERLEAVED, factors or {}),
        tied=tied,
    )
    return replace(found, **_gguf_differing(fields, row, found))


INTERLEAVED = ("llama", "granite", "smollm3", "arcee")  # rows of queries and keys are in the order of pairs


class _Prefixed(dict[str, str]):
    """Keys of an architecture: "block_count" is "llama.block_count"."""

    def __init__(self, family: str) -> None:
        super().__init__()
        self._family = family

    def get(self, key: str, default: Any = None) -> Any:
        return f"{self._family}.{key}"


def _gguf_differing(fields: Fields, row: GGUFRow, found: DecoderConfig) -> dict[str, Any]:
    """The fields in which an architecture differs from Llama."""
    changes: dict[str, Any] = {
        field: fields.number(key) for field, key in row.numbers.items() if fields(key) is not None
    }
    if row.scaled_embedding:
        changes["embedding_scale"] = float(np.float32(found.width**0.5))
    if row.by_width is not None:
        wide = (found.layers, found.width) in row.by_width
        changes["score_scale"] = (found.width / found.heads if wide else found.head_dim) ** -0.5
    if fields("logit_scale") is not None and "residual_scale" in row.numbers:
        changes["logit_scale"] = 1 / fields.number("logit_scale")
    if row.local_rope:
        changes["local_rope"] = Rope(fields.number("rope.freq_base_swa", 10_000.0), found.head_dim)
    if row.ropeless:
        changes["ropeless"] = tuple(n for n in range(found.layers) if (n + 1) % 4 == 0)
    window = fields("attention.sliding_window")
    if window:
        pattern = fields("attention.sliding_window_pattern", row.pattern)
        pattern = int(pattern) if np.ndim(pattern) == 0 else row.pattern
        size = fields.size("attention.sliding_window")
        changes["windows"] = tuple(
            size if not pattern or (layer + 1) % pattern else None for layer in range(found.layers)
        )
    return changes | dict(row.fixed) | {"experts": _gguf_experts(fields, row, found.inner)}


def _gguf_experts(fields: Fields, row: GGUFRow, inner: int) -> Experts | None:
    if not fields("expert_count") and not row.shared_experts:
        return None
    count, chosen = fields.size("expert_count"), fields.size("expert_used_count")
    if not row.shared_experts:
        return Experts(count, chosen, fields.size("expert_feed_forward_length", inner))
    size = fields.size("expert_feed_forward_length", inner // chosen)
    return Experts(count, chosen, size, False, fields.size("expert_shared_feed_forward_length", inner))


def _gguf_rope(fields: Fields, head_dim: int, interleaved: bool, factors: Mapping[str, tuple[float, ...]]) -> Rope:
    kind = fields("rope.scaling.type")
    kind = kind if kind in ("linear", "yarn") else None
    numbers: dict[str, Any] = {}
    if fields("rope.scaling.factor") is not None:
        numbers["factor"] = fields.number("rope.scaling.factor")
    if fields("rope.scaling.original_context_length") is not None:
        numbers["original_max_position_embeddings"] = fields.size("rope.scaling.original_context_length")
    if "factors_long" in factors:
        kind = "longrope"
        numbers |= {"long_factor": factors["factors_long"], "short_factor": factors["factors_short"]}
        numbers["max_position_embeddings"] = fields.size("context_length")
        if fields("rope.scaling.attn_factor") is not None:
            numbers["attention_factor"] = fields.number("rope.scaling.attn_factor")
    return Rope(
        fields.number("rope.freq_base", 10_000.0),
        fields.size("rope.dimension_count", head_dim),
        interleaved,
        kind,
        tuple(sorted(numbers.items())) if kind else (),
        factors.get("freqs", ()),
    )


# ---------------------------------------------------------------- encoders
def encoder_config(given: Mapping[str, Any], pooled: bool = False, masked: bool = False) -> EncoderConfig:
    """The encoder that a `config.json` describes. Raises UnsupportedError for another family than bert."""
    if not isinstance(given, Mapping):
        raise FileFormatError("config.json is not an object.", "Take the file from the model's own folder.")
    family = given.get("model_type", "")
    if family != "bert" or given.get("is_decoder"):
        raise UnsupportedError(
            f"No encoder of the family {family!r} is known.", "Known: bert. Decoders are read by rlx.lm.load."
        )
    fields = Fields({"hidden_act": "gelu", **given}, "bert")
    return EncoderConfig(
        vocabulary=fields.size("vocab_size"),
        width=fields.size("hidden_size"),
        layers=fields.size("num_hidden_layers"),
        heads=fields.size("num_attention_heads"),
        inner=fields.size("intermediate_size"),
        context=fields.size("max_position_embeddings", 512),
        kinds=fields.size("type_vocab_size", 2),
        norm_eps=fields.number("layer_norm_eps", 1e-12),
        activation=_activation(fields),
        pooled=pooled,
        masked=masked,
    )
