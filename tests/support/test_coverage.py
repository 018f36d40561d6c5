"""docs/coverage.md says what is there."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def coverage() -> Any:
    """docs/make_coverage.py as a module."""
    spec = importlib.util.spec_from_file_location("make_coverage", ROOT / "docs" / "make_coverage.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_current(coverage: Any) -> None:
    assert coverage.TARGET.read_text(encoding="utf-8") == coverage.page(), "run python docs/make_coverage.py"


def test_every_name_is_in_one_place(coverage: Any) -> None:
    for section in coverage.sections():
        places = [*section.here, *section.differs, *section.absent]
        assert len(places) == len(set(places)) == section.total


def test_what_the_page_says_of_names_is_about_names_that_jax_has(coverage: Any) -> None:
    known = {f"{s.module}.{n}" for s in coverage.sections() for n in (*s.here, *s.differs, *s.absent)}
    assert set(coverage.DIFFERS) <= known
    assert set(coverage.ELSEWHERE) <= known


def test_a_name_without_a_reason_is_refused(coverage: Any) -> None:
    with pytest.raises(LookupError, match=r"jax\.numpy\.nothing"):
        coverage.reason("jax.numpy.nothing")
    assert coverage.find("rlx.numpy.newaxis") is None and coverage.find("rlx.numpy.nothing") is coverage.NOTHING
