"""Operations that constrain the compiler: optimization_barrier, dce_sink, tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array import Array, wrap
from rlx.errors import InputTypeError, UnsupportedError
from rlx.lax.operands import as_array
from rlx.numpy.placement import placed
from rlx.ops.call import optimization_barrier as barrier_op
from rlx.trees import tree

__all__ = ["after_all", "create_token", "dce_sink", "optimization_barrier"]


def optimization_barrier(operand: Any) -> Any:
    """The operand (an array, or a tree of arrays); the compiler moves no operation across.

    >>> from rlx import lax
    >>> lax.optimization_barrier((1, 2))[1].item()
    2
    """
    leaves, treedef = tree.flatten(operand)
    if not leaves:
        return operand
    return tree.unflatten(treedef, barrier_op(*map(as_array, leaves)))


def dce_sink(val: Any, *, prevent_mlir_dce: bool = False) -> None:
    """Mark a value as used. This has no effect here: an unused value is computed only if that has side effects.

    Raises UnsupportedError for prevent_mlir_dce=True, InputTypeError unless val is an array or a number.

    >>> import rlx
    >>> rlx.jit(lambda x: rlx.lax.dce_sink(x) or x)(1.0).item()
    1.0
    """
    as_array(val, "the value for lax.dce_sink")
    if prevent_mlir_dce:
        raise UnsupportedError(
            "lax.dce_sink(prevent_mlir_dce=True) asks for the computation of an unused value.",
            "Return the value from the jitted function.",
        )


def create_token(_: Any = None) -> Array:
    """A token: an empty array of bools that represents an order of effects. Effects keep their order without tokens.

    >>> from rlx import lax
    >>> lax.create_token().shape
    (0,)
    """
    return placed(wrap(np.zeros(0, bool)))


def after_all(*operands: Any) -> Array:
    """A token that depends on all of these tokens. Raises InputTypeError for other values.

    >>> from rlx import lax
    >>> lax.after_all(lax.create_token(), lax.create_token()).shape
    (0,)
    """
    tokens = [as_array(token, "an operand of lax.after_all") for token in operands]
    for token in tokens:
        if token.shape != (0,) or token.dtype != bool:
            raise InputTypeError(f"lax.after_all got {token.type!r}.", "Pass the results of lax.create_token.")
    return create_token()
