"""Texts that follow a grammar: JSON schemas, GBNF and regular expressions, by llguidance, between logits and choice."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from rlx import numpy as jnp
from rlx.call.jit import jit
from rlx.errors import OptionError, UnsupportedError
from rlx.installation import install_command
from rlx.lm.generation import Model, Processor

__all__ = ["Grammar"]


class Grammar:
    """A grammar over a model's tokens.

    Args:
      model: with a tokenizer.
      text: of the grammar.
      form: "json_schema", "gbnf", "lark", "regex", or "choice": a JSON list of texts.

    Raises UnsupportedError without llguidance, OptionError for a grammar that it refuses.

    `model.stream(prompt, processors=[grammar.processor()])` generates a text of the grammar; each call of `generate`
    takes a processor of its own. The text ends where the grammar ends, or with max_tokens before it.

    >>> from rlx import lm
    >>> def answer(model, question):
    ...     grammar = lm.Grammar(model, 'root ::= "yes" | "no"')
    ...     return "".join(model.stream(question, 8, processors=[grammar.processor()]))
    """

    def __init__(self, model: Model, text: str, form: str = "gbnf") -> None:
        library = _library()
        self._library, self._tokens, failed = library, _tokens_of(model), ""
        try:
            self._grammar = library.grammar_from(form, text)
            failed = library.LLMatcher.validate_grammar(self._grammar, self._tokens)
        except ValueError as error:
            failed = str(error)
        if failed:
            raise OptionError(f"The grammar is refused: {failed}.", f"It has the form {form!r}.")
        self._vocabulary = model.config.vocabulary

    @classmethod
    def of_schema(cls, model: Model, schema: Any) -> Grammar:
        """The grammar of JSON texts that match a JSON schema, a dict."""
        return cls(model, json.dumps(schema), "json_schema")

    def processor(self) -> Processor:
        """A new processor for `generate`: it excludes tokens that the grammar does not allow next."""
        return _Guide(self._library, self._tokens, self._grammar, self._vocabulary)


class _Guide:
    """The state of a grammar in each sequence of a batch."""

    def __init__(self, library: Any, tokens: Any, grammar: str, vocabulary: int) -> None:
        self._library, self._vocabulary = library, vocabulary
        self._new = lambda: library.LLMatcher(tokens, grammar, log_level=0)
        self._rows: list[tuple[Any, int]] = []  # a matcher, and how many tokens it has seen

    def __call__(self, tokens: Sequence[Sequence[int]], logits: Any) -> Any:
        if not self._rows:
            self._rows = [(self._new(), len(row)) for row in tokens]
        allowed = np.full((len(tokens), -(-self._vocabulary // 32)), -1, np.int32)
        for number, row in enumerate(tokens):
            matcher, seen = self._rows[number]
            for token in row[seen:]:
                if not matcher.is_stopped():
                    matcher.consume_token(int(token))
            self._rows[number] = matcher, len(row)
            if matcher.is_error():
                raise OptionError(f"The grammar cannot go on: {matcher.get_error()}.", "Simplify it.")
            self._library.numpy.fill_next_token_bitmask(matcher, allowed, number)
        return _masked(logits, allowed.view(np.uint32))


@jit
def _masked(logits: Any, allowed: Any) -> Any:
    """Logits [batch, vocabulary] where a bit is set, -inf elsewhere; allowed: uint32 [batch, words]."""
    places = jnp.arange(logits.shape[-1])
    bits = (allowed[:, places // 32] >> (places % 32).astype(np.uint32)) & np.uint32(1)
    return jnp.where(bits == 1, logits, -jnp.inf)


@lru_cache(maxsize=8)
def _library_tokens(library_text: str, vocabulary: int, ends: tuple[int, ...]) -> Any:
    return _library().LLTokenizer(library_text, n_vocab=vocabulary, eos_token=list(ends) or None)


def _tokens_of(model: Model) -> Any:
    """The tokens of a model as llguidance knows them, made once."""
    tokenizer, vocabulary = model.with_texts(), model.config.vocabulary
    failed = ""
    try:
        return _library_tokens(tokenizer.library.to_str(), vocabulary, model.config.stop)
    except ValueError as error:
        failed = str(error)
    raise UnsupportedError(f"The tokenizer cannot be used with grammars: {failed}.", "Use generate without one.")


def _library() -> Any:
    try:
        importlib.import_module("llguidance.numpy")
        found = importlib.import_module("llguidance")
    except ImportError:
        found = None
    if found is None:
        raise UnsupportedError("Grammars need llguidance.", install_command("grammar"))
    return found
