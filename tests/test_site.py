"""The site: every page is gathered, every link leads somewhere, and a built site asks nothing of the network.

`make docs` builds it and sets RLX_TEST_SITE to the folder; without that the gathered pages are looked at.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import pytest

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
    listed = re.findall(r"[\w./]+\.md", make_site.configuration(pages))
    found = sorted(str(path.relative_to(pages)).replace(os.sep, "/") for path in pages.rglob("*.md"))
    assert sorted(listed) == found and len(found) > 150


def test_every_link_of_a_page_leads_somewhere(make_site: ModuleType, pages: Path) -> None:
    followed = 0
    for page in pages.rglob("*.md"):
        for link in make_site.LINK.finditer(make_site.FENCED.sub("", page.read_text(encoding="utf-8"))):
            followed += 1
            assert (page.parent / link[2]).exists(), f"{page.relative_to(pages)} links to {link[2]}"
    assert followed > 200


def test_every_public_name_has_its_entry(make_site: ModuleType, pages: Path) -> None:
    for name in make_site.public_modules():
        text = (pages / "reference" / f"{name}.md").read_text(encoding="utf-8")
        public = importlib.import_module(name)
        wanted = {n for n in public.__all__ if not isinstance(getattr(public, n), ModuleType)}
        assert set(re.findall(r"^## ([\w]+) \{", text, re.MULTILINE)) == wanted, name


def test_docstrings_become_markdown(make_site: ModuleType) -> None:
    text = "What *it* does.\n\nArgs:\n  x: of any\n    shape.\n\n>>> 1 + 1\n2\n\nRaises <b>."
    found = list(make_site.described(text))
    assert found[0] == "What \\*it\\* does."
    assert found[1:3] == ["**Args:**", "* `x`: of any shape."]
    assert found[3:] == ["```pycon\n>>> 1 + 1\n2\n```", "Raises \\<b\\>."]


def test_the_picture_of_the_pipeline_names_its_steps(pages: Path) -> None:
    picture = (pages / "pipeline.svg").read_text(encoding="utf-8")
    assert all(f">{name}</text>" in picture for name in ("hir", "cse", "fuse", "place_temporaries"))


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
    assert followed > 10_000


@built
def test_the_site_asks_nothing_of_the_network(site: dict[Path, _Links]) -> None:
    loads = {load for page in site.values() for load in page.loads}
    assert loads and not [load for load in loads if re.match(r"(https?:)?//", load)]
