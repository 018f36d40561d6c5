"""Write the measured tables and the picture: python -m benchmarks.readme

The results are benchmarks/results/cpu-two-cores.json. README.md has the picture and a summary, docs/benchmarks.md has
every figure. A test compares both files and the picture with the results.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import goals
from benchmarks.picture import draw
from benchmarks.report import OTHERS, Row, figure_rows, markdown, means, program_rows, ratio, spoken

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BENCHMARKS = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "benchmarks" / "results" / "cpu-two-cores.json"
PICTURE = RESULTS.with_suffix(".svg")
BEGIN, END = "<!-- benchmarks: begin, made by python -m benchmarks.readme -->", "<!-- benchmarks: end -->"


def results() -> dict[str, Any]:
    """The measurements."""
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def introduction(found: dict[str, Any]) -> str:
    """The machine, the versions and the method."""
    where = found["where"]
    libraries = [f"{name} {where[name]}" for name in ("jax", "torch", "numpy") if name in where]
    machine = f"{where['cores']} cores of an {where['processor']} (load {where['load']} at the start)"
    return (
        f"Medians of {found['rounds']} rounds on {machine}, Python {where['python']}, {', '.join(libraries)}. The"
        " libraries alternate in one process. A first call traces, compiles and runs, with an empty cache."
    )


def slower(found: dict[str, Any]) -> dict[str, list[str]]:
    """For each other library, the programs in which rlx takes longer."""
    programs = [program for program in found["programs"] if program["name"] not in goals.CALLS]
    return {
        name: [spoken(p["name"]) for p in programs if name in p["median"] and ratio(p, name) < 1] for name in OTHERS
    }


def summary(found: dict[str, Any]) -> str:
    """A row per library: the geometric mean of the ratios, and the programs in which rlx is slower."""
    mean, behind = means(found["programs"]), slower(found)
    header = ["compared with", "its time / rlx's time, geometric mean", "programs where rlx is slower"]
    rows = [[name, f"{mean[name]:.2f}", ", ".join(behind[name]) or "none"] for name in OTHERS if name in mean]
    return markdown([header, *rows, ["jax, first call", f"{mean['cold']:.2f}", ""]])


def overview(found: dict[str, Any], folder: Path) -> str:
    """The README's section: the picture and the summary."""
    where = Path(os.path.relpath(PICTURE, folder)).as_posix()
    picture = f"![Time of the other libraries divided by rlx's time, for each program]({where})"
    missed = sum(row[-1] == "missed" for row in figure_rows(found)[1:])
    missed += sum(row[-1].startswith("missed") for row in program_rows(found["programs"])[1:])
    rest = f"[All benchmarks](docs/benchmarks.md) lists every figure with its target; {missed} targets are missed."
    return "\n\n".join([introduction(found), picture, summary(found), rest])


def columns(rows: list[Row], titles: list[str]) -> str:
    """A table of some columns, in this order."""
    places = [rows[0].index(title) for title in titles if title in rows[0]]
    return markdown([[row[place] for place in places] for row in rows])


def misses(found: dict[str, Any]) -> str:
    """The targets that are missed: the figure, what was measured and what was asked."""
    figures, base = [], ""
    for row in figure_rows(found)[1:]:
        base = base if row[0].startswith("… ") else row[0].partition(":")[0]
        if row[-1] == "missed":
            figures.append([row[0].replace("… ", f"{base}: "), row[1], row[-2]])
    titles = program_rows(found["programs"])[0]
    programs = program_rows(found["programs"])[1:]
    late = [row for row in programs if row[-1].startswith("missed")]
    for row in late:
        others = row[-1].removeprefix("missed: ").split(", ")
        ratios = ", ".join(f"{name} {row[titles.index(f'{name}/rlx')]}" for name in others)
        figures.append([row[0], ratios, row[titles.index("bar")]])
    return markdown([["missed target", "measured", "target"], *figures])


def tables(found: dict[str, Any], folder: Path) -> str:
    """The section of docs/benchmarks.md: the picture, the misses, then every figure in tables of a few columns."""
    data, picture = (Path(os.path.relpath(path, folder)).as_posix() for path in (RESULTS, PICTURE))
    rows = program_rows(found["programs"])
    times = [title for title in rows[0] if title.endswith(" ms") and not title.startswith("first")]
    rest = [title for title in rows[0] if title.startswith(("first", "MiB"))]
    return "\n\n".join(
        [
            introduction(found) + f" The measurements are in [{RESULTS.name}]({data}).",
            f"![Time of the other libraries divided by rlx's time, for each program]({picture})",
            summary(found),
            "## Missed targets",
            "The target of a program is the other library's time divided by rlx's time.",
            misses(found),
            "## Times of programs",
            columns(rows, ["program", *times]),
            "## Times of jax divided by rlx's, with targets",
            columns(rows, ["program", "jax/rlx", "bar", "missed"]),
            "## First calls and temporary memory",
            columns(rows, ["program", *rest]),
            "## Other figures",
            markdown(figure_rows(found)),
        ]
    )


SECTIONS: dict[Path, Callable[[dict[str, Any], Path], str]] = {README: overview, BENCHMARKS: tables}


def page(path: Path, text: str, found: dict[str, Any]) -> str:
    """The text of a page with its section replaced."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path.name} lacks the marks {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n\n{SECTIONS[path](found, path.parent)}\n\n{END}{after}"


def main() -> None:
    """Write both pages and the picture."""
    found = results()
    for path in SECTIONS:
        path.write_text(page(path, path.read_text(encoding="utf-8"), found), encoding="utf-8")
    draw(found, PICTURE)
    print(", ".join(str(path.relative_to(ROOT)) for path in (*SECTIONS, PICTURE)), "written")


if __name__ == "__main__":
    main()
