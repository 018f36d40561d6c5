"""What `make test` runs of the tests: see selection.py."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

TESTS = """
import pytest

def test_alone(): pass

@pytest.mark.parametrize("n", range(4))
def test_few(n): pass

@pytest.mark.parametrize("n", range(84))
def test_many(n): pass

@pytest.mark.selected(2)
@pytest.mark.parametrize("n", range(34))
def test_slow(n): pass

@pytest.mark.selected("all")
@pytest.mark.parametrize("n", range(5))
def test_rows(n): pass

@pytest.mark.thorough
def test_long(): pass
"""


def test_the_selection_has_a_few_of_many_cases(pytester: pytest.Pytester) -> None:
    """The same ones each time; the rest has the others."""
    pytester.makepyfile(test_example=TESTS)
    pytester.makeconftest("from selection import pytest_collection_modifyitems")
    pytester.makeini("[pytest]\nmarkers =\n  thorough\n  selected(n)\n")
    found = {}
    for wanted in ("not thorough", "thorough"):
        lines = [pytester.runpytest("-m", wanted, "--collect-only", "-q").outlines for _ in range(2)]
        found[wanted] = [{line.split("::")[1] for line in run if "::" in line} for run in lines]
        assert found[wanted][0] == found[wanted][1]
    selection, rest = found["not thorough"][0], found["thorough"][0]
    assert not selection & rest
    assert len(selection | rest) == 1 + 4 + 84 + 34 + 5 + 1
    names = ("test_alone", "test_few", "test_many", "test_slow", "test_rows", "test_long")
    counts = [sum(test.startswith(name) for test in selection) for name in names]
    assert counts == [1, 2, 2 + 2, 2 + 1, 5, 0]
