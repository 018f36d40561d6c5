"""One function as several libraries have it: rlx, JAX, PyTorch (eager and compiled), NumPy.

A library's version is the function FUNCTION_jax, FUNCTION_torch or FUNCTION_numpy in the same file, if it
exists. Otherwise the file is run again for the library: `import rlx.numpy as jnp` then gives jax.numpy, torch or
numpy, which share most names.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

import rlx
from rlx.cli.mistakes import Mistake
from rlx.cli.target import Target, function_of, load
from rlx.errors import did_you_mean
from rlx.ir.types import dtype_kind

__all__ = ["LIBRARIES", "Version", "jax_width", "random_arguments", "require_installed", "version_of", "wide_types"]

# values of --against -> the required package
LIBRARIES = {"jax": "jax", "torch": "torch", "torch.compile": "torch", "numpy": "numpy"}
_LARGEST_INTEGER = 8
Importer = Callable[..., Any]


class Version:
    """A function in one library: call it with `arguments`, wait, and take its leaves as NumPy arrays."""

    def __init__(self, library: str, call: Callable[..., Any], arguments: Sequence[Any]) -> None:
        self.library, self.call = library, call
        self._convert, self._wait, self._to_numpy = _HANDLING[LIBRARIES.get(library, library)]()
        self.arguments = rlx.tree.map(lambda x: self._convert(x) if isinstance(x, np.ndarray) else x, list(arguments))

    def run(self) -> Any:
        """One call, waited for."""
        return self._wait(self.call(*self.arguments))

    def leaves(self, result: Any) -> list[np.ndarray]:
        """The arrays of a result."""
        return [np.asarray(self._to_numpy(leaf)) for leaf in rlx.tree.leaves(result)]


def require_installed(names: Sequence[str]) -> None:
    """Raise Mistake for a library that is not known, or not installed."""
    for name in names:
        if name not in LIBRARIES:
            near = did_you_mean(name, LIBRARIES)
            raise Mistake(f"There is no library {name} to run against.", near or f"There are: {', '.join(LIBRARIES)}.")
        package = LIBRARIES[name]
        if importlib.util.find_spec(package) is None:
            raise Mistake(f"{package} is not installed.", f"pip install {package}, or leave it out of --against.")


def version_of(library: str, target: Target, module: ModuleType, arguments: Sequence[Any]) -> Version:
    """A library's version of a target, whose file was loaded as `module`. Raises Mistake where it has none."""
    if library == "rlx":
        return Version(library, _jitted(rlx, function_of(module, target)), arguments)
    package = LIBRARIES[library]
    own = f"{target.function}_{package}"
    if _has(module, own):
        function = function_of(module, target, own)
    else:
        importer, loaded = _importer(package)
        try:
            function = function_of(load(target, importer), target)
        except Mistake as error:
            raise Mistake(error.what, f"{package} needs a version of its own here: write {own}.") from None
        loaded()
    if package == "jax":
        return Version(library, _jitted(importlib.import_module("jax"), function), arguments)
    if library == "torch.compile":
        function = importlib.import_module("torch").compile(function)
    return Version(library, function, arguments)


def _has(module: ModuleType, path: str) -> bool:
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part, None)
    return found is not None


def _jitted(library: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function jitted, if it is not yet."""
    return function if hasattr(function, "lower") else library.jit(function)


# ------------------------------------------------------------------ the file for another library
def _importer(package: str) -> tuple[Importer, Callable[[], None]]:
    """The `__import__` for a file that is run for another library, and a function to call after the run."""
    stand_in = _StandIn(package)
    top: Any = importlib.import_module("jax") if package == "jax" else stand_in

    def find(name: str, scope: Any = None, local: Any = None, names: Sequence[str] = (), level: int = 0) -> Any:
        root, _, rest = name.partition(".")
        if level or root not in ("rlx", "jax"):
            return __import__(name, scope, local, names, level)
        inner = importlib.import_module(f"jax.{rest}") if rest and package == "jax" else top
        if rest and package != "jax":
            for part in rest.split("."):
                inner = getattr(inner, part)
        return inner if names and rest else top

    return find, stand_in.loaded


class _StandIn:
    """The replacement of `rlx` in a file that is run for NumPy or PyTorch: its arrays, and a jit without effect."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.loading = True
        self.numpy = importlib.import_module(package)

    def loaded(self) -> None:
        """From now on, calls of missing names raise."""
        self.loading = False

    def jit(self, function: Any = None, **options: Any) -> Any:
        """The function itself."""
        return function if function is not None else lambda decorated: decorated

    def __getattr__(self, name: str) -> Any:
        return _Absent(self, f"rlx.{name}")


class _Absent:
    """Something of rlx that a library has not. A file may mention it, for other functions; running it is a mistake."""

    def __init__(self, stand_in: _StandIn, path: str) -> None:
        self._stand_in, self._path = stand_in, path

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Absent(self._stand_in, f"{self._path}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._stand_in.loading:
            raise Mistake(f"{self._stand_in.package} has nothing in the place of {self._path}.")
        return self


# ------------------------------------------------------------------ arrays
def random_arguments(arguments: Sequence[Any], seed: int) -> list[Any]:
    """Arguments with normal numbers, small integers and bools of a seed in the place of types."""
    generator = np.random.default_rng(seed)

    def values(x: Any) -> Any:
        if not isinstance(x, rlx.ShapeDtypeStruct):
            return x
        kind = dtype_kind(x.dtype)
        if kind == "b":
            return np.asarray(generator.integers(0, 2, x.shape)).astype(bool)
        if kind in "iu":
            limit = min(_LARGEST_INTEGER, int(rlx.numpy.iinfo(x.dtype).max) + 1)
            return np.asarray(generator.integers(0, limit, x.shape)).astype(x.dtype)
        numbers = generator.standard_normal((2, *x.shape))
        return np.asarray(numbers[0] + 1j * numbers[1] if kind == "c" else numbers[0]).astype(x.dtype)

    return rlx.tree.map(values, list(arguments))


def wide_types(arguments: Sequence[Any]) -> bool:
    """Whether some arguments are of 64 bits (complex: 128), which JAX takes by a switch only."""
    wide = ("float64", "int64", "uint64", "complex128")
    return any(isinstance(x, np.ndarray) and x.dtype.name in wide for x in rlx.tree.leaves(list(arguments)))


@contextmanager
def jax_width(wide: bool) -> Generator[None]:
    """Let JAX keep 64 bits in the block, if that is asked for."""
    if not wide:
        yield
        return
    settings: Any = importlib.import_module("jax").config
    before = settings.jax_enable_x64
    settings.update("jax_enable_x64", True)
    try:
        yield
    finally:
        settings.update("jax_enable_x64", before)


Handling = tuple[Callable[[np.ndarray], Any], Callable[[Any], Any], Callable[[Any], Any]]


def _rlx() -> Handling:
    return rlx.numpy.asarray, rlx.block_until_ready, np.asarray


def _jax() -> Handling:
    jax = importlib.import_module("jax")
    return jax.numpy.asarray, jax.block_until_ready, np.asarray


def _numpy() -> Handling:
    return np.asarray, lambda result: result, np.asarray


def _torch() -> Handling:
    torch = importlib.import_module("torch")
    torch.set_num_threads(rlx.get_num_threads())

    def convert(x: np.ndarray) -> Any:
        if x.dtype.isbuiltin == 1:
            return torch.from_numpy(np.array(x))
        return torch.from_numpy(x.astype(np.float32)).to(getattr(torch, x.dtype.name))

    def to_numpy(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        return (x.float() if x.dtype == torch.bfloat16 else x).detach().cpu().numpy()

    return convert, lambda result: result, to_numpy


_HANDLING: dict[str, Callable[[], Handling]] = {"rlx": _rlx, "jax": _jax, "numpy": _numpy, "torch": _torch}
