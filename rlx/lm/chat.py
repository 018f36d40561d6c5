"""Chat templates: texts of conversations, by Jinja in its sandbox, since templates come with models and are code."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar

from rlx.errors import InputTypeError, OptionError, UnsupportedError
from rlx.installation import install_command
from rlx.lm.tokens import TextTokenizer
from rlx.lm.tools import with_arguments

__all__ = ["chat_text"]


def chat_text(messages: Sequence[dict[str, Any]], tokenizer: TextTokenizer, answer: bool = True, **more: Any) -> str:
    """The text of a conversation, as the model was trained to see it.

    Args:
      messages: dicts of "role" ("system", "user", "assistant", "tool") and "content"; "tool_calls" as `answer_message`
        makes them.
      tokenizer: whose template and special tokens are used; of several templates, "tool_use" where tools are given.
      answer: end the text with the start of the model's answer.
      more: other variables of the template, such as tools.

    Raises UnsupportedError where there is no template, or no jinja2; OptionError where the template fails or refuses
    the conversation; InputTypeError for messages of another form.

    >>> from rlx.lm import TextTokenizer
    >>> template = "{% for m in messages %}[{{ m.role }}] {{ m.content }} {% endfor %}"
    >>> chat_text([{"role": "user", "content": "Hi"}], TextTokenizer(None, chat_template=template))
    '[user] Hi '
    """
    template = tokenizer.templates.get("tool_use") if more.get("tools") else None
    template = template or tokenizer.chat_template
    if template is None:
        raise UnsupportedError("The model has no chat template.", "Write the prompt as one text.")
    if not all(isinstance(m, dict) and "role" in m for m in messages):
        raise InputTypeError("A message must be a dict with a role.", 'Write {"role": "user", "content": "..."}.')
    given: dict[str, Any] = {"messages": list(map(with_arguments, messages)), "add_generation_prompt": answer}
    given |= {"tools": None, "documents": None, **more}
    for role in ("bos", "eos", "unknown", "padding"):
        given.setdefault(
            {"unknown": "unk_token", "padding": "pad_token"}.get(role, f"{role}_token"), tokenizer.token(role)
        )
    errors, failed = _errors(), None
    try:
        return _compiled(template).render(**given)
    except errors as error:
        failed = error
    raise OptionError(
        f"The chat template failed: {type(failed).__name__}: {failed}.",
        "Check the roles and their order, or the template itself.",
    )


def _errors() -> tuple[type[BaseException], ...]:
    jinja2 = _jinja()
    # a template may do anything to values that Python has an error for, but in the sandbox nothing else
    return (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError)


def _jinja() -> Any:
    try:
        import jinja2
        import jinja2.ext
        import jinja2.sandbox
    except ImportError:
        jinja2 = None
    if jinja2 is None:
        raise UnsupportedError("Chat templates need jinja2.", install_command("lm"))
    return jinja2


@lru_cache(maxsize=16)
def _compiled(template: str) -> Any:
    jinja2 = _jinja()

    class Generation(jinja2.ext.Extension):  # marks the parts that a model wrote, which matters to training alone
        tags: ClassVar[set[str]] = {"generation"}

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(["name:endgeneration"], drop_needle=True)

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    sandbox = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    sandbox.filters["tojson"] = _as_json
    sandbox.globals["raise_exception"] = refuse
    sandbox.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return sandbox.from_string(template)


def _as_json(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None,
             sort_keys: bool = False) -> str:  # fmt: skip
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
