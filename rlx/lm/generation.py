"""Models that talk: parameters, config and tokenizer together, tokens and texts one by one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rlx import numpy as jnp
from rlx.errors import FileFormatError, InputTypeError, OptionError
from rlx.gguf.file import GGUFFile
from rlx.lm.caches import Cache, new_cache
from rlx.lm.chat import chat_text
from rlx.lm.config import DecoderConfig
from rlx.lm.families import config_of_gguf, config_of_hugging_face
from rlx.lm.decoder import Steps, longest_before_switch
from rlx.lm.sampling import Sampling, choose
from rlx.lm.tensors import open_tensors
from rlx.lm.tokens import TextTokenizer, Utf8
from rlx.lm.weights import parameters_of_gguf, parameters_of_tensors

__all__ = ["Model", "load"]

_SMALLEST = 16  # tokens of a prompt that are computed at once: prompts are padded to a power of two
_LARGEST = 512
_CAPACITY = 128  # positions of a cache: multiples, so that few programs are made
GREEDY = Sampling()


class Model:
    """A decoder with its parameters, and its tokenizer if there is one.

    Args:
      config, parameters: a DecoderConfig and the pytree that belongs to it.
      tokenizer: or None, if only ids are used.
      cache: options of `rlx.lm.new_cache`, such as {"dtype": "q8_0"} or {"kind": "ring"}.

    >>> import numpy as np
    >>> from rlx import lm
    >>> config = lm.DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8, rope=lm.Rope(dims=4))
    >>> model = lm.Model(config, lm.random_parameters(config))
    >>> len(list(model.generate([1, 2, 3], max_tokens=4)))
    4
    """

    def __init__(
        self,
        config: DecoderConfig,
        parameters: Any,
        tokenizer: TextTokenizer | None = None,
        cache: Mapping[str, Any] | None = None,
    ) -> None:
        self.config = config
        self.parameters = parameters
        self.tokenizer = tokenizer
        self.cache = dict(cache or {})

    @cached_property
    def steps(self) -> Steps:
        """The compiled parts that generation uses."""
        return Steps(self.parameters, self.config)

    def __repr__(self) -> str:
        c = self.config
        return f"Model({c.family}, {c.layers} layers of {c.width}, {c.vocabulary} tokens)"

    def logits(self, tokens: Any) -> Any:
        """Logits at every position of sequences [batch, time]: float32 [batch, time, vocabulary]."""
        rows = _checked(np.asarray(tokens), self.config)
        padded = np.pad(rows, [(0, 0), (0, _padded(rows.shape[1]) - rows.shape[1])])
        cache = new_cache(self.config, len(rows), padded.shape[1])
        least = np.full(len(rows), rows.shape[1])
        return self.steps.advance(padded, cache, every=True, least=least)[0][:, : rows.shape[1]]

    # ------------------------------------------------------------- tokens
    def start(self, prompts: Sequence[Sequence[int]], room: int) -> tuple[Any, Cache]:
        """The logits after prompts of any lengths, float32 [batch, vocabulary], and a cache with room for more tokens.

        Raises OptionError for an empty prompt and for sequences longer than the model's context.
        """
        rows = [_checked(np.asarray(prompt, np.int64).reshape(-1), self.config) for prompt in prompts]
        if not rows or not all(row.size for row in rows):
            raise OptionError("A prompt is empty.", "Begin with at least one token.")
        lengths = np.array([row.size for row in rows], np.int32)
        longest = int(lengths.max())
        if longest + room > self.config.context:
            raise OptionError(
                f"A prompt of {longest} tokens and {room} more are longer than the model's context"
                f" of {self.config.context}.",
                "Shorten the prompt, or ask for fewer tokens.",
            )
        padded = _padded(longest)
        capacity = -(-max(longest + room, padded) // _CAPACITY) * _CAPACITY
        cache = new_cache(self.config, len(rows), capacity, **self.cache)
        tokens = np.zeros((len(rows), padded), np.int32)
        for number, row in enumerate(rows):
            tokens[number, : row.size] = row
        logits: Any = None
        for first in range(0, padded, _LARGEST):
            part = tokens[:, first : first + _LARGEST]
            counts = np.clip(lengths - first, 0, part.shape[1]).astype(np.int32)
            least = np.where(counts > 0, lengths, capacity)  # positions after the end of a sequence are truncated
            found, cache = self.steps.advance(part, cache, np.maximum(counts, 1), least=least)
            filled = cache.filled
            cache = cache.truncate(np.minimum(lengths, first + part.shape[1]))._replace(filled=filled)
            logits = found if logits is None else jnp.where(jnp.asarray(counts > 0)[:, None], found, logits)
        return logits, cache.truncate(lengths)

    def generate(
        self,
        tokens: Sequence[int] | Sequence[Sequence[int]],
        max_tokens: int = 128,
        sampling: Sampling = GREEDY,
        stop: Iterable[int] | None = None,
    ) -> Iterator[Any]:
        """The tokens after a prompt, or after each prompt of a batch, one by one.

        Args:
          tokens: ids, or a list of lists of them of any lengths.
          max_tokens: the maximum number.
          sampling: how they are chosen; greedily unless it says otherwise.
          stop: ids that end a sequence, which are not given themselves; None: the model's own.

        Yields an int; for a batch a list, with None for sequences that have ended.

        Raises OptionError for an empty prompt, ids outside the vocabulary, and sequences longer than the context.
        """
        batch = len(tokens) > 0 and not isinstance(tokens[0], (int, np.integer))
        prompts: Any = tokens if batch else [tokens]
        ends = set(self.config.stop if stop is None else stop)
        logits, cache = self.start(prompts, max_tokens)
        seen = _seen(prompts, self.config.vocabulary) if sampling.repetition_penalty != 1 else None
        over = [False] * len(prompts)
        switch = longest_before_switch(self.config)
        told = None if switch is None else [list(prompt) for prompt in prompts]
        for step in range(max_tokens):
            chosen = choose(logits, sampling, seen, np.int32(step))
            found = np.asarray(chosen)
            over = [done or int(token) in ends for done, token in zip(over, found, strict=True)]
            if all(over):
                return
            given = [None if done else int(token) for done, token in zip(over, found, strict=True)]
            yield given if batch else given[0]
            if seen is not None:
                seen = seen.at[np.arange(len(found)), chosen].set(True)
            if step + 1 == max_tokens:
                return
            if told is not None:
                told = [[*row, int(token)] for row, token in zip(told, found, strict=True)]
                if any(len(row) - 1 == switch for row in told):  # all of its keys are turned otherwise from here on
                    logits, cache = self.start(told, max_tokens - step - 1)
                    continue
            logits, cache = self.steps.advance(chosen[:, None], cache)

    # ------------------------------------------------------------- texts
    def stream(
        self,
        prompt: str,
        max_tokens: int = 128,
        sampling: Sampling = GREEDY,
        stop: Sequence[str] = (),
    ) -> Iterator[str]:
        """The text after a prompt, piece by piece; it ends before any of the strings in `stop`.

        Raises InputTypeError where the model has no tokenizer.
        """
        tokenizer = self._texts()
        pieces, held = Utf8(tokenizer), ""
        for token in self.generate(tokenizer.encode(prompt), max_tokens, sampling):
            held += pieces.add(token)
            ends = [place for place in map(held.find, stop) if place >= 0]
            if ends:
                yield held[: min(ends)]
                return
            keep = max((_overlap(held, text) for text in stop), default=0)
            ready = held[: len(held) - keep]
            if ready:
                yield ready
                held = held[len(ready) :]
        held += pieces.rest()
        ends = [place for place in map(held.find, stop) if place >= 0]
        held = held[: min(ends)] if ends else held
        if held:
            yield held

    def chat(self, messages: Sequence[dict[str, Any]], max_tokens: int = 512, sampling: Sampling = GREEDY,
             **more: Any) -> Iterator[str]:  # fmt: skip
        """The answer to a conversation, piece by piece: messages are dicts of "role" and "content"."""
        return self.stream(chat_text(messages, self._texts(), **more), max_tokens, sampling)

    def _texts(self) -> TextTokenizer:
        if self.tokenizer is None:
            raise InputTypeError("The model has no tokenizer.", "Give one to rlx.lm.load, or use generate with ids.")
        return self.tokenizer


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of a text may begin a stop text."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)


def _padded(length: int) -> int:
    """How many tokens are computed for a prompt."""
    if length > _LARGEST:
        return -(-length // _LARGEST) * _LARGEST
    return max(_SMALLEST, 1 << (length - 1).bit_length())


def _seen(prompts: Sequence[Sequence[int]], vocabulary: int) -> Any:
    seen = np.zeros((len(prompts), vocabulary), bool)
    for row, prompt in zip(seen, prompts, strict=True):
        row[np.asarray(prompt)] = True
    return jnp.asarray(seen)


def _checked(tokens: np.ndarray, config: DecoderConfig) -> np.ndarray:
    if tokens.dtype.kind not in "iu":
        raise InputTypeError(
            f"Token ids must be integers, got {tokens.dtype}.", "Encode text first: model.tokenizer.encode(text)."
        )
    if tokens.size and not (0 <= tokens.min() and tokens.max() < config.vocabulary):
        wrong = tokens[(tokens < 0) | (tokens >= config.vocabulary)].reshape(-1)[0]
        raise OptionError(f"The token {wrong} is outside the vocabulary of {config.vocabulary}.")
    return tokens.astype(np.int32)


# ---------------------------------------------------------------- loading
def load(path: str | os.PathLike[str], tokenizer: TextTokenizer | None = None) -> Model:
    """A model from a GGUF file, or from a folder with `config.json` and safetensors, sharded or not.

    Packed weights of a GGUF file stay packed and mapped: only used parts take memory.

    Raises UnsupportedError for an architecture that is not known, FileFormatError for weights that are missing or have
    other shapes, all of them by name.

    >>> import rlx.lm
    >>> rlx.lm.load("no-such-folder")
    Traceback (most recent call last):
        ...
    rlx.errors.FileFormatError: no-such-folder is neither a GGUF file nor a folder with config.json...
    """
    path = Path(path)
    if path.is_file():
        return _load_gguf(GGUFFile(path), tokenizer)
    if not (path / "config.json").is_file():
        raise FileFormatError(f"{path} is neither a GGUF file nor a folder with config.json.", "Check the path.")
    config = config_of_hugging_face(json.loads((path / "config.json").read_text()))
    parameters = parameters_of_tensors(config, open_tensors(path))
    if tokenizer is None and (path / "tokenizer.json").is_file():
        tokenizer = _tokenizer_of_folder(path)
    return Model(config, parameters, tokenizer)


def _load_gguf(file: GGUFFile, tokenizer: TextTokenizer | None) -> Model:
    factors = {
        name: tuple(float(f) for f in file[f"rope_{name}.weight"].numpy())
        for name in ("freqs", "factors_long", "factors_short")
        if f"rope_{name}.weight" in file
    }
    rows = file["token_embd.weight"].shape[0] if "token_embd.weight" in file else None
    config = config_of_gguf(file.metadata, factors, "output.weight" not in file, rows)
    if tokenizer is None and "tokenizer.ggml.model" in file.metadata:
        tokenizer = TextTokenizer.of_gguf(file.tokenizer)
    return Model(config, parameters_of_gguf(config, file), tokenizer)


def _tokenizer_of_folder(path: Path) -> TextTokenizer:
    """tokenizer.json, with the names of special tokens and the template of tokenizer_config.json."""
    found = TextTokenizer.of_file(path / "tokenizer.json")
    told = path / "tokenizer_config.json"
    given = json.loads(told.read_text()) if told.is_file() else {}
    for role, name in (("bos", "bos_token"), ("eos", "eos_token"), ("unknown", "unk_token"), ("padding", "pad_token")):
        token = given.get(name)
        token = token.get("content") if isinstance(token, dict) else token
        number = None if token is None else found.library.token_to_id(token)
        if number is not None:
            found.special[role] = number
    template = path / "chat_template.jinja"
    found.chat_template = template.read_text() if template.is_file() else given.get("chat_template")
    found.begins = bool(given.get("add_bos_token")) and "bos" in found.special
    return found
