"""The command line: commands, options and error output."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import rlx
from rlx.cli.mistakes import FINE, Mistake
from rlx.cli.output import as_json
from rlx.errors import did_you_mean

__all__ = ["main"]

INTERRUPTED = 130


# command -> description; rlx.cli.NAME defines its options and a function of the same name
COMMANDS = {
    "info": "versions and settings, to paste into a report",
    "doctor": "check that everything works, and suggest remedies",
    "inspect": "show how a function is compiled",
    "bench": "measure a function, alone or against other libraries",
    "explain": "explain an error and its remedy",
    "export": "save a function as a file that runs without its source",
    "generate": "generate text with a language model",
    "quantize": "pack a language model into a GGUF file",
    "perplexity": "measure how well a language model predicts a text",
    "gguf": "show the contents of a GGUF file",
    "splat": "train a scene of Gaussian splats, or show one",
    "launch": "run a program as several processes that compute together",
    "calibrate": "measure the costs of devices, for the choice of one",
    "cache": "the files that rlx keeps: ls, size, clear",
}
_EPILOG = "Exit codes: 0 fine, 1 a check or a comparison failed, 2 wrong usage."


class _Parser(argparse.ArgumentParser):
    """A parser whose mistakes are ours."""

    def error(self, message: str) -> NoReturn:
        raise Mistake(f"{self.prog}: {message}.", f"{self.prog} --help lists the options.")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; -> 0 (fine), 1 (a check or a comparison failed) or 2 (wrong usage).

    >>> main(["inspct"])
    2
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except Mistake as mistake:
        if "--json" in words:
            print(as_json({"error": mistake.what, "instead": mistake.instead}))
        else:
            print(f"rlx: {mistake}", file=sys.stderr)
        return mistake.code
    except BrokenPipeError:  # who reads, `head` say, has read enough
        with contextlib.suppress(OSError, ValueError, io.UnsupportedOperation):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINE
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(words: list[str]) -> int:
    parser = _Parser("rlx", description="rlx on the command line.", epilog=_EPILOG, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"rlx {rlx.__version__}")
    parts = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    known = {}
    for name, words_of in COMMANDS.items():
        described = f"{words_of[0].upper()}{words_of[1:]}."
        known[name] = parts.add_parser(name, help=words_of, description=described, epilog=_EPILOG, allow_abbrev=False)
    named = next((word for word in words if not word.startswith("-")), None)
    if named is None and not words:
        parser.print_help()
        return FINE
    if named is not None and named not in COMMANDS:
        raise Mistake(f"There is no command {named}.", did_you_mean(named, COMMANDS) or _there_are(COMMANDS))
    module = _module(named) if named is not None else None
    if named is not None and module is not None:
        module.add_options(known[named])
    try:
        options, rest = parser.parse_known_args(words)
    except SystemExit as end:  # --help and --version have printed
        return int(end.code or FINE)
    if rest:
        there = set(re.findall(r"--[\w-]+", (known[named] if named else parser).format_help()))
        what = "option" if rest[0].startswith("-") else "place for"
        said = f"{known[named].prog if named else parser.prog} has no {what} {rest[0]}."
        raise Mistake(said, did_you_mean(rest[0], there) or _there_are(there))
    if options.command is None:
        raise Mistake("No command is named.", _there_are(COMMANDS))
    return getattr(module, options.command)(options)


def _module(command: str) -> Any:
    """The module of a command, the only one that is loaded."""
    try:
        return importlib.import_module(f"rlx.cli.{command}")
    except ValueError as error:  # a setting that the backend refuses when it is loaded
        raise Mistake(f"{error}.") from None


def _there_are(names: Iterable[str]) -> str:
    return f"There are: {', '.join(sorted(names))}."
