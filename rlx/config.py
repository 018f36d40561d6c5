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
from typing import Any

import numpy as np

from rlx.errors import DeviceError, MissingNameError, did_you_mean

__all__ = ["ChosenDevice", "UserContext", "check_precision", "config", "scoped"]


class ChosenDevice(str):
    """The name of a default device that nobody has asked for: what it has no numbers for stays on the CPU.

    >>> from rlx.config import ChosenDevice
    >>> ChosenDevice("mlx")
    'mlx'
    """

    __slots__ = ()


def _default_device() -> str:
    """What RLX_DEVICE says; without it the GPU of a Mac where MLX is installed, else the CPU."""
    named = os.environ.get("RLX_DEVICE")
    if named:
        return named
    apple = sys.platform == "darwin" and platform.machine() == "arm64"
    return ChosenDevice("mlx") if apple and importlib.util.find_spec("mlx") is not None else "cpu"


def _flag(name: str, default: str = "0") -> bool:
    return os.environ.get(name, default).lower() not in ("", "0", "false", "off", "no")


class Config(threading.local):
    """The switches of rlx. Class attributes are the process-wide defaults, instance attributes a thread's own.

    default_float, default_int: dtypes of Python literals and of creation functions (np.dtype).
    check: verify the program after every pass (RLX_CHECK=1).
    explain: say on standard error why a jitted call was traced again (RLX_EXPLAIN=1).
    progress: say on standard error what is compiled where that takes over two seconds (RLX_PROGRESS=0: no).
    disable_jit: run jitted functions and control flow op by op.
    debug_nans: raise where an operation first makes a NaN (RLX_DEBUG_NANS=1).
    debug_infs: raise where an operation first makes an infinity (RLX_DEBUG_INFS=1).
    dump: a folder that receives every stage of each compiled program (RLX_DUMP=dir), or "".
    device: name of the default device (RLX_DEVICE; else "mlx" on a Mac where MLX is installed, "cpu" elsewhere).
    excess_precision: results of float16, bfloat16 and narrower floats stay in float32 between operations of a
      jitted program that are fused, instead of being rounded after each as they are eagerly: faster, but
      `(x + 256) - 256` in bfloat16 is then x (RLX_EXCESS_PRECISION=1).
    deterministic: scatters that add or multiply floats do so in the order of their updates on GPUs, too, so that runs
      are equal to the last bit: slower, for places are sorted first (RLX_DETERMINISTIC=1).
    numpy_rank_promotion: "allow", or "warn" or "raise" where a function of rlx.numpy broadcasts operands of
      different numbers of axes (numbers alone aside).
    numpy_dtype_promotion: "standard", or "strict": functions of rlx.numpy refuse operands of different dtypes
      (those of Python numbers aside).
    legacy_prng_key: "allow", or "warn" or "error" where a function of rlx.random gets a key that is an array of
      uint32.
    log_compiles: say by the logger "rlx" what is compiled, at level WARNING instead of DEBUG.
    check_tracer_leaks: raise as soon as a function has been traced, if one of its traced values is still held.
    no_tracing: raise where a jitted function would be traced.
    num_cpu_devices: how many devices the CPU is (RLX_NUM_CPU_DEVICES); set before devices are first asked for.
    default_matmul_precision: what products are made in that name no precision: None for full float32, or a name such as
      "tensorfloat32" (see rlx.lax.dot_general).
    mesh: what rlx.set_mesh and its kin have set, for functions that are traced under it.
    default_prng_impl: the generator that random keys belong to where none is named.
    enable_custom_prng: random.PRNGKey makes typed keys, as random.key does.
    narrow: NumPy arrays of 64-bit numbers become 32-bit where they enter, and so do 64-bit dtypes that are asked for
      (with a warning), as in JAX without jax_enable_x64. Set by jax_enable_x64 = False, when it is said.

    JAX's names are understood too: jax_enable_x64 (float64 and int64 as default dtypes), jax_debug_nans,
    jax_debug_infs, jax_disable_jit, jax_platform_name, and switches that change no result.
    """

    default_float: np.dtype = np.dtype("f4")
    default_int: np.dtype = np.dtype("i4")
    check: bool = _flag("RLX_CHECK")
    explain: bool = _flag("RLX_EXPLAIN")
    progress: bool = _flag("RLX_PROGRESS", "1")
    disable_jit: bool = _flag("RLX_DISABLE_JIT")
    debug_nans: bool = _flag("RLX_DEBUG_NANS")
    debug_infs: bool = _flag("RLX_DEBUG_INFS")
    dump: str = os.environ.get("RLX_DUMP", "")
    device: str = _default_device()
    excess_precision: bool = _flag("RLX_EXCESS_PRECISION")
    deterministic: bool = _flag("RLX_DETERMINISTIC")
    numpy_rank_promotion: str = "allow"
    numpy_dtype_promotion: str = "standard"
    legacy_prng_key: str = "allow"
    log_compiles: bool = False
    check_tracer_leaks: bool = False
    no_tracing: bool = False
    num_cpu_devices: int | str = os.environ.get("RLX_NUM_CPU_DEVICES", 1)
    default_matmul_precision: Any = None
    mesh: Any = None
    default_prng_impl: str = "threefry2x32"
    enable_custom_prng: bool = False
    narrow: bool = False

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
        Config.token, Config.watched = _token(Config), _watched(Config)
        self.__dict__.pop("token", None)
        self.__dict__.pop("watched", None)
        if self.__dict__:  # inside of a `with` block that sets others
            self.refresh()

    # a number for the combination of switches that a traced program depends on
    token: int = 0
    # whether every eager operation is looked at: a switch asks for it, or the default device may not be the host
    watched: bool = False

    def refresh(self) -> None:
        """Bring this thread's token up to date after a change."""
        self.token, self.watched = _token(self), _watched(self)


# JAX's names for switches of rlx
_OTHER_NAMES = {
    "platform_name": "device",
    "platforms": "device",
    "enable_checks": "check",
    "explain_cache_misses": "explain",
}
_TRANSFERS = (("host", "device"), ("device", "device"), ("device", "host"))
_GIVEN: dict[str, Any] = {
    # granted whatever they say: no result depends on them
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
    # rlx has one behaviour
    "debug_key_reuse": False,
    "threefry_partitionable": True,
}
_SINGLE = ("debug_key_reuse", "threefry_partitionable")
_GUARDS = (None, "allow", "log", "disallow", "log_explicit", "disallow_explicit")
# the values of switches that are words
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
        raise ValueError(f"{precision!r} is no precision of products; there are: {', '.join(sorted(_PRECISIONS))}")


def _no_switch(name: str) -> AttributeError:
    """The error for a switch that there is not; a cheap one for what Python asks of every object."""
    if name.startswith("_"):
        return AttributeError(f"rlx has no switch named {name!r}")
    known = (*_SWITCHES, *_GIVEN, *_OTHER_NAMES)
    near = did_you_mean(name, known, repr)
    return MissingNameError(
        f"rlx has no switch named {name!r}.", near or f"There are: {', '.join(_SWITCHES)}.", name=name, known=known
    )


def _settings(name: str, value: Any) -> list[tuple[str, Any]]:
    """What a switch, by rlx's name or JAX's, and its value set. AttributeError, ValueError for what there is not."""
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
            f"config.update({name!r}, {value!r}) comes after devices have been asked for.",
            f"Call it right after the import of rlx, or set RLX_{name.upper()}={value} in the environment.",
        )
    if name in _WORDS and value not in _WORDS[name]:
        raise ValueError(f"{name} is one of {', '.join(map(repr, _WORDS[name]))}, got {value!r}")
    if name == "default_matmul_precision":
        check_precision(value)
    if name in ("default_float", "default_int"):
        value = np.dtype(value)
    return [(name, value)]


_settled: set[str] = set()


def settled(name: str) -> Any:
    """The process-wide value of a switch, which cannot be changed from now on."""
    _settled.add(name)
    return getattr(Config, name)


_SWITCHES = tuple(name for name in Config.__annotations__ if name not in ("token", "watched"))
_tokens: dict[Any, int] = {}
_contexts: list[str] = []  # attributes of Config that hold the values of a UserContext each


def _token(values: Any) -> int:
    watching = values.debug_nans, values.debug_infs, values.numpy_rank_promotion, values.numpy_dtype_promotion
    generator = values.default_prng_impl, values.enable_custom_prng, values.legacy_prng_key
    dtypes = values.default_float, values.default_int, values.narrow
    key = (*dtypes, values.device, values.disable_jit, values.excess_precision, values.deterministic)
    contexts = [(type(value), value) for value in (getattr(values, name) for name in _contexts)]
    products = type(values.default_matmul_precision), values.default_matmul_precision
    return _tokens.setdefault((*key, *watching, *generator, *products, values.mesh, *contexts), len(_tokens))


def _watched(values: Any) -> bool:
    looks = values.debug_nans or values.debug_infs or values.numpy_rank_promotion != "allow"
    return looks or values.device not in _host_devices


# devices whose arrays are NumPy's; the others' backends are not loaded, or have a memory of their own
_host_devices = {"cpu"}


def computes_on_host(device: str) -> None:
    """A backend has been loaded whose memory is the host's: where it is the default, NumPy computes, unwatched."""
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
        for name, value in settings:
            setattr(config, name, value)
        config.refresh()
        yield
    finally:
        for name, _ in settings:
            if name in before:
                setattr(config, name, before[name])
            else:
                own.pop(name, None)
        config.refresh()


class UserContext:
    """A value of the user's that jitted functions may depend on: for another value they are traced again.

    Call it with a value for a `with` block of this thread; `set_global` is for all threads outside of such blocks.
    Values are hashable.

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
        """What it is here and now."""
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
        """Set the value until the `with` block of this thread ends that has set one."""
        setattr(config, self._name, new_value)
        config.refresh()

    def __call__(self, new_value: Any) -> AbstractContextManager[None]:
        """This value inside a `with` block."""
        return _scoped([(self._name, new_value)])
