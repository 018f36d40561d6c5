#!/usr/bin/env python3
"""Counts constructions that read like a translation, in everything that people read, and fails above the target.

Each pattern below is correct English somewhere, so the target is a rate and not zero: JAX's documentation has about one
per thousand words by the same count. `--list` shows every occurrence, `--list PATH...` those in some files.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# what the pattern is called -> how it is found (case is ignored) ; the remedy is in CONTRIBUTING.md, section "English"
PATTERNS = {
    "headless what": r"\bwhat\b(?! to\b| happen| went\b| you\b| kind| if\b)(?![^.!;:]*\?)",
    "is no": r"(?<!there )\b(?:is|are|was|were|be|been|being) no (?!(?:longer|more|less|fewer|different|better)\b)",
    "those of": r"\b(?:those|that) of\b|\bof (?:which|whom)\b|\bof such\b",
    "nobody": r"\b(?:nobody|somebody|anybody|everybody|whoever|whatever)\b",
    "lies, stands": r"\b(?:lies|lie|lay|lain|lying|stands|stood)\b(?! for\b)|\bstand\b(?! for\b|-in\b|-alone\b)",
    "so many": r"\bso (?:many|much)\b(?! (?:\w+ )?(?:that|faster|slower)\b)|\bas (?:many|much)\b(?! (?:\S+ ){0,3}as\b)",
    "too": r", too(?=[.,;:)]|$)",
    "by itself": r"\b(?:by|of) (?:itself|themselves)\b",
    "comes, goes": r"\b(?:comes|goes|came|gone|went)\b(?! (?:from|with|wrong)\b)|\b(?:falls|fall) away\b",
    "of it": r"(?<!all )(?<!one )(?<!most )(?<!half )(?<!some )(?<!each )(?<!any )(?<!none )(?<!trees )(?<!tree )\bof (?:it|them)\b",
    "beside, apart": r"\b(?:beside|apart)\b(?! from)",
}
# private words for things that the field has names for
WORDS = {
    r"\bkin\b": "related",
    r"\bthe house\b": "the code base",
    r"\bhouse rules?\b": "project rules",
    r"\brooms?\b(?! temperature)": "package, space",
    r"\bin (?:its |their )?turns?\b": "in order, one after another",
    r"\b(?:each|every|this|last|first|next|of a) turns?\b": "iteration",
    r"\b(?:stored|same) places?\b|\bplaces of (?:the )?elements\b": "positions, stored elements",
    r"\bshares of (?:attention|a row)\b": "attention weights",
    r"\bbehind (?:it|them|the|a)\b": "after",
    r"\bhanded over\b|\bhands? over\b": "passed",
    r"\bto the last bit\b": "bit for bit",
    r"\bbe it\b": "whether",
    r"\bin the manner of\b": "like",
    r"\bof its own\b|\bof their own\b": "its own",
    r"\bspell(?:s|ed|ing)?\b(?!-check)": "print, write",
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# the same in texts on kernels only
KERNEL_WORDS = {r"(?<![\w-])items?\b": "work-item"}
KERNEL_TEXTS = (*(f"rlx/backends/{name}" for name in ("gpu", "opencl", "cuda", "rocm")), "rlx/code", "docs/gpu")
COUNTED = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in PATTERNS.items()}
PRIVATE, OF_KERNELS = (
    {re.compile(pattern, re.IGNORECASE): better for pattern, better in words.items()} for words in (WORDS, KERNEL_WORDS)
)


@dataclass(frozen=True)
class Text:
    """A piece of prose, and where it begins."""

    path: Path
    line: int
    prose: str


def markdown(path: Path, text: str, line: int = 1) -> Iterator[Text]:
    """The paragraphs of a Markdown text: without code, links' targets and tables' rules."""
    text = re.sub(r"^(```|~~~).*?^\1\s*$", lambda found: "\n" * found[0].count("\n"), text, flags=re.M | re.S)
    text = re.sub(r"^    .*$", "", text, flags=re.M)
    text = re.sub(r"`[^`\n]+`", "CODE", text)
    text = re.sub(r'"[^"\n]{1,60}"', "QUOTE", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    for found in re.finditer(r"(?:^.*\S.*\n?)+", text, flags=re.M):
        yield Text(path, line + text.count("\n", 0, found.start()), found[0])


@lru_cache(maxsize=1)
def nodes(source: str) -> tuple[ast.AST, ...]:
    """All nodes of a Python text. Each kind of prose asks for those of the same file."""
    return tuple(ast.walk(ast.parse(source)))


def notebook(path: Path) -> Iterator[Text]:
    """Markdown cells, and the comments and docstrings of code cells."""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield from markdown(path, source)
        elif cell["cell_type"] == "code":
            for kind in (docstrings, comments):
                yield from kind(path, source)


def docstrings(path: Path, source: str) -> Iterator[Text]:
    """Docstrings, without the examples in them."""
    try:
        found = nodes(source)
    except SyntaxError:
        return
    for node in found:
        if isinstance(node, DOCUMENTED):
            text = ast.get_docstring(node, clean=False)
            if text:
                text = re.sub(r"^\s*(>>>|\.\.\.).*(?:\n(?!\s*\n).*)*", "", text, flags=re.M)
                yield Text(path, node.body[0].lineno, re.sub(r"`[^`\n]+`", "CODE", text))


def comments(path: Path, source: str) -> Iterator[Text]:
    """Comments; neighbouring lines are one text."""
    block: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not re.match(r"#\s*(?:type:|noqa|ruff:|ty:|pragma|!)", token.string):
            if block and token.start[0] != last + 1:
                yield Text(path, first, "\n".join(block))
                block = []
            if not block:
                first = token.start[0]
            block.append(token.string.lstrip("# "))
            last = token.start[0]
    if block:
        yield Text(path, first, "\n".join(block))


def messages(path: Path, source: str) -> Iterator[Text]:
    """String constants that are sentences: errors, help, reports. Placeholders of f-strings become one word."""
    found = nodes(source)
    documentation = {
        id(node.body[0].value)
        for node in found
        if isinstance(node, DOCUMENTED) and node.body and isinstance(node.body[0], ast.Expr)
    }
    joined = [node for node in found if isinstance(node, ast.JoinedStr)]
    inside = {id(part) for node in joined for part in ast.walk(node)} - {id(node) for node in joined}
    for node in found:
        if id(node) in documentation or id(node) in inside:
            continue
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "VALUE" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        words = text.split()
        plain = sum(1 for word in words if re.fullmatch(r"[\"'(]*[A-Za-z][A-Za-z'-]*[.,;:!?)\"']*", word))
        if len(words) >= 4 and plain >= 0.7 * len(words) and ";\n" not in text:
            yield Text(path, node.lineno, re.sub(r"`[^`\n]+`", "CODE", text))


def python() -> dict[str, list[Text]]:
    """Each kind of text -> those in all of the package and the examples."""
    readers = {"docstrings": docstrings, "messages": messages, "comments": comments}
    texts: dict[str, list[Text]] = {kind: [] for kind in readers}
    for path in sorted([*(ROOT / "rlx").rglob("*.py"), *(ROOT / "examples").glob("*.py")]):
        source = path.read_text(encoding="utf-8")
        for kind, reader in readers.items():
            texts[kind].extend(reader(path, source))
    return texts


def pages(*names: str) -> Iterator[Text]:
    """Markdown files by name, relative to the root."""
    for name in names:
        yield from markdown(ROOT / name, (ROOT / name).read_text(encoding="utf-8"))


def kinds() -> dict[str, tuple[float, list[Text]]]:
    """Each kind of text -> (the most constructions per thousand words, the texts)."""
    documents = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))
    reference = {"docs/decisions.md", "docs/seed_names.md", "docs/architecture.md", "docs/coverage.md"}
    guides = ["README.md", *(name for name in documents if name not in reference)]
    others = ["CONTRIBUTING.md", "CHANGELOG.md", *sorted(reference & set(documents))]
    return {
        "README and guides": (1.5, list(pages(*guides))),
        "other documents": (2.5, list(pages(*others))),
        "notebooks": (2.5, [text for path in sorted((ROOT / "notebooks").glob("*.ipynb")) for text in notebook(path)]),
        **{kind: (2.5, texts) for kind, texts in python().items()},
    }


def found_in(text: Text) -> Iterator[tuple[str, int, str]]:
    """(pattern, line, the words around it) of every construction in a text."""
    named = [(name, pattern) for name, pattern in COUNTED.items()]
    private = {**PRIVATE, **OF_KERNELS} if str(text.path.relative_to(ROOT)).startswith(KERNEL_TEXTS) else PRIVATE
    named += [(f"private word ({better})", pattern) for pattern, better in private.items()]
    for name, pattern in named:
        for match in pattern.finditer(text.prose):
            around = text.prose[max(0, match.start() - 40) : match.end() + 40].replace("\n", " ")
            yield name, text.line + text.prose.count("\n", 0, match.start()), around


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", nargs="*", metavar="PATH", help="show every occurrence (in these files)")
    chosen = parser.parse_args()
    failed = False
    print(f"{'':20}{'words':>9}{'found':>7}{'per 1000':>10}{'at most':>9}")
    for kind, (most, texts) in kinds().items():
        words = sum(len(text.prose.split()) for text in texts)
        found = [(text, *hit) for text in texts for hit in found_in(text)]
        rate = 1000 * len(found) / max(words, 1)
        failed |= rate > most
        print(f"{kind:20}{words:9}{len(found):7}{rate:10.2f}{most:9}{'  too many' if rate > most else ''}")
        if chosen.list is not None:
            wanted = [(ROOT / name).resolve() for name in chosen.list]
            for text, name, line, around in found:
                if not wanted or any(text.path == path or path in text.path.parents for path in wanted):
                    print(f"  {text.path.relative_to(ROOT)}:{line}: {name}: ...{around}...")
            counts = Counter(name for _, name, *_ in found).most_common()
            print("   ", ", ".join(f"{name} {count}" for name, count in counts))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
