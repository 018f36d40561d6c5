"""A circuit that takes its inputs and returns its results as streams of bytes, around one with addresses."""

from __future__ import annotations

from rlx.fpga.modules import Instance, Module, Port
from rlx.fpga.signals import Flag, Integer, Signal, Value, all_of, any_of, negated, select

__all__ = ["stream_module"]


def stream_module(name: str, core: Module) -> Module:
    """The module around a core. Its ports are two streams with valid and ready.

    It takes the bytes of an example, runs the core, and sends the bytes of the results, the last one with out_last.
    """
    module = Module(name, f"{core.name} with streams of bytes")
    ports = {port.name: port for port in core.ports}
    in_valid, in_data = module.input("in_valid", Flag()), module.input("in_data", ports["in_data"].type)
    out_ready = module.input("out_ready", Flag())
    loading, sending, fetched = (
        module.register(n, Flag(), reset=r) for n, r in (("loading", 1), ("sending", 0), ("fetched", 0))
    )
    done, busy = module.net("core_done", Flag()), module.net("core_busy", Flag())
    data = module.net("core_data", ports["out_data"].type)
    taken = module.wire("taken", all_of(loading.signal, in_valid))
    sent = module.wire("sent", all_of(fetched.signal, out_ready))
    load_at, load_last = _address(module, "load", ports["in_address"], taken)
    send_at, send_last = _address(module, "send", ports["out_address"], sent)
    loaded = module.wire("loaded", all_of(taken, load_last))
    finished = module.wire("finished", all_of(sent, send_last))
    loading.next = any_of(all_of(loading.signal, negated(loaded)), finished)
    sending.next = any_of(done, all_of(sending.signal, negated(finished)))
    fetched.next = all_of(sending.signal, negated(sent))
    inputs: dict[str, Value] = {
        "start": module.delayed("start", loaded, reset=0), "in_valid": taken, "in_address": load_at,
        "in_data": in_data, "out_address": send_at,
    }  # fmt: skip
    module.instances.append(Instance("core", core.name, inputs, {"done": done, "busy": busy, "out_data": data}))
    outputs: dict[str, Value] = {
        "in_ready": loading.signal, "out_valid": fetched.signal, "out_last": send_last, "out_data": data,
        "busy": busy, "done": done,
    }  # fmt: skip
    for port, value in outputs.items():
        module.output(port, value)
    return module


def _address(module: Module, prefix: str, port: Port, tick: Value) -> tuple[Signal, Value]:
    """The address of the next byte, and whether it is the last one."""
    assert isinstance(port.type, Integer)
    register = module.register(f"{prefix}_address", port.type, reset=0)
    last = module.wire(f"{prefix}_last", register.signal.equals(port.type.high))
    register.next = select(last, 0, (register.signal + 1).within(0, port.type.high))
    register.enable = tick
    return register.signal, last
