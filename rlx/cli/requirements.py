"""The required packages and supported versions, from pyproject.toml or the installed metadata."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import rlx

__all__ = ["Requirement", "allows", "requirements"]

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*([^;]*)(?:;\s*(.*))?")
_PLATFORM = re.compile(r"""sys_platform\s*(==|!=)\s*["'](\w+)["']""")
_BOUND = re.compile(r"\s*(<=|>=|==|!=|<|>)\s*([0-9.]+)\s*")


class Requirement(NamedTuple):
    """A package, or "python", and its supported versions: ">=2.1,<3"."""

    name: str
    versions: str


def requirements() -> list[Requirement]:
    """Python and the packages that rlx needs on this system."""
    python, texts = _declared()
    return [Requirement("python", python), *filter(None, map(_requirement, texts))]


def _declared() -> tuple[str, list[str]]:
    """The requirements on Python and on packages, from the metadata or from the checkout's pyproject.toml."""
    project = Path(rlx.__file__).parents[1] / "pyproject.toml"
    if project.is_file():
        told = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
        return told["requires-python"], told["dependencies"]
    try:
        return metadata.metadata("rlx")["Requires-Python"] or "", metadata.requires("rlx") or []
    except metadata.PackageNotFoundError:
        return "", []


def _requirement(text: str) -> Requirement | None:
    """A line such as `scipy<2,>=1.14; sys_platform != "darwin"`; None if it is of an extra, or for another system."""
    found = _REQUIREMENT.fullmatch(text.strip())
    if found is None:
        return None
    marker = found[3] or ""
    platform = _PLATFORM.search(marker)
    if "extra" in marker or (platform and (platform[1] == "==") != (platform[2] == sys.platform)):
        return None
    return Requirement(found[1], found[2].strip(" ()"))


def allows(versions: str, version: str) -> bool:
    """Whether a version is in a range.

    >>> allows(">=2.1,<3", "2.4.6"), allows(">=2.1,<3", "3.0rc1"), allows("<0.70,>=0.63", "0.7")
    (True, False, False)
    """
    numbers = _numbers(version)
    for text in filter(None, versions.split(",")):
        bound = _BOUND.fullmatch(text)
        if bound is None:
            continue
        limit = _numbers(bound[2])
        length = max(len(numbers), len(limit))
        one, other = (v + (0,) * (length - len(v)) for v in (numbers, limit))
        holds = {"<=": one <= other, ">=": one >= other, "==": one == other, "!=": one != other, "<": one < other}
        if not holds.get(bound[1], one > other):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    """The release: 2.4.0rc1 is (2, 4, 0)."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()
