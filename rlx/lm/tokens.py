"""Texts to tokens and back, by the tokenizers library, from a GGUF file's data or a `tokenizer.json`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlx.errors import FileFormatError, UnsupportedError
from rlx.gguf.tokenizer import Tokenizer
from rlx.installation import install_command
from rlx.lm.json_files import read_object
from rlx.lm.special import (
    LLAMA3_RULES,
    control_types,
    files_of_folder,
    frame_of_gguf,
    roles_of_gguf,
    stops_of_gguf,
)

__all__ = ["TextTokenizer", "Utf8", "rule_of"]

_NORMAL, _UNKNOWN, _CONTROL, _USER = 1, 2, 3, 4
_SPACE = "\u2581"  # SentencePiece's
# rules that cut text into words, as regular expressions that are applied one after the other, by the names that GGUF
# files have for them
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_REST_WITH_SLASHES = _REST.replace(r"[\r\n]*", r"[\r\n/]*")
_LOWER, _UPPER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_CASED = tuple(rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}{a}{_LOWER}{b}" for a, b in ("*+", "+*"))
_LLAMA3 = (rf"{_WORDS}|\p{{N}}{{1,3}}|{_REST}",)
_DIGITS = (r"\p{N}", _GPT2)
_RULES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("gpt-2", "gpt2", "phi-2", "mpt", "olmo", "jais", "trillion", "gigachat"), (_GPT2,)),
    **dict.fromkeys(("smollm", "refact", "command-r", "codeshell", "exaone", "starcoder", "minerva-7b"), _DIGITS),
    **dict.fromkeys((*LLAMA3_RULES, "dbrx", "smaug-bpe", "chatglm-bpe"), _LLAMA3),
    **dict.fromkeys(("qwen2", "stablelm2", "deepseek-r1-qwen", "megrez"), (rf"{_WORDS}|\p{{N}}|{_REST}",)),
    "tekken": (rf"{'|'.join(_CASED)}|\p{{N}}|{_REST_WITH_SLASHES}",),
    "gpt-4o": (rf"{'|'.join(c + _ENDINGS + '?' for c in _CASED)}|\p{{N}}{{1,3}}|{_REST_WITH_SLASHES}",),
    "falcon": (r"[\p{P}$+<=>^~|`]+", _GPT2, "[0-9][0-9][0-9]"),
    "default": (r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
}
_WHOLE_WORDS = (*LLAMA3_RULES, "tekken", "gpt-4o")  # a word that is a token is not put together by merges


class TextTokenizer:
    """A tokenizer: from text to token ids and back.

    Args:
      library: a `tokenizers.Tokenizer`; its post-processor puts special tokens around texts.
      special: ids by role: "bos", "eos", ...
      chat_template: in Jinja; or several by name, with one called "default"; or None.
      stop: ids that end a text or a turn.
      frames_chats: texts of chat templates get the special tokens that texts get, where they lack them.
      spaced: a text is encoded with a space before it, which decoding takes away.

    >>> from rlx.gguf import Tokenizer
    >>> from rlx.lm import TextTokenizer
    >>> letters = Tokenizer("gpt2", "smollm", ["H", "i", "Hi"], types=None, merges=["H i"])
    >>> TextTokenizer.of_gguf(letters).encode("HiH")
    [2, 0]
    """

    def __init__(
        self,
        library: Any,
        special: Mapping[str, int] | None = None,
        chat_template: str | Mapping[str, str] | None = None,
        stop: Iterable[int] = (),
        frames_chats: bool = False,
        spaced: bool = False,
    ) -> None:
        self.library = library
        self.special = dict(special or {})
        self.templates = {"default": chat_template} if isinstance(chat_template, str) else dict(chat_template or {})
        self.stop = tuple(stop)
        self.frames_chats = frames_chats
        self.spaced = spaced

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
        found, types = _KINDS[data.model](tokenizers, data), control_types(data)
        apart = np.flatnonzero((types == _CONTROL) | (types == _USER) | (types == _UNKNOWN)).tolist()
        found.add_tokens(
            [tokenizers.AddedToken(data.tokens[n], special=int(types[n]) != _USER, normalized=False) for n in apart]
        )
        _framed(tokenizers, found, *(None if n is None else (data.tokens[n], n) for n in frame_of_gguf(data)))
        spaced = data.model == "llama" and data.flags.get("add_space_prefix", True)
        return cls(found, roles_of_gguf(data), data.chat_template, stops_of_gguf(data), True, spaced)

    @classmethod
    def of_file(cls, path: str | os.PathLike[str], special: Mapping[str, int] | None = None,
                chat_template: str | None = None) -> TextTokenizer:  # fmt: skip
        """The tokenizer of a `tokenizer.json`. Raises FileFormatError for another file."""
        return cls(_library_of_file(Path(path)), special, chat_template)

    @classmethod
    def of_folder(cls, folder: str | os.PathLike[str]) -> TextTokenizer:
        """The tokenizer of a model's folder: `tokenizer.json`, and what the files beside it say of special tokens."""
        folder = Path(folder)
        found = _library_of_file(folder / "tokenizer.json")
        told = files_of_folder(folder, read_object(folder / "config.json", missing={}))
        ids = {role: found.token_to_id(text) for role, text in told.texts.items()}
        special = {role: n for role, n in ids.items() if n is not None}
        if told.frame is not None:
            pairs = [(told.texts[role], special[role]) if role in special else None for role in ("bos", "eos")]
            _framed(_library(), found, *(pair if used else None for pair, used in zip(pairs, told.frame, strict=True)))
        stop = sorted({*told.stop, *([special["eos"]] if "eos" in special else [])})
        return cls(found, special, told.templates, stop)

    @property
    def chat_template(self) -> str | None:
        """The template of conversations without tools, in Jinja."""
        return self.templates.get("default")

    def __len__(self) -> int:
        return self.library.get_vocab_size()

    def encode(self, text: str, begin: bool = True) -> list[int]:
        """The ids of a text; special tokens that are written out in it are recognised.

        begin: put special tokens around it, as the model has them around texts.
        """
        return self.library.encode(text, add_special_tokens=begin).ids

    def encode_chat(self, text: str) -> list[int]:
        """The ids of a chat template's text, which has its special tokens in it."""
        if not self.frames_chats:
            return self.encode(text, begin=False)
        around = self.encode("")  # the special tokens around a text that the template may have written, too
        for role, cut in (("bos", str.removeprefix), ("eos", str.removesuffix)):
            if self.special.get(role) in around:
                text = cut(text, self.token(role))
        return self.encode(text)

    def decode(self, tokens: Iterable[int], special: bool = False, begin: bool = True) -> str:
        """The text of ids. special: include special tokens. begin: the ids start a text."""
        text = self.library.decode([int(t) for t in tokens], skip_special_tokens=not special)
        return text.removeprefix(" ") if self.spaced and begin else text

    def token(self, role: str) -> str:
        """The text of the token with a role, such as "bos"; empty if there is none."""
        number = self.special.get(role)
        return "" if number is None else self.library.id_to_token(number) or ""


def _library_of_file(path: Path) -> Any:
    tokenizers = _library()
    failed = ""
    try:
        return tokenizers.Tokenizer.from_file(os.fspath(path))
    except Exception as error:  # the library raises Exception itself
        failed = str(error)
    raise FileFormatError(f"{path} is not a tokenizer: {failed}.", "Take the file from the model's own folder.")


def _framed(tokenizers: Any, library: Any, begin: tuple[str, int] | None, end: tuple[str, int] | None) -> None:
    """Let a library put these tokens around texts."""
    pairs = [pair for pair in (begin, end) if pair is not None]
    texts = [*([] if begin is None else [begin[0]]), "$A", *([] if end is None else [end[0]])]
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single=texts, special_tokens=[*dict(pairs).items()]
    )


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
    found = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges, ignore_merges=data.pre in _WHOLE_WORDS))
    found.pre_tokenizer = _cutter(tokenizers, data.pre or "default")
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
    roles = roles_of_gguf(data)
    unknown = data.tokens[roles["unknown"]] if "unknown" in roles else None
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
    if pre not in _RULES:
        raise UnsupportedError(
            f"The file's tokenizer cuts words by a rule {pre!r} that is not known.",
            "Pass tokenizer=rlx.lm.TextTokenizer.of_file('tokenizer.json') from the model's own folder.",
        )
    parts = tokenizers.pre_tokenizers
    cuts = [parts.Split(tokenizers.Regex(rule), "isolated") for rule in _RULES[pre]]
    return parts.Sequence([*cuts, parts.ByteLevel(add_prefix_space=False, use_regex=False)])


def rule_of(cutter: Mapping[str, Any] | None) -> str:
    """The name in GGUF files of a pre-tokenizer, as `tokenizer.json` describes it.

    Raises UnsupportedError for one that has no name.
    """
    steps = (cutter or {}).get("pretokenizers", [cutter or {}])
    cuts: list[str] = []
    for step in steps:
        if step.get("type") == "Split":
            cuts.append(step["pattern"].get("Regex", step["pattern"].get("String", "")))
        elif step.get("type") == "Digits":
            cuts.append(r"\p{N}")
        elif step.get("type") == "ByteLevel" and step.get("use_regex", True):
            cuts.append(_GPT2)
    # some regular expressions are written with other groups or doubled classes and mean the same
    for name, rules in _RULES.items():
        if [_simplified(rule) for rule in rules] == [_simplified(cut) for cut in cuts]:
            return name
    raise UnsupportedError(
        "GGUF files have no name that is known for this tokenizer's rule of words.", "Load the folder itself."
    )


def _simplified(rule: str) -> str:
    return rule.replace("(?:", "(").replace("?+", "?").replace("++", "+").replace(r"\p{N}{1}|", r"\p{N}|")


_LONGEST = 8  # tokens: a character has at most four bytes, and tokens of no text may be between them


class Utf8:
    """Text pieces from a stream of tokens; incomplete characters are held back. Each token is decoded a few times.

    before: the tokens in front of the stream, which decide whether its first word has a space before it.

    >>> from rlx.gguf import Tokenizer
    >>> from rlx.lm import TextTokenizer
    >>> pieces = Utf8(TextTokenizer.of_gguf(Tokenizer("gpt2", "gpt-2", ["\\u00c3", "\\u00a9"])))
    >>> pieces.add(0), pieces.add(1)
    ('', 'é')
    """

    def __init__(self, tokenizer: TextTokenizer, before: Iterable[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._before, self._held = list(before), list[int]()  # tokens whose text is out, and those behind them

    def add(self, token: int) -> str:
        """The text that a token completes."""
        self._held.append(int(token))
        piece = self._piece()
        if not piece or (piece.endswith("\N{REPLACEMENT CHARACTER}") and len(self._held) < _LONGEST):
            return ""
        self._before, self._held = self._held, []
        return piece

    def rest(self) -> str:
        """The text that was held back."""
        return self._piece()

    def _piece(self) -> str:
        """The text of the held tokens: what they add to the text of those before, which decides about spaces."""
        before = self._tokenizer.decode(self._before, begin=False)
        return self._tokenizer.decode([*self._before, *self._held], begin=False)[len(before) :]
