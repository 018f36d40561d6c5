"""The names that a module offers: those of its __all__, of which some are imported on first use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType
from typing import Any

from rlx.advice.habits import missing_name
from rlx.garbage import collector_rests

__all__ = ["LateAttribute", "LateModule", "offer_names"]

_NOTHING: Mapping[str, str] = MappingProxyType({})


def offer_names(namespace: dict[str, Any], elsewhere: Mapping[str, str] = _NOTHING) -> None:
    """Let a module list the names of its __all__, and suggest similar names for a missing one.

    elsewhere: name -> the module that has it, or that it is, or "module:name" if it has another name there; these are
    imported on first use. Type checkers do not see this, so that they refuse misspelt names: they read the module's
    imports under TYPE_CHECKING.
    """
    module = namespace["__name__"]

    def look_up(name: str) -> Any:
        if name not in elsewhere:
            raise missing_name(module, name, namespace["__all__"])
        path, _, attribute = elsewhere[name].partition(":")
        found = _imported(path)
        value = namespace[name] = found if path == f"{module}.{name}" else getattr(found, attribute or name)
        return value

    namespace["__getattr__"] = look_up
    namespace["__dir__"] = lambda: sorted(namespace["__all__"])


class LateModule:
    """A module that is loaded when one of its names is first used.

    >>> import rlx
    >>> from rlx.offered_names import LateModule
    >>> LateModule("rlx.version").__version__ == rlx.__version__
    True
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._module: ModuleType | None = None

    def __getattr__(self, name: str) -> Any:
        module = self._module
        if module is None:
            module = self._module = _imported(self._path)
        return getattr(module, name)


class LateAttribute:
    """An attribute of a class in whose place `install` puts the real one, with others, when one is first used."""

    __slots__ = ("install", "name")

    def __init__(self, name: str, install: Callable[[], None]) -> None:
        self.name = name
        self.install = install

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        self.install()
        return getattr(owner if instance is None else instance, self.name)


def _imported(path: str) -> ModuleType:
    with collector_rests():
        return importlib.import_module(path)
