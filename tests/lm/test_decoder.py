"""Decoders by themselves, without other libraries' models: caches, sampling, texts, mistakes, files that we write."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from needs import beside

import rlx
import rlx.numpy as jnp
from rlx import gguf, lm, quant
from rlx.cli import main
from rlx.errors import FileFormatError, InputTypeError, OptionError, UnsupportedError
from rlx.lm.layers import attend, normalise
from rlx.lm.sampling import choose, level_of, numbers_of

CONFIG = lm.DecoderConfig(
    vocabulary=40,
    width=32,
    layers=2,
    heads=4,
    key_heads=2,
    inner=64,
    context=64,
    rope=lm.Rope(dims=8, interleaved=True),
)
LETTERS = [chr(97 + n) for n in range(26)] + ["\u0120", "ab", "abc", *"0123456789", "<end>"]


@pytest.fixture(scope="module")
def model() -> lm.Model:
    data = gguf.Tokenizer(
        "gpt2", "smollm", LETTERS, None, np.array([1] * 39 + [3], np.int32), ["a b", "ab c"], {"eos": 39},
        {}, "{% for m in messages %}{{ m.content }}{% endfor %}",
    )  # fmt: skip
    return lm.Model(CONFIG, lm.random_parameters(CONFIG, 3), lm.TextTokenizer.of_gguf(data))


def test_a_cache_goes_on_forks_and_goes_back(model: lm.Model) -> None:
    tokens = np.arange(12)[None]
    whole = np.asarray(model.logits(tokens))
    logits, cache = model.steps.advance(tokens[:, :8], lm.new_cache(CONFIG, 1, 16))
    np.testing.assert_allclose(logits, whole[:, 7], atol=1e-5)
    other = cache.fork()
    ahead, cache = model.steps.advance(tokens[:, 8:], cache, every=True)
    np.testing.assert_allclose(ahead, whole[:, 8:], atol=1e-5)
    again, other = model.steps.advance(tokens[:, 8:], other, every=True)
    np.testing.assert_array_equal(again, ahead)
    redone, _ = model.steps.advance(tokens[:, 10:], cache.truncate([10]), every=True)
    np.testing.assert_allclose(redone, whole[:, 10:], atol=1e-5)
    with pytest.raises(OptionError, match="16 positions; 12 are used and 5 are added"):
        model.steps.advance(np.zeros((1, 5)), other)


def test_a_cache_may_have_half_as_many_bytes(model: lm.Model) -> None:
    tokens = np.arange(12)[None]
    found, cache = model.steps.advance(tokens, lm.new_cache(CONFIG, 1, 16, "bfloat16"), every=True)
    assert cache.layers[0][0].dtype == "bfloat16"
    np.testing.assert_allclose(found, model.logits(tokens), atol=0.05)


def test_ragged_prompts_and_long_ones_give_what_each_gives_alone(model: lm.Model) -> None:
    prompts = [[1, 2, 3], [4], list(range(30))]
    together = list(zip(*model.generate(prompts, 8, stop=()), strict=True))
    for prompt, found in zip(prompts, together, strict=True):
        assert list(model.generate(prompt, 8, stop=())) == list(found)
        assert found[0] == int(np.argmax(model.logits([prompt])[0, -1]))


@pytest.mark.thorough
def test_stop_ids_end_a_sequence(model: lm.Model) -> None:
    draw = lm.Sampling(temperature=1.0, seed=4)
    free = list(zip(*model.generate([[1, 2], [3]], 10, draw, stop=()), strict=True))
    end = next(token for token in free[0] if token not in free[1] and token != free[0][0])
    rows = list(zip(*model.generate([[1, 2], [3]], 10, draw, stop=[end]), strict=True))
    assert rows[1] == free[1]
    at = free[0].index(end)
    assert rows[0] == (*free[0][:at], *[None] * (10 - at)) and at > 0


def test_texts_stream_and_stop_before_a_text(model: lm.Model) -> None:
    assert model.tokenizer is not None
    whole = "".join(model.stream("abc", 20))
    assert whole == model.tokenizer.decode(list(model.generate(model.tokenizer.encode("abc"), 20)))
    stop = whole[5:7]
    assert "".join(model.stream("abc", 20, stop=[stop, "#"])) == whole[: whole.index(stop)]
    assert "".join(model.chat([{"role": "user", "content": "abc"}], 5)) == "".join(model.stream("abc", 5))


def test_draws_depend_on_the_seed_and_the_row(model: lm.Model) -> None:
    draw = lm.Sampling(temperature=1.0, seed=1)
    first = list(model.generate([[1], [1], [1]], 12, draw, stop=()))
    assert first == list(model.generate([[1], [1], [1]], 12, draw, stop=()))
    rows = list(zip(*first, strict=True))
    assert len(set(rows)) == 3
    assert first != list(model.generate([[1], [1], [1]], 12, lm.Sampling(temperature=1.0, seed=2), stop=()))


def _drawn(logits: np.ndarray, sampling: lm.Sampling) -> np.ndarray:
    numbers = numbers_of([sampling] * len(logits), range(len(logits)))
    return np.asarray(choose(logits, numbers, level_of([sampling]), None, None, np.zeros(len(logits), np.int32)))


@pytest.mark.thorough
def test_draws_follow_their_probabilities() -> None:
    """100,000 draws of eight tokens: chi-squared with 7 degrees of freedom, p > 0.001."""
    chances = np.array([0.3, 0.2, 0.15, 0.1, 0.1, 0.08, 0.05, 0.02])
    logits = np.tile(np.log(chances).astype(np.float32), (100_000, 1))
    counts = np.bincount(_drawn(logits, lm.Sampling(temperature=1.0, seed=7)), minlength=8)
    assert ((counts - 1e5 * chances) ** 2 / (1e5 * chances)).sum() < 24.3


def test_a_penalty_and_a_bias_move_greedy_choices(model: lm.Model) -> None:
    free = next(model.generate([1, 2], 1, stop=()))
    assert next(model.generate([1, 2], 1, lm.Sampling(bias={free: -100.0}), stop=())) != free
    assert list(model.generate([1, 2], 3, lm.Sampling(bias={5: 1000.0}), stop=())) == [5, 5, 5]
    penal = list(model.generate([1, 2], 10, lm.Sampling(repetition_penalty=1e6), stop=()))
    logits = np.asarray(model.logits([[1, 2]]))[0, -1]
    assert (logits > 0).any() and len(set(penal)) == 10


def test_a_file_that_we_write_gives_the_same_model(model: lm.Model, tmp_path: Path) -> None:
    writer = gguf.GGUFWriter("llama")
    sizes = {"embedding_length": 32, "block_count": 2, "feed_forward_length": 64, "context_length": 64}
    sizes |= {"attention.head_count": 4, "attention.head_count_kv": 2}
    for key, value in sizes.items():
        writer.add_metadata(f"llama.{key}", value)
    writer.add_metadata("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_metadata("tokenizer.ggml.model", "gpt2").add_metadata("tokenizer.ggml.pre", "smollm")
    writer.add_metadata("tokenizer.ggml.tokens", LETTERS).add_metadata("tokenizer.ggml.merges", ["a b", "ab c"])
    from rlx.lm.weights import gguf_names

    for path, name in gguf_names(CONFIG).items():
        value: Any = model.parameters
        for part in path:
            value = value[part]
        kind = "F32" if value.ndim == 1 or name == "output.weight" else "Q8_0"
        writer.add_tensor(name, np.asarray(value), kind)
    writer.write(tmp_path / "m.gguf")
    packed = lm.load(tmp_path / "m.gguf")
    tokens = np.arange(10)[None]
    assert np.abs(np.asarray(packed.logits(tokens)) - np.asarray(model.logits(tokens))).max() < 0.2
    whole = np.asarray(packed.logits(tokens))
    logits, _ = packed.steps.advance(tokens, lm.new_cache(CONFIG, 1, 16), every=True)
    np.testing.assert_allclose(logits, whole, atol=1e-5)
    assert packed.tokenizer is not None and packed.tokenizer.encode("abcab1") == [28, 27, 30]
    assert main(["generate", str(tmp_path / "m.gguf"), "--prompt", "abc", "--max-tokens", "3"]) == 0
    writer.add_metadata("general.name", "x")
    with pytest.raises(UnsupportedError, match="(?s)architecture 'bloom'.*llama"):
        gguf.GGUFWriter("bloom").write(tmp_path / "b.gguf")
        lm.load(tmp_path / "b.gguf")


def test_gradients_reach_every_parameter() -> None:
    def loss(parameters: Any) -> Any:
        logits = lm.forward(parameters, np.array([[1, 2, 3, 4]]), CONFIG)
        return -rlx.nn.log_softmax(logits)[0, np.arange(3), np.array([2, 3, 4])].mean()

    parameters = lm.random_parameters(CONFIG)
    gradient = rlx.jit(rlx.grad(loss))(parameters)
    assert all(np.abs(leaf).max() > 0 for leaf in rlx.tree.leaves(gradient))
    moved = rlx.tree.map(lambda p, g: p - 0.1 * g, parameters, gradient)
    assert loss(moved) < loss(parameters)


@pytest.mark.parametrize("kind", ["alibi", "sinks"])
@pytest.mark.selected(1)
def test_other_kinds_of_attention_go_on_with_a_cache(kind: str) -> None:
    config = replace(CONFIG, rope=None, windows=(4, None), **{kind: True})
    parameters = lm.random_parameters(config, 1)
    if kind == "sinks":
        parameters["layers"][1]["sinks"]["weight"] = np.array([3.0, -1.0, 0.0, 1.0], np.float32)
    tokens = np.arange(12)[None]
    whole = np.asarray(lm.forward(parameters, tokens, config))
    plain = np.asarray(lm.forward(parameters, tokens, replace(config, **{kind: False})))
    assert np.abs(whole - plain).max() > 0.01
    steps, cache = lm.Steps(parameters, config), lm.new_cache(config, 1, 16)
    for start, stop in ((0, 8), (8, 9), (9, 12)):
        logits, cache = steps.advance(tokens[:, start:stop], cache, every=True)
        np.testing.assert_allclose(logits, whole[:, start:stop], atol=1e-4)


def test_queries_that_see_nothing_give_zero() -> None:
    draw = np.random.default_rng(0)
    query, key, value = (draw.standard_normal((1, 2, 3, 4)).astype(np.float32) for _ in range(3))
    visible = np.tril(np.ones((3, 3), bool), -1)[None]  # the first sees no key

    def attended(query: Any) -> Any:
        return attend(query, key, value, visible, 0.5)

    found = np.asarray(rlx.jit(attended)(query))
    assert not found[:, :, 0].any() and np.abs(found[:, :, 1:]).min() > 0
    assert np.isfinite(np.asarray(rlx.grad(lambda q: (attended(q) ** 2).sum())(query))).all()


def test_norms_of_half_as_many_bits_are_computed_in_float32() -> None:
    x = (300 + np.random.default_rng(0).standard_normal((4, 32))).astype(ml_dtypes.bfloat16)
    weight = {"weight": np.linspace(0.5, 2, 32).astype(np.float32)}
    wide = np.asarray(x, np.float32)
    expected = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + CONFIG.norm_eps) * weight["weight"]
    found = normalise(jnp.asarray(x), weight, CONFIG)
    np.testing.assert_array_equal(found, expected.astype(ml_dtypes.bfloat16))


def test_values_of_a_pass_are_handed_out(model: lm.Model) -> None:
    tokens = np.arange(6)[None]
    seen = quant.taps_of(lambda p, t: lm.forward(p, t, CONFIG))(model.parameters, tokens)
    assert sorted(seen) == ["embedding", "layers.0", "layers.0.attention", "layers.1", "layers.1.attention"]
    weights = np.asarray(seen["layers.1.attention"])
    assert weights.shape == (1, 4, 6, 6) and not np.triu(weights, 1).any()
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)
    np.testing.assert_allclose(lm.readout(model.parameters, seen["layers.1"], CONFIG), model.logits(tokens), atol=1e-5)


# ---------------------------------------------------------------- mistakes
def test_mistakes_are_named(model: lm.Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for prompt, what in (
        ([], "prompt is empty"),
        ([[1], []], "prompt is empty"),
        ([40], "token 40 is outside the vocabulary of 40"),
        ([-1], "token -1 is outside"),
        (list(range(30)) * 2, "60 tokens and 10 more are longer than the model's context of 64"),
    ):
        with pytest.raises(OptionError, match=what):
            list(model.generate(prompt, 10))
    with pytest.raises(OptionError, match="3 heads of queries cannot share 2"):
        lm.DecoderConfig(vocabulary=9, width=9, layers=1, heads=3, key_heads=2, inner=9)
    for given, name in (
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.01}, "top_p"),
        ({"top_p": float("nan")}, "top_p"),
        ({"top_k": -1}, "top_k"),
    ):
        with pytest.raises(OptionError, match=f"Sampling got {name}="):
            lm.Sampling(**given)
    for tokens, what in (([[1, 40]], "token 40 is outside the vocabulary of 40"), ([[1, -2]], "token -2 is outside")):
        with pytest.raises(OptionError, match=what) as raised:
            model.logits(tokens)
        assert "test_decoder.py" in str(raised.value), "the user's line"
    with pytest.raises(InputTypeError, match="Token ids must be integers, got float64"):
        model.logits([[1.0, 2.0]])
    cache = lm.new_cache(CONFIG, 1, 4)
    _, cache = model.steps.advance(jnp.array([[1, 2, 3]]), cache)
    with pytest.raises(OptionError, match="4 positions; 3 are used and 2 are added"):
        model.steps.advance(jnp.array([[4, 5]]), cache)
    with pytest.raises(InputTypeError, match="no tokenizer"):
        list(lm.Model(CONFIG, model.parameters).stream("a"))
    with pytest.raises(FileFormatError, match="neither a GGUF file nor a folder"):
        lm.load(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "qwen2", "vocab_size": 9}')
    with pytest.raises(FileFormatError, match="config of this qwen2 says nothing of num_attention_heads"):
        lm.load(tmp_path)
    gguf.GGUFWriter("qwen3").add_metadata("qwen3.attention.head_count", 2).write(tmp_path / "m.gguf")
    with pytest.raises(FileFormatError, match=r"nothing of qwen3\.embedding_length"):
        lm.load(tmp_path / "m.gguf")
    assert main(["generate", "nothing", "--prompt", "a"]) == 2
    assert "There is no file nothing" in capsys.readouterr().err


@pytest.mark.parametrize(
    "template",
    ["{% for %}", "{{ 1 / 0 }}", "{{ raise_exception('no') }}", "{{ ''.__class__.__mro__[1].__subclasses__() }}",
     "{{ messages.append(1) }}", "{{ range(10**9) }}"],
)  # fmt: skip
def test_templates_are_untrusted(template: str) -> None:
    tokenizer = lm.TextTokenizer(None, chat_template=template)
    with pytest.raises(OptionError, match="chat template failed"):
        lm.chat_text([{"role": "user", "content": "a"}], tokenizer)


def test_what_is_no_whole_character_is_held_back() -> None:
    from rlx.gguf.tokenizer import byte_alphabet

    letters = list(byte_alphabet())
    tokenizer = lm.TextTokenizer.of_gguf(gguf.Tokenizer("gpt2", "gpt-2", letters))
    text = "é🙂\nab漢"
    pieces = lm.Utf8(tokenizer)
    said = [pieces.add(byte) for byte in text.encode()]
    assert "".join(said) == text and "" in said and "\N{REPLACEMENT CHARACTER}" not in "".join(said)
    assert pieces.add("é".encode()[0]) == "" and pieces.rest() == "\N{REPLACEMENT CHARACTER}"


CORPUS = """The quick brown fox jumps over the lazy dog, and the dog does not mind: it sleeps.
A model of language reads words, parts of words, and letters; numbers like 12, 345 and 6789, too.
Rivers run to the sea, and the sea is not full. What has been is what will be.""".splitlines()


@beside
@pytest.mark.parametrize("prefix", [True, False])
def test_pieces_are_those_of_sentencepiece(prefix: bool, tmp_path: Path) -> None:
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 4), model_prefix=str(tmp_path / "m"), model_type="bpe", vocab_size=420,
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        add_dummy_prefix=prefix, minloglevel=2,
    )  # fmt: skip
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "m.model"))
    numbers = range(theirs.get_piece_size())
    kinds = [
        2 if theirs.is_unknown(n) else 3 if theirs.is_control(n) else 6 if theirs.is_byte(n) else 1 for n in numbers
    ]
    data = gguf.Tokenizer(
        "llama", None, [theirs.id_to_piece(n) for n in numbers], np.array([theirs.get_score(n) for n in numbers]),
        np.array(kinds, np.int32), [], {"unknown": 0, "bos": 1, "eos": 2}, {"add_space_prefix": prefix},
    )  # fmt: skip
    found = lm.TextTokenizer.of_gguf(data)
    for text in (*CORPUS, "the fox", " two  spaces ", "na\u00efve \U0001f642\nnew line", "foxes and dogs 123"):
        assert found.encode(text) == [1, *theirs.encode(text)], text
        assert found.decode(found.encode(text)) == text
    pieces = lm.Utf8(found)
    assert "".join(map(pieces.add, theirs.encode(" sea"))) == (" " * prefix + " sea"), "what goes on keeps its space"
