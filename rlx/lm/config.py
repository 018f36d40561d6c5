"""The configuration of decoders and encoders: one class for all families. `rlx.lm.families` reads them from files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx.errors import OptionError

__all__ = ["DecoderConfig", "EncoderConfig", "Experts", "Rope"]


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
      activation: "silu", "gelu", "gelu_tanh" or "relu2"; gated: the feed-forward block has a gate.
      biases: linear layers that have a bias, as "q"; with norm="layer" all have one.
      rope: for global attention; local_rope: for layers with a window, if different.
      ropeless: the layers without rotary positions.
      learned_positions: positions have embeddings instead.
      alibi: scores decrease with the distance of keys instead, with a slope per head.
      sinks: each head has a score that takes part in its softmax without a value.
      tied: logits are products with the embedding.
      embedding_scale, residual_scale, logit_scale: factors of embeddings, of each block's update, and of logits.
      score_scale: factor of attention scores; None: 1 / sqrt(head_dim).
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
    biases: tuple[str, ...] = ()
    rope: Rope | None = None
    local_rope: Rope | None = None
    ropeless: tuple[int, ...] = ()
    learned_positions: bool = False
    alibi: bool = False
    sinks: bool = False
    tied: bool = False
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
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
