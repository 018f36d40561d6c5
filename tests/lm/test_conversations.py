"""Chats over several calls, what is computed in each, and everything between logits and texts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chat_models import MODELS, write_folder
from needs import beside

from rlx import jit, lm
from rlx import numpy as jnp
from rlx.errors import FileFormatError, InputTypeError, OptionError, UnsupportedError
from rlx.lm import generation, sampling
from rlx.lm.caches import rows_of

CONFIG = lm.DecoderConfig(
    vocabulary=50, width=64, layers=2, heads=2, key_heads=1, inner=64, rope=lm.Rope(dims=32), windows=(7, None)
)
CACHES: dict[str, dict[str, Any]] = {
    "contiguous": {}, "q8_0": {"dtype": "q8_0"}, "ring": {"kind": "ring"}, "paged": {"kind": "paged", "page": 4},
}  # fmt: skip


@pytest.fixture(scope="module")
def model() -> lm.Model:
    return lm.Model(CONFIG, lm.random_parameters(CONFIG))


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory) -> lm.Model:
    folder = tmp_path_factory.mktemp("talker") / "model"
    write_folder(MODELS["qwen 3"], folder)
    return lm.load(folder)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The number of prompt tokens that each call of `start` computes, without padding."""
    found: list[int] = []
    inner = lm.Model._computed

    def counted(self: Any, tokens: Any, lengths: Any, known: int, cache: Any) -> Any:
        found.append(int(np.max(lengths)) - known)
        return inner(self, tokens, lengths, known, cache)

    monkeypatch.setattr(lm.Model, "_computed", counted)
    yield found


# ---------------------------------------------------------------- caches that survive
@pytest.mark.parametrize("name", CACHES)
@pytest.mark.selected(0)
def test_each_of_twenty_turns_computes_its_own_tokens(name: str, model: lm.Model, computed: list[int]) -> None:
    """And gives the tokens of a call without a cache."""
    one = lm.Model(CONFIG, model.parameters, cache=CACHES[name])
    memory, told, draw = lm.PromptCache(), [1], np.random.default_rng(0)
    for turn in range(20):
        told += draw.integers(0, 50, 5).tolist()
        computed.clear()
        answer = list(one.generate(told, 7, stop=(), prompt_cache=memory))
        spent = computed[:]
        if name in ("contiguous", "q8_0"):  # the last token of an answer is in no cache yet
            assert spent == [6], turn
        if turn % 5 == 4:
            assert answer == list(one.generate(told, 7, stop=())), turn
        told += answer
    assert memory.tokens == told[:-1]


def test_a_prompt_that_differs_is_computed_from_there_on(model: lm.Model, computed: list[int]) -> None:
    memory = lm.PromptCache()
    list(model.generate([1, 2, 3, 4, 5, 6], 4, stop=(), prompt_cache=memory))
    for prompt, expected in (([1, 2, 3, 9, 5, 6], 3), ([1, 2, 3, 9, 5, 6], 1), ([7, 2], 2), ([7], 1)):
        computed.clear()
        found = list(model.generate(prompt, 4, stop=(), prompt_cache=memory))
        assert computed == [expected], prompt
        assert found == list(model.generate(prompt, 4, stop=()))


def test_a_generation_that_was_left_can_be_continued(model: lm.Model) -> None:
    memory = lm.PromptCache()
    tokens = model.generate([1, 2, 3], 20, stop=(), prompt_cache=memory)
    told = [next(tokens) for _ in range(5)]
    tokens.close()
    assert told + list(model.generate([1, 2, 3, *told], 15, stop=(), prompt_cache=memory)) == list(
        model.generate([1, 2, 3], 20, stop=())
    )


@pytest.mark.parametrize("name", ["contiguous", "q8_0"])
def test_a_cache_goes_on_in_another_process(name: str, model: lm.Model, computed: list[int], tmp_path: Path) -> None:
    one = lm.Model(CONFIG, model.parameters, cache=CACHES[name])
    memory = lm.PromptCache()
    told = [1, 2, 3, *one.generate([1, 2, 3], 9, stop=(), prompt_cache=memory), 4]
    memory.save(tmp_path / "cache.safetensors")
    computed.clear()
    again = lm.PromptCache.load(tmp_path / "cache.safetensors")
    found = list(one.generate(told, 9, stop=(), prompt_cache=again))
    assert computed == [2] and found == list(one.generate(told, 9, stop=()))
    lm.PromptCache().save(tmp_path / "empty.safetensors")
    assert lm.PromptCache.load(tmp_path / "empty.safetensors").tokens == []


def test_caches_of_others_are_refused(model: lm.Model, tmp_path: Path) -> None:
    from rlx import save

    memory = lm.PromptCache()
    list(model.generate([1, 2], 2, prompt_cache=memory))
    config = lm.DecoderConfig(vocabulary=50, width=64, layers=1, heads=2, key_heads=1, inner=64)
    with pytest.raises(UnsupportedError, match="another model"):
        list(lm.Model(config, lm.random_parameters(config)).generate([1, 2], 2, prompt_cache=memory))
    save(tmp_path / "other.safetensors", {"a": np.ones(3, np.float32)})
    with pytest.raises(FileFormatError, match="is not a cache"):
        lm.PromptCache.load(tmp_path / "other.safetensors")
    with pytest.raises(OptionError, match="one sequence"):
        list(model.generate([[1], [2]], 2, prompt_cache=memory))
    paged = lm.PromptCache()
    list(lm.Model(CONFIG, model.parameters, cache={"kind": "paged"}).generate([1], 2, prompt_cache=paged))
    with pytest.raises(UnsupportedError, match="cannot be saved"):
        paged.save(tmp_path / "pages.safetensors")


def test_a_chat_keeps_its_cache(talker: lm.Model, computed: list[int]) -> None:
    memory, messages = lm.PromptCache(), list[dict[str, Any]]()
    for turn in range(6):
        messages.append({"role": "user", "content": "hello world"[: 3 + turn]})
        computed.clear()
        answer = "".join(talker.chat(messages, 3, prompt_cache=memory))
        assert computed[0] < 45, turn  # the template's words around a message are some thirty tokens here
        assert answer == "".join(talker.chat(messages, 3))
        messages.append({"role": "assistant", "content": answer})


def test_a_draft_computes_its_new_tokens_only(model: lm.Model, computed: list[int]) -> None:
    prompt = (np.arange(200) % 50).tolist()
    found = list(lm.speculate(model, prompt, lm.model_draft(model, 4), 40, stop=()))
    assert found == list(model.generate(prompt, 40, stop=()))
    assert sum(computed) < 2 * 200 + 2 * 40 + 200  # both models, each once; and the check above


def test_speculation_has_no_array_of_vocabulary_squared() -> None:
    config = lm.DecoderConfig(vocabulary=151_936, width=8, layers=1, heads=2, key_heads=1, inner=8)
    model = lm.Model(config, lm.random_parameters(config))
    assert len(list(lm.speculate(model, [1, 2, 3] * 3, lm.lookup_draft(), 4, lm.Sampling(temperature=1.0)))) == 4


def test_speculation_accepts_what_generate_accepts(model: lm.Model) -> None:
    prompt = [1] * (CONFIG.context - 6)
    assert list(lm.speculate(model, prompt, lm.lookup_draft(), 6, stop=())) == list(model.generate(prompt, 6, stop=()))


# ---------------------------------------------------------------- programs
def test_requests_share_programs(model: lm.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds, temperatures, limits, penalties and biases are values: a level is traced once."""
    traced = []
    inner = sampling.adjusted.__wrapped__

    def counted(logits: Any, numbers: Any, level: str, seen: Any = None, bias: Any = None) -> Any:
        traced.append(level)
        return inner(logits, numbers, level, seen, bias)

    def chosen(logits: Any, numbers: Any, level: str, seen: Any, bias: Any, steps: Any) -> Any:
        return sampling.choose.__wrapped__(logits, numbers, level, seen, bias, steps)

    monkeypatch.setattr(sampling, "adjusted", counted)
    monkeypatch.setattr(generation, "choose", jit(chosen, static_argnums=(2,)))
    for seed in range(5):
        options = lm.Sampling(
            temperature=0.5 + seed, top_k=seed + 1, top_p=0.9 - seed / 10, min_p=seed / 100, seed=seed
        )
        list(model.generate([1, 2, 3], 3, options, stop=()))
    assert traced == ["sorted"]


def test_text_is_decoded_in_time_that_grows_with_its_length() -> None:
    class Counting:
        calls = 0

        def decode(self, tokens: list[int], begin: bool = False) -> str:
            self.calls += len(tokens)
            return "a" * len(tokens)

    for size in (500, 2000):
        tokenizer: Any = Counting()
        pieces = lm.Utf8(tokenizer)
        assert "".join(pieces.add(1) for _ in range(size)) == "a" * size
        assert tokenizer.calls < 4 * size


@pytest.mark.parametrize("name", MODELS)
def test_pieces_put_together_are_the_text(name: str, tmp_path: Path) -> None:
    """Characters of several tokens, spaces at the start, special tokens between; and a text of halves of characters."""
    write_folder(MODELS[name], tmp_path / "model")
    lm.save_gguf(lm.load(tmp_path / "model"), tmp_path / "m.gguf", "f32")
    for model in (lm.load(tmp_path / "model"), lm.load(tmp_path / "m.gguf")):
        tokenizer = model.tokenizer
        assert tokenizer is not None
        begin = tokenizer.encode("hello")
        for text in ("hello  world", "naïve 漢字 🙂🙂 end", " \n\n x", "漢" * 40):
            tokens = tokenizer.encode(text, begin=False)
            pieces = lm.Utf8(tokenizer, begin)
            found = "".join([*map(pieces.add, tokens), pieces.rest()])
            whole = tokenizer.decode([*begin, *tokens])
            assert found == whole[len(tokenizer.decode(begin)) :], (name, text)
        half = tokenizer.encode("漢", begin=False)[-3:-1]
        pieces = lm.Utf8(tokenizer, begin)
        assert "\N{REPLACEMENT CHARACTER}" in "".join([*map(pieces.add, half * 6), pieces.rest()])


# ---------------------------------------------------------------- between logits and choice
def test_processors_see_all_tokens_and_decide(model: lm.Model) -> None:
    seen = []

    def rising(tokens: Any, logits: Any) -> Any:
        seen.append([list(row) for row in tokens])
        return jnp.full_like(logits, -np.inf).at[np.arange(len(tokens)), [row[-1] + 1 for row in tokens]].set(0)

    assert list(model.generate([[1, 2], [30]], 3, stop=(), processors=[rising])) == [[3, 31], [4, 32], [5, 33]]
    assert seen[-1] == [[1, 2, 3, 4], [30, 31, 32]]


def test_log_probabilities_are_the_models_own(model: lm.Model) -> None:
    tokens = [1, 2, 3]
    found = list(model.generate(tokens, 5, lm.Sampling(temperature=0.7, top_k=3, seed=1), stop=(), logprobs=4))
    told = tokens + [one.token for one in found]
    logits = np.asarray(model.logits([told]), np.float64)[0, 2:-1]
    expected = (
        logits
        - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True))
        - logits.max(-1, keepdims=True)
    )
    for one, row in zip(found, expected, strict=True):
        assert one.logprob == pytest.approx(row[one.token], abs=1e-4)
        assert [t for t, _ in one.top] == np.argsort(-row, kind="stable")[:4].tolist()
        np.testing.assert_allclose([p for _, p in one.top], np.sort(row)[::-1][:4], atol=1e-4)
    rows = list(model.generate([tokens, [4]], 2, stop=(), logprobs=0))
    assert [rows[0][0].token, rows[1][0].token] == [t for t in model.generate(tokens, 2, stop=())]


def test_texts_end_a_chat_as_they_end_a_text(talker: lm.Model) -> None:
    messages = [{"role": "user", "content": "hello"}]
    whole = "".join(talker.chat(messages, 20))
    cut = whole[4:6]
    assert "".join(talker.chat(messages, 20, stop=[cut])) == whole[: whole.find(cut)]
    assert "".join(talker.chat(messages, 20, stop=cut)) == whole[: whole.find(cut)]
    with pytest.raises(TypeError, match="stp"):
        talker.chat(messages, 20, stp=[cut])  # ty: ignore[unknown-argument]
    for wrong in ([""], [3]):
        with pytest.raises(InputTypeError, match="is not a list of texts"):
            list(talker.stream("hello", 3, stop=wrong))  # ty: ignore[invalid-argument-type]


PROMPTS = {
    "a list": [1, 2, 3], "an array": np.array([1, 2, 3]), "an rlx array": jnp.array([1, 2, 3]),
    "small integers": np.array([1, 2, 3], np.uint8), "a list of scalars": [np.int64(1), np.int32(2), 3],
    "a tuple": (1, 2, 3), "scalars of rlx": list(jnp.array([1, 2, 3])),
}  # fmt: skip


@pytest.mark.selected("all")
@pytest.mark.parametrize("name", PROMPTS)
def test_ids_are_one_prompt_in_any_form(name: str, model: lm.Model) -> None:
    expected = list(model.generate([1, 2, 3], 3, stop=()))
    assert list(model.generate(PROMPTS[name], 3, stop=())) == expected
    rows = list(model.generate([PROMPTS[name]], 3, stop=()))
    assert rows == [[token] for token in expected]


@pytest.mark.selected("all")
@pytest.mark.parametrize(
    "given, error, words",
    [
        ({"tokens": [1.7, 2.2]}, InputTypeError, "must be integers"),
        ({"tokens": [[1.5]]}, InputTypeError, "must be integers"),
        ({"tokens": [True]}, InputTypeError, "must be integers"),
        ({"tokens": "hello"}, InputTypeError, "model.stream"),
        ({"tokens": ["hello"]}, InputTypeError, "must be integers"),
        ({"tokens": []}, OptionError, "is empty"),
        ({"tokens": [[1], []]}, OptionError, "is empty"),
        ({"tokens": [50]}, OptionError, "outside the vocabulary"),
        ({"tokens": np.ones((1, 1, 1), np.int32)}, InputTypeError, "one list"),
        ({"tokens": [1], "max_tokens": -1}, OptionError, "0 or more"),
        ({"tokens": [1], "max_tokens": 2.5}, OptionError, "0 or more"),
        ({"tokens": [1], "stop": 7}, InputTypeError, "list of token ids"),
        ({"tokens": [1], "stop": "ab"}, InputTypeError, "list of token ids"),
        ({"tokens": [1], "sampling": lm.Sampling(bias={50: 1.0})}, OptionError, "outside the vocabulary"),
        ({"tokens": [1], "sampling": lm.Sampling(bias={-1: 1.0})}, OptionError, "outside the vocabulary"),
    ],
    ids=str,
)
def test_mistakes_are_named(given: dict[str, Any], error: type[Exception], words: str, model: lm.Model) -> None:
    with pytest.raises(error, match=words):
        list(model.generate(**given))


def test_other_mistakes_are_named(model: lm.Model) -> None:
    for options in ({"top_k": 3.5}, {"seed": None}):
        with pytest.raises(OptionError, match="(?s)an integer") as raised:
            lm.Sampling(temperature=1.0, **options)  # ty: ignore[invalid-argument-type]
        assert "test_conversations.py" in str(raised.value)
    for tokens in ([1, 2], np.zeros((1, 0), int)):
        with pytest.raises(OptionError, match="Give a batch"):
            model.logits(tokens)
    with pytest.raises(OptionError, match="typ"):
        lm.Model(CONFIG, model.parameters, cache={"typ": 1})


# ---------------------------------------------------------------- grammars
@beside
@pytest.mark.filterwarnings("ignore")
def test_texts_follow_a_grammar(talker: lm.Model) -> None:
    """Whatever the model would say: at a high temperature every text is one of the grammar."""
    import json
    import re

    schema = {"type": "object", "properties": {"a": {"enum": [1, 22, "he"]}, "b": {"type": "boolean"}},
              "required": ["a", "b"], "additionalProperties": False,
              "x-guidance": {"whitespace_flexible": False}}  # fmt: skip
    grammars = {
        "schema": lm.Grammar.of_schema(talker, schema),
        "gbnf": lm.Grammar(talker, 'root ::= ("yes" | "no") " " [0-9] [0-9]'),
        "regex": lm.Grammar(talker, "[a-c]{3,5}x", "regex"),
    }
    for name, grammar in grammars.items():
        for seed in range(4):
            options = lm.Sampling(temperature=2.0, seed=seed)
            text = "".join(talker.stream("hello", 60, options, processors=[grammar.processor()]))
            if name == "schema":
                found = json.loads(text)
                assert found["a"] in (1, 22, "he") and found["b"] in (True, False)
            else:
                assert re.fullmatch("(yes|no) [0-9][0-9]" if name == "gbnf" else "[a-c]{3,5}x", text), text
    rows = zip(*talker.generate([[1], [2, 3]], 30, lm.Sampling(temperature=1.0),
                                processors=[grammars["regex"].processor()]), strict=True)  # fmt: skip
    for row in rows:
        assert talker.tokenizer is not None
        assert re.fullmatch("[a-c]{3,5}x", talker.tokenizer.decode([t for t in row if t is not None]))
    with pytest.raises(OptionError, match="grammar is refused"):
        lm.Grammar(talker, "root ::= ][")
    with pytest.raises(OptionError, match="grammar is refused"):
        lm.Grammar.of_schema(talker, {"type": "nothing"})


def test_grown_caches_have_what_they_had(model: lm.Model) -> None:
    memory = lm.PromptCache()
    list(model.generate([1, 2, 3], 4, stop=(), prompt_cache=memory))
    before = memory._cache
    assert before is not None
    keys = np.asarray(rows_of(before.layers[0][0]))[:, :, :6]
    list(model.generate([*memory.tokens, 5] * 40, 4, stop=(), prompt_cache=memory))
    after = memory._cache
    assert after is not None and after.capacity > before.capacity
    np.testing.assert_array_equal(np.asarray(rows_of(after.layers[0][0]))[:, :, :6], keys)
