"""Build the site: python docs/make_site.py [FOLDER]. mkdocs makes it of pages gathered in build/pages, strictly.

Pages are the Markdown of this repository, the notebooks as they were run, the docstrings of every public name, and
pictures made from the code. Nothing is fetched, and the site needs no network.
"""

from __future__ import annotations

import base64
import doctest
import html
import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))
NOTEBOOKS = [
    "first_steps",
    "from_numpy",
    "from_jax",
    "training_loop",
    "compositions",
    "physics",
    "probabilistic",
    "compiler",
    "own_parts",
    "images",
    "language_model",
    "parallel",
]
LINK = re.compile(r"(!?(?<!\\)\[[^\]]*(?<!\\)\])\((?!https?://|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


# ------------------------------------------------------------------ pages of this repository
def sources() -> dict[Path, Path]:
    """Where each Markdown file and notebook of the repository is in the site."""
    found = {ROOT / "README.md": Path("index.md"), ROOT / "CHANGELOG.md": Path("changelog.md")}
    found[ROOT / "CONTRIBUTING.md"] = Path("contributing.md")
    found |= {path: path.relative_to(ROOT / "docs") for path in sorted((ROOT / "docs").rglob("*.md"))}
    return found | {ROOT / "notebooks" / f"{name}.ipynb": Path("tutorials") / f"{name}.md" for name in NOTEBOOKS}


def relinked(text: str, source: Path, target: Path, extra: dict[Path, Path]) -> str:
    """The links of a file as they are from its place in the site; files that are no pages are copied: see `extra`."""
    places = sources()

    def moved(link: re.Match[str]) -> str:
        to = (source.parent / link[2]).resolve()
        place = places.get(to)
        if place is None and to.is_file():
            place = extra.setdefault(to, Path("files") / to.relative_to(ROOT))
        if place is None:
            return link[0]
        return f"{link[1]}({os.path.relpath(place, target.parent)}{link[3] or ''})".replace(os.sep, "/")

    return "".join(part if part.startswith("```") else LINK.sub(moved, part) for part in FENCED.split(text))


def notebook_page(path: Path, folder: Path) -> str:
    """A notebook as Markdown: its text, its code, and what the code printed and drew; pictures go into the folder."""
    parts = []
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for count, output in enumerate(cell["outputs"]):
            parts.append(shown_output(output, folder / f"{path.stem}-{number}-{count}.png"))
    back = f"[This notebook](../files/notebooks/{path.name}) can be run."
    return "\n\n".join([*filter(None, parts), back]) + "\n"


def shown_output(output: dict[str, Any], picture: Path) -> str:
    """One output of a cell: a picture, a page of its own, or text."""
    data = output.get("data", {})
    if "image/png" in data:
        picture.parent.mkdir(parents=True, exist_ok=True)
        picture.write_bytes(base64.b64decode("".join(data["image/png"])))
        return f"![what the cell draws]({picture.name})"
    text = "".join(output.get("text", [])) or "".join(data.get("text/plain", []))
    return f"```text\n{text.rstrip()}\n```" if text.strip() else ""


# ------------------------------------------------------------------ reference
def public_modules() -> list[str]:
    """The modules whose names tests/test_docstrings.py asks an example of: one page each."""
    text = (ROOT / "tests" / "test_docstrings.py").read_text(encoding="utf-8")
    return re.findall(r'^    "(rlx[\w.]*)",$', text, re.MULTILINE)


def reference_page(name: str) -> str:
    """Signatures and docstrings of the public names of a module."""
    module = importlib.import_module(name)
    summary = inspect.getdoc(module) or ""
    parts = [f"# {name}", escaped(summary.partition("\n\n")[0])]
    for public in sorted(module.__all__, key=str.lower):
        value = getattr(module, public)
        if inspect.ismodule(value):
            continue
        parts += entry(public, value)
    return "\n\n".join(parts) + "\n"


def entry(name: str, value: Any) -> Iterator[str]:
    """The part of a page about one name."""
    yield f"## {name} {{ #{name} }}"
    text = inspect.getdoc(value) if callable(value) else None
    yield f"```python\n{signature(name, value)}\n```"
    yield from described(text or "")


def signature(name: str, value: Any) -> str:
    """How a name is called; its value if it is none that is."""
    if not callable(value):
        return f"{name} = {value!r}" if isinstance(value, (int, float, str, tuple)) else name
    try:
        found = str(inspect.signature(value))
    except (TypeError, ValueError):
        found = "(...)"
    found = re.sub(r"<([\w.]+)[^<>]* at 0x[0-9a-f]+>", r"<\1>", found).replace("'", "")
    head = f"class {name}" if isinstance(value, type) else f"def {name}"
    return head + (found if len(found) < 100 else found.replace(", ", ",\n    "))


def described(text: str) -> Iterator[str]:
    """A docstring as Markdown: prose, arguments as a list, examples as blocks."""
    examples = {e.lineno: e for e in doctest.DocTestParser().get_examples(text)}
    if not examples:
        yield from prose(text)
        return
    lines = text.split("\n")
    first = min(examples)
    yield from prose("\n".join(lines[:first]))
    for block in re.split(r"\n[ \t]*\n(?=[^>\s])", "\n".join(lines[first:])):
        if block.lstrip().startswith(">>>"):
            yield f"```pycon\n{block.strip()}\n```"
        else:
            yield from prose(block)


def prose(text: str) -> Iterator[str]:
    """Paragraphs; a list of arguments becomes a list."""
    for paragraph in filter(None, (p.strip("\n") for p in re.split(r"\n\s*\n", text))):
        lines = paragraph.split("\n")
        if lines[0].rstrip().endswith(":") and len(lines) > 1 and lines[1].startswith("  "):
            yield f"**{escaped(lines[0].strip())}**"
            joined = re.sub(r"\n\s{4,}", " ", "\n".join(lines[1:]))
            yield "\n".join(argument(line.strip()) for line in joined.split("\n"))
        else:
            yield escaped(" ".join(line.strip() for line in lines))


def argument(line: str) -> str:
    """`name: what` as an item of a list."""
    name, colon, what = line.partition(": ")
    return f"* `{name}`: {escaped(what)}" if colon and re.fullmatch(r"[\w*., ]+", name) else f"* {escaped(line)}"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, but for code in backquotes."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([*_\[\]<>#\\])", r"\\\1", p) for p in parts)


# ------------------------------------------------------------------ pictures made from the code
def pipeline_picture() -> str:
    """The steps of the compiler as SVG, from what rlx.inspect says of a small function."""
    import rlx
    import rlx.numpy as jnp

    def function(x: Any) -> Any:
        centred = x - x.mean(axis=1, keepdims=True)
        return centred / jnp.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-6)

    found = rlx.inspect(rlx.grad(lambda x: function(x).sum()))(jnp.ones((64, 32)))
    width, step = 760, 26
    rows = []
    for number, stage in enumerate(found.stages):
        count = stage.text.count("\n")
        kind = type(stage.form).__name__
        colour = {"Program": "#4e79a7", "Nests": "#59a14f", "Plan": "#f28e2b"}.get(kind, "#9c755f")
        y = 10 + number * step
        rows.append(
            f'<rect x="10" y="{y}" width="200" height="20" rx="3" fill="{colour}"/>'
            f'<text x="110" y="{y + 14}" text-anchor="middle" fill="white">{html.escape(stage.name)}</text>'
            f'<rect x="220" y="{y + 4}" width="{min(count * 8, 440)}" height="12" fill="{colour}" opacity="0.35"/>'
            f'<text x="{226 + min(count * 8, 440)}" y="{y + 14}" fill="#888">{kind}, {count} lines</text>'
        )
    height = 20 + step * len(found.stages)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        + ' font-family="sans-serif" font-size="12">'
        + "".join(rows)
        + "</svg>\n"
    )


PICTURES: dict[str, Callable[[], str]] = {"pipeline.svg": pipeline_picture}


# ------------------------------------------------------------------ all of it
def gather(folder: Path) -> None:
    """Write every page of the site as Markdown, with the files that they show."""
    shutil.rmtree(folder, ignore_errors=True)
    files = Path("files/notebooks")
    extra = {ROOT / "notebooks" / f"{name}.ipynb": files / f"{name}.ipynb" for name in NOTEBOOKS}
    pages: dict[Path, str] = {}
    for source, target in sources().items():
        if source.suffix == ".ipynb":
            pages[target] = notebook_page(source, folder / target.parent)
        else:
            pages[target] = relinked(source.read_text(encoding="utf-8"), source, target, extra)
    pages[Path("architecture.md")] += "\n## The steps of the compiler, by the code itself\n\n![steps](pipeline.svg)\n"
    modules = public_modules()
    for name in modules:
        pages[Path("reference") / f"{name}.md"] = reference_page(name)
    rows = [f"| [{n}]({n}.md) | {len(importlib.import_module(n).__all__)} names |" for n in modules]
    pages[Path("reference/index.md")] = "\n".join(["# Reference", "", "| module | |", "| --- | --- |", *rows, ""])
    for target, text in pages.items():
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        (folder / target).write_text(text, encoding="utf-8")
    for source, target in extra.items():
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, folder / target)
    for name, picture in PICTURES.items():
        (folder / name).write_text(picture(), encoding="utf-8")


def configuration(pages: Path) -> str:
    """mkdocs.yml with the pages that are made: those of errors, and those of the reference."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for mark, folder in (("ERRORS", "errors"), ("REFERENCE", "reference")):
        names = sorted(path.stem for path in (pages / folder).glob("*.md") if path.stem != "index")
        rows = [f"{folder}/index.md", *(f"{name}: {folder}/{name}.md" for name in names)]
        text = text.replace(f" {mark}\n", "\n" + "".join(f"      - {row}\n" for row in rows))
    return text


def main(folder: str = "build/site") -> None:
    """Gather the pages and build the site, where a warning is an error."""
    build = ROOT / "build"
    gather(build / "pages")
    (build / "mkdocs.yml").write_text(configuration(build / "pages"), encoding="utf-8")
    command = ["build", "--strict", "--config-file", "build/mkdocs.yml", "--site-dir", str(Path(folder).resolve())]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    subprocess.run([sys.executable, "-m", "mkdocs", *command], cwd=ROOT, check=True, env=quiet)
    print(f"the site is in {folder}")


if __name__ == "__main__":
    main(*sys.argv[1:])
