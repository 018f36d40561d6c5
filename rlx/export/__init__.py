"""Functions as files: `rlx.export(f)(*types)`, `rlx.load_exported(path)`; also under JAX's names.

`rlx.export` is this module, which is callable: `rlx.export(f)` is `rlx.export.export(f)`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from rlx.export.exported import Exported, deserialize, export, load_exported
from rlx.export.sizes import Size, SymbolicScope, is_symbolic_dim, symbolic_args_specs, symbolic_shape
from rlx.export.structures import register_namedtuple_serialization, register_pytree_node_serialization
from rlx.offered_names import offer_names

__all__ = [
    "Exported",
    "Size",
    "SymbolicScope",
    "deserialize",
    "export",
    "is_symbolic_dim",
    "load_exported",
    "register_namedtuple_serialization",
    "register_pytree_node_serialization",
    "symbolic_args_specs",
    "symbolic_shape",
]

offer_names(globals())


class _Callable(ModuleType):
    """A module that can be called like the function of the same name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """rlx.export.export."""
        return export(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
