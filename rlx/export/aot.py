"""rlx.aot: programs compiled ahead of time, as files. Names for bundles on top of rlx.export."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from rlx.export.exported import Exported, export, load_exported
from rlx.export.sizes import unknowns_in
from rlx.offered_names import offer_names

__all__ = ["load", "save"]

offer_names(globals())


def save(
    f: Callable[..., Any],
    *types: Any,
    path: str | os.PathLike[str],
    params: Any = None,
    vjp_order: int = 0,
    object_code: bool | None = None,
) -> Exported:
    """Trace and compile a function for argument types, and write it to a file.

    Args:
      f: a function of arrays.
      types: the argument types, as for rlx.export: arrays, numbers or rlx.ShapeDtypeStruct; sizes may be names.
      path: the file.
      params: the first argument of `f`, which is saved in the file; `types` are those of the other arguments, and the
        loaded function takes only these. None: there is no such argument.
      vjp_order: the number of derivatives in the file.
      object_code: whether the file contains this processor's code, which `load(path, trust=True)` uses; None: if all
        sizes are numbers, as only these can have object code.

    Returns the exported function. Raises the errors of rlx.export and Exported.save.

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

    del bound.__wrapped__  # its signature has one more argument
    return bound


def load(path: str | os.PathLike[str], *, trust: bool = False) -> Exported:
    """The function that `save` wrote; nothing is traced, nor compiled with `trust` if its code fits.

    Arguments and errors: as for rlx.load_exported.

    >>> import pathlib, rlx, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "double.rlx"
    ...     _ = rlx.aot.save(lambda x: 2.0 * x, 1.0, path=path)
    ...     rlx.aot.load(path, trust=True)
    <Exported lambda: (float32[]) -> (float32[])>
    """
    return load_exported(path, trust=trust)
