"""Continuous batching: each request gets what it gets alone, and gives its pages back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx import lm
from rlx import numpy as jnp
from rlx.errors import OptionError

CONFIG = lm.DecoderConfig(
    vocabulary=50, width=32, layers=2, heads=4, key_heads=2, inner=64, rope=lm.Rope(dims=8), windows=(9, None)
)


@pytest.fixture(scope="module")
def model() -> lm.Model:
    return lm.Model(CONFIG, lm.random_parameters(CONFIG))


def drained(scheduler: lm.Scheduler, waiting: list[dict[str, Any]], every: int = 3) -> dict[int, list[Any]]:
    """The tokens of requests, of which one more comes every few steps."""
    found: dict[int, list[Any]] = {}
    steps = 0
    while scheduler.busy or waiting:
        if waiting and steps % every == 0:
            found[scheduler.submit(**waiting.pop(0))] = []
        for progress in scheduler.step():
            if progress.token is not None:
                found[progress.request].append(progress.token)
        steps += 1
    return found


@pytest.mark.parametrize("pages", [None, 9])
@pytest.mark.selected(0)
def test_each_request_gets_its_own_tokens(pages: int | None, model: lm.Model) -> None:
    draw = np.random.default_rng(0)
    banned = lambda tokens, logits: jnp.asarray(logits).at[:, 7].set(-np.inf)  # noqa: E731
    requests: list[dict[str, Any]] = [
        {"tokens": draw.integers(0, 50, size).tolist(), "max_tokens": count, "sampling": options}
        for size, count, options in (
            (3, 5, lm.Sampling()),
            (17, 20, lm.Sampling(temperature=0.7, top_p=0.9, seed=3)),
            (40, 1, lm.Sampling(temperature=1.0, seed=5)),
            (1, 30, lm.Sampling(repetition_penalty=1.5)),
            (33, 12, lm.Sampling(bias={4: 2.0})),
            (2, 2, lm.Sampling(temperature=1.0, top_k=4, seed=2**40)),
        )
    ]
    requests += [{"tokens": [5, 6], "max_tokens": 9, "processors": [banned]}]
    requests += [{"tokens": [5, 6], "max_tokens": 4, "stop": list(range(0, 50, 2))}]
    scheduler = lm.Scheduler(model, rows=3, capacity=96, pages=pages)
    free = scheduler._pool.free
    found = drained(scheduler, list(requests))
    for tokens, request in zip(found.values(), requests, strict=True):
        assert tokens == list(model.generate(**request))
    assert scheduler._pool.free == free


def test_requests_are_cancelled_and_refused(model: lm.Model) -> None:
    scheduler = lm.Scheduler(model, rows=2, capacity=64)
    free = scheduler._pool.free
    numbers = [scheduler.submit([1, 2, 3], 50) for _ in range(4)]
    scheduler.step()
    for number in numbers:
        scheduler.cancel(number)
    assert not scheduler.busy and scheduler._pool.free == free and scheduler.step() == []
    for wrong in ({"tokens": []}, {"tokens": [[1], [2]]}, {"tokens": [1], "max_tokens": 64}, {"tokens": [99]}):
        with pytest.raises(OptionError):
            scheduler.submit(**wrong)
    with pytest.raises(OptionError, match="rows=0"):
        lm.Scheduler(model, rows=0)


def test_ends_have_their_reasons(model: lm.Model) -> None:
    scheduler = lm.Scheduler(model, rows=2, capacity=64)
    token = next(model.generate([1, 2], 1, stop=()))
    first, second = scheduler.submit([1, 2], 3, stop=[token]), scheduler.submit([1, 2], 1, stop=(), logprobs=2)
    ends = {progress.request: progress for progress in scheduler.step()}
    assert ends[first].finish == "stop" and ends[first].token is None
    assert ends[second].finish == "length" and ends[second].token == next(
        model.generate([1, 2], 1, stop=(), logprobs=2)
    )
