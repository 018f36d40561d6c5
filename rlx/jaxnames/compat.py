"""rlx in place of jax: libraries written for JAX import rlx's functions, unmodified."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType, TracebackType
from typing import Any

import rlx
from rlx.errors import UnsupportedError
from rlx.sharding.arrays import abstract_sharding
from rlx.sharding.shardings import NamedSharding
from rlx.trace.flat import as_array
from rlx.trace.primitive import type_of

__all__ = ["AbstractArray", "Installation", "as_jax", "typeof"]

VERSION = "0.10.2"  # the JAX whose names these are

# modules of jax that are modules of rlx of the same name, with all that is below them
_SAME = frozenset(
    "ad_checkpoint core custom_batching custom_derivatives debug distributed dtypes errors example_libraries"
    " experimental flatten_util image lax nn memory numpy ops profiler random scipy sharding test_util tree tree_util"
    " typing".split()
)
_LOCATED = {
    "jax": "rlx",
    "jax.ops": "rlx.jaxnames.segments",
    "jax.ad_checkpoint": "rlx",
    "jax.extend.core": "rlx.jaxnames.core",
}
# names that JAX's users know elsewhere than rlx's
_PLACEHOLDERS: dict[str, str] = {
    "jax.stages": "Compiled Lowered Traced Wrapped",
    "jax.export": "Exported export",
    "jax.ffi": "ffi_call register_ffi_target",
    "jax.core": "AbstractValue Trace",
    "jax.interpreters": "",
    "jax.interpreters.ad": "",
    "jax.interpreters.batching": "",
    "jax.interpreters.mlir": "",
    "jax.interpreters.partial_eval": "trace_to_jaxpr_dynamic",
    "jax.extend": "",
    "jax.experimental.pallas": "",
    "jax.lib": "",
}


_NOTHING = object()


def _placeholder(path: str) -> type:
    """A class that stands for a name of JAX's that rlx does not have: good for isinstance, an error when made."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise UnsupportedError(
            f"{path} is not part of rlx.",
            "See docs/coverage.md for what is there.",
        )

    return type(path.rpartition(".")[2], (), {"__new__": refuse, "__doc__": f"Stands for {path}, which rlx lacks."})


@dataclass(frozen=True)
class AbstractArray:
    """What jax.typeof returns: an array's type, and where it lies.

    >>> import rlx
    >>> import rlx.compat
    >>> with rlx.compat.as_jax():
    ...     import jax
    ...     kind = jax.typeof(jax.numpy.ones(3))
    >>> kind.shape, kind.dtype, kind.weak_type
    ((3,), dtype('float32'), False)
    """

    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool
    sharding: NamedSharding

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


def typeof(x: Any) -> AbstractArray:
    """The type of an array or number as JAX's libraries ask for it.

    >>> import rlx.compat
    >>> rlx.compat.typeof(rlx.numpy.ones(3)).shape
    (3,)
    """
    array = as_array(x)
    found = type_of(array)
    return AbstractArray(found.shape, found.dtype, found.weak, abstract_sharding(array))


class OwnPrimitive:
    """A library's own primitive: here it is its implementation, which transforms and compilers see through.

    Rules that the library registers for derivatives, batching and lowering are not needed, and not used.
    """

    call_primitive = map_primitive = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.multiple_results = False
        self._implementation: Any = None

    def def_impl(self, implementation: Any) -> Any:
        """Say what it computes."""
        self._implementation = implementation
        return implementation

    def def_abstract_eval(self, rule: Any) -> Any:
        """Accepted: the implementation says what its results are."""
        return rule

    def_effectful_abstract_eval = def_abstract_eval

    def bind(self, *args: Any, **params: Any) -> Any:
        """Compute it. Raises UnsupportedError where no implementation is known."""
        if self._implementation is None:
            raise UnsupportedError(
                f"The primitive {self.name} has rules for JAX's compiler, but no implementation.",
                "Write it with rlx.primitive, or as a function.",
            )
        return self._implementation(*args, **params)

    def __repr__(self) -> str:
        return self.name


def _note(*_: Any, **__: Any) -> None:
    """Takes what is registered for JAX's compiler."""


@cache
def _own_names() -> dict[str, dict[str, Any]]:
    """Names of jax's modules that rlx keeps under another name."""
    return {
        "jax": {
            "__version__": VERSION,
            "__version_info__": tuple(map(int, VERSION.split("."))),
            "typeof": typeof,
            "float0": rlx.dtypes.float0,
        },
        "jax.core": {
            "get_aval": typeof,
            "ConcretizationTypeError": rlx.errors.ConcretizationTypeError,
        },
        "jax.dlpack": {
            "from_dlpack": rlx.numpy.from_dlpack,
            "is_supported_dtype": lambda dtype: rlx.numpy.dtype(dtype).kind in "biufc",
        },
        "jax.experimental": {"enable_x64": rlx.enable_x64, "io_callback": rlx.io_callback},
        "jax.custom_derivatives": {name: OwnPrimitive(name) for name in ("custom_jvp_call_p", "custom_vjp_call_p")},
        "jax.lax": {"stop_gradient_p": OwnPrimitive("stop_gradient_p")},
        "jax.extend.core": {"Primitive": OwnPrimitive},
        "jax.interpreters.ad": {name: {} for name in ("primitive_jvps", "primitive_transposes")}
        | {"Zero": type("Zero", (), {}), "UndefinedPrimal": type("UndefinedPrimal", (), {})},
        "jax.interpreters.batching": {"primitive_batchers": {}, "not_mapped": None, "axis_primitive_batchers": {}}
        | {name: getattr(rlx.custom_batching, name) for name in ("register_vmappable", "unregister_vmappable")},
        "jax.interpreters.mlir": {"register_lowering": _note, "lower_fun": _note, "ir_constant": _note},
        # private names that libraries use all the same
        "jax._src": {},
        "jax._src.traceback_util": {"register_exclusion": _note, "api_boundary": lambda function, **_: function},
        "jax._src.dispatch": {"wait_for_tokens": rlx.effects_barrier},
        "jax._src.dtypes": {"TypePromotionError": rlx.errors.TypePromotionError},
        "jax.version": {"__version__": VERSION},
        "jax.lib": {"__version__": VERSION},
    }


class _Alias(ModuleType):
    """A module of jax: rlx's module under another name, and what is particular to jax."""

    def __init__(self, name: str, source: ModuleType | None, own: dict[str, Any]) -> None:
        super().__init__(name, source.__doc__ if source else f"Names of {name}, which rlx has not.")
        self.__dict__.update(own, _source=source)
        if source is not None and hasattr(source, "__all__"):
            self.__all__ = list(source.__all__)
            # those that the array API standard names like Python's own; a module's own are not its source's
            self.__dict__.update({n: getattr(source, n) for n in source.__all__ if n.startswith("__")})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        path = f"{self.__name__}.{name}"
        value = getattr(self._source, name, _NOTHING)  # newaxis is None
        if value is not _NOTHING and not isinstance(value, ModuleType):
            return value
        if _is_module(path):
            return self._module(path)
        if name in _PLACEHOLDERS.get(self.__name__, "").split():
            value = self.__dict__[name] = _placeholder(path)
            return value
        raise AttributeError(f"rlx, in place of jax, has no {path}")

    def _module(self, path: str) -> ModuleType:
        """A module in this one; still rlx's where the alias has outlived the installation."""
        if any(isinstance(finder, _Finder) for finder in sys.meta_path):
            return importlib.import_module(path)
        module = self.__dict__[path.rpartition(".")[2]] = _alias_of(path)
        return module

    def __dir__(self) -> list[str]:
        names = dir(self._source) if self._source else []
        return sorted({*self.__dict__, *(n for n in names if not n.startswith("__"))})


def _source_of(name: str) -> ModuleType | None:
    """rlx's module for a module of jax, or None."""
    if name in _LOCATED:
        return importlib.import_module(_LOCATED[name])
    root = name.split(".")[1]
    if root not in _SAME:
        return None
    try:
        return importlib.import_module(name.replace("jax", "rlx", 1))
    except ModuleNotFoundError:
        parent, _, last = name.replace("jax", "rlx", 1).rpartition(".")
    found = getattr(importlib.import_module(parent), last, None)  # a namespace that is no module
    return found if isinstance(found, ModuleType) else None


def _alias_of(name: str) -> _Alias:
    return _Alias(name, _source_of(name), _own_names().get(name, {}))


def _is_module(name: str) -> bool:
    if name in sys.modules or name in _PLACEHOLDERS or name in _LOCATED or name in _own_names():
        return True
    return _source_of(name) is not None


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds jax and what is in it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec for modules of jax that there are here."""
        if fullname.split(".")[0] != "jax":
            return None
        if not _is_module(fullname):
            raise ModuleNotFoundError(f"rlx, in place of jax, has no module {fullname}", name=fullname)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """The alias of rlx's module."""
        return _alias_of(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: the alias is complete."""


class Installation:
    """rlx in place of jax, until `undo()`, or the end of the `with` block that this opens.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> import rlx.compat
    >>> installation = rlx.compat.as_jax()
    >>> import jax.numpy as jnp
    >>> installation.undo()
    >>> jnp.sin is rlx.numpy.sin
    True
    """

    def __init__(self) -> None:
        self._finder: _Finder | None = _Finder()
        self._before = _jax_modules()
        for name in self._before:
            del sys.modules[name]
        sys.meta_path.insert(0, self._finder)

    def undo(self) -> None:
        """Put back what was there. Libraries imported meanwhile keep rlx. A second call does nothing."""
        if self._finder is None:
            return
        sys.meta_path.remove(self._finder)
        self._finder = None
        for name in _jax_modules():
            del sys.modules[name]
        sys.modules.update(self._before)

    def __enter__(self) -> Installation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()


def _jax_modules() -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if name.split(".")[0] == "jax"}


def as_jax() -> Installation:
    """Put rlx in place of jax for the imports that follow, in this process.

    Libraries that use JAX's public functions (optax, ...) then run on rlx, unmodified. Import them after this call:
    a library that has been imported before keeps the jax that it found. JAX need not be installed.

    Returns the installation: `undo()` ends it, and so does leaving a `with` block over it. Names that rlx lacks raise
    AttributeError or ModuleNotFoundError on import, and some that stand for JAX's own machinery raise
    UnsupportedError when used. docs/ecosystem.md says which libraries have been tried.

    >>> import rlx.compat
    >>> with rlx.compat.as_jax():
    ...     import jax.numpy as jnp
    >>> jnp.add is rlx.numpy.add
    True
    """
    return Installation()
