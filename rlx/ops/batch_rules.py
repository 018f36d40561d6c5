"""Users' rules for batching their functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx.errors import CallbackError
from rlx.ir.types import TensorType
from rlx.ops.families import to_front
from rlx.trace.primitive import type_of
from rlx.trees import tree

__all__ = ["batched_by_rule"]


def batched_by_rule(
    name: str,
    rule: Callable[..., Any],
    size: int,
    has: tuple[bool, ...],
    inputs: Sequence[Any],
    outputs: Sequence[TensorType],
) -> tuple[Any, ...]:
    """Results with the batch axis in front, by `rule(size, has, *inputs) -> (results, batched)`.

    name: the function's; outputs: types of one call's results. Raises CallbackError if the rule returns others.
    """
    result, batched = rule(size, has, *inputs)
    outs, marks = tree.flatten(result)[0], tree.flatten(batched)[0]
    if not len(outs) == len(marks) == len(outputs):
        raise CallbackError(
            f"The vmap rule of {name} returned {len(outs)} results and {len(marks)} marks for {len(outputs)} outputs.",
            "Return (results, batched), with a bool in batched for each result.",
        )
    outs = [to_front(o, 0 if m else None, size) for o, m in zip(outs, marks, strict=True)]
    for out, promised in zip(outs, outputs, strict=True):
        found, wanted = type_of(out), promised.update(shape=(size, *promised.shape))
        if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
            raise CallbackError(
                f"The vmap rule of {name} returned {found!r} instead of {wanted!r}.",
                "Results that are marked as batched have the batch axis in front.",
            )
    return tuple(outs)
