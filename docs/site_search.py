"""The search of the site: an index that lunr reads in the page, without a server, and that Python reads in the tests.

A page is one document. Guides weigh more than tutorials, and these more than the reference; a query that is the name of
a public function finds that function first. `search` ranks as docs/theme/search.js does.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lunr import get_default_builder
from lunr.index import Index
from lunr.stop_word_filter import stop_word_filter

# how much a page weighs by the beginning of its address: the first that matches counts
WEIGHTS = {
    "reference/index": 0.5, "reference/": 0.5, "errors/index": 1.5, "errors/": 0.8, "tutorials/": 2.0, "files/": 0.1,
    "changelog": 0.2, "decisions": 0.2, "internals": 0.4, "backends": 0.4, "seed_names": 0.1, "coverage": 0.2,
    "source_tree": 0.2, "contributing": 0.6, "performance": 0.8, "benchmarks": 0.8, "overview": 0.8, "index": 1.0,
    "": 3.0,
}  # fmt: skip
FIELDS = {"title": 8, "words": 12, "headings": 3, "text": 1}
# words of other libraries and of questions, by the page that answers them
WORDS = json.loads((Path(__file__).parent / "site_words.json").read_text(encoding="utf-8"))
# words of a question that say nothing of its subject
IDLE = frozenset(
    "a an and are as at be but by can cannot could do does for from get has have how i in is it its me my of on or"
    " should so than that the their them there these this to use was we what when where which who why will with would"
    " you your there's make".split()
)


def words(text: str) -> list[str]:
    """The words of a text in lower case; `value_and_grad` is also its parts."""
    found = []
    for word in re.findall(r"\w+", text.lower()):
        found += [word, *filter(None, word.split("_"))] if "_" in word else [word]
    return found


def asked(text: str) -> list[str]:
    """The words of a query that are searched for."""
    found = list(dict.fromkeys(re.findall(r"\w+", text.lower())))
    return [word for word in found if word not in IDLE] or found


# ------------------------------------------------------------------ the index
def _plain(text: str) -> str:
    """A paragraph without Markdown's marks; brackets of code stay."""
    parts = re.split(r"`([^`]*)`", text)
    return "".join(part if place % 2 else re.sub(r"[\\*\[\]]", "", part) for place, part in enumerate(parts))


def documents(pages: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """The document of each page, given as Markdown by its path."""
    for path, text in pages.items():
        body = re.sub(r"\A---\n.*?\n---\n|<!--.*?-->|<svg.*?</svg>|\]\([^)]*\)|\{[ :#.][^}]*\}", " ", text, flags=re.S)
        plain = re.sub(r"^```.*?^```$", "", body, flags=re.M | re.S)
        headings = re.findall(r"^#+ (.*)$", plain, re.M)
        title = re.sub(r"[`\\*]", "", headings[0]).strip() if headings else path
        first = next(
            (p for p in re.split(r"\n\s*\n", plain) if p.strip() and not re.match(r"\s*(?:[#|<!*\[{>-]|Also `)", p)), ""
        )
        also = [name for line in re.findall(r"^Also (`.*)\.$", text, re.M) for name in re.findall(r"`([^`]*)`", line)]
        names = [n.rpartition(".")[2].lower() for n in (title, *also)] if path.startswith("reference/rlx") else []
        yield {
            "path": path,
            "title": title,
            "names": names,
            "about": textwrap.shorten(_plain(first), 160, placeholder=" ..."),
            "fields": {
                "title": title,
                "words": " ".join([WORDS.get(path, ""), *also]),
                "headings": " ".join(headings[1:]),
                "text": body,
            },
        }


def build(pages: Mapping[str, str]) -> dict[str, Any]:
    """The index and the pages that it names, as JSON's types."""
    if missing := WORDS.keys() - pages.keys():
        raise ValueError(f"docs/site_words.json names pages that do not exist: {sorted(missing)}")
    builder = get_default_builder()
    builder.pipeline.remove(stop_word_filter)  # `if` and `while` are words to search for
    builder.ref("id")
    for name, boost in FIELDS.items():
        builder.field(name, boost)
    shown, exact = [], {}
    for number, page in enumerate(documents(pages)):
        weight = next(weight for start, weight in WEIGHTS.items() if page["path"].startswith(start))
        content = {name: " ".join(words(text)) for name, text in page["fields"].items()}
        builder.add({"id": str(number), **content}, {"boost": weight})
        shown.append([page["path"].removesuffix(".md") + ".html", page["title"], page["about"]])
        for name in page["names"]:
            exact.setdefault(name, number)  # pages are in the order of the navigation: the commonest module first
    return {"index": builder.build().serialize(), "pages": shown, "names": exact, "idle": sorted(IDLE)}


# ------------------------------------------------------------------ queries
def search(data: Mapping[str, Any], index: Index, text: str) -> list[str]:
    """The addresses of the pages for a query, the best first."""
    query = asked(text)
    scores: dict[int, float] = {}
    counts: dict[int, int] = {}
    for word in query:
        for found in matches(index, word):
            number = int(found["ref"])
            scores[number] = scores.get(number, 0.0) + found["score"]
            counts[number] = counts.get(number, 0) + 1
    # a page with all words is before one with a part of them
    ranked = sorted(scores, key=lambda n: (-scores[n] * (counts[n] / len(query)) ** 2, n))
    name = text.strip().lower().removesuffix("()").rpartition(".")[2]
    if name in data["names"]:
        ranked = [data["names"][name], *(n for n in ranked if n != data["names"][name])]
    return [data["pages"][number][0] for number in ranked]


def matches(index: Index, word: str) -> list[dict[str, Any]]:
    """The pages with a word or one that begins with it; with one that differs in a letter if there is none."""
    found = _query(index, word, fuzzy=False)
    return found or (_query(index, word, fuzzy=True) if len(word) > 3 else [])


def _query(index: Index, word: str, *, fuzzy: bool) -> list[dict[str, Any]]:
    """One query of lunr's."""
    query = index.create_query()
    if fuzzy:
        query.term(word, edit_distance=1)
    else:
        query.term(word, boost=10)
        query.term(word, wildcard=query.WILDCARD_TRAILING, use_pipeline=False)
    return index.query(query)


def read(path: Path) -> tuple[dict[str, Any], Index]:
    """The index of a built site."""
    data = json.loads(path.read_text(encoding="utf-8").removeprefix("window.rlxSearch = ").removesuffix(";\n"))
    return data, Index.load(data["index"])


def write(data: Mapping[str, Any], path: Path) -> None:
    """Write the index as a script: a page that was opened as a file may load scripts, but not JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"window.rlxSearch = {json.dumps(data, separators=(',', ':'))};\n", encoding="utf-8")
