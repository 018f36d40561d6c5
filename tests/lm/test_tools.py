"""Calls of tools: the forms of the families, texts that are none, and their way back into a conversation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rlx import lm
from rlx.errors import InputTypeError

TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}},
    {"name": "time"},
]
BERN = {"name": "weather", "arguments": {"place": "Bern", "days": 2}}
TIME = {"name": "time", "arguments": {}}


def marked(*calls: Any) -> str:
    return "\n".join(f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls)


FORMS: dict[str, tuple[str, str | None, list[Any]]] = {
    "qwen": (marked(BERN), None, [BERN]),
    "two": ("Let me see.\n" + marked(BERN, TIME), "Let me see.", [BERN, TIME]),
    "smollm": (marked([BERN, TIME]), None, [BERN, TIME]),
    "not closed": (f"<tool_call>{json.dumps(BERN)}", None, [BERN]),
    "mistral": (f"[TOOL_CALLS] {json.dumps([BERN])}", None, [BERN]),
    "mistral without its token": (json.dumps([BERN, TIME]), None, [BERN, TIME]),
    "llama": (json.dumps({"name": "weather", "parameters": BERN["arguments"]}), None, [BERN]),
    "llama's tag": (f"<|python_tag|>{json.dumps(BERN)}", None, [BERN]),
    "arguments as text": (marked({**BERN, "arguments": json.dumps(BERN["arguments"])}), None, [BERN]),
    "no arguments": ('{"name": "time"}', None, [TIME]),
}


@pytest.mark.parametrize("name", FORMS)
def test_calls_are_found(name: str) -> None:
    text, content, calls = FORMS[name]
    message = lm.answer_message(text, TOOLS)
    assert message["role"] == "assistant" and message["content"] == content
    functions = [call["function"] for call in message["tool_calls"]]
    assert [{"name": f["name"], "arguments": json.loads(f["arguments"])} for f in functions] == calls
    assert len({call["id"] for call in message["tool_calls"]}) == len(calls)


@pytest.mark.parametrize(
    "text",
    [
        "", "It rains.", "[]", "{}", "null", "3", "[" * 100_000, '{"name": ["weather"]}', '{"name": "weather"',
        '{"name": "other", "arguments": {}}', '{"name": "weather", "arguments": [1]}', "<tool_call>weather</tool_call>",
        '<tool_call>{"name": "weather", "arguments": "x"}</tool_call>', '[{"name": "weather"}, 3]', "<tool_call>",
    ],
    ids=lambda text: text[:30],
)  # fmt: skip
def test_other_texts_remain_texts(text: str) -> None:
    assert lm.answer_message(text, TOOLS) == {"role": "assistant", "content": text}
    assert lm.answer_message(marked(BERN)) == {"role": "assistant", "content": marked(BERN)}


def test_tools_without_names_are_refused() -> None:
    for tool in ({"type": "function"}, {"function": {"name": 3}}, {"function": "weather"}, "weather"):
        with pytest.raises(InputTypeError, match="A tool has no name"):
            lm.answer_message("", [tool])  # ty: ignore[invalid-argument-type]


def test_templates_get_objects() -> None:
    """OpenAI's interface has the arguments as JSON, templates write objects as JSON."""
    pytest.importorskip("jinja2")
    calls = "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}"
    template = "{% for m in messages %}{{ m.role }}:" + calls + "{{ m.content }};{% endfor %}"
    tokenizer = lm.TextTokenizer(None, chat_template=template)
    messages = [lm.answer_message(marked(BERN), TOOLS), {"role": "tool", "content": "rain"}]
    assert lm.chat_text(messages, tokenizer) == f"assistant:{json.dumps(BERN)}None;tool:rain;"
    broken = {"role": "assistant", "content": "", "tool_calls": [{"function": {"arguments": "{"}}, 3]}
    plain = lm.TextTokenizer(None, chat_template="{{ messages[0].tool_calls[0].function.arguments }}")
    assert lm.chat_text([broken], plain) == "{"
