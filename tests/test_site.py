"""The site: every page is gathered, every link leads somewhere, and a built site asks nothing of the network.

`make docs` builds it and sets RLX_TEST_SITE to the folder; without that the gathered pages are looked at.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote

import pytest
from site_questions import QUESTIONS

ROOT = Path(__file__).resolve().parent.parent
SITE = os.environ.get("RLX_TEST_SITE")
built = pytest.mark.skipif(SITE is None, reason="make docs builds the site")


@pytest.fixture(scope="module")
def make_site() -> ModuleType:
    """docs/make_site.py as a module."""
    specification = importlib.util.spec_from_file_location("make_site", ROOT / "docs" / "make_site.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages(make_site: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all gathered pages."""
    folder = tmp_path_factory.mktemp("pages")
    make_site.gather(folder)
    return folder


def test_every_page_is_in_the_navigation(make_site: ModuleType, pages: Path) -> None:
    """All but the pages of functions, which their modules' tables list."""
    listed = re.findall(r"[\w./]+\.md", make_site.configuration(pages).partition("\nnav:\n")[2])
    found = [path.relative_to(pages) for path in pages.rglob("*.md")]
    functions = [path for path in found if path.match("reference/*/*.md")]
    assert sorted(listed) == sorted({path.as_posix() for path in found} - {path.as_posix() for path in functions})
    assert len(listed) > 150 and len(functions) > 1000


def test_every_link_of_a_page_leads_somewhere(make_site: ModuleType, pages: Path) -> None:
    followed = 0
    for page in pages.rglob("*.md"):
        for link in make_site.LINK.finditer(make_site.FENCED.sub("", page.read_text(encoding="utf-8"))):
            followed += 1
            assert (page.parent / link[2]).exists(), f"{page.relative_to(pages)} links to {link[2]}"
    assert followed > 4000


def test_every_public_name_has_its_page(make_site: ModuleType, pages: Path) -> None:
    reference = make_site.site_reference
    for module in reference.public_modules():
        text = (pages / "reference" / f"{module}.md").read_text(encoding="utf-8")
        public = importlib.import_module(module)
        wanted = {n for n in public.__all__ if not isinstance(getattr(public, n), ModuleType)}
        assert set(reference.public_names(module)) == wanted, module
        for name in wanted:
            assert f"{{ #{name} }}" in text, f"{module}.{name}"
            page, _, place = reference.entries()[f"{module}.{name}"].path.partition("#")
            shown = (pages / "reference" / page).read_text(encoding="utf-8")
            assert f"{{ #{place} }}" in shown if place else re.match(r"# rlx[\w.]+\n\n```python\n", shown), page


def test_tables_begin_with_the_names_that_are_used_most(make_site: ModuleType, pages: Path) -> None:
    reference = make_site.site_reference
    assert reference.COMMON.keys() <= set(reference.public_modules())
    for module, names in reference.COMMON.items():
        known = [name for name in names.split() if name in reference.public_names(module)]
        assert known and reference.public_names(module)[: len(known)] == known
        rest = [name.lower() for name in reference.public_names(module)[len(known) :]]
        assert rest == sorted(rest)


def test_signatures_break_between_parameters(make_site: ModuleType) -> None:
    def short(x: Any, /, mode: str = "fill", *, axis: int | None = None) -> Any: ...

    def long(
        function: Callable[[Any, Any], tuple[Any, Any]], carry: dict[str, tuple[int, ...]], *rest: int
    ) -> bool: ...

    assert (
        make_site.site_reference.signature("f", short) == "def f(x, /, mode: str = 'fill', *, axis: int | None = None)"
    )
    assert make_site.site_reference.signature("g", long).split("\n") == [
        "def g(",
        "    function: Callable[[Any, Any], tuple[Any, Any]],",
        "    carry: dict[str, tuple[int, ...]],",
        "    *rest: int,",
        ") -> bool",
    ]


def test_docstrings_become_markdown(make_site: ModuleType) -> None:
    text = "What *it* does.\n\nArgs:\n  x: of any\n    shape.\n\n>>> 1 + 1\n2\n\nRaises <b>."
    found = list(make_site.site_reference.described(text))
    assert found[0] == "What \\*it\\* does."
    assert found[1:3] == ["**Args:**", "* `x`: of any shape."]
    assert found[3:] == ["```pycon\n>>> 1 + 1\n2\n```", "Raises \\<b\\>."]


def test_a_paragraph_of_arguments_becomes_a_list(make_site: ModuleType) -> None:
    found = list(make_site.site_reference.described("Args: x: an array; y, z: numbers; or none.\nReturns: a sum."))
    assert found == ["**Args:**", "* `x`: an array\n* `y, z`: numbers; or none.", "**Returns:** a sum."]


def test_the_picture_of_the_pipeline_names_its_steps(pages: Path) -> None:
    picture = (pages / "architecture.md").read_text(encoding="utf-8")
    assert all(f">{name}</text>" in picture for name in ("hir", "cse", "fuse", "place_temporaries"))
    assert "#777777" not in picture and "currentColor" in picture


def test_the_inspect_page_is_made_and_shown(pages: Path) -> None:
    assert "<html" in (pages / "inspect_page.html").read_text(encoding="utf-8")
    for page in ("index.md", "inspecting.md"):
        assert '<iframe class="rlx-page" src="inspect_page.html"' in (pages / page).read_text(encoding="utf-8")


# ------------------------------------------------------------------ the search
@pytest.fixture(scope="module")
def ranked(make_site: ModuleType, pages: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[str]]:
    """The search of the gathered pages: the pages' addresses without their endings, the best first."""
    script = tmp_path_factory.mktemp("index") / "index.js"
    make_site.site_search.write(make_site.search_index(pages), script)
    data, index = make_site.site_search.read(script)
    return lambda text: [path.removesuffix(".html") for path in make_site.site_search.search(data, index, text)]


def test_first_questions_are_answered(pages: Path, ranked: Callable[[str], list[str]]) -> None:
    """The page with the answer is among the first three results, and contains the answer."""
    wrong = []
    for question in QUESTIONS:
        text = " ".join((pages / f"{question.page}.md").read_text(encoding="utf-8").split())
        if question.page not in ranked(question.search)[:3] or question.phrase not in text:
            wrong.append((question, ranked(question.search)[:5]))
    assert not wrong
    assert sum(not question.text.startswith("...") for question in QUESTIONS) == 41


@pytest.mark.parametrize(
    ("text", "page"),
    [
        ("grad", "reference/rlx/grad"),
        ("jnp.where", "reference/rlx.numpy/where"),
        ("scan()", "reference/rlx.lax/scan"),
        ("tensorboardd", "logging"),  # a letter too many
        ("multiproc", "multiprocessing"),  # the beginning of a word
    ],
)
def test_names_and_parts_of_words_are_found(text: str, page: str, ranked: Callable[[str], list[str]]) -> None:
    assert ranked(text)[0] == page


def test_guides_are_before_the_reference(ranked: Callable[[str], list[str]]) -> None:
    for text in ("random numbers", "control flow", "save parameters", "memory copies"):
        assert not ranked(text)[0].startswith("reference/"), text


def test_words_that_no_page_has_find_nothing(ranked: Callable[[str], list[str]]) -> None:
    assert ranked("qqqqxxxx zzzzqqqq") == []


def test_words_of_a_page_that_does_not_exist_are_refused(make_site: ModuleType) -> None:
    with pytest.raises(ValueError, match="layers.md"):
        make_site.site_search.build({"index.md": "# Home"})


class _Links(HTMLParser):
    """What a page links to, what it loads, and which places it has."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        if known.get("id"):
            self.places.add(str(known["id"]))
        if tag == "a" and known.get("href"):
            self.links.append(str(known["href"]))
        if tag in ("script", "img", "iframe", "source") and known.get("src"):
            self.loads.append(str(known["src"]))
        if tag == "link" and known.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.append(str(known.get("href")))


@pytest.fixture(scope="module")
def site() -> dict[Path, _Links]:
    """Every page of the built site."""
    found = {}
    for path in Path(str(SITE)).resolve().rglob("*.html"):
        found[path] = _Links()
        found[path].feed(path.read_text(encoding="utf-8"))
    return found


@built
def test_every_link_of_the_site_is_followed(site: dict[Path, _Links]) -> None:
    followed = 0
    for path, page in site.items():
        if path.name == "404.html":  # its links are those of a server's root
            continue
        for link in {*page.links, *page.loads}:
            target, _, place = unquote(link).partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            file = (path.parent / target).resolve() if target else path
            assert file.exists(), f"{path} leads to {link}"
            if place and file.suffix == ".html" and not place.startswith("__"):
                assert place in site[file].places, f"{path} leads to {link}"
            followed += 1
    assert followed > 30_000


@built
def test_the_site_asks_nothing_of_the_network(site: dict[Path, _Links]) -> None:
    loads = {load for page in site.values() for load in page.loads}
    assert loads and not [load for load in loads if re.match(r"(https?:)?//", load)]
    scripts = [path for path in Path(str(SITE)).rglob("*.js") if path.parent.name in ("theme", "search")]
    assert len(scripts) == 3


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@built
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: apt-get install chromium)")
def test_the_search_of_a_page_opened_as_a_file_ranks_as_python(ranked: Callable[[str], list[str]]) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-pages")
    root = Path(str(SITE)).resolve()
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        page = browser.new_page()
        page.goto((root / "reference" / "rlx.numpy" / "where.html").as_uri())
        for text in [*(question.search for question in QUESTIONS), "jnp.where", "tensorboardd", "multiproc"]:
            page.fill(".rlx-search input", text)
            page.wait_for_function("text => document.querySelector('.rlx-search').dataset.shown === text", arg=text)
            links = page.eval_on_selector_all(".rlx-search a", "rows => rows.map(row => row.href)")
            found = [link.removeprefix(root.as_uri() + "/").removesuffix(".html") for link in links]
            assert found[:3] == ranked(text)[:3], text
        browser.close()
