"""Encoders of the family of BERT: vectors of tokens that see each other on both sides."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from rlx import nn
from rlx import numpy as jnp
from rlx.call.jit import jit
from rlx.errors import FileFormatError, OptionError, UnsupportedError
from rlx.forks import cached_property
from rlx.lm.config import EncoderConfig
from rlx.lm.families import encoder_config
from rlx.lm.json_files import read_object
from rlx.lm.layers import Parameters, activate, linear
from rlx.lm.tensors import open_tensors
from rlx.lm.weights import parameters_of_tensors

__all__ = ["Encoder", "encode", "load_encoder"]


def _normalised(x: Any, parameters: Parameters, config: EncoderConfig) -> Any:
    return nn.layer_norm(x, parameters["weight"], parameters["bias"], epsilon=config.norm_eps)


def encode(parameters: Parameters, tokens: Any, config: EncoderConfig, counted: Any = None, kinds: Any = None) -> Any:
    """The output of the last layer: float32 [batch, time, width], a pure function.

    Args:
      tokens: ints [batch, time].
      counted: bools [batch, time]: which tokens are valid; the others are padding and are masked. None: all.
      kinds: ints [batch, time]: 0 for the first text, 1 for the second. None: 0.

    >>> import numpy as np
    >>> from rlx import lm
    >>> config = lm.EncoderConfig(vocabulary=9, width=8, layers=1, heads=2, inner=8)
    >>> lm.encode(lm.random_parameters(config), np.array([[1, 2, 3]]), config).shape
    (1, 3, 8)
    """
    tokens = jnp.asarray(tokens)
    b, time = tokens.shape
    sides = jnp.zeros(tokens.shape, np.int32) if kinds is None else jnp.asarray(kinds)
    x = parameters["embedding"]["weight"][tokens] + parameters["kinds"]["weight"][sides]
    x = _normalised(x + parameters["positions"]["weight"][:time], parameters["embedding_norm"], config)
    seen = None if counted is None else jnp.asarray(counted).astype(bool)[:, None, None]
    heads = (b, time, config.heads, config.width // config.heads)
    for layer in parameters["layers"]:
        parts = (linear(x, layer[name]).reshape(heads) for name in ("q", "k", "v"))
        mixed = nn.dot_product_attention(*parts, mask=seen).reshape(x.shape)
        x = _normalised(x + linear(mixed, layer["o"]), layer["attention_norm"], config)
        inner = linear(activate(linear(x, layer["up"]), config.activation), layer["down"])
        x = _normalised(x + inner, layer["ffn_norm"], config)
    return x


class Encoder:
    """An encoder with its parameters.

    >>> from rlx import lm
    >>> config = lm.EncoderConfig(vocabulary=9, width=8, layers=1, heads=2, inner=8, masked=True)
    >>> lm.Encoder(config, lm.random_parameters(config)).logits([[1, 2]]).shape
    (1, 2, 9)
    """

    def __init__(self, config: EncoderConfig, parameters: Any) -> None:
        self.config, self.parameters = config, parameters

    @cached_property
    def _states(self) -> Any:
        return jit(lambda p, tokens, counted, kinds: encode(p, tokens, self.config, counted, kinds))

    def states(self, tokens: Any, counted: Any = None, kinds: Any = None) -> Any:
        """`encode` of these parameters, compiled. Raises OptionError for ids and lengths that the model has not."""
        rows = np.asarray(tokens)
        if rows.ndim != 2 or not rows.size or rows.shape[1] > self.config.context:
            raise OptionError(
                f"Tokens of {list(rows.shape)} for a context of {self.config.context}.", "Give [batch, time], shorter."
            )
        if rows.min() < 0 or rows.max() >= self.config.vocabulary:
            raise OptionError(f"A token is outside the vocabulary of {self.config.vocabulary}.")
        return self._states(self.parameters, rows, counted, kinds)

    def pooled(self, tokens: Any, counted: Any = None, kinds: Any = None) -> Any:
        """One vector per text: tanh of a product with the first token's vector, [batch, width]."""
        self._need(self.config.pooled, "pooled output")
        return jnp.tanh(linear(self.states(tokens, counted, kinds)[:, 0], self.parameters["pooler"]))

    def logits(self, tokens: Any, counted: Any = None, kinds: Any = None) -> Any:
        """Logits for masked tokens: float32 [batch, time, vocabulary]."""
        self._need(self.config.masked, "logits for masked tokens")
        x = activate(linear(self.states(tokens, counted, kinds), self.parameters["guess"]), self.config.activation)
        x = _normalised(x, self.parameters["guess_norm"], self.config)
        weight = self.parameters["embedding"]["weight"]
        return linear(x, {"weight": weight, "bias": self.parameters["guess_bias"]["bias"]})

    def _need(self, there: bool, what: str) -> None:
        if not there:
            raise UnsupportedError(f"The encoder's file has no {what}.", "Use states().")


# ---------------------------------------------------------------- weights
def load_encoder(path: str | os.PathLike[str]) -> Encoder:
    """An encoder from a folder with `config.json` and safetensors, sharded or not.

    Raises UnsupportedError for another family than bert, FileFormatError for weights that are missing or have other
    shapes, all of them by name.

    >>> import rlx.lm
    >>> rlx.lm.load_encoder("no-such-folder")
    Traceback (most recent call last):
        ...
    rlx.errors.FileFormatError: no-such-folder is not a folder with config.json...
    """
    path = Path(path)
    if not (path / "config.json").is_file():
        raise FileFormatError(f"{path} is not a folder with config.json.", "Check the path.")
    tensors = open_tensors(path)
    pooled = any(name.endswith("pooler.dense.weight") for name in tensors)
    given = read_object(path / "config.json")
    config = encoder_config(given, pooled, "cls.predictions.bias" in tensors)
    return Encoder(config, parameters_of_tensors(config, tensors))
