"""The public surface of an installed jax: modules, names, and the parameters of functions, as JSON.

Run as a program it prints them. A name is public where the module's `__all__` has it, or, without one, where the module
defines it or imports it under its own name (`from m import f as f`), which is how JAX marks what it exports.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import io
import json
import pkgutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["parameters", "surface"]

Parameters = list[tuple[str, str, bool]]
_HELPERS = frozenset("map zip unsafe_map unsafe_zip".split())  # Python's functions with checks, which modules define


def parameters(value: Any) -> Parameters | None:
    """(name, kind, has a default) of each parameter, and None for a value that has no signature."""
    if not callable(value):
        return None
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return None
    return [(p.name, p.kind.name, p.default is not p.empty) for p in signature.parameters.values()]


def _modules(path: list[str], prefix: str) -> Iterator[str]:
    for found in pkgutil.iter_modules(path, prefix):
        last = found.name.rpartition(".")[2]
        if not last.startswith("_"):
            yield found.name
            if found.ispkg:
                yield from _modules([str(Path(path[0]) / last)], f"{found.name}.")


def _defined(statements: list[ast.stmt]) -> Iterator[str]:
    for node in statements:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (part.id for part in node.targets if isinstance(part, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.name for alias in node.names if alias.asname == alias.name)
        elif isinstance(node, (ast.If, ast.Try)):
            yield from _defined(node.body + node.orelse)


def _names(module: ModuleType) -> list[str]:
    listed = getattr(module, "__all__", None)
    names = set(_defined(ast.parse(Path(str(module.__file__)).read_text()).body) if listed is None else listed)
    names |= {name for name, (_, value) in getattr(module, "_deprecations", {}).items() if value is not None}
    public = (name for name in names - _HELPERS if not name.startswith("_") and hasattr(module, name))
    return sorted(name for name in public if not isinstance(getattr(module, name), ModuleType))


def surface() -> dict[str, dict[str, Parameters | None]]:
    """The public names of each public module that can be imported here, and their parameters."""
    import jax

    found: dict[str, dict[str, Parameters | None]] = {}
    for name in ("jax", *_modules(list(jax.__path__), "jax.")):
        try:
            module = importlib.import_module(name)
        except (ImportError, RuntimeError, AttributeError):  # needs a package that is not installed, or a TPU
            continue
        found[name] = {public: parameters(getattr(module, public)) for public in _names(module)}
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(io.StringIO()):
        everything = surface()
    json.dump(everything, sys.stdout)
