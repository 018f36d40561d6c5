"""The table of `make mutants` fits the source: see tests/mutants."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path

from mutants.table import MUTANTS

ROOT = Path(__file__).resolve().parents[1]


def test_mutations_fit_the_source() -> None:
    """The text to be replaced occurs once, and the tests are there."""
    texts = {file: (ROOT / file).read_text() for file in {mutant.file for mutant in MUTANTS}}
    wrong = [(m.file, m.old) for m in MUTANTS if texts[m.file].count(m.old) != 1 or m.old == m.new]
    assert not wrong
    assert all((ROOT / shlex.split(mutant.tests)[0]).exists() for mutant in MUTANTS)
    assert len(MUTANTS) >= 60 and max(Counter(mutant[:3] for mutant in MUTANTS).values()) == 1
