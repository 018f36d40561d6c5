"""Documentation that runs: Python blocks of the Markdown files, doctests of the package, the table of settings."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import importlib.util
import io
import linecache
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from rlx import backends
from rlx.trace.primitive import registry

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# outlines of a class, not code that runs
EXPLANATIONS: set[tuple[str, str]] = {("architecture.md", "class Primitive:")}
# packages of the extras for accelerators: their modules are tested where they are installed
OPTIONAL = {"cupy", "mlx"}


def blocks(document: Path) -> Iterator[tuple[int, str]]:
    """(line number, source) of every Python block of a Markdown file."""
    text = document.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        source = found.group(1)
        if (document.name, source.splitlines()[0]) not in EXPLANATIONS:
            yield text.count("\n", 0, found.start(1)), source


@pytest.fixture
def own_primitives() -> Iterator[None]:
    """Primitives that a document defines are gone afterwards."""
    known = set(backends._BACKENDS)
    yield
    for name, found in list(registry.items()):
        if type(found).__module__.startswith("blocks_of_"):
            del registry[name]
    for name in set(backends._BACKENDS) - known:
        del backends._BACKENDS[name]
        backends._loaded.pop(name, None)


@pytest.mark.usefixtures("own_primitives")
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_python_blocks_run(document: Path) -> None:
    """Blocks of one file share a namespace, and assert their own results."""
    module = ModuleType(f"blocks_of_{document.stem}")
    missing = sorted(package for package in OPTIONAL if importlib.util.find_spec(package) is None)
    for line, source in blocks(document):
        name = f"<{document.name}:{line + 1}>"
        text = "\n" * line + source
        # so that error messages and origins show the document's lines
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        if any(re.search(rf"^(import|from) {package}\b", source, re.MULTILINE) for package in missing):
            pytest.skip(f"a block imports {', '.join(missing)}, not all of which are installed")
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(text, name, "exec"), module.__dict__)


def test_readme_and_contributing_hold_code() -> None:
    """The blocks are found: a change of the fence does not switch the test off."""
    assert len(list(blocks(ROOT / "README.md"))) >= 5
    assert len(list(blocks(ROOT / "CONTRIBUTING.md"))) == 4


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    """Relative links name files that exist."""
    prose = FENCE.sub("", document.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)[^)]*\)", prose):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_settings_are_those_of_the_code() -> None:
    """The README's table names every environment variable that rlx reads, and no other."""
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "rlx").rglob("*.py"))
    read = set(re.findall(r"""(?:environ\.get|environ|_flag)[(\[]\s*["'](RLX_\w+)""", sources))
    table = set(re.findall(r"^\| `(RLX_\w+)`", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert table == read


def modules() -> list[str]:
    """Every module of the package by its file, so that one that does not import fails its own test only."""
    package = ROOT / "rlx"
    parts = [path.relative_to(ROOT).with_suffix("").parts for path in package.rglob("*.py")]
    return sorted(".".join(p[:-1] if p[-1] == "__init__" else p) for p in parts if p[-1] != "__main__")


@pytest.mark.parametrize("name", modules())
def test_doctests(name: str) -> None:
    """Examples in docstrings give what they say."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in OPTIONAL:
            pytest.skip(f"{error.name} is not installed")
        raise
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        # a module's `from __future__ import annotations` is not the user's
        test.globs.pop("annotations", None)
        runner.run(test)
    assert runner.failures == 0, f"{runner.failures} of {runner.tries} examples in {name} fail (see the output)"
