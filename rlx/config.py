"""Switches: thread-scoped values over process-wide defaults."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

__all__ = ["check_precision", "config", "scoped"]


def _flag(name: str, default: str = "0") -> bool:
    return os.environ.get(name, default).lower() not in ("", "0", "false", "off", "no")


class Config(threading.local):
    """The switches of rlx. Class attributes are the process-wide defaults, instance attributes a thread's own.

    default_float, default_int: dtypes of Python literals and of creation functions (np.dtype).
    check: verify the program after every pass (RLX_CHECK=1).
    explain: say on standard error why a jitted call was traced again (RLX_EXPLAIN=1).
    disable_jit: run jitted functions and control flow op by op.
    debug_nans: raise where an operation first makes a NaN (RLX_DEBUG_NANS=1).
    debug_infs: raise where an operation first makes an infinity (RLX_DEBUG_INFS=1).
    dump: a folder that receives every stage of each compiled program (RLX_DUMP=dir), or "".
    device: name of the default device (RLX_DEVICE).

    JAX's names are understood too: jax_enable_x64 (float64 and int64 as default dtypes), jax_debug_nans,
    jax_debug_infs, jax_disable_jit, jax_platform_name, and switches that change no result.
    """

    default_float: np.dtype = np.dtype("f4")
    default_int: np.dtype = np.dtype("i4")
    check: bool = _flag("RLX_CHECK")
    explain: bool = _flag("RLX_EXPLAIN")
    disable_jit: bool = _flag("RLX_DISABLE_JIT")
    debug_nans: bool = _flag("RLX_DEBUG_NANS")
    debug_infs: bool = _flag("RLX_DEBUG_INFS")
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
        if name in _GIVEN:
            _accept(name, value)
            return
        name = _OTHER_NAMES.get(name, name)
        if name not in _SWITCHES:
            raise AttributeError(f"rlx has no switch named {name!r}; there are: {', '.join(_SWITCHES)}")
        if name in ("default_float", "default_int"):
            value = np.dtype(value)
        setattr(type(self), name, value)
        self._publish()

    def __getattr__(self, name: str) -> Any:
        """JAX's names for the switches, with or without "jax_" in front."""
        plain = name.removeprefix("jax_")
        if plain == "enable_x64":
            return self.default_float == np.dtype("f8")
        if plain in _GIVEN:
            return _GIVEN[plain]
        plain = _OTHER_NAMES.get(plain, plain)
        if name != plain and plain in _SWITCHES:
            return getattr(self, plain)
        raise AttributeError(f"rlx has no switch named {name!r}")

    def read(self, name: str) -> Any:
        """The value of a switch by name, as `update` takes it.

        >>> import rlx
        >>> rlx.config.read("jax_enable_x64")
        False
        """
        return getattr(self, name)

    def parse_flags_with_absl(self) -> None:
        """Set the switches that the command line names as `--jax_NAME=value` or `--jax_NAME value`.

        Words are read as they stand, and left where they are: absl need not be installed. Raises AttributeError
        for a switch that rlx has not.

        >>> import rlx
        >>> rlx.config.parse_flags_with_absl()
        """
        words = iter(sys.argv[1:])
        for word in words:
            flag, given, value = word.lstrip("-").partition("=")
            if not (word.startswith("-") and flag.startswith(("jax_", "nojax_"))):
                continue
            off = flag.startswith("no")
            name = flag.removeprefix("no").removeprefix("jax_")
            if off or isinstance(self.read(name), bool):
                self.update(name, not off and value.lower() not in ("false", "0", "no"))
            else:
                self.update(name, value if given else next(words, ""))

    def _publish(self) -> None:
        Config.token = _token(Config)
        self.__dict__.pop("token", None)

    # a number for the combination of switches that a traced program depends on
    token: int = 0

    def refresh(self) -> None:
        """Bring this thread's token up to date after a change."""
        self.token = _token(self)


# JAX's names for switches of rlx
_OTHER_NAMES = {"platform_name": "device", "platforms": "device"}
_GIVEN: dict[str, Any] = {
    # granted whatever they say: no result depends on them
    "compilation_cache_dir": None,
    "default_matmul_precision": None,
    "disable_most_optimizations": False,
    "enable_checks": False,
    "enable_compilation_cache": True,
    "explain_cache_misses": False,
    "include_full_tracebacks_in_locations": False,
    "log_compiles": False,
    "logging_level": None,
    "persistent_cache_min_compile_time_secs": 1.0,
    "persistent_cache_min_entry_size_bytes": 0,
    "traceback_filtering": None,
    "transfer_guard": None,
    # they add errors to JAX's rules, which rlx's are not
    "check_tracer_leaks": False,
    "enable_custom_prng": False,
    "numpy_dtype_promotion": "standard",
    "numpy_rank_promotion": "allow",
    # rlx has one behaviour
    "default_prng_impl": "threefry2x32",
    "threefry_partitionable": True,
}
_SINGLE = ("default_prng_impl", "threefry_partitionable")
_PRECISIONS = frozenset(
    "default high highest fastest bfloat16 bfloat16_3x tensorfloat32 float32 ANY_F8_ANY_F8_F32 F16_F16_F16"
    " F16_F16_F32 BF16_BF16_BF16 BF16_BF16_F32 BF16_BF16_F32_X3 BF16_BF16_F32_X6 BF16_BF16_F32_X9 TF32_TF32_F32"
    " TF32_TF32_F32_X3 F32_F32_F32 F64_F64_F64".split()
)


def check_precision(precision: Any) -> None:
    """Raises ValueError unless this is one of JAX's precisions of products; each is granted.

    >>> import rlx
    >>> from rlx.config import check_precision
    >>> check_precision("highest")
    """
    if isinstance(precision, str) and precision not in _PRECISIONS:
        raise ValueError(f"{precision!r} is no precision of products; there are: {', '.join(sorted(_PRECISIONS))}")


def _accept(name: str, value: Any) -> None:
    """Note a switch of JAX's. Raises ValueError for a value that asks for something else than happens."""
    if name in _SINGLE and value != _GIVEN[name]:
        raise ValueError(f"rlx knows only {name}={_GIVEN[name]!r}, got {value!r}")
    if name == "default_matmul_precision":
        check_precision(value)
    _GIVEN[name] = value


_SWITCHES = tuple(name for name in Config.__annotations__ if name != "token")
_tokens: dict[Any, int] = {}


def _token(values: Any) -> int:
    watching = values.debug_nans, values.debug_infs
    key = (values.default_float, values.default_int, values.device, values.disable_jit, *watching)
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
