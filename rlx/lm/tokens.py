"""Texts to tokens and back, by the tokenizers library, from a GGUF file's data or a `tokenizer.json`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from rlx.errors import UnsupportedError
from rlx.gguf.tokenizer import Tokenizer
from rlx.installation import install_command

__all__ = ["TextTokenizer", "Utf8"]

_NORMAL, _CONTROL, _USER = 1, 3, 4
_SPACE = "\u2581"  # SentencePiece's
# rules that cut text into words, as regular expressions, by the names that GGUF files have for them
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_WORDS}|\p{{N}}{{1,3}}|{_REST}"
_QWEN2 = rf"{_WORDS}|\p{{N}}|{_REST}"
_DIGITS_THEN_GPT2 = ("smollm", "refact", "command-r", "codeshell", "exaone", "starcoder")


class TextTokenizer:
    """A tokenizer: from text to token ids and back.

    Args:
      library: a `tokenizers.Tokenizer`.
      data: the tokenizer data of a GGUF file, or None.
      special: ids by role: "bos", "eos", ...
      chat_template: in Jinja, or None.

    >>> from rlx.gguf import Tokenizer
    >>> from rlx.lm import TextTokenizer
    >>> letters = Tokenizer("gpt2", "smollm", ["H", "i", "Hi"], types=None, merges=["H i"])
    >>> TextTokenizer.of_gguf(letters).encode("HiH")
    [2, 0]
    """

    def __init__(self, library: Any, special: dict[str, int] | None = None, chat_template: str | None = None,
                 begins: bool = False, spaced: bool = False) -> None:  # fmt: skip
        self.library = library
        self.spaced = spaced  # whether a text is encoded with a space before it, which decoding takes away
        self.special = special or {}
        self.chat_template = chat_template
        self.begins = begins  # whether a text begins with the token "bos"

    @classmethod
    def of_gguf(cls, data: Tokenizer) -> TextTokenizer:
        """The tokenizer that a GGUF file carries.

        Raises UnsupportedError for a kind that is neither byte-level BPE ("gpt2") nor SentencePiece's ("llama").
        """
        tokenizers = _library()
        if data.model not in _KINDS:
            known = " and ".join(map(repr, _KINDS))
            raise UnsupportedError(
                f"The file's tokenizer is of the kind {data.model!r}; supported are {known}.",
                "Pass tokenizer=rlx.lm.TextTokenizer.of_file('tokenizer.json') from the model's own folder.",
            )
        found = _KINDS[data.model](tokenizers, data)
        types = np.ones(len(data.tokens), np.int32) if data.types is None else data.types
        added = [
            tokenizers.AddedToken(data.tokens[n], special=int(types[n]) == _CONTROL, normalized=False)
            for n in np.flatnonzero((types == _CONTROL) | (types == _USER)).tolist()
        ]
        found.add_tokens(added)
        pieces = data.model == "llama"
        begins = data.flags.get("add_bos_token", pieces) and "bos" in data.special
        spaced = pieces and data.flags.get("add_space_prefix", True)
        return cls(found, data.special, data.chat_template, begins, spaced)

    @classmethod
    def of_file(cls, path: str | os.PathLike[str], special: dict[str, int] | None = None,
                chat_template: str | None = None) -> TextTokenizer:  # fmt: skip
        """The tokenizer of a `tokenizer.json`."""
        return cls(_library().Tokenizer.from_file(os.fspath(path)), special, chat_template)

    def __len__(self) -> int:
        return self.library.get_vocab_size()

    def encode(self, text: str, begin: bool = True) -> list[int]:
        """The ids of a text; special tokens that are written out in it are recognised."""
        found = self.library.encode(text, add_special_tokens=False).ids
        return [self.special["bos"], *found] if begin and self.begins else found

    def decode(self, tokens: Iterable[int], special: bool = False, begin: bool = True) -> str:
        """The text of ids. special: include special tokens. begin: the ids start a text."""
        text = self.library.decode([int(t) for t in tokens], skip_special_tokens=not special)
        return text.removeprefix(" ") if self.spaced and begin else text

    def token(self, role: str) -> str:
        """The text of the token with a role, such as "bos"; empty if there is none."""
        number = self.special.get(role)
        return "" if number is None else self.library.id_to_token(number) or ""


def _library() -> Any:
    try:
        import tokenizers
    except ImportError:
        tokenizers = None
    if tokenizers is None:
        raise UnsupportedError("Texts need the tokenizers library.", install_command("lm"))
    return tokenizers


def _bytes(tokenizers: Any, data: Tokenizer) -> Any:
    """Byte-level BPE: the file has its merges, and the name of the rule that cuts words."""
    vocabulary = {token: number for number, token in enumerate(data.tokens)}
    merges = [tuple(merge.split(" ", 1)) for merge in data.merges]
    found = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges, ignore_merges=data.pre == "llama-bpe"))
    found.pre_tokenizer = _cutter(tokenizers, data.pre or "gpt-2")
    found.decoder = tokenizers.decoders.ByteLevel()
    return found


def _pieces(tokenizers: Any, data: Tokenizer) -> Any:
    """SentencePiece's BPE: of two pieces that are neighbours those are joined whose whole has the greatest score."""
    vocabulary = {token: number for number, token in enumerate(data.tokens)}
    types = np.ones(len(data.tokens), np.int32) if data.types is None else data.types
    scores = np.zeros(len(data.tokens)) if data.scores is None else data.scores
    merges = []
    for number in sorted(np.flatnonzero(types == _NORMAL).tolist(), key=lambda n: -scores[n]):
        whole = data.tokens[number]
        halves = [(whole[:cut], whole[cut:]) for cut in range(1, len(whole))]
        merges += sorted(
            (h for h in halves if h[0] in vocabulary and h[1] in vocabulary), key=lambda h: [vocabulary[p] for p in h]
        )
    unknown = data.tokens[data.special["unknown"]] if "unknown" in data.special else None
    model = tokenizers.models.BPE(vocabulary, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    found = tokenizers.Tokenizer(model)
    steps, decoders = tokenizers.normalizers, tokenizers.decoders
    prefix = [steps.Prepend(_SPACE)] if data.flags.get("add_space_prefix", True) else []
    found.normalizer = steps.Sequence([*prefix, steps.Replace(" ", _SPACE)])
    found.decoder = decoders.Sequence([decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    return found


_KINDS = {"gpt2": _bytes, "llama": _pieces}


def _cutter(tokenizers: Any, pre: str) -> Any:
    """The pre-tokenizer of a name in GGUF files."""
    parts = tokenizers.pre_tokenizers
    levels = parts.ByteLevel(add_prefix_space=False, use_regex=False)
    if pre in _DIGITS_THEN_GPT2:
        return parts.Sequence([parts.Digits(individual_digits=True), parts.ByteLevel(add_prefix_space=False)])
    if pre in ("gpt-2", "gpt2", "default"):
        return parts.ByteLevel(add_prefix_space=False)
    rules = {"llama-bpe": _LLAMA3, "llama3": _LLAMA3, "qwen2": _QWEN2}
    if pre not in rules:
        raise UnsupportedError(
            f"The file's tokenizer cuts words by a rule {pre!r} that is not known.",
            "Pass tokenizer=rlx.lm.TextTokenizer.of_file('tokenizer.json') from the model's own folder.",
        )
    return parts.Sequence([parts.Split(tokenizers.Regex(rules[pre]), "isolated"), levels])


class Utf8:
    """Text pieces from a stream of tokens; incomplete characters are held back.

    >>> from rlx.gguf import Tokenizer
    >>> from rlx.lm import TextTokenizer
    >>> pieces = Utf8(TextTokenizer.of_gguf(Tokenizer("gpt2", "gpt-2", ["\\u00c3", "\\u00a9"])))
    >>> pieces.add(0), pieces.add(1)
    ('', 'é')
    """

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer, self._tokens, self._said = tokenizer, list[int](), 0

    def add(self, token: int) -> str:
        """The text that a token completes."""
        self._tokens.append(int(token))
        text = self._tokenizer.decode(self._tokens, begin=False)
        if text.endswith("\N{REPLACEMENT CHARACTER}"):
            return ""
        piece = text[self._said :]
        self._said = len(text)
        if piece.endswith("\n"):  # a line is over: begin anew, so that long texts are not decoded again and again
            self._tokens, self._said = [], 0
        return piece

    def rest(self) -> str:
        """The text that was held back."""
        return self._tokenizer.decode(self._tokens, begin=False)[self._said :]
