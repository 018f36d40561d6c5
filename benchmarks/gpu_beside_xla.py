"""Kernels and bytes of the benchmark programs on an H100: rlx's launches beside XLA's, both compiled without a GPU.

    python -m benchmarks.gpu_beside_xla [--write] [--only NAME,NAME]

XLA gets rlx's StableHLO, and compiles it for a description of an H100 (`pip install '.[xla-cuda-compile]'`); the
environment needs JAX_PLATFORMS=cpu. `--write` puts the table into docs/gpu.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np

import rlx
from benchmarks.contenders import SEED
from benchmarks.gpu import predicted
from benchmarks.programs import Program, programs
from benchmarks.xla_programs import Counted, counted

__all__ = ["BEGIN", "END", "PAGE", "Row", "measured", "rows_of", "table"]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "gpu.md"
BEGIN, END = "<!-- benchmarks.gpu_beside_xla -->\n", "<!-- end -->\n"
DEVICE = "xla:h100"


class Row(NamedTuple):
    """A program: kernels and bytes of XLA's and of rlx's program."""

    name: str
    xla: Counted
    launches: int
    moved_bytes: int

    def __str__(self) -> str:
        counts, sizes = (self.xla.kernels, self.launches), (self.xla.moved_bytes, self.moved_bytes)
        return f"| {' | '.join([self.name, *map(_number, counts), *map(_megabytes, sizes)])} |"


def _number(count: int) -> str:
    return f"{count:,}"


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f}" if count >= 5e4 else "0"


def measured(program: Program) -> Row:
    """Both compilers' programs for one benchmark program."""
    function, arguments = program.build(rlx, np.random.default_rng(SEED))
    text = rlx.inspect(function, device=DEVICE)(*arguments).kernels.texts["xla"]
    prediction, _ = predicted(program)
    return Row(program.name, counted(text), prediction.launches, prediction.moved_bytes)


def table(rows: Iterable[Row]) -> str:
    """The rows in Markdown, with counts of the programs in which either does less."""
    rows = list(rows)
    fewer, more = (sum(f(r.launches, r.xla.kernels) for r in rows) for f in (int.__lt__, int.__gt__))
    less, greater = (sum(f(_rounded(r.moved_bytes), _rounded(r.xla.moved_bytes)) for r in rows)
                     for f in (int.__lt__, int.__gt__))  # fmt: skip
    head = [
        f"Of {len(rows)} programs, rlx has fewer launches than XLA has kernels in {fewer} and more in {more}; it moves"
        f" fewer bytes in {less} and more in {greater}. (XLA of jaxlib {version('jaxlib')})",
        "",
        "| program | XLA's kernels | rlx's launches | XLA, MB | rlx, MB |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *map(str, rows)]) + "\n"


def _rounded(count: int) -> int:
    """The bytes as the table shows them."""
    return round(float(_megabytes(count)) * 10)


def rows_of(page: str) -> str:
    """The table of a page."""
    return page.partition(BEGIN)[2].partition(END)[0]


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only")
    options = parser.parse_args()
    wanted = [p for p in programs if options.only is None or p.name in options.only.split(",")]
    text = table(map(measured, wanted))
    print(text)
    if options.write:
        page = PAGE.read_text()
        before, _, rest = page.partition(BEGIN)
        PAGE.write_text(before + BEGIN + text + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
