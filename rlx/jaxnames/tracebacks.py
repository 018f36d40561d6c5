"""jax._src.traceback_util: files whose frames tracebacks may hide (flax, equinox, jaxtyping)."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["api_boundary", "include_frame", "register_exclusion"]

_exclude_paths: list[str] = []  # flax adds and removes its files


def register_exclusion(path: str) -> None:
    """Register this file's frames as a library's."""
    _exclude_paths.append(path)


def include_frame(frame: FrameType) -> bool:
    """Whether a frame belongs to the user's code.

    >>> import sys
    >>> from rlx.jaxnames.tracebacks import include_frame
    >>> include_frame(sys._getframe())
    True
    """
    return not any(path in frame.f_code.co_filename for path in _exclude_paths)


def api_boundary(function: Callable[..., Any], **_: Any) -> Callable[..., Any]:
    """The function: rlx does not cut tracebacks at a library's functions."""
    return function
