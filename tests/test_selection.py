"""What `make test` runs of the tests: see selection.py."""

from __future__ import annotations

from collections.abc import Callable

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


@pytest.fixture
def chosen(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], set[str]]:
    """The tests of TESTS that pytest collects for a marker and a part, the same ones each time."""
    pytester.makepyfile(test_example=TESTS)
    pytester.makeconftest("from selection import pytest_collection_modifyitems")
    pytester.makeini("[pytest]\nmarkers =\n  thorough\n  selected(n)\n")

    def collect(marker: str, part: str = "0/1") -> set[str]:
        monkeypatch.setenv("RLX_TEST_PART", part)
        lines = [pytester.runpytest("-m", marker, "--collect-only", "-q").outlines for _ in range(2)]
        first, second = ({line.split("::")[1] for line in run if "::" in line} for run in lines)
        assert first == second
        return first

    return collect


def test_the_selection_has_a_few_of_many_cases(chosen: Callable[..., set[str]]) -> None:
    """The rest has the others."""
    selection, rest = chosen("not thorough"), chosen("thorough")
    assert not selection & rest
    assert len(selection | rest) == 1 + 4 + 84 + 34 + 5 + 1
    names = ("test_alone", "test_few", "test_many", "test_slow", "test_rows", "test_long")
    counts = [sum(test.startswith(name) for test in selection) for name in names]
    assert counts == [1, 2, 2 + 2, 2 + 1, 5, 0]


def test_parts_divide_the_cases_beyond_the_selection(chosen: Callable[..., set[str]]) -> None:
    """Every part has the selection and the tests marked thorough."""
    selection, rest = chosen("not thorough"), chosen("thorough")
    parts = [chosen("thorough", f"{number}/3") for number in range(3)]
    assert set.union(*parts) == rest
    assert set.intersection(*parts) == {"test_long"}
    assert sum(len(part - {"test_long"}) for part in parts) == len(rest) - 1
    assert all(chosen("not thorough", f"{number}/3") == selection for number in range(3))
