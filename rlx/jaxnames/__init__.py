"""JAX's module paths to rlx's modules, and the table of all paths into other packages of rlx.

`import rlx.tree_util`, `from rlx.core import Jaxpr` and `rlx.opt` work as written: `PATHS` maps each path to a
module, which is loaded on first use. A path gives the module itself, not a copy. Type checkers find the
public ones in rlx-stubs.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["PATHS", "install_paths"]

# package -> its modules that are also found under rlx
_ROOMS = {
    "call": "compiled device forward_backward jit_options scopes stages switches",
    "explain": "exhausted inspection",
    "export": "aot",
    "graph": "autodiff compile fusion opt",
    "host": "callback debug numba_functions",
    "jaxnames": "ad_checkpoint compat core custom_batching custom_derivatives dtypes example_libraries"
    " flatten_util profiler segments test_util",
    "lax": "ref",
    "numpy": "linalg",
    "sharding": "memory",
    "transforms": "ad",
    "trees": "tree tree_util",
}
PATHS = {f"rlx.{name}": f"rlx.{room}.{name}" for room, names in _ROOMS.items() for name in names.split()}
# names from before there were packages, which old pickles contain
PATHS |= {"rlx.api": "rlx.call.jit", "rlx.tree_keys": "rlx.trees.keys", "rlx.tree_structure": "rlx.trees.structure"}


def _meant(name: str) -> str | None:
    """The module of a path in PATHS, None for other paths."""
    if not name.startswith("rlx."):
        return None
    head, dot, rest = name[4:].partition(".")
    found = PATHS.get(f"rlx.{head}")
    return None if found is None else found + dot + rest


class _Finder:
    """Finds modules by the paths of PATHS: a MetaPathFinder and a Loader in the terms of importlib.abc."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A spec for a path of PATHS, and for the paths below it."""
        loader: Any = self  # importlib.abc would be loaded only for its base class
        return None if _meant(fullname) is None else ModuleSpec(fullname, loader)

    def create_module(self, spec: ModuleSpec) -> None:
        """Nothing: the module already exists, or is created under its own path."""

    def exec_module(self, module: ModuleType) -> None:
        """Put the real module where import looks for the requested one."""
        sys.modules[module.__name__] = importlib.import_module(_meant(module.__name__) or module.__name__)


def install_paths() -> None:
    """Make the paths of PATHS importable. This finder comes first, so that no submodule is also found as a file."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
