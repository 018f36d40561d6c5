"""What `make test` runs of the tests, and what it leaves to `make test-thorough`."""

from __future__ import annotations

import zlib

import pytest

__all__ = ["pytest_collection_modifyitems"]

CASES = 2  # of a test are in the selection, and of those beyond one in SHARE; all of those marked selected("all")
SHARE = 32


@pytest.hookimpl(tryfirst=True)  # before pytest looks for what -m wants
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark cases beyond the selection as thorough; they are chosen by their names, so that a run has the same ones."""
    families: dict[str, list[pytest.Item]] = {}
    for item in items:
        families.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in families.values():
        marker = cases[0].get_closest_marker("selected")
        least = CASES if marker is None else len(cases) if marker.args[0] == "all" else int(marker.args[0])
        kept = least + max(0, len(cases) - least) // SHARE
        for case in sorted(cases, key=lambda case: zlib.crc32(case.nodeid.encode()))[kept:]:
            case.add_marker("thorough")
