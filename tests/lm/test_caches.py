"""Kinds of caches beside the one of float32 in one piece: rings, pages, few bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import gguf, lm, quant
from rlx.backends.cpu.runtime.store import statistics
from rlx.call import trace as call_trace
from rlx.errors import OptionError, ShapeError

CONFIG = lm.DecoderConfig(
    vocabulary=40, width=64, layers=2, heads=2, key_heads=1, inner=64, context=512, rope=lm.Rope(dims=32),
    windows=(5, None),
)  # fmt: skip
MODEL = lm.Model(CONFIG, lm.random_parameters(CONFIG, 3))
TOKENS = np.random.default_rng(0).integers(0, 40, (2, 40))
# how far logits may be from those with float32 in one piece, by root mean square; theirs is 1.4
KINDS: dict[str, tuple[dict[str, Any], float]] = {
    "ring": ({"kind": "ring", "chunk": 8}, 1e-5),
    "paged": ({"kind": "paged", "page": 8, "pages": 20}, 0.0),
    "bfloat16": ({"dtype": "bfloat16"}, 0.01),
    "q8_0": ({"dtype": "q8_0"}, 0.03),
    "q4_0": ({"dtype": "q4_0"}, 0.3),
    "ring q8_0": ({"dtype": "q8_0", "kind": "ring", "chunk": 8}, 0.03),
    "paged bfloat16": ({"dtype": "bfloat16", "kind": "paged", "page": 8, "pages": 20}, 0.01),
    "paged q4_0": ({"dtype": "q4_0", "kind": "paged", "page": 8, "pages": 20}, 0.3),
}


def steps(cache: lm.Cache, tokens: np.ndarray = TOKENS, parts: tuple[int, ...] = (8, 1, 1, 1, 8, 8)) -> Any:
    """Logits of tokens that come in parts, and the cache."""
    found, start = [], 0
    for count in (*parts, *[1] * (tokens.shape[1] - sum(parts))):
        logits, cache = MODEL.steps.advance(tokens[:, start : start + count], cache, every=True)
        found.append(np.asarray(logits))
        start += count
    return np.concatenate(found, axis=1), cache


def distance(found: Any, expected: Any) -> float:
    return float(np.sqrt(np.mean((np.asarray(found) - np.asarray(expected)) ** 2)))


@pytest.mark.parametrize("kind, batch", [*((kind, 2) for kind in KINDS), ("ring", 1), ("paged", 1), ("q8_0", 1)])
@pytest.mark.selected(1)
def test_each_kind_gives_what_one_piece_gives(kind: str, batch: int) -> None:
    options, tolerance = KINDS[kind]
    expected, plain = steps(lm.new_cache(CONFIG, batch, 40), TOKENS[:batch])
    np.testing.assert_allclose(expected, lm.forward(MODEL.parameters, TOKENS[:batch], CONFIG), atol=1e-4)
    found, cache = steps(lm.new_cache(CONFIG, batch, 40, **options), TOKENS[:batch])
    assert distance(found, expected) <= tolerance  # 0: to the bit
    if cache.pool is None:
        assert cache.nbytes < plain.nbytes
    again, _ = steps(cache.fork().truncate([37] * batch), TOKENS[:batch, 37:], ())
    redone, _ = steps(plain.truncate([37] * batch), TOKENS[:batch, 37:], ())
    assert distance(again, redone) <= tolerance


def test_a_ring_holds_what_its_window_needs_and_refuses_the_rest() -> None:
    cache = lm.new_cache(CONFIG, 2, 400, kind="ring", chunk=8)
    assert [pair[0].shape[2] for pair in cache.layers] == [12, 400]
    with pytest.raises(OptionError, match="ring of 12 positions for a window of 5 takes 8 tokens per call.*got 9"):
        MODEL.steps.advance(TOKENS[:, :9], cache)
    _, cache = steps(cache)
    with pytest.raises(OptionError, match="drop as many; got 20"):
        MODEL.steps.advance(TOKENS[:, :1], cache.truncate([20, 20]))


@pytest.mark.thorough
def test_ragged_prompts_go_through_each_kind() -> None:
    prompts = [TOKENS[0, :3].tolist(), TOKENS[0].tolist() * 3, [7]]
    expected = list(MODEL.generate(prompts, 12, stop=()))
    for options in ({"kind": "ring"}, {"kind": "paged"}):
        model = lm.Model(CONFIG, MODEL.parameters, cache=options)
        assert list(model.generate(prompts, 12, stop=())) == expected


@pytest.mark.parametrize("chunk", [1, 4, 6])
@pytest.mark.thorough
def test_prompts_come_in_chunks_of_a_ring(chunk: int) -> None:
    """Shorter, equal and longer ones, also of fewer tokens than are computed at once without a ring."""
    model = lm.Model(CONFIG, MODEL.parameters, cache={"kind": "ring", "chunk": chunk})
    for length in (1, 3, 4, 19):
        prompt = TOKENS[0, :length].tolist()
        assert list(model.generate(prompt, 5, stop=())) == list(MODEL.generate(prompt, 5, stop=())), length


def test_pages_are_shared_until_they_are_written_and_come_back() -> None:
    cache = lm.new_cache(CONFIG, 1, 40, kind="paged", page=8, pages=7)
    first, cache = MODEL.steps.advance(TOKENS[:1, :12], cache)
    pool = cache.pool
    assert pool is not None and pool.free == 5
    other = cache.fork()
    assert pool.free == 5
    mine, cache = steps(cache, TOKENS[:1, 12:20], (1, 1, 6))
    assert pool.free == 3  # the page that was half full was copied, and there is one more
    yours, other = steps(other, TOKENS[1:, 12:20], (1, 1, 6))
    assert pool.free == 2
    for found, row in ((mine, 0), (yours, 1)):
        tokens = np.concatenate([TOKENS[:1, :12], TOKENS[row : row + 1, 12:20]], axis=1)
        np.testing.assert_allclose(found, lm.forward(MODEL.parameters, tokens, CONFIG)[:, 12:], atol=1e-4)
    shorter = cache.truncate([5])
    assert pool.free == 4  # both behind the first were its own
    with pytest.raises(OptionError, match="All 7 pages"):
        MODEL.steps.advance(TOKENS[:1, :34], shorter)
    shorter.release()
    other.release()
    assert pool.free == 7


@pytest.mark.thorough
def test_from_the_third_token_on_nothing_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = []
    stage = call_trace.trace_program
    monkeypatch.setattr(call_trace, "trace_program", lambda *args, **more: traced.append(args) or stage(*args, **more))
    for options in ({}, *(KINDS[kind][0] for kind in ("ring q8_0", "paged", "paged q4_0"))):
        model = lm.Model(CONFIG, MODEL.parameters, cache={**options, "chunk": 64, "pages": None})
        seen = [(statistics().compiled, len(traced)) for _ in model.generate(TOKENS[0].tolist(), 12, stop=())]
        assert len(seen) == 12 and len(set(seen[2:])) == 1, (options, seen)


@pytest.mark.parametrize("scheme", ["gguf_q8_0", "gguf_q4_0"])
def test_what_is_packed_in_a_program_is_packed_as_elsewhere(scheme: str) -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(0, 1, (3, 5, 64)).astype(np.float32) * 10.0 ** rng.integers(-3, 3, (3, 5, 1)).astype(np.float32)
    rows[0, 0, :32] = 0
    rows[1, 1] = np.rint(rows[1, 1])
    found = rlx.jit(lambda x: quant.quantize(x, scheme))(rows)
    np.testing.assert_array_equal(found.elements, gguf.quantize(rows, scheme.removeprefix("gguf_")))
    assert found.shape == rows.shape


def test_mistakes_are_named() -> None:
    with pytest.raises(OptionError, match=r"(?s)no kind of cache 'round'.*contiguous, ring, paged"):
        lm.new_cache(CONFIG, 1, 8, kind="round")
    with pytest.raises(OptionError, match="capacity=0"):
        lm.new_cache(CONFIG, 1, 0)
    with pytest.raises(ShapeError, match="head size that is a multiple of 32, got 16"):
        lm.new_cache(replace(CONFIG, head_dim=16), 1, 8, "q8_0")
