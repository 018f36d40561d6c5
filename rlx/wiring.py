"""The hooks through which lower rooms call higher ones. All of them are filled here, once, by `import rlx`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from rlx import ops
from rlx.advice.habits import missing_name
from rlx.advice.tracebacks import install as install_tracebacks
from rlx.array import Array, ConcreteArray
from rlx.call.hooks import chooser, reports, sharding_hooks
from rlx.ir.program import Program
from rlx.jaxnames import install_paths
from rlx.numpy.buffers import install_buffers
from rlx.numpy.names import ATTRIBUTES
from rlx.offered_names import LateAttribute
from rlx.passes.hooks import observer, regions
from rlx.settings import warn_unread
from rlx.trace.hooks import execution, operations
from rlx.transforms.table import transforms

__all__: list[str] = []

_COMPILED = "rlx.call.compiled"
_PROGRAMS = "rlx.transforms.programs"


def _late(module: str, name: str) -> Callable[..., Any]:
    """A function of a room that `import rlx` does not load; the first call loads it."""

    def function(*args: Any, **kwargs: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*args, **kwargs)

    return function


def _late_name(name: str) -> Any:
    """rlx.ops.segment_sum and related functions, which use rlx.numpy, which uses the primitives in rlx.ops; and the
    kinds of operations of graphs."""
    # inspect and doctest look such names up in every module: no reason to load one
    if name in ("Activation", "BinaryOp", "CmpOp", "MaskKind"):
        return getattr(importlib.import_module("rlx.graph.kinds"), name)
    if not name.startswith("__"):
        segments = importlib.import_module("rlx.jaxnames.segments")
        if name in segments.__all__:
            return getattr(segments, name)
    raise missing_name("rlx.ops", name, dir(ops))


def _install_methods() -> None:
    """Give arrays their operators and methods: see LateAttribute."""
    importlib.import_module("rlx.numpy.methods").install(importlib.import_module("rlx.numpy"))


warn_unread()
install_buffers()
for array_class in (Array, ConcreteArray):
    for name in ATTRIBUTES[array_class.__name__].split():
        setattr(array_class, name, LateAttribute(name, _install_methods))
install_paths()
install_tracebacks()
vars(ops)["__getattr__"] = _late_name

# print(program) shows a program that can be read back, a prompt the part that a reader looks at
setattr(Program, "__str__", _late("rlx.ir.show", "show_program"))  # noqa: B010
setattr(Program, "__repr__", _late("rlx.ir.show", "show_functions"))  # noqa: B010

transforms.jvp_walk = _late(_PROGRAMS, "jvp_walk")
transforms.batch_walk = _late(_PROGRAMS, "batch_walk")
transforms.backward_walk = _late(_PROGRAMS, "backward_walk")
transforms.jvp = _late(_PROGRAMS, "remembered_jvp")
transforms.split = _late(_PROGRAMS, "remembered_split")
transforms.separate = _late(_PROGRAMS, "remembered_separate")
transforms.transpose = _late(_PROGRAMS, "remembered_transpose")
transforms.batch = _late(_PROGRAMS, "remembered_batch")

execution.compiled = _late(_COMPILED, "run_program")
execution.prepared = _late(_COMPILED, "prepare_program")
execution.default_memory = _late("rlx.call.default_place", "default_memory")
execution.adopted = _late(_COMPILED, "adopted")
execution.borrowed = _late(_COMPILED, "borrowed")
execution.places = _late("rlx.call.divisions", "places_of")

operations.on_parts = _late("rlx.sharding.partition", "operation_on_parts")
operations.divided_as = _late("rlx.sharding.trees", "divided_as")

sharding_hooks.check_described = _late("rlx.sharding.trees", "check_described")
sharding_hooks.default_sharding = _late("rlx.sharding.shardings", "default_sharding")
sharding_hooks.device_put = _late("rlx.sharding.arrays", "device_put")
sharding_hooks.explained = _late("rlx.sharding.propagation", "explained")
sharding_hooks.jitted = _late("rlx.call.sharded", "sharded_jitted")
sharding_hooks.propagated = _late("rlx.sharding.propagation", "propagated")
sharding_hooks.resolve = _late("rlx.sharding.trees", "resolve")
sharding_hooks.stated = _late("rlx.sharding.propagation", "stated")
sharding_hooks.traced_sharding = _late("rlx.sharding.traced_places", "traced_sharding")

observer.compiled = _late("rlx.explain.dump", "dump")
chooser.compiled = _late("rlx.placement.choice", "chosen_program")
chooser.decided = _late("rlx.placement.choice", "decided")
regions.executable = _late("rlx.placement.executable", "executable_with_regions")
reports.announced = _late("rlx.explain.progress", "announced")
reports.memory_exhausted = _late("rlx.explain.exhausted", "memory_exhausted")
