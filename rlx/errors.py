"""One class for each mistake: what happened, your line, what to write instead."""

from __future__ import annotations

import linecache
import os
import sys
from types import FrameType
from typing import Any

__all__ = [
    "AxisError",
    "CallbackError",
    "ConcretizationTypeError",
    "ControlFlowTypeError",
    "CustomRuleError",
    "DeviceError",
    "DonatedArrayError",
    "DtypeError",
    "FileFormatError",
    "ImmutableArrayError",
    "IndexBoundsError",
    "InputTypeError",
    "MissingRuleError",
    "MemoryLimitError",
    "NanError",
    "NonConcreteBooleanIndexError",
    "NonHashableStaticArgumentError",
    "NotLinearError",
    "OptionError",
    "RlxError",
    "ScalarOutputError",
    "ShapeError",
    "TracerArrayConversionError",
    "TracerBoolConversionError",
    "TracerHashError",
    "TracerIntegerConversionError",
    "TracerSliceError",
    "TreeMismatchError",
    "UnexpectedTracerError",
    "UnsupportedError",
    "VerificationError",
    "VmapAxisError",
    "user_frame",
    "user_line",
]

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def user_frame(skip: int = 1) -> FrameType | None:
    """The innermost frame outside of rlx."""
    frame: FrameType | None = sys._getframe(skip)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame


def user_line() -> str:
    """'file:line' and the text of the user's own line, for a message."""
    frame = user_frame(2)
    if frame is None:
        return ""
    return source_line(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def source_line(file: str, line: int, function: str) -> str:
    """'file:line, in function' and the text of the line, for a message."""
    text = linecache.getline(file, line).strip()
    place = f"{os.path.basename(file)}:{line}, in {function}"
    return f"  at {place}\n    {text}" if text else f"  at {place}"


class RlxError(Exception):
    """Base of every error that rlx raises on purpose.

    `what` happened; `instead`: what to write. The user's own line is added between the two.
    """

    def __init__(self, what: str, instead: str = "", line: str | None = None) -> None:
        self.what = what
        self.instead = instead
        self.line = user_line() if line is None else line
        super().__init__("\n".join(part for part in (what, self.line, instead) if part))


class ShapeError(RlxError, ValueError, TypeError):
    """Operands whose shapes do not fit one another."""


class AxisError(ShapeError, IndexError):
    """An axis number that an array does not have."""


class DtypeError(RlxError, TypeError, ValueError):
    """An operand of a dtype that the operation does not take."""


class InputTypeError(RlxError, TypeError):
    """An argument that is not an array, a number, or a tree of them."""


class ConcretizationTypeError(RlxError, TypeError):
    """A traced value was needed as a concrete one while tracing."""


class TracerBoolConversionError(ConcretizationTypeError):
    """A traced value in `if`, `while`, `and`, `or`, `not` or bool()."""


class TracerIntegerConversionError(ConcretizationTypeError):
    """A traced value as an index, a length or an argument of range()."""


class TracerSliceError(TracerIntegerConversionError, IndexError):
    """A traced value as a bound of a slice: the result's size would depend on it."""


class TracerArrayConversionError(ConcretizationTypeError):
    """A traced value handed to NumPy."""


class TracerHashError(RlxError, TypeError):
    """A traced value or an array as a dict key or set member."""


class NonConcreteBooleanIndexError(RlxError, IndexError):
    """A traced boolean mask as an index: the result's size would depend on values."""


class IndexBoundsError(RlxError, IndexError):
    """An index that does not fit the array: too many entries, out of bounds, or of a wrong shape."""


class ImmutableArrayError(RlxError, TypeError):
    """x[index] = value: arrays cannot be written to."""


class UnexpectedTracerError(RlxError):
    """A traced value outlived the function that it was traced in."""


class OptionError(RlxError, TypeError, ValueError):
    """An option of jit that it does not have, or with a value that it cannot take."""


class NonHashableStaticArgumentError(RlxError, ValueError, TypeError):
    """A static argument of jit that cannot be hashed."""


class NotLinearError(RlxError, TypeError):
    """linear_transpose of a function, or a derivative rule, that is not linear."""


class DonatedArrayError(RlxError, RuntimeError):
    """An array was used after it had been donated to a jitted call."""


class ScalarOutputError(RlxError, TypeError):
    """grad of a function whose result is not one real number."""


class VmapAxisError(RlxError, ValueError, TypeError):
    """in_axes, out_axes or axis sizes of vmap that do not fit the arguments."""


class ControlFlowTypeError(RlxError, TypeError, ValueError):
    """Branches or loop carries whose types differ."""


class TreeMismatchError(RlxError, ValueError, TypeError):
    """Trees of different structure where equal ones are needed."""


class FileFormatError(RlxError, ValueError):
    """A file that is not what its name says, or that is broken."""


class CustomRuleError(RlxError, TypeError, ValueError):
    """A custom derivative rule that returned something else than it should."""


class MissingCustomRuleError(CustomRuleError, AttributeError):
    """A call of a custom_jvp or custom_vjp function that was given no rule."""


class MemoryLimitError(RlxError, MemoryError):
    """A program cannot be brought under the memory_limit that jit was given."""


class NanError(RlxError, FloatingPointError):
    """An operation made a NaN while the switch debug_nans was on, or an infinity with debug_infs."""


class DeviceError(RlxError, ValueError):
    """A device or backend that does not exist here."""


class CallbackError(RlxError, RuntimeError):
    """A host callback that returned something else than it promised."""


class MissingRuleError(RlxError, TypeError):
    """A primitive class that does not state a rule."""


class UnsupportedError(RlxError, NotImplementedError):
    """Something that rlx does not do, said by name."""


class VerificationError(RlxError, AssertionError):
    """A program or plan that breaks the rules of its stage: a bug in rlx or in a user's pass."""


def not_linear(name: str) -> NotLinearError:
    """The error for an operation that cannot be transposed."""
    return NotLinearError(
        f"{name} is not linear in its operands, so it cannot be transposed.",
        "linear_transpose takes a function that is linear in its arguments, and a derivative rule is linear"
        " in the tangents: use rlx.vjp for other functions.",
    )


def describe(value: Any) -> str:
    """A value's type and shape in a few words, for messages."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None:
        return f"{type(value).__name__} {value!r:.60}"
    return f"{dtype}[{','.join(map(str, shape))}]"
