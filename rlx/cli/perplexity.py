"""rlx perplexity: how well a model predicts a text."""

from __future__ import annotations

import argparse

from rlx.cli.generate import model_path, text_of
from rlx.cli.mistakes import FINE, Mistake, told
from rlx.cli.output import as_json
from rlx.lm.loading import load
from rlx.lm.measures import perplexity as measured

__all__ = ["add_options", "perplexity"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `rlx perplexity`."""
    parser.add_argument("model", metavar="MODEL", help="a GGUF file, a model's folder, or the name of a package")
    parser.add_argument("text", metavar="FILE", help="a text in UTF-8, or - for the standard input")
    parser.add_argument("--context", type=int, default=512, metavar="N", help="tokens of a window (512)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def perplexity(options: argparse.Namespace) -> int:
    """Print the perplexity of a text."""
    path, text = model_path(options.model), text_of(options.text)
    with told(str(path)):
        model = load(path)
        tokens = model.with_texts().encode(text)
        if len(tokens) < options.context:
            raise Mistake(
                f"The text has {len(tokens)} tokens, less than a window of {options.context}.",
                "Give a longer text, or --context.",
            )
        found = measured(model, tokens, options.context)
    said = {"perplexity": found, "tokens": len(tokens), "context": options.context}
    print(as_json(said) if options.json else f"perplexity {found:.4f} of {len(tokens)} tokens")
    return FINE
