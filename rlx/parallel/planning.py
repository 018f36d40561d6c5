"""The cost of a step on a mesh that need not exist: time, bytes sent, and memory, from a device's program."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlx import distributed
from rlx import numpy as jnp
from rlx.call.jit import jit
from rlx.errors import CollectiveError
from rlx.ir.collectives import WORLD, communicator
from rlx.ir.program import Equation, Program, Var
from rlx.ir.types import is_inexact
from rlx.parallel.traffic import Traffic, device_program, exchanges_of
from rlx.sharding.mesh import AbstractMesh, Mesh

__all__ = ["Machine", "Plan", "measure", "plan"]


class Machine(NamedTuple):
    """A device and its link: floating-point operations and bytes per second, and seconds for a message without bytes.

    The defaults describe one CPU core pair and a network of 10 Gbit/s; `measure` measures the current machine.

    >>> from rlx.parallel import Machine
    >>> round(Machine().seconds(flops=5e10, rounds=1000, sent=125_000_000), 3)
    1.15
    """

    flops: float = 5e10
    latency: float = 5e-5
    bandwidth: float = 1.25e9

    def seconds(self, flops: float, rounds: float, sent: float) -> float:
        """The time for work and messages, one after another."""
        return flops / self.flops + rounds * self.latency + sent / self.bandwidth


class Plan(NamedTuple):
    """The cost of a step for each of `devices` devices.

    held: bytes of the parts of all arguments. peak: held plus all values that are live at once in the traced program;
    fusion needs less. flops: additions and products of matrix products, and one for each element of other results.
    traffic: exchanges. seconds: computing, latency of messages and their bytes, one after another.

    >>> import rlx
    >>> from rlx.parallel import plan
    >>> mesh = rlx.sharding.AbstractMesh((4,), ("x",))
    >>> found = plan(lambda w: 2.0 * rlx.lax.psum(w, "x"), mesh=mesh, in_specs=rlx.P("x"))(rlx.numpy.ones(400))
    >>> found.devices, found.held, found.peak, found.traffic.sent
    (4, 400, 1200, 600)
    """

    devices: int
    held: int
    peak: int
    flops: float
    traffic: Traffic
    seconds: float


def plan(
    f: Callable[..., Any],
    *,
    mesh: Mesh | AbstractMesh,
    in_specs: Any,
    check_vma: bool = True,
    machine: Machine | None = None,
) -> Callable[..., Plan]:
    """The cost of a step that shard_map runs, per device: memory, exchanges, and time by an alpha-beta model.

    Bytes held and sent are exact. Time is flops / machine.flops + rounds * machine.latency + bytes / machine.bandwidth,
    as if nothing overlapped: good for an order of magnitude, and for comparing partitionings.

    Args:
      f: a function of one device's parts.
      mesh: a mesh, or an AbstractMesh of any number of devices.
      in_specs, check_vma: as in rlx.shard_map. machine: a Machine, or the result of `measure`.

    Returns: a function of f's arguments, as arrays or rlx.ShapeDtypeStructs, that returns a Plan. It raises
      UnsupportedError for exchanges in a loop with an unknown number of iterations.

    >>> import rlx
    >>> from rlx.parallel import plan
    >>> step = lambda w, x: w - rlx.lax.pmean(rlx.grad(lambda w: ((x @ w) ** 2).mean())(w), "data")
    >>> for n in (8, 4096):
    ...     mesh = rlx.sharding.AbstractMesh((n,), ("data",))
    ...     count = plan(step, mesh=mesh, in_specs=(rlx.P(), rlx.P("data")), check_vma=False)
    ...     found = count(rlx.ShapeDtypeStruct((64,), "float32"), rlx.ShapeDtypeStruct((8192, 64), "float32"))
    ...     print(found.held, found.traffic.sent)
    262400 448
    768 512
    """
    machine = Machine() if machine is None else machine

    def cost(*args: Any) -> Plan:
        found = device_program(f, mesh, in_specs, args, check_vma)
        held = sum(t.nbytes for t in found.program.input_types[found.captured :])
        flops, sent = _flops(found.program), exchanges_of(found)
        seconds = machine.seconds(flops, sent.rounds, sent.sent)
        return Plan(mesh.size, held, _peak(found.program), flops, sent, seconds)

    return cost


def _parts(e: Equation) -> list[Program]:
    return list(Program((), (e,), ()).regions())


def _flops(program: Program) -> float:
    """Floating-point operations. Of a branch the most expensive counts, of a loop of unknown length one iteration."""
    count = 0.0
    for e in program.equations:
        parts = [_flops(region) for region in _parts(e)]
        if e.primitive.name == "cond":
            count += max(parts)
        elif parts:
            count += sum(parts) * e.params.get("length", 1)
        elif e.primitive.name == "dot_general":
            contracted = e.params["dimension_numbers"][0][0]
            depth = math.prod(e.inputs[0].type.shape[axis] for axis in contracted)
            count += 2.0 * depth * math.prod(e.outputs[0].type.shape)
        else:
            count += sum(math.prod(v.type.shape) for v in e.outputs if is_inexact(v.type.dtype))
    return count


def _peak(program: Program) -> int:
    """The largest number of bytes that are live at once; the inputs stay live throughout."""
    last: dict[Var, int] = {}
    for number, e in enumerate(program.equations):
        last.update({a: number for a in (*e.inputs, *e.outputs) if isinstance(a, Var)})
    kept = {*program.inputs, *(a for a in program.outputs if isinstance(a, Var))}
    live = most = sum(t.nbytes for t in program.input_types)
    for number, e in enumerate(program.equations):
        inner = (_peak(region) - sum(t.nbytes for t in region.input_types) for region in _parts(e))
        live += sum(v.type.nbytes for v in e.outputs)
        most = max(most, live + max(inner, default=0))
        dead = {a for a in (*e.inputs, *e.outputs) if isinstance(a, Var) and last[a] == number} - kept
        live -= sum(v.type.nbytes for v in dead)
    return most


def measure(group: str = WORLD, size: int = 512, nbytes: int = 1 << 22, repeats: int = 20) -> Machine:
    """Measure this machine: matrix products of this process, and messages between processes.

    All processes of the group call it at once. It takes the median of `repeats` products of (size, size) float32
    matrices, of messages of one number round the ring of processes, and of messages of nbytes.

    Raises: CollectiveError if there is only one process: start several, or use `rlx.distributed.threads.run`.

    >>> from rlx.distributed import threads
    >>> from rlx.parallel import measure
    >>> found = threads.run(2, lambda: measure(size=8, nbytes=4096, repeats=3))
    >>> found[0].flops > 0 and found[0].latency > 0 and found[0].bandwidth > 0
    True
    """
    members = communicator(group).size
    if members < 2:
        raise CollectiveError(
            "parallel.measure got a group of one process, which sends nothing.",
            "Start several: rlx launch -n 2 program.py.",
        )
    ring = [(n, (n + 1) % members) for n in range(members)]
    a = jnp.ones((size, size), np.float32)
    product = jit(lambda a: a @ a)
    compute = _median(lambda: product(a).block_until_ready(), repeats)
    few, many = jnp.ones(1, np.float32), jnp.ones(nbytes // 4, np.float32)
    latency = _median(lambda: distributed.permute(few, ring, group), repeats)
    whole = _median(lambda: distributed.permute(many, ring, group), repeats)
    # a message cannot take less than its bytes, however long the short ones waited
    return Machine(2.0 * size**3 / compute, latency, nbytes / max(whole - latency, 0.1 * whole))


def _median(work: Callable[[], Any], repeats: int) -> float:
    work()
    found: Sequence[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        found = [*found, time.perf_counter() - start]
    return float(np.median(found))
