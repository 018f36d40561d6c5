"""Loop counters, and registers whose values are affine in the counters."""

from __future__ import annotations

from rlx.fpga.modules import Module
from rlx.fpga.nests import LoopNest
from rlx.fpga.signals import Integer, Signal, Truth, Value, all_of, select

__all__ = ["Counters"]


class Counters:
    """The counters of a nest. They advance where `tick` is set, and restart after the last iteration."""

    def __init__(self, module: Module, nest: LoopNest, prefix: str, tick: Value) -> None:
        self.module, self.nest, self.prefix, self.tick = module, nest, prefix, tick
        self.counts: list[Signal] = []
        self.ends: list[Value] = []
        registers = []
        for k, loop in enumerate(nest.loops):
            register = module.register(f"{prefix}_count{k}", Integer(0, loop.extent - 1), reset=0)
            registers.append(register)
            self.counts.append(register.signal)
            self.ends.append(module.wire(f"{prefix}_end{k}", register.signal.equals(loop.extent - 1)))
        self.finished: Value = all_of(*self.ends) if self.ends else Truth[1]
        for k, register in enumerate(registers):
            count = register.signal
            register.next = select(self.ends[k], 0, (count + 1).within(0, count.high))
            register.enable = all_of(tick, *self.ends[k + 1 :])

    def walk(self, name: str) -> Signal:
        """A register with the value of a walk."""
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
        reduced = zip(self.counts, self.nest.loops, strict=True)
        return all_of(*(count.equals(0) for count, loop in reduced if loop.reduced))

    def last(self) -> Value:
        """Whether this is the last iteration of a reduction."""
        return all_of(*(end for end, loop in zip(self.ends, self.nest.loops, strict=True) if loop.reduced))
