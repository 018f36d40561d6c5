"""Names in generated source code."""

from __future__ import annotations

import keyword
import re
from collections.abc import Container

__all__ = ["identifier", "unused_name"]

_LONGEST = 40


def identifier(label: str, default: str) -> str:
    """A label as a valid identifier."""
    name = re.sub(r"\W+", "_", label, flags=re.ASCII).strip("_")[:_LONGEST].strip("_")
    if keyword.iskeyword(name):
        return default
    return name if name and not name[0].isdigit() else f"{default}_{name}".strip("_")


def unused_name(base: str, *taken: Container[str]) -> str:
    """`base`, or `base` with the first number from 2 on that gives a name in none of `taken`."""
    name, number = base, 1
    while any(name in names for names in taken):
        number += 1
        name = f"{base}_{number}"
    return name
