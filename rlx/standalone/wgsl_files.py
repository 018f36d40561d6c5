"""rlx.export_wgsl: a function as WGSL, its launches as JSON, and JavaScript that runs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlx.backends.claims import Claims
from rlx.backends.gpu.options import lowering_options
from rlx.backends.wgpu.dialect import DOUBLES, LONGS
from rlx.backends.wgpu.files import EXPORT_LIMITS, WgslFiles, wgsl_files
from rlx.call.jit import jit
from rlx.ir.types import supported_dtypes
from rlx.passes.pipeline import Context, lower_to_plan
from rlx.standalone.leaves import free_name, places

__all__ = ["WgslFiles", "export_wgsl"]


def export_wgsl(
    f: Callable[..., Any], *types: Any, path: str | Path | None = None, name: str | None = None
) -> WgslFiles:
    """A function for browsers: its kernels as WGSL, its launches as JSON, and JavaScript that runs both with WebGPU.

    The kernels need nothing beyond WebGPU's guarantees: one binding of up to 128 MiB, 256 work-items in a group. All
    arrays, and the captured values of f, have their places in one buffer. The script's class `RlxFunction` takes the
    leaves of the arguments as typed arrays, in the order of `rlx.tree.leaves(types)`, and returns those of the result.

    Args:
      f: a function of arrays, as for jit; also its derivatives.
      types: an array, a number or a rlx.ShapeDtypeStruct for each argument, or a tree of those.
      path: the output files are path.wgsl, path.json and path.js.
      name: the function's name in the JSON; by default the last part of `path`, or the name of f.

    Returns: the files' contents, as `.wgsl`, `.launches` and `.javascript`.

    Linear systems, Cholesky, LU, QR, eigh, svd and Fourier transforms become loops and products.

    Raises:
      DtypeError: for float64, complex128 and 64-bit integers.
      UnsupportedError: if a value decides what runs next (large loops, branches), or only the host can run an operation
        (special functions, callbacks).

    >>> import json, rlx, rlx.numpy as jnp
    >>> x = rlx.ShapeDtypeStruct((8, 3), "float32")
    >>> files = rlx.export_wgsl(lambda x: jnp.tanh(x).sum(axis=0), x)
    >>> [launch["grid"] for launch in json.loads(files.launches)["launches"]]
    [[1, 1]]
    """
    traced = jit(f).trace(*types)
    claims = Claims(routines=frozenset(), dtypes=supported_dtypes - DOUBLES - LONGS)
    options = replace(lowering_options(EXPORT_LIMITS), least_row_tiles=0)
    plan = lower_to_plan(traced.closed(), context=Context(options, claims, "wgpu"))
    chosen = name or (traced.fun_name if path is None else Path(path).name)
    arguments, results = places(f, types, traced, set())
    files = wgsl_files(plan, free_name(chosen, set()), arguments, results)
    if path is not None:
        for end, text in zip((".wgsl", ".json", ".js"), files, strict=True):
            Path(f"{path}{end}").write_text(text, encoding="utf-8")
    return files
