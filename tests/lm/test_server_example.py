"""The example of a server: its answers are those of the model, whole and in pieces, one request or several at once."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from chat_models import MODELS, write_folder
from modules import load
from needs import beside

from rlx import lm

MESSAGES = [{"role": "user", "content": "hello world"}]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, lm.Model]]:
    import uvicorn

    folder = tmp_path_factory.mktemp("served") / "model"
    write_folder(MODELS["qwen 3"], folder)
    model = lm.load(folder)
    example = load(Path(__file__).resolve().parents[2] / "examples" / "serve.py")
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(example.application(model, "tiny", rows=3), log_level="warning")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1", model
    server.should_exit = True
    thread.join()
    listening.close()


def post(place: str, **given: Any) -> str:
    request = urllib.request.Request(place, json.dumps(given).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return answer.read().decode()


@beside
@pytest.mark.filterwarnings("ignore")
def test_a_chat_is_answered_as_by_the_model(served: tuple[str, lm.Model]) -> None:
    place, model = served
    expected = "".join(model.chat(MESSAGES, 12))
    given = {"messages": MESSAGES, "max_tokens": 12, "temperature": 0}
    whole = json.loads(post(f"{place}/chat/completions", **given))
    assert whole["choices"][0]["message"]["content"] == expected
    assert whole["usage"]["completion_tokens"] <= 12
    lines = [line[6:] for line in post(f"{place}/chat/completions", stream=True, **given).splitlines() if line]
    assert lines[-1] == "[DONE]"
    parts = [json.loads(line)["choices"][0] for line in lines[:-1]]
    assert "".join(part["delta"]["content"] for part in parts) == expected
    assert parts[-1]["finish_reason"] == whole["choices"][0]["finish_reason"]


@beside
@pytest.mark.filterwarnings("ignore")
def test_requests_at_once_get_their_own_answers(served: tuple[str, lm.Model]) -> None:
    place, model = served

    def ask(n: int) -> bool:
        given = {"prompt": "hello " * (n + 1), "max_tokens": 5 + n, "temperature": n % 2, "seed": n + 1}
        sampling = lm.Sampling(temperature=n % 2, seed=n + 1)
        return json.loads(post(f"{place}/completions", **given))["choices"][0]["text"] == "".join(
            model.stream("hello " * (n + 1), 5 + n, sampling)
        )

    with ThreadPoolExecutor(7) as pool:
        assert all(pool.map(ask, range(7)))


@beside
@pytest.mark.filterwarnings("ignore")
def test_schemas_stops_logprobs_and_mistakes(served: tuple[str, lm.Model]) -> None:
    place, model = served
    schema = {"type": "object", "properties": {"a": {"enum": ["hello", "world"]}}, "required": ["a"],
              "additionalProperties": False}  # fmt: skip
    form = {"type": "json_schema", "json_schema": {"schema": schema}}
    said = json.loads(post(f"{place}/chat/completions", messages=MESSAGES, response_format=form, seed=3, max_tokens=60))
    if said["choices"][0]["finish_reason"] == "stop":
        assert json.loads(said["choices"][0]["message"]["content"])["a"] in ("hello", "world")
    plain = "".join(model.stream("hello", 12))
    cut = plain[3:5]
    said = json.loads(post(f"{place}/completions", prompt="hello", max_tokens=12, temperature=0, stop=[cut]))
    assert said["choices"][0]["text"] == plain[: plain.find(cut)]
    said = json.loads(
        post(f"{place}/completions", prompt="hello", max_tokens=4, temperature=0, logprobs=True, top_logprobs=2)
    )
    assert all(len(one["top_logprobs"]) == 2 for one in said["choices"][0]["logprobs"]["content"])
    for given in ({"prompt": "hello", "top_p": 7}, {"prompt": "hello", "max_tokens": 10**6}, {}):
        with pytest.raises(urllib.error.HTTPError) as refused:
            post(f"{place}/completions", **given)
        assert refused.value.code == 400 and json.load(refused.value)["error"]["message"]
    vectors = json.loads(post(f"{place}/embeddings", input=["hello", "world"]))["data"]
    assert len(vectors) == 2 and len(vectors[0]["embedding"]) == 32


@beside
@pytest.mark.filterwarnings("ignore")
def test_calls_of_tools_are_told(served: tuple[str, lm.Model]) -> None:
    """A schema makes the model write a call; whole and streamed."""
    place, model = served
    tokenizer = model.with_texts()
    blank = [n for n in range(model.config.vocabulary) if not tokenizer.decode([n], special=True).strip()]
    closed = {"type": "object", "additionalProperties": False}
    arguments = {**closed, "properties": {"n": {"enum": [1, 2]}}, "required": ["n"]}
    call = {"name": {"const": "roll"}, "arguments": arguments}
    schema = {**closed, "properties": call, "required": ["name", "arguments"]}
    given: dict[str, Any] = {
        "messages": MESSAGES, "max_tokens": 120, "temperature": 0, "tools": [{"function": {"name": "roll"}}],
        "logit_bias": {str(token): -1e9 for token in blank},
        "response_format": {"type": "json_schema", "json_schema": {"schema": schema}},
    }  # fmt: skip
    (whole,) = json.loads(post(f"{place}/chat/completions", **given))["choices"]
    assert whole["finish_reason"] == "tool_calls", whole
    assert whole["message"]["content"] is None
    (made,) = whole["message"]["tool_calls"]
    assert made["function"]["name"] == "roll" and json.loads(made["function"]["arguments"])["n"] in (1, 2)
    first, *_ = post(f"{place}/chat/completions", stream=True, **given).splitlines()
    (streamed,) = json.loads(first[6:])["choices"]
    assert streamed["delta"]["tool_calls"][0]["function"] == made["function"]
