"""Documentation that runs: Python blocks of the Markdown files, doctests of the package, the table of settings."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import importlib.util
import io
import json
import linecache
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from rlx import backends
from rlx.trace.primitive import registry

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")]
DOCUMENTS = sorted([*PAGES, *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# outlines of a class, not code that runs
EXPLANATIONS: set[tuple[str, str]] = {("internals.md", "class Primitive:")}
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
    run_blocks(document)


def uses_several_devices(document: Path) -> bool:
    """Whether a block is about several devices, and so has to run on one and on more."""
    return any(re.search(r"\b(shard_map|pmap|Mesh|make_mesh|device_put)\(", source) for _, source in blocks(document))


@pytest.mark.parametrize("count", [4])
def test_blocks_about_several_devices_run_on_several(count: int) -> None:
    """In one process of their own: the number of devices is read when rlx is imported."""
    environment = {**os.environ, "RLX_NUM_CPU_DEVICES": str(count)}
    command = [sys.executable, "-m", "tests.test_documents"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert {"ecosystem.md", "sharding.md", "distributed.md", "parallel.md"} <= found.keys()
    failed = {name: text for name, text in found.items() if text}
    assert not failed, "\n".join(f"{name}:\n{text}" for name, text in failed.items())


def failure(document: Path) -> str:
    """What went wrong with the blocks of a document, or nothing."""
    try:
        run_blocks(document)
    except pytest.skip.Exception:
        return ""
    except Exception:
        return traceback.format_exc()[-2000:]
    return ""


def run_blocks(document: Path) -> None:
    """Run the blocks of a document; skip the test where one needs what is not installed."""
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
    """docs/settings.md names every environment variable that rlx reads, and no other."""
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "rlx").rglob("*.py"))
    read = set(re.findall(r"""(?:environ\.get|environ|_flag|seconds_of)[(\[]\s*["'](RLX_\w+)""", sources))
    settings = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    table = set(re.findall(r"^\| `(RLX_\w+)`", settings, re.MULTILINE))
    assert table == read


def test_the_source_tree_is_up_to_date() -> None:
    """The page lists the packages and primitives that there are."""
    path = ROOT / "docs" / "make_source_tree.py"
    specification = importlib.util.spec_from_file_location("make_source_tree", path)
    assert specification is not None and specification.loader is not None
    generator = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(generator)
    assert generator.TARGET.read_text(encoding="utf-8") == generator.page(), "run python docs/make_source_tree.py"


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


if __name__ == "__main__":
    about_devices = [document for document in DOCUMENTS if uses_several_devices(document)]
    print(json.dumps({document.name: failure(document) for document in about_devices}))
