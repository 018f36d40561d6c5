"""The kinds of operations that methods of graphs take, as enumerations of strings."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from rlx.graph.layers import MASK_KINDS
from rlx.graph.operations import ACTIVATIONS, BINARY, COMPARISONS

__all__ = ["Activation", "BinaryOp", "CmpOp", "MaskKind"]


def _members(names: Any) -> dict[str, str]:
    return {name.upper(): name for name in names}


# each member equals its string: graph.activation(Activation.SILU, x) is graph.activation("silu", x)
Activation: Any = StrEnum("Activation", _members(ACTIVATIONS))
BinaryOp: Any = StrEnum("BinaryOp", _members(BINARY))
CmpOp: Any = StrEnum("CmpOp", _members(COMPARISONS))
MaskKind: Any = StrEnum("MaskKind", _members(MASK_KINDS))
for _kind, _about in (
    (Activation, "The kinds of graph.activation: members equal their strings."),
    (BinaryOp, "The kinds of graph.binary: members equal their strings."),
    (CmpOp, "The kinds of graph.compare: members equal their strings."),
    (MaskKind, "The mask kinds of graph.attention: members equal their strings."),
):
    _kind.__doc__ = f"""{_about}

    >>> from rlx.graph.kinds import Activation
    >>> Activation.SILU == "silu"
    True
    """
