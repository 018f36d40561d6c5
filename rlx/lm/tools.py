"""Calls of tools in the answers of language models, in the forms that common families write them in."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlx.errors import InputTypeError

__all__ = ["answer_message", "with_arguments"]

# Hermes, Qwen and SmolLM2 mark each call or list of calls, Mistral a list, and Llama 3 writes an object alone
_MARKED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_BEFORE = ("[TOOL_CALLS]", "<|python_tag|>")


def answer_message(text: str, tools: Sequence[Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """The message of a model's answer, with its calls of tools apart.

    Args:
      text: the whole answer.
      tools: as for `Model.chat`: {"type": "function", "function": {"name": ...}}, or the function's part alone.

    Returns: a dict of "role", "content" and, if the model calls tools, "tool_calls" in the form of OpenAI's interface:
      dicts of "id", "type" and "function", whose "arguments" are JSON. Text around the calls is the content, or None
      if there is none. A call of a function that is not in `tools`, or that is not valid JSON, remains text.

    Raises InputTypeError for tools without names.

    >>> from rlx import lm
    >>> tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
    >>> text = '<tool_call>{"name": "weather", "arguments": {"place": "Bern"}}</tool_call>'
    >>> message = lm.answer_message(text, tools)
    >>> message["content"], message["tool_calls"][0]["function"]
    (None, {'name': 'weather', 'arguments': '{"place": "Bern"}'})
    """
    names = set(map(_name_of, tools or ()))
    calls: list[dict[str, Any]] = []

    def taken(written: str) -> bool:
        found = list(_calls(written, names))
        calls.extend(found)
        return bool(found)

    content = text
    if names:
        content = _MARKED.sub(lambda part: "" if taken(part[1]) else part[0], text)
        bare = text.strip()
        for mark in _BEFORE:
            bare = bare.removeprefix(mark).strip()
        if not calls and taken(bare):
            content = ""
    if not calls:
        return {"role": "assistant", "content": text}
    return {"role": "assistant", "content": content.strip() or None, "tool_calls": calls}


def _name_of(tool: Mapping[str, Any]) -> str:
    function = tool.get("function", tool) if isinstance(tool, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if isinstance(name, str):
        return name
    raise InputTypeError(
        f"A tool has no name: {tool!r:.80}.",
        'Write {"type": "function", "function": {"name": "...", "parameters": {...}}}.',
    )


def _calls(written: str, names: set[str]) -> Iterator[dict[str, Any]]:
    """The calls in JSON: an object, or a list of objects, all of known functions; none if it is anything else."""
    found = _decoded(written)
    found = found if isinstance(found, list) else [found]
    if all(_is_call(one, names) for one in found):
        for one in found:
            arguments = json.dumps(_arguments(one), ensure_ascii=False)
            function = {"name": one["name"], "arguments": arguments}
            yield {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function}


def _is_call(one: Any, names: set[str]) -> bool:
    name = one.get("name") if isinstance(one, dict) else None
    return isinstance(name, str) and name in names and isinstance(_arguments(one), dict)


def _arguments(call: Mapping[str, Any]) -> Any:
    """Llama's are called parameters; some models write the object as text once more."""
    found = call.get("arguments", call.get("parameters", {}))
    return _decoded(found) if isinstance(found, str) else found


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def with_arguments(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message whose calls have objects as arguments, as templates expect, instead of JSON."""
    calls = message.get("tool_calls")
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        return message
    return {**message, "tool_calls": list(map(_with_object, calls))}


def _with_object(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    found = _decoded(function["arguments"])
    return {**call, "function": {**function, "arguments": found}} if isinstance(found, dict) else call
