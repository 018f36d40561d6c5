"""Switches: thread-scoped values over process-wide defaults."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from enum import Enum
from typing import Annotated, Any, TypeVar

import numpy as np

from rlx.errors import DeviceError, DtypeError, MissingNameError, OptionError, did_you_mean
from rlx.statics import static_key

__all__ = ["ChosenDevice", "UserContext", "check_precision", "config", "initial_device", "scoped", "seconds_of"]


class ChosenDevice(str):
    """The name of a default device that the user did not choose: dtypes that it lacks stay on the CPU.

    >>> from rlx.config import ChosenDevice
    >>> ChosenDevice("mlx")
    'mlx'
    """

    __slots__ = ()


def initial_device() -> str:
    """RLX_DEVICE; without it the GPU of a Mac if MLX is installed, else the CPU.

    >>> from rlx.config import initial_device
    >>> isinstance(initial_device(), str)
    True
    """
    named = os.environ.get("RLX_DEVICE")
    if named and named != "auto":
        return named
    apple = sys.platform == "darwin" and platform.machine() == "arm64"
    return ChosenDevice("mlx") if apple and importlib.util.find_spec("mlx") is not None else "cpu"


def seconds_of(name: str, default: float) -> float:
    """The number of seconds in an environment variable.

    Raises: OptionError for anything but a finite number above 0.

    >>> from rlx.config import seconds_of
    >>> seconds_of("NO_SUCH_TIMEOUT", 5.0)
    5.0
    """
    text = os.environ.get(name) or f"{default:g}"
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise OptionError(f"{name} is {text!r}.", "It must be a number of seconds above 0.")
    return seconds


def _flag(name: str, default: str = "0") -> bool:
    return os.environ.get(name, default).lower() not in ("", "0", "false", "off", "no")


T = TypeVar("T")
# the type of a switch that changes neither programs nor the results of operations, and is not in programs' keys
Aside = Annotated[T, "changes no program"]


class Config(threading.local):
    """The switches of rlx. Class attributes are the process-wide defaults, instance attributes a thread's own.

    default_float, default_int: dtypes of Python literals and of creation functions (np.dtype).
    check: verify the program after every pass (RLX_CHECK=1).
    explain: report on standard error why a jitted call was traced again (RLX_EXPLAIN=1).
    progress: report on standard error compilations that take over two seconds (RLX_PROGRESS=0: do not).
    disable_jit: run jitted functions and control flow op by op.
    debug_nans: raise if an operation makes a NaN (RLX_DEBUG_NANS=1).
    debug_infs: raise if an operation makes an infinity (RLX_DEBUG_INFS=1).
    symbolic_sizes: make one program for all sizes of the axes whose sizes change from call to call
      (RLX_SYMBOLIC_SIZES=0: one for each size).
    dump: a folder that receives every stage of each compiled program (RLX_DUMP=dir), or "".
    device: name of the default device (RLX_DEVICE; else "mlx" on a Mac where MLX is installed, "cpu" elsewhere).
    auto_device: choose a device for each jitted program (RLX_DEVICE=auto, or "auto" as the default device).
    excess_precision: results of float16, bfloat16 and narrower floats stay in float32 between operations of a
      jitted program that are fused, instead of being rounded after each as they are eagerly: faster, but
      `(x + 256) - 256` in bfloat16 is then x (RLX_EXCESS_PRECISION=1).
    deterministic: scatters that add or multiply floats also do so in the order of their updates on GPUs, and matrix
      products on the CPU are cut in the same blocks for any number of threads, so that runs are equal bit for bit:
      slower, because positions are sorted first and blocks are smaller (RLX_DETERMINISTIC=1).
    numpy_rank_promotion: "allow", or "warn" or "raise" if a function of rlx.numpy broadcasts operands of
      different numbers of axes (except numbers).
    numpy_dtype_promotion: "standard", or "strict": functions of rlx.numpy refuse operands of different dtypes
      (except the dtypes of Python numbers).
    legacy_prng_key: "allow", or "warn" or "error" if a function of rlx.random gets a key that is an array of
      uint32.
    log_compiles: log compilations to the logger "rlx", at level WARNING instead of DEBUG.
    check_tracer_leaks: raise as soon as a function has been traced, if one of its traced values is still held.
    no_tracing: raise if a jitted function would be traced.
    num_cpu_devices: the number of CPU devices (RLX_NUM_CPU_DEVICES); set before devices are first used.
    default_matmul_precision: the precision of products that specify none: None for full float32, or a name such as
      "tensorfloat32" (see rlx.lax.dot_general).
    mesh: the mesh set by rlx.set_mesh or a similar function, for functions that are traced under it.
    default_prng_impl: the generator of random keys that specify none.
    enable_custom_prng: random.PRNGKey makes typed keys, as random.key does.
    narrow: NumPy arrays of 64-bit numbers become 32-bit at the border, and so do requested 64-bit dtypes
      (with a warning), as in JAX without jax_enable_x64. Set by an explicit jax_enable_x64 = False.
    threefry_partitionable: whether "threefry2x32" counts as JAX does since version 0.5; False gives the numbers of
      earlier versions.

    JAX's names are also accepted: jax_enable_x64 (float64 and int64 as default dtypes), jax_debug_nans,
    jax_debug_infs, jax_disable_jit, jax_platform_name, and switches that do not change results.

    >>> import rlx
    >>> rlx.config
    Config(
        default_float=float32,
        default_int=int32,
    ...
    """

    default_float: np.dtype = np.dtype("f4")
    default_int: np.dtype = np.dtype("i4")
    check: Aside[bool] = _flag("RLX_CHECK")
    explain: Aside[bool] = _flag("RLX_EXPLAIN")
    progress: Aside[bool] = _flag("RLX_PROGRESS", "1")
    disable_jit: bool = _flag("RLX_DISABLE_JIT")
    debug_nans: bool = _flag("RLX_DEBUG_NANS")
    debug_infs: bool = _flag("RLX_DEBUG_INFS")
    symbolic_sizes: Aside[bool] = _flag("RLX_SYMBOLIC_SIZES", "1")
    dump: Aside[str] = os.environ.get("RLX_DUMP", "")
    device: str = initial_device()
    auto_device: bool = os.environ.get("RLX_DEVICE") == "auto"
    excess_precision: bool = _flag("RLX_EXCESS_PRECISION")
    deterministic: bool = _flag("RLX_DETERMINISTIC")
    numpy_rank_promotion: str = "allow"
    numpy_dtype_promotion: str = "standard"
    legacy_prng_key: str = "allow"
    log_compiles: Aside[bool] = False
    check_tracer_leaks: Aside[bool] = False
    no_tracing: Aside[bool] = False
    num_cpu_devices: Aside[int | str] = os.environ.get("RLX_NUM_CPU_DEVICES", 1)
    default_matmul_precision: Any = None
    mesh: Any = None
    default_prng_impl: str = "threefry2x32"
    enable_custom_prng: bool = False
    narrow: bool = False
    threefry_partitionable: bool = True

    def update(self, name: str, value: Any) -> None:
        """Set a process-wide default by name.

        >>> import rlx
        >>> rlx.config.update("check", False)
        """
        for switch, setting in _settings(name, value):
            if switch in _GIVEN:
                _GIVEN[switch] = setting
            else:
                setattr(type(self), switch, setting)
        self._publish()

    def __getattr__(self, name: str) -> Any:
        """JAX's names for the switches, with or without "jax_" in front."""
        plain = name.removeprefix("jax_")
        if plain in ("enable_x64", "x64_enabled"):
            return self.default_float == np.dtype("f8")
        if plain in _GIVEN:
            return self.__dict__.get(plain, _GIVEN[plain])
        plain = _OTHER_NAMES.get(plain, plain)
        if name != plain and plain in _SWITCHES:
            return getattr(self, plain)
        raise _no_switch(name)

    def __setattr__(self, name: str, value: Any) -> None:
        """As `update`: assigning alone would neither check the name nor have functions traced again."""
        self.update(name, value)

    def read(self, name: str) -> Any:
        """The value of a switch by name, in the form that `update` takes.

        >>> import rlx
        >>> rlx.config.read("jax_enable_x64")
        False
        """
        return getattr(self, name)

    def parse_flags_with_absl(self) -> None:
        """Set the switches given on the command line as `--jax_NAME=value` or `--jax_NAME value`.

        Words are read literally and stay in sys.argv: absl need not be installed. Raises AttributeError
        for a switch that rlx does not have.

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

    def __repr__(self) -> str:
        """Every switch and its value in this thread, a line each."""
        return "\n".join(["Config(", *(f"    {name}={_shown(getattr(self, name))}," for name in _SWITCHES), ")"])

    def _publish(self) -> None:
        Config.token, Config.watched = _token(Config), _watched(Config)
        self.__dict__.pop("token", None)
        self.__dict__.pop("watched", None)
        if self.__dict__:  # inside of a `with` block that sets other switches
            self.refresh()

    # a number for the combination of switches that a traced program depends on
    token: int = 0
    # whether every eager operation is observed: a switch requires it, or the default device may not be the host
    watched: bool = False

    def refresh(self) -> None:
        """Bring this thread's token up to date after a change."""
        own = self.__dict__
        own["token"], own["watched"] = _token(self), _watched(self)


# JAX's names for switches of rlx
_OTHER_NAMES = {
    "default_device": "device",
    "platform_name": "device",
    "platforms": "device",
    "enable_checks": "check",
    "explain_cache_misses": "explain",
}
_TRANSFERS = (("host", "device"), ("device", "device"), ("device", "host"))
_GIVEN: dict[str, Any] = {
    # any value is accepted: no result depends on these switches
    "compilation_cache_dir": None,
    "disable_most_optimizations": False,
    "enable_compilation_cache": True,
    "include_full_tracebacks_in_locations": False,
    "logging_level": None,
    "persistent_cache_enable_xla_caches": None,
    "persistent_cache_min_compile_time_secs": 1.0,
    "persistent_cache_min_entry_size_bytes": 0,
    "remat3": False,
    "traceback_filtering": None,
    **dict.fromkeys(("transfer_guard", *(f"transfer_guard_{a}_to_{b}" for a, b in _TRANSFERS))),
    "softmax_custom_jvp": True,
    "allow_f16_reductions": True,
    # switches with one supported value
    "debug_key_reuse": False,
}
_SINGLE = ("debug_key_reuse",)
_GUARDS = (None, "allow", "log", "disallow", "log_explicit", "disallow_explicit")
# the possible values of switches that are words
_WORDS: dict[str, tuple[str | None, ...]] = {
    "numpy_rank_promotion": ("allow", "warn", "raise"),
    "numpy_dtype_promotion": ("standard", "strict"),
    "default_prng_impl": ("threefry2x32", "threefry4x32", "philox2x32", "philox4x32", "rbg", "unsafe_rbg"),
    "legacy_prng_key": ("allow", "warn", "error"),
    **{name: _GUARDS for name in _GIVEN if name.startswith("transfer_guard")},
}
_PRECISIONS = frozenset(
    "default high highest fastest bfloat16 bfloat16_3x tensorfloat32 float32 ANY_F8_ANY_F8_F32 F16_F16_F16"
    " F16_F16_F32 BF16_BF16_BF16 BF16_BF16_F32 BF16_BF16_F32_X3 BF16_BF16_F32_X6 BF16_BF16_F32_X9 TF32_TF32_F32"
    " TF32_TF32_F32_X3 F32_F32_F32 F64_F64_F64".split()
)


def check_precision(precision: Any) -> None:
    """Raises ValueError unless this is one of JAX's precisions of products.

    >>> import rlx
    >>> from rlx.config import check_precision
    >>> check_precision("highest")
    """
    if not (precision is None or isinstance(precision, (tuple, Enum)) or precision in _PRECISIONS):
        raise ValueError(f"{precision!r} is not a precision of products; use one of {', '.join(sorted(_PRECISIONS))}")


def _no_switch(name: str) -> AttributeError:
    """The error for an unknown switch; a cheap one for names that Python looks up on every object."""
    if name.startswith("_"):
        return AttributeError(f"rlx has no switch named {name!r}")
    known = (*_SWITCHES, *_GIVEN, *_OTHER_NAMES, "enable_x64")
    near = did_you_mean(name, known, repr)
    return MissingNameError(
        f"rlx has no switch named {name!r}.", near or f"There are: {', '.join(_SWITCHES)}.", name=name, known=known
    )


def _shown(value: Any) -> str:
    return value.name if isinstance(value, np.dtype) else repr(value)


def _dtype(name: str, value: Any) -> np.dtype:
    try:
        return np.dtype(value)
    except TypeError:
        known = ("int32", "int64") if name == "default_int" else ("float16", "bfloat16", "float32", "float64")
        near = did_you_mean(value, known, repr) if isinstance(value, str) else ""
        raise DtypeError(
            f"config.{name} got {value!r}, which is not a dtype.", near or f"Pass one of {', '.join(known)}."
        ) from None


def _settings(name: str, value: Any) -> list[tuple[str, Any]]:
    """The settings that a switch, by rlx's name or JAX's, and its value mean. AttributeError, ValueError if invalid."""
    name = name.removeprefix("jax_")
    if name == "enable_x64":
        return [
            ("default_float", np.dtype("f8" if value else "f4")),
            ("default_int", np.dtype("i8" if value else "i4")),
            ("narrow", not value),
        ]
    name = _OTHER_NAMES.get(name, name)
    if name not in _SWITCHES and name not in _GIVEN:
        raise _no_switch(name)
    if name in _SINGLE and value != _GIVEN[name]:
        raise ValueError(f"rlx knows only {name}={_GIVEN[name]!r}, got {value!r}")
    if name in _settled and value != getattr(Config, name):
        raise DeviceError(
            f"config.update({name!r}, {value!r}) was called after devices had been used.",
            f"Call it right after the import of rlx, or set RLX_{name.upper()}={value} in the environment.",
        )
    if name in _WORDS and value not in _WORDS[name]:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, _WORDS[name]))}, got {value!r}")
    if name == "default_matmul_precision":
        check_precision(value)
    if name in ("default_float", "default_int"):
        value = _dtype(name, value)
    if name == "device":
        automatic = value == "auto"
        value = initial_device() if value is None or automatic else getattr(value, "name", value)
        return [("device", value), ("auto_device", automatic)]
    return [(name, value)]


_settled: set[str] = set()


def settled(name: str) -> Any:
    """The process-wide value of a switch, which can no longer be changed."""
    _settled.add(name)
    return getattr(Config, name)


_SWITCHES = tuple(name for name in Config.__annotations__ if name not in ("token", "watched"))
# all switches that are not declared as Aside (annotations are strings)
_PROGRAM_SWITCHES = tuple(name for name in _SWITCHES if not Config.__annotations__[name].startswith("Aside["))
_tokens: dict[Any, int] = {}
_contexts: list[str] = []  # attributes of Config, each with the values of a UserContext


def _token(values: Any) -> int:
    """A number for the values of the switches that change programs, and of user contexts."""
    key = tuple([static_key(getattr(values, name)) for name in (*_PROGRAM_SWITCHES, *_contexts)])
    return _tokens.setdefault(key, len(_tokens))


def _watched(values: Any) -> bool:
    looks = values.debug_nans or values.debug_infs or values.numpy_rank_promotion != "allow"
    return looks or values.device not in _host_devices


# devices whose arrays are NumPy's; the others' backends are not loaded, or have their own memory
_host_devices = {"cpu"}


def computes_on_host(device: str) -> None:
    """Register a loaded backend whose memory is the host's: if it is the default, NumPy computes, unobserved."""
    _host_devices.add(device)
    config._publish()


Config.token, Config.watched = _token(Config), _watched(Config)
config = Config()


@contextmanager
def scoped(**values: Any) -> Generator[None]:
    """Set switches of this thread inside a `with` block. Raises AttributeError for an unknown switch.

    >>> import rlx
    >>> with rlx.scoped(default_float=rlx.numpy.dtype("float64")):
    ...     rlx.numpy.zeros(2).dtype
    dtype('float64')
    """
    with _scoped([setting for name, value in values.items() for setting in _settings(name, value)]):
        yield


@contextmanager
def _scoped(settings: list[tuple[str, Any]]) -> Generator[None]:
    """Attributes of this thread's configuration, until the end of the block."""
    own = config.__dict__
    before = {name: own[name] for name, _ in settings if name in own}
    try:
        own.update(settings)
        config.refresh()
        yield
    finally:
        for name, _ in settings:
            if name in before:
                own[name] = before[name]
            else:
                own.pop(name, None)
        config.refresh()


class UserContext:
    """A user-defined value that jitted functions may depend on: they are traced again for another value.

    Call it with a value for a `with` block of this thread; `set_global` is for all threads outside of such blocks.
    Values must be hashable.

    >>> import rlx
    >>> mode = rlx.make_user_context("train")
    >>> with mode("test"):
    ...     mode.value
    'test'
    """

    def __init__(self, default_value: Any = None) -> None:
        hash(default_value)
        self._name = f"user context {len(_contexts)}"
        setattr(Config, self._name, default_value)
        _contexts.append(self._name)
        config._publish()

    @property
    def value(self) -> Any:
        """The current value in this thread."""
        return getattr(config, self._name)

    def get_global(self) -> Any:
        """The value outside of `with` blocks."""
        return getattr(Config, self._name)

    def set_global(self, new_value: Any) -> None:
        """Set the value outside of `with` blocks."""
        hash(new_value)
        setattr(Config, self._name, new_value)
        config._publish()

    def set_here(self, new_value: Any) -> None:
        """Set the value until this thread's innermost `with` block of this context ends."""
        vars(config)[self._name] = new_value
        config.refresh()

    def __call__(self, new_value: Any) -> AbstractContextManager[None]:
        """This value inside a `with` block."""
        return _scoped([(self._name, new_value)])
