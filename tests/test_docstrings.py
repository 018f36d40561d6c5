"""Every public function and class has a docstring of its own, with an example that runs."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import pytest

import rlx
from rlx.scipy import stats

PUBLIC = [
    "rlx",
    "rlx.ad",
    "rlx.ad_checkpoint",
    "rlx.aot",
    "rlx.autodiff",
    "rlx.bench",
    "rlx.call.stages",
    "rlx.call.switches",
    "rlx.compat",
    "rlx.compile",
    "rlx.config",
    "rlx.core",
    "rlx.custom_batching",
    "rlx.custom_derivatives",
    "rlx.data",
    "rlx.debug",
    "rlx.distributed",
    "rlx.distributed.dask_workers",
    "rlx.distributed.ray_actors",
    "rlx.distributed.threads",
    "rlx.driver",
    "rlx.dtypes",
    "rlx.errors",
    "rlx.example_libraries.optimizers",
    "rlx.example_libraries.stax",
    "rlx.experimental.checkify",
    "rlx.experimental.jet",
    "rlx.experimental.mesh_utils",
    "rlx.experimental.multihost_utils",
    "rlx.experimental.ode",
    "rlx.experimental.shard_map",
    "rlx.flatten_util",
    "rlx.export",
    "rlx.fpga",
    "rlx.fusion",
    "rlx.gguf",
    "rlx.graph",
    "rlx.image",
    "rlx.lax",
    "rlx.lax.linalg",
    "rlx.linalg",
    "rlx.lm",
    "rlx.macros",
    "rlx.memory",
    "rlx.nn",
    "rlx.nn.initializers",
    "rlx.numpy",
    "rlx.numpy.fft",
    "rlx.numpy.linalg",
    "rlx.onnx",
    "rlx.opt",
    "rlx.optim",
    "rlx.optim.losses",
    "rlx.parallel",
    "rlx.placement",
    "rlx.precision",
    "rlx.prelude",
    "rlx.profiler",
    "rlx.profiling",
    "rlx.progress",
    "rlx.quant",
    "rlx.random",
    "rlx.ref",
    "rlx.runtime",
    "rlx.scipy.cluster.vq",
    "rlx.scipy.fft",
    "rlx.scipy.integrate",
    "rlx.scipy.interpolate",
    "rlx.scipy.linalg",
    "rlx.scipy.ndimage",
    "rlx.scipy.optimize",
    "rlx.scipy.signal",
    "rlx.scipy.sparse.linalg",
    "rlx.scipy.spatial.transform",
    "rlx.scipy.special",
    "rlx.scipy.stats",
    "rlx.segments",
    "rlx.serialization",
    "rlx.sharding",
    "rlx.sparse",
    "rlx.splat",
    "rlx.test_util",
    "rlx.testing",
    "rlx.tree",
    "rlx.tree_util",
    "rlx.typing",
]
DISTRIBUTIONS = [f"rlx.scipy.stats.{name}" for name in stats.__all__ if inspect.ismodule(getattr(stats, name))]


def documented(value: Any) -> bool:
    """Whether a public value owes a docstring: rlx's own functions, classes and callable objects."""
    if inspect.ismodule(value) or not callable(value):
        return False
    return getattr(value, "__module__", "").split(".")[0] == "rlx"


def docstring(value: Callable[..., Any]) -> str:
    """A value's docstring, without what a class inherits."""
    return (vars(value) if isinstance(value, type) else {"__doc__": value.__doc__}).get("__doc__") or ""


def names_without_example(module: Any) -> list[str]:
    """Names of `module.__all__` that owe an example and have none."""
    public = [(name, getattr(module, name)) for name in module.__all__]
    return [name for name, value in public if documented(value) and ">>>" not in docstring(value)]


@pytest.mark.parametrize("name", PUBLIC + DISTRIBUTIONS)
def test_public_names_have_an_example(name: str) -> None:
    """What `__all__` names shows how it is used; test_documents.py runs the examples."""
    lacking = names_without_example(importlib.import_module(name))
    assert not lacking, f"{name}: an example (>>> ...) is missing in the docstrings of {', '.join(lacking)}"


def test_every_lazy_module_is_looked_at() -> None:
    """A module that `rlx` exports, and that holds functions, is in PUBLIC; namespaces are by what they hold."""
    modules = {f"rlx.{name}" for name in rlx.__all__ if inspect.ismodule(getattr(rlx, name))}
    namespaces = {"rlx.example_libraries", "rlx.experimental", "rlx.scipy"}
    assert modules - namespaces <= set(PUBLIC)


def test_a_missing_example_is_found() -> None:
    """The walk sees a function, a class, and a class that inherits its docstring."""
    module = type("module", (), {"__all__": ["bare", "Bare", "shown"]})

    def bare() -> None:
        """No example."""

    def shown() -> None:
        """An example.

        >>> 1 + 1
        2
        """

    class Shown:
        """An example: >>> 1."""

    class Bare(Shown):
        pass

    for value in (bare, shown, Bare):
        value.__module__ = "rlx.example"
        setattr(module, value.__name__, staticmethod(value) if inspect.isfunction(value) else value)
    assert names_without_example(module) == ["bare", "Bare"]
