"""A plan as WGSL, a list of launches in one memory, and JavaScript that runs them: without rlx."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from math import prod
from typing import Any, NamedTuple

import numpy as np

from rlx.backends.gpu.engine import View
from rlx.backends.gpu.launches import LaunchProgram
from rlx.backends.gpu.memory import Pool
from rlx.backends.gpu.program import DeviceProgram
from rlx.backends.loops.place import FunctionParameter
from rlx.backends.wgpu.dialect import WgslDialect
from rlx.backends.wgpu.engine import LIMITS, WgpuEngine, grid_of_groups
from rlx.backends.wgpu.helpers import Features
from rlx.backends.wgpu.memory_text import KernelModule, modules_of
from rlx.errors import UnsupportedError
from rlx.ir.kernels import Plan

__all__ = ["EXPORT_LIMITS", "WgslFiles", "wgsl_files"]

EXPORT_LIMITS = LIMITS
_BINDING = 1 << 27  # bytes that every implementation binds at once


class WgslFiles(NamedTuple):
    """The contents of the files of rlx.export_wgsl.

    >>> import rlx
    >>> rlx.export_wgsl(lambda x: x + 1, rlx.ShapeDtypeStruct((2,), "float32"))._fields
    ('wgsl', 'launches', 'javascript')
    """

    wgsl: str
    launches: str
    javascript: str


class _Recorder(WgpuEngine):
    """An engine without a device, with WebGPU's limits: it records what it would launch. All memory is one buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = EXPORT_LIMITS
        self.memory = object()
        self.nbytes = 0
        self.steps: list[dict[str, Any]] = []
        self.constants: list[dict[str, Any]] = []
        self.modules: dict[str, KernelModule] = {}

    def kernels(self, sources: Mapping[str, str]) -> dict[str, Any]:
        """The kernels' modules."""
        found = {module.name: module for source in sources.values() for module in modules_of(source)}
        self.modules |= found
        return {name: found[name] for name in sources}

    def launch(self, prepared: Any, views: Sequence[View], grid: tuple[int, ...], block: tuple[int, ...]) -> None:
        """Record a launch."""
        kernel, groups = prepared[0], grid[0]
        self._record(kernel, [groups, *(view.start for view in views)], grid_of_groups(groups))

    def _record(self, kernel: KernelModule, sizes: Sequence[int], grid: Sequence[int]) -> None:
        self.modules.setdefault(kernel.name, kernel)
        self.steps.append({"kernel": kernel.name, "grid": grid, "sizes": [*sizes, *[0] * (-len(sizes) % 4)]})

    def _launch(self, kernel: Any, views: Sequence[View], sizes: Sequence[int], grid: tuple[int, int]) -> None:
        self._record(kernel.module, sizes, grid)

    def allocate(self, nbytes: int) -> View:
        """The next bytes of the memory."""
        start, self.nbytes = self.nbytes, self.nbytes + nbytes
        return View(self.memory, start, nbytes)

    def write(self, view: View, array: np.ndarray) -> None:
        """Record a constant."""
        self.constants.append({"start": view.start, "data": b64encode(array.tobytes()).decode()})

    def read(self, view: View, array: np.ndarray) -> None:
        """Raises UnsupportedError."""
        raise UnsupportedError(
            "rlx.export_wgsl writes a fixed list of launches, and the function needs the host between them.",
            "Export a function without callbacks, special functions, routines for large matrices, and loops or"
            " branches that depend on values; rlx.inspect(f, device='wgpu') lists what the host runs.",
        )


def wgsl_files(
    plan: Plan, name: str, arguments: Sequence[FunctionParameter], results: Sequence[FunctionParameter]
) -> WgslFiles:
    """The files of a function that runs a plan; see rlx.export_wgsl.

    Raises UnsupportedError if the host takes part, or for more memory than every implementation binds.
    """
    recorder, dialect = _Recorder(), WgslDialect(Features())
    pool = Pool(recorder)
    inputs, outputs = ([pool.take(b.nbytes) for b in buffers] for buffers in (plan.inputs, plan.outputs))
    LaunchProgram(plan, DeviceProgram(plan, dialect, EXPORT_LIMITS), pool).run(plan, inputs, outputs)
    if recorder.nbytes > _BINDING:
        raise UnsupportedError(
            f"{name} needs {recorder.nbytes:,} bytes; WebGPU guarantees bindings of {_BINDING:,}.",
            "Export a function of smaller arrays.",
        )
    modules = [dialect.declared(m, [0] * len(m.arrays)) for m in recorder.modules.values()]
    described = {
        "name": name, "bytes": recorder.nbytes, "inputs": _described(arguments, inputs),
        "outputs": _described(results, outputs), "constants": recorder.constants, "launches": recorder.steps,
    }  # fmt: skip
    return WgslFiles("\n".join(modules) + "\n", json.dumps(described, indent=1), _javascript())


def _described(places: Sequence[FunctionParameter], views: Sequence[View]) -> list[dict[str, Any]]:
    return [
        {
            "name": place.name, "meaning": place.meaning, "dtype": place.type.dtype.name,
            "shape": list(place.type.shape), "start": view.start,
            "bytes": prod(place.type.shape) * place.type.dtype.itemsize,
        }
        for place, view in zip(places, views, strict=True)
    ]  # fmt: skip


@cache
def _javascript() -> str:
    return (files("rlx.backends.wgpu") / "run.js").read_text(encoding="utf-8")
