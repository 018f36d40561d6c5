"""Models that talk: parameters, config and tokenizer together, tokens and texts one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import signature
from typing import Any, NamedTuple

import numpy as np

from rlx import numpy as jnp
from rlx.errors import InputTypeError, OptionError, did_you_mean
from rlx.forks import cached_property
from rlx.lm.caches import Cache, new_cache
from rlx.lm.chat import chat_text
from rlx.lm.config import DecoderConfig
from rlx.lm.decoder import Steps, longest_before_switch
from rlx.lm.prompt_cache import PromptCache
from rlx.lm.rope import fixed_until
from rlx.lm.sampling import Sampling, bias_of, choose, level_of, likely, numbers_of
from rlx.lm.stopping import StopTexts, before_stops
from rlx.lm.tokens import TextTokenizer, Utf8

__all__ = ["GREEDY", "Likely", "Model", "Processor", "prompts_of"]

_SMALLEST = 16  # tokens of a prompt that are computed at once: prompts are padded to a power of two
_LARGEST = 512
_CAPACITY = 128  # positions of a cache: multiples, so that few programs are made
_CACHE_OPTIONS = tuple(signature(new_cache).parameters)[3:]
GREEDY = Sampling()

# the tokens of each sequence so far, and their logits [batch, vocabulary] -> logits
Processor = Callable[[Sequence[Sequence[int]], Any], Any]


class Likely(NamedTuple):
    """A token with its log-probability, and the likeliest tokens in its place with theirs.

    >>> from rlx import lm
    >>> config = lm.DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8)
    >>> model = lm.Model(config, lm.random_parameters(config))
    >>> first = next(model.generate([1, 2], 1, logprobs=2))
    >>> first.top[0] == (first.token, first.logprob)
    True
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


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
        unknown = self.cache.keys() - _CACHE_OPTIONS
        if unknown:
            raise OptionError(
                f"new_cache has no option {min(unknown)!r}.",
                did_you_mean(min(unknown), _CACHE_OPTIONS) or f"There are: {', '.join(_CACHE_OPTIONS)}.",
            )

    @cached_property
    def steps(self) -> Steps:
        """The compiled parts that generation uses."""
        return Steps(self.parameters, self.config)

    def __repr__(self) -> str:
        c = self.config
        return f"Model({c.family}, {c.layers} layers of {c.width}, {c.vocabulary} tokens)"

    def logits(self, tokens: Any) -> Any:
        """Logits at every position of sequences [batch, time] of one length: float32 [batch, time, vocabulary].

        Raises OptionError for sequences without tokens or longer than the context.
        """
        rows = _checked(np.asarray(tokens), self.config)
        if rows.ndim != 2 or not rows.size or rows.shape[1] > self.config.context:
            raise OptionError(
                f"Tokens of shape {list(rows.shape)} for a context of {self.config.context}.",
                "Give a batch [batch, time]: model.logits([tokens]).",
            )
        padded = np.pad(rows, [(0, 0), (0, self._padded(rows.shape[1]) - rows.shape[1])])
        cache = new_cache(self.config, len(rows), padded.shape[1])
        least = np.full(len(rows), rows.shape[1])
        return self.steps.advance(padded, cache, every=True, least=least)[0][:, : rows.shape[1]]

    # ------------------------------------------------------------- tokens
    @property
    def _largest(self) -> int:
        """How many tokens of a prompt are computed at once: a ring takes a chunk."""
        chunk = self.cache.get("chunk", _LARGEST) if self.cache.get("kind") == "ring" else _LARGEST
        return max(1, min(_LARGEST, chunk))

    def _padded(self, length: int) -> int:
        """How many tokens are computed for a prompt."""
        most = self._largest
        if length > most:
            return -(-length // most) * most
        return 1 if length == 1 else min(max(_SMALLEST, 1 << (length - 1).bit_length()), most)

    def start(
        self, prompts: Sequence[Sequence[int] | np.ndarray], room: int, prompt_cache: PromptCache | None = None
    ) -> tuple[Any, Cache]:
        """The logits after prompts of any lengths, float32 [batch, vocabulary], and a cache with room for more tokens.

        prompt_cache: for one prompt, whose first tokens are not computed again.

        Raises OptionError for an empty prompt and for sequences longer than the model's context.
        """
        rows = [_checked(np.asarray(prompt), self.config).reshape(-1) for prompt in prompts]
        lengths = np.array([row.size for row in rows], np.int32)
        if not rows or not lengths.all():
            raise OptionError("A prompt is empty.", "Begin with at least one token.")
        longest = int(lengths.max())
        if longest + room > self.config.context:
            raise OptionError(
                f"A prompt of {longest} tokens and {room} more are longer than the model's context"
                f" of {self.config.context}.",
                "Shorten the prompt, or ask for fewer tokens.",
            )

        def needed(known: int) -> int:
            """The positions that are written if the first `known` are there."""
            return max(longest + room, known + self._padded(longest - known))

        cache = None
        if prompt_cache is not None:
            cache = prompt_cache.take(rows[0], needed, self.config, fixed_until(self.config))
        if cache is None:
            capacity = -(-needed(0) // _CAPACITY) * _CAPACITY
            cache = new_cache(self.config, len(rows), capacity, **self.cache)
        known = cache.filled
        padded = self._padded(longest - known)
        tokens = np.zeros((len(rows), padded), np.int32)
        for number, row in enumerate(rows):
            tokens[number, : row.size - known] = row[known:]
        return self._computed(tokens, lengths, known, cache)

    def computed(self, tokens: Any, cache: Cache) -> tuple[Any, Cache]:
        """The logits behind tokens [1, time], float32 [1, vocabulary], that follow those in a cache, and the cache."""
        time, known = tokens.shape[1], cache.filled
        padded = min(self._padded(time), cache.capacity - known)
        rows = np.pad(np.asarray(tokens, np.int32), [(0, 0), (0, max(padded - time, 0))])
        return self._computed(rows, np.array([known + time], np.int32), known, cache)

    def _computed(self, tokens: np.ndarray, lengths: np.ndarray, known: int, cache: Cache) -> tuple[Any, Cache]:
        """The logits behind sequences of these lengths, and their cache, which has the first `known` tokens."""
        logits: Any = None
        for first in range(0, tokens.shape[1], self._largest):
            part = tokens[:, first : first + self._largest]
            counts = np.clip(lengths - known - first, 0, part.shape[1]).astype(np.int32)
            # positions after the end of a sequence are truncated
            least = np.where(counts > 0, lengths, cache.capacity)
            found, cache = self.steps.advance(part, cache, np.maximum(counts, 1), least=least)
            filled = cache.filled
            cache = cache.truncate(np.minimum(lengths, known + first + part.shape[1]))._replace(filled=filled)
            logits = found if logits is None else jnp.where(jnp.asarray(counts > 0)[:, None], found, logits)
        return logits, cache.truncate(lengths)

    def generate(
        self,
        tokens: Any,
        max_tokens: int = 128,
        sampling: Sampling = GREEDY,
        stop: Iterable[int] | None = None,
        *,
        processors: Sequence[Processor] = (),
        logprobs: int | None = None,
        prompt_cache: PromptCache | None = None,
    ) -> Iterator[Any]:
        """The tokens after a prompt, or after each prompt of a batch, one by one.

        Args:
          tokens: ids, a list or an array [time]; or a list of such of any lengths, or an array [batch, time].
          max_tokens: the maximum number.
          sampling: how they are chosen; greedily unless it says otherwise.
          stop: ids that end a sequence, which are not given themselves; None: the model's own.
          processors: functions between logits and choice: each gets the tokens of every sequence so far, lists of ids,
            and logits, float32 [batch, vocabulary], and returns logits. `rlx.lm.Grammar` makes some.
          logprobs: yield each token with its log-probability, and with this number of the likeliest tokens.
          prompt_cache: for one prompt: what it has is not computed again, and it has all tokens afterwards.

        Yields an int, or a Likely; for a batch a list, with None for sequences that have ended.

        Raises OptionError for an empty prompt, ids outside the vocabulary, and sequences longer than the context;
        InputTypeError for tokens that are not integers.

        >>> import numpy as np
        >>> from rlx import lm
        >>> config = lm.DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8)
        >>> model = lm.Model(config, lm.random_parameters(config))
        >>> never = lambda tokens, logits: logits.at[:, 4].set(-np.inf)
        >>> 4 in list(model.generate([1, 2, 3], 20, processors=[never]))
        False
        """
        batch, prompts = prompts_of(tokens, self.config)
        _check_count(max_tokens)
        if batch and prompt_cache is not None:
            raise OptionError("A prompt cache belongs to one sequence.", "Pass one prompt, or leave the cache out.")
        ends = set(self.config.stop) if stop is None else _ids(stop)
        samplings = [sampling] * len(prompts)
        numbers, level = numbers_of(samplings, range(len(prompts))), level_of(samplings)
        bias = bias_of(samplings, self.config.vocabulary)
        logits, cache = self.start(prompts, max_tokens, prompt_cache)
        seen = _seen(prompts, self.config.vocabulary) if sampling.repetition_penalty != 1 else None
        over = [False] * len(prompts)
        switch = longest_before_switch(self.config)
        told = [row.tolist() for row in prompts]
        if prompt_cache is not None:
            prompt_cache.put(list(told[0]), cache)
        for step in range(max_tokens):
            raw = logits
            for processor in processors:
                logits = processor(told, logits)
            steps = np.full(len(prompts), step, np.int32)
            chosen = choose(logits, numbers, level, seen, bias, steps)
            found = np.asarray(chosen)
            over = [done or int(token) in ends for done, token in zip(over, found, strict=True)]
            if all(over):
                return
            values: list[Any] = found.tolist() if logprobs is None else _likely(raw, chosen, logprobs)
            given = [None if done else value for done, value in zip(over, values, strict=True)]
            yield given if batch else given[0]
            if step + 1 == max_tokens:
                return
            if seen is not None:
                seen = seen.at[np.arange(len(found)), chosen].set(True)
            for row, token in zip(told, found.tolist(), strict=True):
                row.append(token)
            # from here on all keys of a sequence are turned otherwise
            if switch is not None and any(len(row) - 1 == switch for row in told):
                logits, cache = self.start(told, max_tokens - step - 1)
            else:
                logits, cache = self.steps.advance(chosen[:, None], cache)
            if prompt_cache is not None:
                prompt_cache.put(list(told[0]), cache)

    # ------------------------------------------------------------- texts
    def stream(
        self,
        prompt: str,
        max_tokens: int = 128,
        sampling: Sampling = GREEDY,
        stop: Sequence[str] = (),
        *,
        processors: Sequence[Processor] = (),
        prompt_cache: PromptCache | None = None,
    ) -> Iterator[str]:
        """The text after a prompt, piece by piece; it ends before any of the texts in `stop`. Others as `generate`.

        Raises InputTypeError where the model has no tokenizer.
        """
        tokens = self.with_texts().encode(prompt)
        return self._pieces(tokens, max_tokens, sampling, stop, processors, prompt_cache)

    def chat(
        self,
        messages: Sequence[dict[str, Any]],
        max_tokens: int = 512,
        sampling: Sampling = GREEDY,
        stop: Sequence[str] = (),
        *,
        tools: Sequence[dict[str, Any]] | None = None,
        template: Mapping[str, Any] | None = None,
        processors: Sequence[Processor] = (),
        prompt_cache: PromptCache | None = None,
    ) -> Iterator[str]:
        """The answer to a conversation, piece by piece: messages are dicts of "role" and "content".

        Args: tools: descriptions of functions, for templates that know them; template: values of other variables of the
        template; prompt_cache: so that each turn computes its own tokens only; others as `stream`.
        """
        tokenizer = self.with_texts()
        text = chat_text(messages, tokenizer, tools=tools, **(template or {}))
        return self._pieces(tokenizer.encode_chat(text), max_tokens, sampling, stop, processors, prompt_cache)

    def _pieces(self, tokens: list[int], max_tokens: int, sampling: Sampling, stop: Sequence[str],
                processors: Sequence[Processor], prompt_cache: PromptCache | None) -> Iterator[str]:  # fmt: skip
        ends = StopTexts(stop)
        found = self.generate(tokens, max_tokens, sampling, processors=processors, prompt_cache=prompt_cache)
        return before_stops(_texts(found, Utf8(self.with_texts(), tokens[-4:])), ends)

    def with_texts(self) -> TextTokenizer:
        """The model's tokenizer. Raises InputTypeError if it has none."""
        if self.tokenizer is None:
            raise InputTypeError("The model has no tokenizer.", "Give one to rlx.lm.load, or use generate with ids.")
        return self.tokenizer


def _texts(tokens: Iterator[int], pieces: Utf8) -> Iterator[str]:
    for token in tokens:
        yield pieces.add(token)
    yield pieces.rest()


def _seen(prompts: Sequence[np.ndarray], vocabulary: int) -> Any:
    seen = np.zeros((len(prompts), vocabulary), bool)
    for row, prompt in zip(seen, prompts, strict=True):
        row[prompt] = True
    return jnp.asarray(seen)


def _likely(logits: Any, chosen: Any, count: int) -> list[Likely]:
    told, tokens, best = map(np.asarray, likely(logits, chosen, min(count, logits.shape[-1])))
    rows = zip(np.asarray(chosen).tolist(), told.tolist(), tokens.tolist(), best.tolist(), strict=True)
    return [Likely(token, own, tuple(zip(others, numbers, strict=True))) for token, own, others, numbers in rows]


# ---------------------------------------------------------------- checks
def prompts_of(tokens: Any, config: DecoderConfig) -> tuple[bool, list[np.ndarray]]:
    """Whether tokens are a batch, and the ids of each prompt, int32 [time].

    Raises InputTypeError for other things than integers, OptionError for ids outside the vocabulary.
    """
    if isinstance(tokens, str):
        raise InputTypeError("A text is not a list of token ids.", "Write model.stream(text), or encode it first.")
    if hasattr(tokens, "ndim"):
        batch = tokens.ndim > 1
    else:
        tokens = list(tokens)
        batch = any(isinstance(one, (str, Sequence)) or getattr(one, "ndim", 0) for one in tokens)
    rows = [_checked(np.asarray(row), config) for row in (tokens if batch else [tokens])]
    if any(row.ndim != 1 for row in rows):
        raise InputTypeError("Each prompt must be one list of token ids.", "Write [1, 2, 3], or [[1, 2, 3], [4]].")
    return batch, rows


def _checked(tokens: np.ndarray, config: DecoderConfig) -> np.ndarray:
    if not tokens.size and tokens.dtype.kind == "f":  # NumPy's dtype of an empty list
        return tokens.astype(np.int32)
    if tokens.dtype.kind not in "iu":
        raise InputTypeError(
            f"Token ids must be integers, got {tokens.dtype}.", "Encode text first: model.tokenizer.encode(text)."
        )
    if tokens.size and not (0 <= tokens.min() and tokens.max() < config.vocabulary):
        wrong = tokens[(tokens < 0) | (tokens >= config.vocabulary)].reshape(-1)[0]
        raise OptionError(f"The token {wrong} is outside the vocabulary of {config.vocabulary}.")
    return tokens.astype(np.int32)


def _check_count(max_tokens: Any) -> None:
    if isinstance(max_tokens, bool) or not isinstance(max_tokens, (int, np.integer)) or max_tokens < 0:
        raise OptionError(f"generate got max_tokens={max_tokens!r}.", "It is an integer, 0 or more.")


def _ids(stop: Any) -> set[int]:
    found = list(stop) if isinstance(stop, Iterable) and not isinstance(stop, str) else [stop]
    if not isinstance(stop, Iterable) or not all(isinstance(n, (int, np.integer)) for n in found):
        raise InputTypeError(
            f"generate got stop={stop!r}.", "It is a list of token ids; texts are for model.stream(..., stop=[...])."
        )
    return {int(n) for n in found}
