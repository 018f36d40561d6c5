"""rlx explain: the meaning of an error and its remedy; docs/errors contains the same pages."""

from __future__ import annotations

import argparse
import inspect
import textwrap

from rlx import errors
from rlx.cli.lessons import LESSONS
from rlx.cli.mistakes import FINE, Mistake
from rlx.cli.output import as_json
from rlx.errors import did_you_mean

__all__ = ["add_options", "explain", "meaning", "page"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `rlx explain`."""
    parser.add_argument("error", nargs="?", help="a class of rlx.errors, like ShapeError; all are listed without one")
    parser.add_argument("--json", action="store_true", help="print JSON")


def explain(options: argparse.Namespace) -> int:
    """Print the page of an error, or the list of errors."""
    if options.error is None:
        meanings = {name: meaning(name) for name in sorted(LESSONS)}
        print(as_json(meanings) if options.json else "\n".join(f"{n:31} {m}" for n, m in meanings.items()))
        return FINE
    name = options.error.rpartition(".")[2]
    if name not in LESSONS:
        raise Mistake(f"rlx.errors has no {name}.", did_you_mean(name, LESSONS) or "rlx explain lists all.")
    print(as_json({"error": name, "page": page(name)}) if options.json else page(name).rstrip())
    return FINE


def page(name: str) -> str:
    """An error's page in Markdown: its meaning, its causes, and code that works.

    >>> from rlx.cli.explain import page
    >>> page("ShapeError").splitlines()[0]
    '# ShapeError'
    """
    error, lesson = getattr(errors, name), LESSONS[name]
    _, _, example = inspect.cleandoc(error.__doc__ or "").partition(">>> ")
    bases = ", ".join(f"`{base.__name__}`" for base in error.__bases__)
    parts = [
        f"# {name}",
        meaning(name),
        _filled(lesson.why),
        f"```pycon\n>>> {example.rstrip()}\n```",
        f"What to write instead:\n\n```python\n{lesson.instead}\n```",
        f"`rlx.errors.{name}` is a subclass of {bases}.",
    ]
    return "\n\n".join(parts) + "\n"


def meaning(name: str) -> str:
    """The first sentence of an error's docstring."""
    return inspect.cleandoc(getattr(errors, name).__doc__ or "").partition("\n")[0]


def _filled(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 110, break_long_words=False, break_on_hyphens=False)
