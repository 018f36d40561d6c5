"""FILE:FUNCTION: a function of a Python file or of a module, also as one written for another library."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from rlx.cli.mistakes import Mistake, told
from rlx.errors import did_you_mean

__all__ = ["Target", "function_of", "load", "target_of", "there", "require_arguments"]

_FORM = "Write a file or a module, a colon and a function: model.py:loss, package.module:Class.method."
Importer = Callable[..., Any]


class Target(NamedTuple):
    """A file, the package it belongs to if it was named as a module, and the path to a function inside."""

    text: str
    file: Path
    package: str
    function: str


def target_of(text: str) -> Target:
    """Where FILE:FUNCTION is. Raises Mistake if there is no such file or module, or no function is named."""
    place, colon, function = text.rpartition(":")
    if not colon or not place or not function or "/" in function or os.sep in function:
        raise Mistake(f"{text} names no function.", _FORM)
    if not all(part.isidentifier() for part in function.split(".")):
        raise Mistake(f"{function} is no name of a function.", _FORM)
    if place.endswith(".py") or "/" in place or os.sep in place:
        return Target(text, _file(Path(place)), "", function)
    file, package = _module(place)
    return Target(text, file, package, function)


def _file(path: Path) -> Path:
    path = path.expanduser()
    if path.is_file():
        return path.resolve()
    if path.is_dir():
        raise Mistake(f"{path} is a folder.", _FORM)
    folder = path.parent
    near = [p.name for p in folder.glob("*.py")] if folder.is_dir() else []
    raise Mistake(f"There is no file {path}.", did_you_mean(path.name, near, lambda name: str(folder / name)))


def _module(name: str) -> tuple[Path, str]:
    """A module's file and the package it is in."""
    try:
        with _searched(Path.cwd()):
            spec = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise Mistake(f"There is no module {name}: {error}.", _hint(name)) from None
    if spec is None:
        raise Mistake(f"There is no module {name}.", _hint(name))
    if spec.origin is None or not spec.origin.endswith(".py"):
        raise Mistake(f"{name} is no module of Python source.", "Write a file or a module that has one.")
    return Path(spec.origin), spec.parent or ""


def _hint(name: str) -> str:
    file = Path(name.replace(".", os.sep) + ".py")
    return f"Write {file}, with its ending, for the file." if file.is_file() else _FORM


@contextmanager
def _searched(folder: Path) -> Generator[None]:
    """Also look for modules in a folder, as Python does for a script."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        if str(folder) in sys.path:
            sys.path.remove(str(folder))


@contextmanager
def there(target: Target, apart: bool) -> Generator[None]:
    """Let a target's code run in the block: it finds the modules in its folder. With `apart`, its output
    is written to standard error, if standard output is for a program to read."""
    printed = redirect_stdout(sys.stderr) if apart else nullcontext()
    with _searched(Path.cwd() if target.package else target.file.parent), printed:
        yield


def load(target: Target, importer: Importer | None = None) -> ModuleType:
    """A new module of the target's file, run now; `importer` stands for `__import__` in its import statements."""
    module = ModuleType(f"_rlx_target_{target.file.stem}")
    module.__file__, module.__package__ = str(target.file), target.package
    if importer is not None:
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": importer}
    sys.modules[module.__name__] = module  # dataclasses look for their module there
    with told(target.text):
        try:
            code = compile(target.file.read_bytes(), str(target.file), "exec")
        except (SyntaxError, ValueError, OSError) as error:
            raise Mistake(f"{target.file.name} cannot be read as Python: {error}") from None
        exec(code, module.__dict__)
    return module


def function_of(module: ModuleType, target: Target, name: str | None = None) -> Callable[..., Any]:
    """The function of a target in its loaded module, or the function `name` in the same module. Raises Mistake."""
    found: Any = module
    path = target.function if name is None else name
    for part in path.split("."):
        holder = found
        found = getattr(holder, part, None)
        if found is None:
            where = target.file.name if holder is module else holder.__name__
            near = [k for k, v in vars(holder).items() if callable(v) and not k.startswith("__")]
            raise Mistake(f"{where} has no function {part}.", did_you_mean(part, near) or _list(near))
    if not callable(found):
        raise Mistake(f"{path} is no function, but {type(found).__name__}.", _FORM)
    return found


def _list(names: Sequence[str]) -> str:
    return f"It has: {', '.join(names[:10])}." if names else "It has none."


def require_arguments(function: Callable[..., Any], arguments: Sequence[Any]) -> None:
    """Raise Mistake unless the function can be called with this number of arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions of C do not tell
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        name = getattr(function, "__name__", "The function")
        raise Mistake(
            f"{name}{signature} cannot be called with {len(arguments)} argument{'s' * (len(arguments) != 1)}: {error}.",
            'Write a type for each: --args "f32[64,32] i32[]"; (…), […] and {name: …} make trees.',
        ) from None
