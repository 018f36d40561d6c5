"""Write the README's tables and picture from a run's results: python -m benchmarks.readme

The results are benchmarks/results/cpu-two-cores.json; a test holds README and picture to them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.picture import draw
from benchmarks.report import Row, figure_rows, markdown, program_rows

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results" / "cpu-two-cores.json"
PICTURE = RESULTS.with_suffix(".svg")
BEGIN, END = "<!-- benchmarks: begin, made by python -m benchmarks.readme -->", "<!-- benchmarks: end -->"


def results() -> dict[str, Any]:
    """What was measured."""
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def without(rows: list[Row], columns: set[str]) -> list[Row]:
    """The rows less some columns."""
    kept = [place for place, title in enumerate(rows[0]) if title not in columns]
    return [[row[place] for place in kept] for row in rows]


def introduction(found: dict[str, Any]) -> str:
    """Where, with what and how it was measured."""
    where = found["where"]
    libraries = [f"{name} {where[name]}" for name in ("jax", "torch", "numpy") if name in where]
    path = RESULTS.relative_to(ROOT).as_posix()
    machine = f"{where['cores']} cores of an {where['processor']} (load {where['load']} at the start)"
    return (
        f"Medians of {found['rounds']} rounds on {machine}, Python {where['python']}, {', '.join(libraries)}:"
        f" [{path}]({path}). Times are milliseconds; a first call traces, compiles and runs, with nothing cached;"
        " MiB are temporary arrays. The bar of a program is the other library's time as a multiple of rlx's."
    )


def section(found: dict[str, Any]) -> str:
    """What stands between the marks in the README."""
    # every library's milliseconds are there: one column of ratios is enough for a page
    ratios = {title for title in program_rows(found["programs"])[0] if title.endswith("/rlx")} - {"jax/rlx"}
    picture = PICTURE.relative_to(ROOT).as_posix()
    parts = [
        BEGIN,
        introduction(found),
        f"![Times of other libraries as multiples of rlx's, program by program]({picture})",
        markdown(figure_rows(found)),
        markdown(without(program_rows(found["programs"]), ratios)),
        END,
    ]
    return "\n\n".join(parts)


def page(text: str, found: dict[str, Any]) -> str:
    """The README with its section made anew."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{README.name} lacks the marks {BEGIN!r} and {END!r}")
    return before + section(found) + after


def main() -> None:
    """Write both."""
    found = results()
    README.write_text(page(README.read_text(encoding="utf-8"), found), encoding="utf-8")
    draw(found, PICTURE)
    print(f"{README.name} and {PICTURE.relative_to(ROOT)} written")


if __name__ == "__main__":
    main()
