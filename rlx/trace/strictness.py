"""Checks of users' operands for the switches numpy_rank_promotion and numpy_dtype_promotion."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from types import FrameType

import numpy as np

from rlx.config import config
from rlx.errors import ShapeError, TypePromotionError, warn

__all__ = ["check_dtypes", "check_ranks"]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_PLUMBING = tuple(
    _PACKAGE + os.path.join(*parts)
    for parts in (
        ("trace", "strictness.py"),
        ("trace", "primitive.py"),
        ("trace", "builder.py"),
        ("trace", "replay.py"),
        ("ops", ""),
        ("numpy", "promotion.py"),
        ("numpy", "operators.py"),
        ("numpy", "ufuncs.py"),
        ("numpy", "documentation.py"),
    )
)
# where functions of arrays are that users call
_FRONTS = tuple(
    _PACKAGE + name + os.sep for name in ("numpy", "lax", "nn", "scipy", "random", "image", "optim", "experimental")
)


# functions that work element by element: the operands that they promote are the user's
_ELEMENTWISE = tuple(
    os.path.join(_FRONTS[0], name) for name in ("elementwise.py", "powers.py", "rounding.py", "floats.py")
)


def _called_by_user() -> bool:
    """Whether the function of rlx.numpy that brings its operands together was called by the user.

    Users cannot change calls between functions of rlx: only the outermost one counts.
    """
    frame = _after_plumbing(sys._getframe(2))
    if frame is None or not frame.f_code.co_filename.startswith(_PACKAGE):
        return True  # an operator, or a promotion by hand
    if not frame.f_code.co_filename.startswith(_FRONTS[0]):
        return False
    caller = _after_plumbing(frame.f_back)
    return caller is None or not caller.f_code.co_filename.startswith(_FRONTS)


def _in_elementwise_function() -> bool:
    """Whether the user called a function that works element by element, or an operator.

    Operations made by a transform, a pass or the interpreter are not the user's.
    """
    frame = _after_plumbing(sys._getframe(2))
    if frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        if not frame.f_code.co_filename.startswith(_FRONTS):
            return False
    while frame is not None and frame.f_code.co_filename.startswith(_FRONTS):
        if not frame.f_code.co_filename.startswith(_ELEMENTWISE):
            return False
        frame = _after_plumbing(frame.f_back)
    return True


def _after_plumbing(frame: FrameType | None) -> FrameType | None:
    """The nearest frame that is of a function of arrays, or of the user."""
    while frame is not None and frame.f_code.co_filename.startswith(_PLUMBING):
        frame = frame.f_back
    return frame


def check_ranks(name: str, shapes: Sequence[tuple[int, ...]]) -> None:
    """Warn or raise ShapeError, according to numpy_rank_promotion, if operands have different numbers of axes."""
    if config.numpy_rank_promotion == "allow" or len({len(s) for s in shapes if s}) < 2:
        return
    if not _in_elementwise_function():
        return
    given = " and ".join(map(str, shapes))
    if config.numpy_rank_promotion == "raise":
        raise ShapeError(
            f"{name} got operands of different numbers of axes, {given}, while the switch numpy_rank_promotion is"
            ' "raise".',
            "Insert axes with x[None, :] or rlx.numpy.expand_dims, or set the switch to 'allow'.",
        )
    what = f"{name} gives operands of shapes {given} the same number of axes, like NumPy"
    warn(f"{what}; the switch numpy_rank_promotion requests this warning")


def check_dtypes(pairs: Sequence[tuple[np.dtype, bool]]) -> None:
    """Raise TypePromotionError if dtypes differ, except for a Python number's.

    pairs: (dtype, weakness) of each operand.
    """
    strong = {dtype for dtype, weak in pairs if not weak and dtype.kind != "V"}
    kinds = {_rank_of(dtype) for dtype, weak in pairs if weak}
    if len(strong) > 1 or (strong and kinds and max(kinds) > _rank_of(next(iter(strong)))) or _mixes_bool(pairs):
        if _called_by_user():
            given = ", ".join(f"{dtype.name}{' (of a Python number)' if weak else ''}" for dtype, weak in pairs)
            raise TypePromotionError(
                f'Operands have dtypes {given}, while the switch numpy_dtype_promotion is "strict".',
                "Convert them to one dtype with .astype(...), or set the switch to 'standard'.",
            )


def _rank_of(dtype: np.dtype) -> int:
    """bool, integer, float, complex as 0 to 3."""
    return {"b": 0, "i": 1, "u": 1, "c": 3}.get(dtype.kind, 2)


def _mixes_bool(pairs: Sequence[tuple[np.dtype, bool]]) -> bool:
    bools = [dtype.kind == "b" for dtype, _ in pairs]
    return any(bools) and not all(bools)
