"""JAX's paths to what rlx keeps elsewhere, and the table of every path that leads into another room.

`import rlx.tree_util`, `from rlx.core import Jaxpr` and `rlx.opt` work as they are written: `PATHS` says which module
is meant, which is loaded when somebody asks for it. A path gives the module itself, not a copy. Type checkers find the
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

# room -> modules of it that are found under rlx, too
_ROOMS = {
    "call": "compiled device exhausted forward_backward inspection jit_options scopes stages switches",
    "export": "aot",
    "graph": "autodiff compile fusion opt",
    "host": "callback debug numba_functions",
    "jaxnames": "ad_checkpoint compat core custom_batching custom_derivatives dtypes example_libraries"
    " flatten_util profiler segments test_util",
    "lax": "ref",
    "sharding": "memory",
    "transforms": "ad",
    "trees": "tree tree_util",
}
PATHS = {f"rlx.{name}": f"rlx.{room}.{name}" for room, names in _ROOMS.items() for name in names.split()}
# names from before there were rooms, which pickles hold
PATHS |= {"rlx.api": "rlx.call.jit", "rlx.tree_keys": "rlx.trees.keys", "rlx.tree_structure": "rlx.trees.structure"}


def _meant(name: str) -> str | None:
    """The module that a path leads to, None where it is a path like others."""
    if not name.startswith("rlx."):
        return None
    head, dot, rest = name[4:].partition(".")
    found = PATHS.get(f"rlx.{head}")
    return None if found is None else found + dot + rest


class _Finder:
    """Finds modules by the paths of PATHS: what importlib.abc calls a MetaPathFinder and a Loader."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A spec for a path of PATHS, and for what lies below it."""
        loader: Any = self  # importlib.abc would be loaded for its base class alone
        return None if _meant(fullname) is None else ModuleSpec(fullname, loader)

    def create_module(self, spec: ModuleSpec) -> None:
        """Nothing: the module has been made, or is made by its own path."""

    def exec_module(self, module: ModuleType) -> None:
        """Put the module that is meant where import looks for the one it asked for."""
        sys.modules[module.__name__] = importlib.import_module(_meant(module.__name__) or module.__name__)


def install_paths() -> None:
    """Let the paths of PATHS be imported. First of all finders: below a path no file may be found by it, too."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
