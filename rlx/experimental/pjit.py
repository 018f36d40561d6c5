"""pjit, which is jit with arguments that may be given by position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx.call.jit import jit

__all__ = ["pjit"]


def pjit(
    fun: Callable[..., Any],
    in_shardings: Any = None,
    out_shardings: Any = None,
    static_argnums: Any = None,
    static_argnames: Any = None,
    donate_argnums: Any = None,
    donate_argnames: Any = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: bool = False,
    compiler_options: dict[str, Any] | None = None,
) -> Any:
    """rlx.jit of `fun`. Arguments as of rlx.jit.

    >>> from rlx.experimental.pjit import pjit
    >>> float(pjit(lambda x: x + 1.0)(1.0))
    2.0
    """
    options: dict[str, Any] = {name: value for name, value in locals().items() if name != "fun"}
    return jit(fun, **options)
