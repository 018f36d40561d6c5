"""jax.experimental.xla_metadata: annotations for XLA, which rlx's compiler ignores."""

from __future__ import annotations

from contextlib import ContextDecorator
from typing import Any

__all__ = ["set_xla_metadata"]


class _Remarks(ContextDecorator):
    """A `with` block, or a decorator, that changes nothing."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def set_xla_metadata(x: Any = None, **kwargs: Any) -> Any:
    """The value itself; without one a context manager and decorator. The annotations are ignored.

    >>> from rlx.jaxnames.xla_metadata import set_xla_metadata
    >>> set_xla_metadata(2.0, breakpoint=True)
    2.0
    >>> with set_xla_metadata(place="host"):
    ...     set_xla_metadata(unroll=True)(max)(1, 2)
    2
    """
    return _Remarks() if x is None else x
