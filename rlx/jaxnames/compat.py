"""rlx as a replacement for jax: libraries written for JAX import rlx's functions, unmodified."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType, TracebackType
from typing import Any

from rlx.array import Array
from rlx.call.jitted import Jitted
from rlx.config import Config, config
from rlx.jaxnames.avals import AbstractArray, typeof
from rlx.jaxnames.jax_paths import EMPTY, LOCATED, SAME, own_names
from rlx.jaxnames.refused import REFUSALS, is_refused_module, refused_names, refused_value
from rlx.offered_names import offer_names
from rlx.trees.structure import TreeDef

__all__ = ["AbstractArray", "Installation", "as_jax", "typeof"]

offer_names(globals())

_NOTHING = object()
# in the globals of JAX's wrappers, by which chex recognises traced functions
_WRAPPERS_GLOBALS: dict[str, Any] = {"api_boundary": None}


class _Alias(ModuleType):
    """A module of jax: rlx's module under another name, with names that only jax has."""

    def __init__(self, name: str, source: ModuleType | None, own: dict[str, Any]) -> None:
        super().__init__(name, source.__doc__ if source else f"Names of {name}, which rlx does not have.")
        self.__dict__.update(own, _source=source)
        if source is not None and hasattr(source, "__all__"):
            self.__all__ = list(source.__all__)
            # dunder names of the array API standard; a module's own dunder names are not copied
            self.__dict__.update({n: getattr(source, n) for n in source.__all__ if n.startswith("__")})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        path = f"{self.__name__}.{name}"
        value = getattr(self._source, name, _NOTHING)  # newaxis is None
        if value is not _NOTHING and not isinstance(value, ModuleType):
            return value
        if _is_module(path) and not is_refused_module(self.__name__):
            return self._module(path)
        refused = refused_value(self.__name__, name)
        if refused is not None:
            self.__dict__[name] = refused
            return refused
        raise AttributeError(f"rlx's replacement for jax has no {path}")

    def _module(self, path: str) -> ModuleType:
        """A submodule; still rlx's if the alias has outlived the installation."""
        if any(isinstance(finder, _Finder) for finder in sys.meta_path):
            return importlib.import_module(path)
        module = self.__dict__[path.rpartition(".")[2]] = _alias_of(path)
        return module

    def __dir__(self) -> list[str]:
        names = [*dir(self._source), *getattr(self._source, "__all__", ())] if self._source else []
        names += refused_names(self.__name__)
        return sorted({*self.__dict__, *(n for n in names if not n.startswith("__"))})


def _source_of(name: str) -> ModuleType | None:
    """rlx's module for a module of jax, or None."""
    if name in LOCATED:
        return importlib.import_module(LOCATED[name])
    root = name.split(".")[1]
    if root not in SAME or name in EMPTY:
        return None
    path = name.replace("jax", "rlx", 1)
    parent, _, last = path.rpartition(".")
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        pass
    try:
        found = getattr(importlib.import_module(parent), last, None)  # a namespace that is not a module
    except ModuleNotFoundError:
        return None
    return found if isinstance(found, ModuleType) else None


def _alias_of(name: str) -> _Alias:
    return _Alias(name, _source_of(name), own_names().get(name, {}))


def _is_module(name: str) -> bool:
    tables = (sys.modules, EMPTY, LOCATED, REFUSALS, own_names())
    return any(name in table for table in tables) or is_refused_module(name) or _source_of(name) is not None


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds jax and its submodules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec for modules of jax that exist here."""
        if fullname.split(".")[0] != "jax":
            return None
        if not _is_module(fullname):
            raise ModuleNotFoundError(f"rlx's replacement for jax has no module {fullname}", name=fullname)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """The alias of rlx's module."""
        return _alias_of(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: the alias is complete."""


class Installation:
    """rlx installed as jax, until `undo()`, or the end of the `with` block that this opens.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> import rlx.compat
    >>> installation = rlx.compat.as_jax()
    >>> import jax.numpy as jnp
    >>> installation.undo()
    >>> jnp.sin is rlx.numpy.sin
    True
    """

    def __init__(self) -> None:
        self._finder: _Finder | None = _Finder()
        self._before = _jax_modules()
        for name in self._before:
            del sys.modules[name]
        sys.meta_path.insert(0, self._finder)
        replaced = _attributes_of_jax()
        self._own_attributes = {(owner, name): vars(owner).get(name, _NOTHING) for owner, name in replaced}
        _set_attributes(replaced)
        self._switches = {name: getattr(Config, name) for name in ("default_float", "default_int", "narrow")}
        if _asks_for_64_bits():
            config.update("jax_enable_x64", True)
        elif not config.jax_enable_x64:
            config.update("narrow", True)

    def undo(self) -> None:
        """Restore the previous modules. Libraries imported meanwhile keep rlx. A second call does nothing."""
        if self._finder is None:
            return
        sys.meta_path.remove(self._finder)
        self._finder = None
        _set_attributes(self._own_attributes)
        for name in _jax_modules():
            del sys.modules[name]
        sys.modules.update(self._before)
        for name, value in self._switches.items():
            config.update(name, value)

    def __enter__(self) -> Installation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()


def _attributes_of_jax() -> dict[tuple[type, str], Any]:
    """Attributes of arrays and compiled functions that behave as JAX's."""
    return {
        (Array, "__hash__"): None,  # funsor tests whether arrays are hashable
        (Jitted, "__globals__"): _WRAPPERS_GLOBALS,
        (TreeDef, "sorts_dicts"): True,
    }


def _set_attributes(attributes: Mapping[tuple[type, str], Any]) -> None:
    for (owner, name), value in attributes.items():
        if value is _NOTHING:
            type.__delattr__(owner, name)
        else:
            type.__setattr__(owner, name, value)


def _asks_for_64_bits() -> bool:
    """Whether the environment enables JAX's 64-bit mode."""
    return os.environ.get("JAX_ENABLE_X64", "").lower() not in ("", "0", "false", "off", "no")


def _jax_modules() -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if name.split(".")[0] == "jax"}


def as_jax() -> Installation:
    """Install rlx in place of jax for later imports in this process.

    Libraries that use JAX's public functions (optax, ...) then run on rlx, unmodified. Import them after this call:
    a library that was imported before keeps the jax that it found. JAX need not be installed.

    Returns the installation: `undo()` ends it, and so does leaving a `with` block over it. Names that rlx lacks raise
    AttributeError or ModuleNotFoundError on import, and some names of JAX's internals raise
    UnsupportedError when used. docs/ecosystem.md lists the libraries that have been tested.

    >>> import rlx.compat
    >>> with rlx.compat.as_jax():
    ...     import jax.numpy as jnp
    >>> jnp.add is rlx.numpy.add
    True
    """
    return Installation()
