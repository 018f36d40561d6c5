"""jax.pure_callback and jax.experimental.io_callback: exceptions of host functions become JaxRuntimeError.

XLA converts every exception to one, and equinox looks for it, and for the exception's name in its message.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import rlx
from rlx.errors import JaxRuntimeError

__all__ = ["io_callback", "pure_callback"]


def _told(error: Exception) -> JaxRuntimeError:
    kind = type(error)
    return JaxRuntimeError(f"{kind.__module__}.{kind.__qualname__}: {error}")


def _wrapped(callback: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(callback, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return callback(*args, **kwargs)
        except JaxRuntimeError:
            raise
        except Exception as error:
            found = error
        raise _told(found) from found

    return call


@wraps(rlx.pure_callback)
def pure_callback(callback: Callable[..., Any], result_shape_dtypes: Any, *args: Any, **kwargs: Any) -> Any:
    """As rlx.pure_callback."""
    return rlx.pure_callback(_wrapped(callback), result_shape_dtypes, *args, **kwargs)


@wraps(rlx.io_callback)
def io_callback(callback: Callable[..., Any], result_shape_dtypes: Any, *args: Any, **kwargs: Any) -> Any:
    """As rlx.io_callback."""
    return rlx.io_callback(_wrapped(callback), result_shape_dtypes, *args, **kwargs)
