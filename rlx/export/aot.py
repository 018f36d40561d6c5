"""rlx.aot: programs compiled ahead of time, as files. The names of bundles, over rlx.export."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from rlx.export.exported import Exported, export, load_exported
from rlx.export.sizes import unknowns_in

__all__ = ["load", "save"]


def save(
    f: Callable[..., Any],
    *types: Any,
    path: str | os.PathLike[str],
    params: Any = None,
    vjp_order: int = 0,
    object_code: bool | None = None,
) -> Exported:
    """Trace and compile a function for types of arguments, and write it to a file.

    Args:
      f: a function of arrays.
      types: of its arguments, as rlx.export takes them: arrays, numbers or rlx.ShapeDtypeStruct; sizes may be names.
      path: the file.
      params: the first argument of `f`, which is saved with it: `types` are those that follow. The file's function
        takes them alone. None: there is no such argument.
      vjp_order: how many derivatives the file has.
      object_code: whether the file has this processor's code, which `load(path, trust=True)` takes; None: if all sizes
        are numbers, as there is none for others.

    Returns what was written. Raises as rlx.export and Exported.save do.

    >>> import pathlib, rlx, rlx.numpy as jnp, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "scaled.rlx"
    ...     _ = rlx.aot.save(lambda w, x: w * x, jnp.ones(2), path=path, params=jnp.full(2, 3.0))
    ...     rlx.aot.load(path)(jnp.ones(2)).tolist()
    [3.0, 3.0]
    """
    exported = export(f if params is None else _with_parameters(f, params))(*types)
    has_code = not unknowns_in(exported.in_avals).names if object_code is None else object_code
    exported.save(path, vjp_order, object_code=has_code)
    return exported


def _with_parameters(f: Callable[..., Any], params: Any) -> Callable[..., Any]:
    @functools.wraps(f)
    def bound(*args: Any) -> Any:
        return f(params, *args)

    del bound.__wrapped__  # whose signature has one argument more
    return bound


def load(path: str | os.PathLike[str], *, trust: bool = False) -> Exported:
    """The function that `save` wrote; nothing is traced, and with `trust` nothing compiled where its code fits.

    Args, what it raises: as rlx.load_exported.

    >>> import pathlib, rlx, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "double.rlx"
    ...     _ = rlx.aot.save(lambda x: 2.0 * x, 1.0, path=path)
    ...     rlx.aot.load(path, trust=True)
    <Exported lambda: (float32[]) -> (float32[])>
    """
    return load_exported(path, trust=trust)
