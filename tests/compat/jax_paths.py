"""Every path of jax that a library's sources name: imports, and attributes of names that are bound to jax's modules."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

__all__ = ["paths_named_by", "paths_of"]


def _chain(node: ast.expr, bound: dict[str, str]) -> str | None:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([bound[node.id], *reversed(parts)]) if isinstance(node, ast.Name) and node.id in bound else None


def paths_of(source: str) -> Iterator[str]:
    """The paths of jax that a source names.

    >>> sorted(paths_of("import jax.numpy as jnp; from jax import lax; jnp.linalg.qr; lax.scan"))
    ['jax.lax', 'jax.lax.scan', 'jax.numpy', 'jax.numpy.linalg.qr']
    """
    tree = ast.parse(source)
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "jax":
                    yield alias.name
                    bound[alias.asname or "jax"] = alias.name if alias.asname else "jax"
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "jax":
            for alias in node.names:
                path = node.module if alias.name == "*" else f"{node.module}.{alias.name}"
                yield str(path)
                bound[alias.asname or alias.name] = str(path)
    inner: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            part = node.value
            while isinstance(part, ast.Attribute):
                inner.add(id(part))
                part = part.value
            path = _chain(node, bound)
            if path is not None:
                yield path


def paths_named_by(folder: Path) -> dict[str, str]:
    """The paths that the sources below a folder name, each with a file that does; tests of a library aside."""
    found: dict[str, str] = {}
    for file in sorted(folder.rglob("*.py")):
        if not (file.name.endswith("_test.py") or {"tests", "testing"} & set(file.relative_to(folder).parts)):
            for path in paths_of(file.read_text()):
                found.setdefault(path, str(file))
    return found
