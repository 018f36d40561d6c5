"""What `make test` runs of the tests, and what it leaves to `make test-thorough`."""

from __future__ import annotations

import os
import zlib

import pytest

__all__ = ["pytest_collection_modifyitems"]

CASES = 2  # of a test are in the selection, and of those beyond one in SHARE; all of those marked selected("all")
SHARE = 32


@pytest.hookimpl(tryfirst=True)  # before pytest looks for what -m wants
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark cases beyond the selection as thorough; they are chosen by their names, so that a run has the same ones."""
    # "k/n": of the cases beyond the selection only every n-th, beginning with number k, so that runs can take turns
    number, parts = map(int, os.environ.get("RLX_TEST_PART", "0/1").split("/"))
    left_out: set[pytest.Item] = set()
    families: dict[str, list[pytest.Item]] = {}
    for item in items:
        families.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in families.values():
        marker = cases[0].get_closest_marker("selected")
        least = CASES if marker is None else len(cases) if marker.args[0] == "all" else int(marker.args[0])
        kept = least + max(0, len(cases) - least) // SHARE
        beyond = sorted(cases, key=lambda case: zlib.crc32(case.nodeid.encode()))[kept:]
        for place, case in enumerate(beyond):
            case.add_marker("thorough")
            if place % parts != number:
                left_out.add(case)
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
