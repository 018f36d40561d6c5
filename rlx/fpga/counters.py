"""Loop counters, and registers whose values are affine in the counters."""

from __future__ import annotations

from rlx.fpga.modules import Module
from rlx.fpga.nests import LoopNest
from rlx.fpga.signals import Flag, Integer, Signal, Truth, Value, all_of, select

__all__ = ["Counters"]


class Counters:
    """The counters of a nest. They advance where `tick` is set, and restart after the last iteration."""

    def __init__(self, module: Module, nest: LoopNest, prefix: str, tick: Value) -> None:
        self.module, self.nest, self.prefix, self.tick = module, nest, prefix, tick
        self.counts: list[Signal] = []
        self.ends: list[Value] = []
        self.leading = _leading(nest)
        if self.leading:
            self._follow(self.leading)
        else:
            self._count()
        self.finished: Value = all_of(*self.ends) if self.ends else Truth[1]

    def _follow(self, name: str) -> None:
        """Count the only loop by the register of a walk, which moves by one."""
        low, high = self.nest.bounds(name)
        register = self.module.register(f"{self.prefix}_{name}", Integer(low, high), reset=low)
        self.counts.append(register.signal)
        self.ends.append(self.module.wire(f"{self.prefix}_end0", register.signal.equals(high)))
        register.next = select(self.ends[0], low, (register.signal + 1).within(low, high))
        register.enable = self.tick

    def _count(self) -> None:
        """A counter for each loop."""
        module, prefix = self.module, self.prefix
        registers = []
        for k, loop in enumerate(self.nest.loops):
            register = module.register(f"{prefix}_count{k}", Integer(0, loop.extent - 1), reset=0)
            registers.append(register)
            self.counts.append(register.signal)
            self.ends.append(module.wire(f"{prefix}_end{k}", register.signal.equals(loop.extent - 1)))
        for k, register in enumerate(registers):
            count = register.signal
            register.next = select(self.ends[k], 0, (count + 1).within(0, count.high))
            register.enable = all_of(self.tick, *self.ends[k + 1 :])

    def walk(self, name: str) -> Signal:
        """A register with the value of a walk."""
        if name == self.leading:
            return self.counts[0]
        low, high = self.nest.bounds(name)
        register = self.module.register(f"{self.prefix}_{name}", Integer(low, high), reset=self.nest.starts[name])
        *advances, restart = self.nest.changes(name)
        change: Value | int = restart
        for end, advance in zip(self.ends, advances, strict=True):
            change = select(end, change, advance)
        register.next = (register.signal + change).within(low, high)
        register.enable = self.tick
        return register.signal

    def first(self) -> Value:
        """Whether this is the first iteration of a reduction."""
        inside = self._inside_reduction()
        if inside is None:
            reduced = zip(self.counts, self.nest.loops, strict=True)
            return all_of(*(count.equals(count.low) for count, loop in reduced if loop.reduced))
        register = self.module.register(f"{self.prefix}_first", Flag(), reset=1)
        register.next, register.enable = self.last(), all_of(self.tick, *inside)
        return register.signal

    def _inside_reduction(self) -> list[Value] | None:
        """Whether the idle loops inside a reduction are at their ends; none if a loop of results is inside."""
        loops = list(zip(self.ends, self.nest.loops, strict=True))
        after = [pair for k, pair in enumerate(loops) if any(loop.reduced for _, loop in loops[:k])]
        found = [(end, loop) for end, loop in after if not loop.reduced]
        return [end for end, _ in found] if all(loop.steps.get("idle") for _, loop in found) else None

    def last(self) -> Value:
        """Whether this is the last iteration of a reduction."""
        return all_of(*(end for end, loop in zip(self.ends, self.nest.loops, strict=True) if loop.reduced))


def _leading(nest: LoopNest) -> str:
    """A walk that counts the only loop; empty if there is none."""
    if len(nest.loops) != 1:
        return ""
    return next((walk for walk, step in nest.loops[0].steps.items() if step == 1), "")
