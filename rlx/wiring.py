"""The hooks through which lower rooms call higher ones. All of them are filled here, once, by `import rlx`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from rlx import numpy, ops
from rlx.call.compiled import adopted, borrowed, prepare_program, reports, run_program
from rlx.call.default_place import default_memory
from rlx.call.divisions import places_of, sharding_hooks
from rlx.call.policy import chooser
from rlx.habits import missing_name
from rlx.ir.program import Program
from rlx.ir.show import show_functions, show_program
from rlx.jaxnames import install_paths
from rlx.numpy.methods import install as install_methods
from rlx.passes.pipeline import observer, regions
from rlx.settings import warn_unread
from rlx.trace.places import execution
from rlx.trace.spanning import operations
from rlx.tracebacks import install as install_tracebacks
from rlx.transforms import programs
from rlx.transforms.table import transforms

__all__: list[str] = []


def _late(module: str, name: str) -> Callable[..., Any]:
    """A function of a room that `import rlx` does not load; the first call loads it."""

    def function(*args: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*args)

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


warn_unread()
install_methods(numpy)
install_paths()
install_tracebacks()
vars(ops)["__getattr__"] = _late_name

# print(program) shows a program that can be read back, a prompt the part that a reader looks at
setattr(Program, "__str__", show_program)  # noqa: B010
setattr(Program, "__repr__", show_functions)  # noqa: B010

transforms.jvp_walk = programs.jvp_walk
transforms.batch_walk = programs.batch_walk
transforms.backward_walk = programs.backward_walk
transforms.jvp = programs.remember(programs.jvp_program)
transforms.split = programs.remember(programs.split_program)
transforms.separate = programs.remember(programs.separate_program)
transforms.transpose = programs.remember(programs.transpose_program)
transforms.batch = programs.remember(programs.batch_program)

execution.compiled = run_program
execution.prepared = prepare_program
execution.default_memory = default_memory
execution.adopted = adopted
execution.borrowed = borrowed
execution.places = places_of

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
