"""Build the site: python docs/make_site.py [FOLDER]. mkdocs makes it of pages gathered in build/pages, strictly.

Pages are the Markdown of this repository, the notebooks as they were run, the docstrings of every public name, and
pictures made from the code. Nothing is fetched, and the site needs no network.
"""

from __future__ import annotations

import base64
import html
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [place for place in (str(ROOT / "docs"), str(ROOT)) if place not in sys.path]

import site_example  # noqa: E402
import site_reference  # noqa: E402
import site_search  # noqa: E402

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
    "sparse",
]
LINK = re.compile(r"(!?(?<!\\)\[[^\]]*(?<!\\)\])\((?!https?://|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


# ------------------------------------------------------------------ pages of this repository
def sources() -> dict[Path, Path]:
    """Where each Markdown file and notebook of the repository is in the site."""
    names = ("CHANGELOG", "CODE_OF_CONDUCT", "CONTRIBUTING", "SECURITY")
    found = {ROOT / "README.md": Path("overview.md")} | {
        ROOT / f"{name}.md": Path(f"{name.lower()}.md") for name in names
    }
    found |= {path: path.relative_to(ROOT / "docs") for path in sorted((ROOT / "docs").rglob("*.md"))}
    found[ROOT / "docs" / "home.md"] = Path("index.md")
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
            kind = "photograph" if "imshow" in source else "plot"
            parts.append(shown_output(output, folder / f"{path.stem}-{number}-{count}.png", kind))
    back = f"[This notebook](../files/notebooks/{path.name}) can be run."
    return "\n\n".join([*filter(None, parts), back]) + "\n"


def shown_output(output: dict[str, Any], picture: Path, kind: str) -> str:
    """One output of a cell: a picture, or text. A dark page inverts the brightness of a plot, not of a photograph."""
    data = output.get("data", {})
    if "image/png" in data:
        picture.parent.mkdir(parents=True, exist_ok=True)
        picture.write_bytes(base64.b64decode("".join(data["image/png"])))
        return f"![The output of the cell]({picture.name}){{ .rlx-{kind} }}"
    text = "".join(output.get("text", [])) or "".join(data.get("text/plain", []))
    return f"```text\n{text.rstrip()}\n```" if text.strip() else ""


# ------------------------------------------------------------------ pictures made from the code
def pipeline_picture(target: Path) -> None:
    """The steps of the compiler as SVG, from the stages that rlx.inspect shows of a small function."""
    import rlx
    import rlx.numpy as jnp

    found = rlx.inspect(rlx.grad(lambda x: site_example.normalise(x).sum()))(jnp.ones((64, 32)))
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
            f'<text x="{226 + min(count * 8, 440)}" y="{y + 14}" fill="#777777">{kind}, {count} lines</text>'
        )
    height = 20 + step * len(found.stages)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
    head += ' font-family="sans-serif" font-size="12">'
    target.write_text(head + "".join(rows) + "</svg>\n", encoding="utf-8")


def inspect_page(target: Path) -> None:
    """The interactive page of rlx.inspect for the gradient of a small network."""
    import rlx
    import rlx.numpy as jnp

    weights = {"1": jnp.ones((32, 16)), "2": jnp.ones((16, 1))}
    rlx.inspect(rlx.grad(site_example.loss))(weights, jnp.ones((64, 32)), jnp.ones((64, 1))).save(target)


# pages without columns at their sides
WIDE = {Path("index.md"), Path("inspecting.md")}
# parts of pages that only the site has
MARKS = {
    "<!-- site: the inspect page -->": (
        '<iframe class="rlx-page" src="inspect_page.html" loading="lazy" title="The page of rlx.inspect"></iframe>'
        "\n\n[The page alone](inspect_page.html)"
    ),
    "- **Reference**": "- **[Reference](reference/index.md)**",
}
MADE: dict[str, Callable[[Path], None]] = {"pipeline.svg": pipeline_picture, "inspect_page.html": inspect_page}


def drawn(text: str, folder: Path) -> str:
    """A page whose SVG pictures are part of it, so that their grey text takes the colour of the page's text."""

    def inlined(link: re.Match[str]) -> str:
        picture = (folder / link[2]).read_text(encoding="utf-8")
        picture = re.sub(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>|<!--.*?-->", "", picture, flags=re.S)
        picture = re.sub(r"\s*\n\s*", " ", picture.replace("#777777", "currentColor")).strip()
        return f'<figure class="rlx-picture" role="img" aria-label="{html.escape(link[1])}">{picture}</figure>'

    for mark, part in MARKS.items():
        text = text.replace(mark, part)
    return re.sub(r"^!\[([^\]]*)\]\(([^)\s]+\.svg)\)$", inlined, text, flags=re.MULTILINE)


# ------------------------------------------------------------------ all of it
def gather(folder: Path) -> None:
    """Write every page of the site as Markdown, with the files that they show."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    extra = {ROOT / "notebooks" / f"{name}.ipynb": Path("files/notebooks") / f"{name}.ipynb" for name in NOTEBOOKS}
    pages: dict[Path, str] = {}
    for source, target in sources().items():
        if source.suffix == ".ipynb":
            pages[target] = notebook_page(source, folder / target.parent)
        else:
            pages[target] = relinked(source.read_text(encoding="utf-8"), source, target, extra)
    pages[Path("architecture.md")] += (
        "\n## The steps of the compiler\n\nThe stages of a small gradient, from the compiler itself:\n"
        "\n![The steps of the compiler](pipeline.svg)\n"
    )
    pages |= {Path("reference") / path: text for path, text in site_reference.reference_pages().items()}
    for source, target in extra.items():
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, folder / target)
    for name, make in MADE.items():
        make(folder / name)
    shutil.copytree(ROOT / "docs" / "theme", folder / "theme")
    library = importlib.util.find_spec("lunr")  # the index is lunr's; mkdocs ships the JavaScript that reads it
    if library and (mkdocs := importlib.util.find_spec("mkdocs")) and mkdocs.origin:
        script = Path(mkdocs.origin).parent / "contrib" / "search" / "templates" / "search" / "lunr.js"
        shutil.copy(script, folder / "theme" / "lunr.js")
    for target in WIDE:
        pages[target] = f"---\nhide: [navigation, toc]\n---\n\n{pages[target]}"
    for target, text in pages.items():
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        (folder / target).write_text(drawn(text, (folder / target).parent), encoding="utf-8")


def listed(pages: Path) -> list[Path]:
    """The paths of the pages: guides first, then the reference with its modules in the order of the navigation."""
    modules = site_reference.public_modules()

    def place(path: Path) -> tuple[bool, int, str]:
        name = path.parts[1] if path.parts[0] == "reference" and len(path.parts) > 1 else ""
        module = name.removesuffix(".md")
        return path.parts[0] == "reference", modules.index(module) if module in modules else -1, path.as_posix()

    return sorted((path.relative_to(pages) for path in pages.rglob("*.md")), key=place)


def search_index(pages: Path) -> dict[str, Any]:
    """The index of the gathered pages."""
    return site_search.build({path.as_posix(): (pages / path).read_text(encoding="utf-8") for path in listed(pages)})


def configuration(pages: Path) -> str:
    """mkdocs.yml with the pages that are made: those of errors, and those of the reference."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    errors = sorted(path.stem for path in (pages / "errors").glob("*.md") if path.stem != "index")
    rows = ["- errors/index.md", *(f"- {name}: errors/{name}.md" for name in errors)]
    text = with_rows(text, "ERRORS", rows)
    rows = ["- reference/index.md"]
    for title, names in site_reference.groups().items():
        rows += [f"- {title}:", *(f"    - {name}: reference/{name}.md" for name in names)]
    return with_rows(text, "REFERENCE", rows)


def with_rows(text: str, mark: str, rows: list[str]) -> str:
    """The navigation with rows in the place of a mark, further in than the mark's line."""

    def written(line: re.Match[str]) -> str:
        return f"{line[1]}{line[2]}\n" + "".join(f"{line[1]}    {row}\n" for row in rows)

    return re.sub(rf"^( *)(- [^\n]*:) {mark}\n", written, text, flags=re.MULTILINE)


def main(folder: str = "build/site") -> None:
    """Gather the pages, build the site, where a warning is an error, and write the index of its search."""
    build, target = ROOT / "build", Path(folder).resolve()
    gather(build / "pages")
    (build / "mkdocs.yml").write_text(configuration(build / "pages"), encoding="utf-8")
    command = ["build", "--strict", "--quiet", "--config-file", "build/mkdocs.yml", "--site-dir", str(target)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    subprocess.run([sys.executable, "-m", "mkdocs", *command], cwd=ROOT, check=True, env=quiet)
    site_search.write(search_index(build / "pages"), target / "search" / "index.js")
    print(f"the site is in {folder}")


if __name__ == "__main__":
    main(*sys.argv[1:])
