"""Continuous batching: requests come and go while others are generated, over one pool of pages."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from rlx import numpy as jnp
from rlx.errors import OptionError, UnsupportedError
from rlx.lm.caches import Cache, new_cache
from rlx.lm.generation import GREEDY, Likely, Model, Processor, prompts_of
from rlx.lm.rope import fixed_until
from rlx.lm.sampling import Numbers, Sampling, bias_of, choose, level_of, likely, numbers_of

__all__ = ["Progress", "Scheduler"]


class Progress(NamedTuple):
    """A step of a request: its number, its next token (an int, a Likely, or None), and why it ended.

    finish: None while it goes on; "stop" after a token that ends texts; "length" with the last of max_tokens.

    >>> from rlx import lm
    >>> lm.Progress(request=0, token=5, finish=None).token
    5
    """

    request: int
    token: Any
    finish: str | None


class _Request(NamedTuple):
    number: int
    prompt: np.ndarray
    max_tokens: int
    sampling: Sampling
    stop: frozenset[int]
    processors: tuple[Processor, ...]
    logprobs: int | None
    pages: int


class _Running:
    """A request with its pages, its tokens, and the logits behind them."""

    def __init__(self, request: _Request, cache: Cache, logits: np.ndarray) -> None:
        assert cache.table is not None
        self.request, self.pages, self.length = request, cache.table[0], len(request.prompt)
        self.told, self.logits, self.drawn = request.prompt.tolist(), logits, 0
        self.numbers = numbers_of([request.sampling], [0])


class Scheduler:
    """Requests that are generated together, a token of each per step. A request starts as soon as there is room for it.

    Args:
      model: of rlx.lm.
      rows: the number of requests that are generated at once.
      capacity: positions of one request; None: the model's context, at most 4096.
      page, pages: positions of a page of the cache, and how many pages there are; None: for all rows.

    Each request gets the tokens of `model.generate`. Steps are to be made by one thread.

    >>> from rlx import lm
    >>> config = lm.DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8, rope=lm.Rope(dims=4))
    >>> scheduler = lm.Scheduler(lm.Model(config, lm.random_parameters(config)), rows=2)
    >>> first, second = scheduler.submit([1, 2, 3], 2), scheduler.submit([4], 3)
    >>> [[p.request for p in scheduler.step()] for _ in range(3)] == [[first, second], [first, second], [second]]
    True
    """

    def __init__(
        self, model: Model, rows: int = 8, capacity: int | None = None, page: int = 16, pages: int | None = None
    ) -> None:
        if rows < 1 or page < 1:
            raise OptionError(f"Scheduler got rows={rows}, page={page}.", "Each is 1 or more.")
        self.model, self.rows = model, rows
        self.capacity = min(model.config.context, 4096) if capacity is None else min(capacity, model.config.context)
        self._page, each = page, -(-self.capacity // page)
        self._pages = rows * each if pages is None else pages
        cache = new_cache(model.config, 1, each * page, kind="paged", page=page, pages=self._pages + rows,
                          dtype=model.cache.get("dtype", np.float32))  # fmt: skip
        assert cache.pool is not None
        self._pool = cache.pool
        self._spare = [self._pool.take() for _ in range(rows)]  # written by rows that no request has
        self._waiting: deque[_Request] = deque()
        self._running: list[_Running] = []
        self._numbers, self._idle = count(), numbers_of([GREEDY], [0])

    def submit(
        self,
        tokens: Any,
        max_tokens: int = 128,
        sampling: Sampling = GREEDY,
        stop: Iterable[int] | None = None,
        processors: Sequence[Processor] = (),
        logprobs: int | None = None,
    ) -> int:
        """Add a request; arguments as `Model.generate` has them, for one prompt. Returns its number.

        Raises OptionError for an empty prompt, and for a request that has no room in the cache.
        """
        batch, prompts = prompts_of(tokens, self.model.config)
        if batch or not prompts[0].size or max_tokens < 1:
            raise OptionError("A request has one prompt, and max_tokens of 1 or more.", "Submit each prompt by itself.")
        size = len(prompts[0]) + max_tokens
        needed = -(-size // self._page)
        if size > self.capacity or needed > self._pages:
            room = min(self.capacity, self._pages * self._page)
            raise OptionError(
                f"A prompt of {len(prompts[0])} tokens and {max_tokens} more do not fit into {room} positions.",
                "Ask for fewer tokens, or make the Scheduler with more capacity or pages.",
            )
        limit = fixed_until(self.model.config)
        if limit is not None and size > limit:
            raise UnsupportedError(
                f"Sequences of more than {limit} tokens change their rotary angles as they grow.", "Use model.generate."
            )
        bias_of([sampling], self.model.config.vocabulary)  # raises for tokens that there are not
        ends = frozenset(self.model.config.stop if stop is None else stop)
        number = next(self._numbers)
        self._waiting.append(
            _Request(number, prompts[0], max_tokens, sampling, ends, tuple(processors), logprobs, needed)
        )
        return number

    @property
    def busy(self) -> bool:
        """Whether there are requests that have not ended."""
        return bool(self._waiting or self._running)

    def cancel(self, number: int) -> None:
        """Forget a request; nothing happens if it has ended."""
        self._waiting = deque(r for r in self._waiting if r.number != number)
        for one in [r for r in self._running if r.request.number == number]:
            self._end(one)

    def step(self) -> list[Progress]:
        """Start requests that have room, and give the next token of each that runs."""
        while self._waiting and self._has_room(self._waiting[0]):
            self._running.append(self._started(self._waiting.popleft()))
        if not self._running:
            return []
        found = []
        for one, (token, value) in zip(list(self._running), self._chosen(), strict=True):
            one.drawn += 1
            stops = token in one.request.stop
            finish = "stop" if stops else "length" if one.drawn == one.request.max_tokens else None
            found.append(Progress(one.request.number, None if stops else value, finish))
            if finish is not None:
                self._end(one)
            one.told.append(token)
        if self._running:
            self._advance()
        return found

    # ------------------------------------------------------------- parts of a step
    def _has_room(self, request: _Request) -> bool:
        used = sum(one.request.pages for one in self._running)
        return len(self._running) < self.rows and used + request.pages <= self._pages

    def _cache(self, tables: np.ndarray, lengths: Any) -> Cache:
        lengths = np.asarray(lengths, np.int32)
        return Cache(
            self._pool.layers, jnp.asarray(lengths), tables.shape[1] * self._page, int(lengths.max()),
            pool=self._pool, table=tables,
        )  # fmt: skip

    def _started(self, request: _Request) -> _Running:
        """A request whose prompt has been computed."""
        table = np.full((1, -(-self.capacity // self._page)), -1, np.int32)
        logits, cache = self.model.computed(request.prompt[None], self._cache(table, [0]))
        return _Running(request, cache, np.asarray(logits)[0])

    def _chosen(self) -> list[tuple[int, Any]]:
        """The next token of each running request, and what is given for it."""
        rows = self._padded()
        requests = [one.request for one in self._running]
        samplings = [r.sampling for r in requests] + [GREEDY] * (rows - len(requests))
        logits = np.zeros((rows, self.model.config.vocabulary), np.float32)
        for row, one in zip(logits, self._running, strict=False):
            row[:] = one.logits
            for processor in one.request.processors:
                row[:] = np.asarray(processor([one.told], jnp.asarray(row[None])))[0]
        seen = None
        if any(s.repetition_penalty != 1 for s in samplings):
            seen = np.zeros(logits.shape, bool)
            for row, one in zip(seen, self._running, strict=False):
                row[one.told] = True
        steps = np.array([one.drawn for one in self._running] + [0] * (rows - len(requests)), np.int32)
        given = [one.numbers for one in self._running] + [self._idle] * (rows - len(requests))
        numbers = Numbers(*(np.concatenate(field) for field in zip(*given, strict=True)))
        bias = bias_of(samplings, logits.shape[1])
        tokens = np.asarray(choose(logits, numbers, level_of(samplings), seen, bias, steps))
        return [
            (token, token if one.request.logprobs is None else _told(one, token))
            for token, one in zip(tokens.tolist(), self._running, strict=False)
        ]

    def _padded(self) -> int:
        """The number of rows that are computed: a power of two, so that few programs are made."""
        return min(1 << (len(self._running) - 1).bit_length(), max(self.rows, 1))

    def _advance(self) -> None:
        """Compute the logits behind the last token of each running request."""
        rows, running = self._padded(), self._running
        longest = max(one.length for one in running) + 1
        width = min(1 << (-(-longest // self._page) - 1).bit_length(), len(running[0].pages))
        tables = np.full((rows, width), -1, np.int32)
        tokens, lengths = np.zeros((rows, 1), np.int32), np.zeros(rows, np.int32)
        for number, one in enumerate(running):
            tables[number], tokens[number], lengths[number] = one.pages[:width], one.told[-1], one.length
        for number in range(len(running), rows):
            tables[number, 0] = self._spare[number]
        logits, cache = self.model.steps.advance(tokens, self._cache(tables, lengths))
        assert cache.table is not None
        found = np.asarray(logits)
        for number, one in enumerate(running):
            one.pages[:width], one.logits = cache.table[number], found[number]
            one.length += 1

    def _end(self, one: _Running) -> None:
        self._running.remove(one)
        np.subtract.at(self._pool.uses, one.pages[one.pages >= 0], 1)


def _told(one: _Running, token: int) -> Likely:
    size = min(one.request.logprobs or 0, len(one.logits))
    own, tokens, best = map(np.asarray, likely(one.logits[None], np.array([token], np.int32), size))
    return Likely(token, float(own[0]), tuple(zip(tokens[0].tolist(), best[0].tolist(), strict=True)))
