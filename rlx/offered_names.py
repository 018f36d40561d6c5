"""The names that a module offers: those of its __all__, of which some are imported on first use."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import Any

from rlx.advice.habits import missing_name

__all__ = ["offer_names"]

_NOTHING: Mapping[str, str] = MappingProxyType({})


def offer_names(namespace: dict[str, Any], elsewhere: Mapping[str, str] = _NOTHING) -> None:
    """Let a module list the names of its __all__, and suggest similar names for a missing one.

    elsewhere: name -> the module that has it, or that it is; these are imported on first use. Type checkers do not see
    this, so that they refuse misspelt names: they read the module's imports under TYPE_CHECKING.
    """
    module = namespace["__name__"]

    def look_up(name: str) -> Any:
        if name not in elsewhere:
            raise missing_name(module, name, namespace["__all__"])
        found = _imported(elsewhere[name])
        value = namespace[name] = found if elsewhere[name] == f"{module}.{name}" else getattr(found, name)
        return value

    namespace["__getattr__"] = look_up
    namespace["__dir__"] = lambda: sorted(namespace["__all__"])


def _imported(path: str) -> ModuleType:
    """A module, imported without garbage collection: its objects live on, and a collection would visit all objects."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(path)
    finally:
        if collects:
            gc.enable()
