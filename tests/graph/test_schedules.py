"""rlx.pipeline_schedule: order, levels, mistakes."""

from __future__ import annotations

import dataclasses

import pytest

import rlx
from rlx.errors import OptionError


def test_order_and_levels() -> None:
    """Each stage comes after what it needs; those of a level as they were given."""
    needs = {"d": ["b", "c"], "b": ["a"], "c": ["a", "a"], "a": [], "e": []}
    found = rlx.pipeline_schedule("p", needs)
    assert found.levels == (("a", "e"), ("b", "c"), ("d",)) and found.order == ("a", "e", "b", "c", "d")
    assert dict(found.deps)["c"] == ("a",) and hash(found) == hash(rlx.pipeline_schedule("p", needs))
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.name = "q"  # type: ignore[misc]
    assert rlx.pipeline_schedule("nothing", {}).order == ()


def test_mistakes() -> None:
    """Unknown stages with a hint; cycles by name."""
    with pytest.raises(OptionError, match="Did you mean load"):
        rlx.pipeline_schedule("p", {"load": [], "step": ["laod"]})
    with pytest.raises(OptionError, match="cycle: (a -> c -> b -> a|c -> b -> a -> c|b -> a -> c -> b)"):
        rlx.pipeline_schedule("p", {"a": ["c"], "b": ["a"], "c": ["b"]})
