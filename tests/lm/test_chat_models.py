"""Chats begin and end where transformers and llama.cpp begin and end them, for the special tokens of every family."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chat_models import MODELS, write_folder
from needs import beside

from rlx import gguf, lm

TEXTS = [
    "hello",
    "",
    " hello world",
    "x<=y+1 != 12345678",
    "$100,000.00 ~^",
    "naïve — “quotes” 漢字 🙂\n\n\tend",
    "<s>hello",
]
CHATS = [
    [{"role": "user", "content": "hello"}],
    [
        {"role": "user", "content": "hello world"},
        {"role": "assistant", "content": "he\nllo"},
        {"role": "user", "content": "wo 12"},
    ],
]


@pytest.fixture(scope="module", params=MODELS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    found = tmp_path_factory.mktemp("chat") / "model"
    write_folder(MODELS[request.param], found)
    yield found


@beside
@pytest.mark.filterwarnings("ignore")
def test_a_folder_begins_and_ends_texts_as_transformers_does(folder: Path) -> None:
    import transformers

    model, theirs = lm.load(folder), transformers.AutoTokenizer.from_pretrained(folder)
    assert model.tokenizer is not None
    for text in TEXTS:
        assert model.tokenizer.encode(text) == theirs(text)["input_ids"], text
    for messages in CHATS:
        expected = theirs.apply_chat_template(messages, add_generation_prompt=True, tokenize=True)["input_ids"]
        assert model.tokenizer.encode_chat(lm.chat_text(messages, model.tokenizer)) == expected
    ends = transformers.GenerationConfig.from_pretrained(folder).eos_token_id
    assert set(model.config.stop) == {*ends, theirs.eos_token_id}


class LlamaCpp:
    """llama.cpp's server for a file."""

    def __init__(self, path: Path) -> None:
        import xllamacpp

        given = xllamacpp.CommonParams()
        given.model.path = str(path)
        given.n_ctx, given.n_parallel, given.cpuparams.n_threads, given.warmup = 256, 1, 1, False
        given.use_jinja = True
        self.server = xllamacpp.Server(given)

    def post(self, place: str, **given: Any) -> dict[str, Any]:
        request = urllib.request.Request(
            f"{self.server.listening_address}{place}", json.dumps(given).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def ids(self, text: str) -> list[int]:
        return self.post("/tokenize", content=text, add_special=True, parse_special=True)["tokens"]


@beside
@pytest.mark.filterwarnings("ignore")
def test_a_file_begins_and_ends_texts_as_llama_cpp_does(folder: Path, tmp_path: Path) -> None:
    """The file is made of the folder, and is a model for both."""
    lm.save_gguf(lm.load(folder), tmp_path / "m.gguf", "f32")
    model, theirs = lm.load(tmp_path / "m.gguf"), LlamaCpp(tmp_path / "m.gguf")
    assert model.tokenizer is not None
    for text in TEXTS:
        assert model.tokenizer.encode(text) == theirs.ids(text), text
    for messages in CHATS:
        prompt = theirs.post("/apply-template", messages=messages)["prompt"]
        text = lm.chat_text(messages, model.tokenizer)
        assert model.tokenizer.encode_chat(text) == theirs.ids(prompt)
    stops = set()
    for token in range(model.config.vocabulary):
        special = token in model.tokenizer.library.get_added_tokens_decoder()
        if special or token % 97 == 0:
            given = theirs.post("/completion", prompt="hello", n_predict=2, logit_bias=[[token, 1000.0]], temperature=0)
            stops |= {token} if given["stop_type"] == "eos" else set()
    assert stops == set(model.config.stop)
    prompt = model.tokenizer.encode("hello world")
    expected = theirs.post(
        "/completion", prompt=prompt, n_predict=8, temperature=0, return_tokens=True, cache_prompt=False
    )["tokens"]
    found = [choice.token for choice in model.generate(prompt, 8, logprobs=1)]
    assert found[:1] == expected[:1]


@pytest.mark.selected(1)
def test_a_file_and_its_folder_are_one_model(folder: Path, tmp_path: Path) -> None:
    """Tokens of texts and chats, ends, and numbers."""
    model = lm.load(folder)
    lm.save_gguf(model, tmp_path / "m.gguf", "f32")
    again = lm.load(tmp_path / "m.gguf")
    assert model.tokenizer is not None and again.tokenizer is not None
    for text in TEXTS:
        assert model.tokenizer.encode(text) == again.tokenizer.encode(text), text
        ids = model.tokenizer.encode(text)
        assert model.tokenizer.decode(ids) == again.tokenizer.decode(ids)
    texts = [lm.chat_text(messages, model.tokenizer) for messages in CHATS]
    assert [model.tokenizer.encode_chat(t) for t in texts] == [again.tokenizer.encode_chat(t) for t in texts]
    assert set(model.config.stop) <= set(again.config.stop)
    tokens = model.tokenizer.encode("hello world")
    assert list(model.generate(tokens, 12, stop=())) == list(again.generate(tokens, 12, stop=()))


@pytest.mark.parametrize("name", ["llama 3", "gemma 2", "phi 3", "qwen 3"])
def test_a_chat_ends_at_the_end_of_a_turn(name: str, tmp_path: Path) -> None:
    """Each token that ends a turn ends the answer, in folders and in files."""
    write_folder(MODELS[name], tmp_path / "model")
    model = lm.load(tmp_path / "model")
    lm.save_gguf(model, tmp_path / "m.gguf", "f32")
    for one in (model, lm.load(tmp_path / "m.gguf")):
        assert one.tokenizer is not None
        for text in MODELS[name].ends:
            token = one.tokenizer.library.token_to_id(text)
            assert "".join(one.chat(CHATS[0], 8, lm.Sampling(bias={token: 1000.0}))) == ""


def test_a_template_that_writes_bos_gets_one(tmp_path: Path) -> None:
    write_folder(MODELS["llama 2"], tmp_path / "model")
    lm.save_gguf(lm.load(tmp_path / "model"), tmp_path / "m.gguf", "f32")
    tokenizer = lm.load(tmp_path / "m.gguf").tokenizer
    assert tokenizer is not None
    ids = tokenizer.encode_chat(lm.chat_text(CHATS[0], tokenizer))
    assert (
        ids.count(tokenizer.special["bos"]) == 1
        and gguf.GGUFFile(tmp_path / "m.gguf").metadata["tokenizer.ggml.add_bos_token"]
    )
