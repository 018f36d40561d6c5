"""jax.experimental.hijax: types of values that are not arrays (an option of flax.nnx).

Libraries can derive from the classes, as flax does when it is imported; primitives of such values raise if run.
"""

from __future__ import annotations

from typing import Any

from rlx.errors import UnsupportedError
from rlx.jaxnames.ad import Zero, instantiate_zeros, is_undefined_primal
from rlx.jaxnames.avals import AbstractRef, AbstractValue
from rlx.jaxnames.extend_core import ShapedArray

__all__ = [
    "AbstractRef",
    "AbstractValue",
    "AvalMutableQDD",
    "AvalQDD",
    "HiPrimitive",
    "HiType",
    "MutableHiType",
    "ShapedArray",
    "Zero",
    "aval_method",
    "aval_property",
    "control_flow_allowed_effects",
    "cur_qdd",
    "instantiate_zeros",
    "is_undefined_primal",
    "register_hitype",
]


def _refuse(*_: Any, **__: Any) -> Any:
    raise UnsupportedError(
        "Values of custom types (jax.experimental.hijax) do not run on rlx.",
        "Keep the arrays in a tree: register the class with rlx.tree.register_node; in flax.nnx leave out hijax=True.",
    )


class HiType(AbstractValue):
    """The type of values that are not arrays."""


class MutableHiType(HiType):
    """The type of mutable values that are not arrays."""


class HiPrimitive:
    """An operation on such values; a library derives from it."""

    multiple_results = False

    def __init__(self, name: str) -> None:
        self.name = name

    bind = _refuse


class AvalQDD:
    """A type, and its state-dependent part."""

    __new__ = _refuse


class AvalMutableQDD(AvalQDD):
    """As AvalQDD, for mutable values."""


class aval_property:
    """A property of the values of a type."""

    def __init__(self, fget: Any) -> None:
        self.fget = fget


class aval_method:
    """A method of the values of a type."""

    def __init__(self, fun: Any) -> None:
        self.fun = fun


class _EffectTypes:
    """Types of effects that loops and branches may have."""

    def __init__(self) -> None:
        self._types: list[type] = []

    def add_type(self, kind: type) -> None:
        """Add a type."""
        self._types.append(kind)


control_flow_allowed_effects = _EffectTypes()
cur_qdd = _refuse


def register_hitype(val_cls: type, typeof_fn: Any) -> None:
    """Set how the type of a value is found. rlx never calls it."""
