"""Switches: thread-scoped values over process-wide defaults."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

__all__ = ["config", "scoped"]


def _flag(name: str, default: str = "0") -> bool:
    return os.environ.get(name, default).lower() not in ("", "0", "false", "off", "no")


class Config(threading.local):
    """The switches of rlx. Class attributes are the process-wide defaults, instance attributes a thread's own.

    default_float, default_int: dtypes of Python literals and of creation functions (np.dtype).
    check: verify the program after every pass (RLX_CHECK=1).
    explain: say on standard error why a jitted call was traced again (RLX_EXPLAIN=1).
    disable_jit: run jitted functions and control flow op by op.
    debug_nans: raise where an operation first makes a NaN (RLX_DEBUG_NANS=1).
    dump: a folder that receives every stage of each compiled program (RLX_DUMP=dir), or "".
    device: name of the default device (RLX_DEVICE).
    """

    default_float: np.dtype = np.dtype("f4")
    default_int: np.dtype = np.dtype("i4")
    check: bool = _flag("RLX_CHECK")
    explain: bool = _flag("RLX_EXPLAIN")
    disable_jit: bool = _flag("RLX_DISABLE_JIT")
    debug_nans: bool = _flag("RLX_DEBUG_NANS")
    dump: str = os.environ.get("RLX_DUMP", "")
    device: str = os.environ.get("RLX_DEVICE", "cpu")

    def update(self, name: str, value: Any) -> None:
        """Set a process-wide default by name.

        >>> import rlx
        >>> rlx.config.update("check", False)
        """
        name = name.removeprefix("jax_")
        if name == "enable_x64":
            type(self).default_float = np.dtype("f8" if value else "f4")
            type(self).default_int = np.dtype("i8" if value else "i4")
            self._publish()
            return
        if name not in _SWITCHES:
            raise AttributeError(f"rlx has no switch named {name!r}; there are: {', '.join(_SWITCHES)}")
        if name in ("default_float", "default_int"):
            value = np.dtype(value)
        setattr(type(self), name, value)
        self._publish()

    def _publish(self) -> None:
        Config.token = _token(Config)
        self.__dict__.pop("token", None)

    # a number for the combination of switches that a traced program depends on
    token: int = 0

    def refresh(self) -> None:
        """Bring this thread's token up to date after a change."""
        self.token = _token(self)


_SWITCHES = tuple(name for name in Config.__annotations__ if name != "token")
_tokens: dict[Any, int] = {}


def _token(values: Any) -> int:
    key = (values.default_float, values.default_int, values.device, values.disable_jit, values.debug_nans)
    return _tokens.setdefault(key, len(_tokens))


Config.token = _token(Config)
config = Config()


@contextmanager
def scoped(**values: Any) -> Generator[None]:
    """Set switches of this thread inside a `with` block. Raises AttributeError for an unknown switch.

    >>> import rlx
    >>> with rlx.scoped(default_float=rlx.numpy.dtype("float64")):
    ...     rlx.numpy.zeros(2).dtype
    dtype('float64')
    """
    own = config.__dict__
    before = {name: own[name] for name in values if name in own}
    try:
        for name, value in values.items():
            if name not in _SWITCHES:
                raise AttributeError(f"rlx has no switch named {name!r}")
            setattr(config, name, value)
        config.refresh()
        yield
    finally:
        for name in values:
            if name in before:
                setattr(config, name, before[name])
            else:
                own.pop(name, None)
        config.refresh()
