"""The choice of a device for a program, by estimates, and by measurements if the policy wants them."""

from __future__ import annotations

import hashlib
import math
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from rlx.array import ConcreteArray, moved
from rlx.backends import backend_named
from rlx.backends.base import Backend
from rlx.call.compiled import CompiledProgram
from rlx.call.device import block_until_ready
from rlx.call.jit import Jitted
from rlx.call.policy import Policy
from rlx.columns import aligned
from rlx.config import config
from rlx.device_memory import Memory
from rlx.errors import DeviceError, MemoryLimitError, OptionError, bytes_text, warn
from rlx.forks import reopen_after_fork
from rlx.ir.program import Program
from rlx.ir.types import TensorType
from rlx.passes.pipeline import has_regions
from rlx.placement.estimate import Estimate, EstimateTable, estimate_program, usable_devices
from rlx.placement.model import terms_of
from rlx.placement.rates import Observation
from rlx.placement.split import Division, SplitProgram, divide_program
from rlx.placement.stored_rates import learn, rates_of
from rlx.placement.turns import learn_turns
from rlx.placement.winners import known_winner, remember_winner

__all__ = ["Decision", "choose", "chosen_program", "decide", "decided"]

_STAYS = 1.2  # a device that was chosen before stays unless another one is quicker by this factor
_MOST_KEPT = 4096
_TIMED = 5  # calls of each device that a measurement makes
_LEARNED = 6  # calls of a new program that are timed, in addition to the first
_lock = threading.RLock()
reopen_after_fork(sys.modules[__name__])
_before: OrderedDict[Any, str] = OrderedDict()  # devices by program, sizes and policy


class Decision(NamedTuple):
    """A chosen device, the estimates that it rests on, and for each other device the reason why it was not chosen.

    >>> import rlx
    >>> found = rlx.placement.choose(lambda x: x + 1.0, 2.0, policy=rlx.placement.Policy(only=["cpu", "reference"]))
    >>> found.device
    'cpu'
    """

    device: str
    estimates: EstimateTable
    reasons: dict[str, str]

    def __str__(self) -> str:
        rows = [(name, reason) for name, reason in self.reasons.items()]
        return f"{self.estimates}\n\n" + "\n".join(aligned([("device", "decision"), *rows], ()))


def choose(fun: Callable[..., Any], *args: Any, policy: Policy | None = None, **kwargs: Any) -> Decision:
    """The device that jit(fun, device=policy) would choose for these arguments, and why. Nothing is run.

    Raises: DeviceError if the policy leaves no device.

    >>> import rlx
    >>> x = rlx.ShapeDtypeStruct((512, 512), "float32")
    >>> rlx.placement.choose(lambda x: x @ x, x, policy=rlx.placement.Policy(only=["cpu"])).device
    'cpu'
    """
    jitted = fun if isinstance(fun, Jitted) else Jitted(fun)
    program = jitted.trace(*args, **kwargs).closed()
    return decide(program, policy or Policy.from_env())


def decide(program: Program, policy: Policy, default: str | None = None, memory: Memory | None = None) -> Decision:
    """The decision for a closed program. memory: the only memory whose devices are considered.

    Raises: DeviceError if the policy leaves no device; OptionError under config.deterministic.
    """
    if config.deterministic:
        raise OptionError(
            'device="auto" was used with deterministic=True.', "Name a device: devices round differently."
        )
    default = default or config.device
    names = _candidates(policy, memory)
    table = EstimateTable(sorted((estimate_program(program, n) for n in names), key=lambda e: _cost(e, policy)))
    allowed = [e for e in table if math.isfinite(_cost(e, policy))]
    reasons = {e.device: _blocked(e, policy) for e in table if e not in allowed}
    if not allowed:
        why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        raise DeviceError(
            f"No device that the policy allows can run {program.name}: {why}.",
            "Allow another device, or Policy(fallback=True); Policy(split=True) uses the memories of several devices.",
        )
    best = allowed[0]
    key = _key(program), policy, tuple(names), default
    kept = _kept(allowed, best, policy, default, key)
    with _lock:
        _before[key] = kept.device
        _before.move_to_end(key)
        while len(_before) > _MOST_KEPT:
            _before.popitem(last=False)
    for e in allowed:
        reasons[e.device] = "chosen" if e is kept else _slower(e, kept, best, policy)
    reasons |= {n: "denied by the policy" for n in policy.deny}
    return Decision(kept.device, table, reasons)


def decided(program: Program, policy: Policy | None, memory: Memory | None) -> Decision:
    """The decision of a policy, the environment's if it is None; see `decide`."""
    return decide(program, policy or Policy.from_env(), memory=memory)


def forget_decisions() -> None:
    """Decide again for every program."""
    with _lock:
        _before.clear()


def _candidates(policy: Policy, memory: Memory | None) -> list[str]:
    """The devices that a policy allows. Raises DeviceError if there is none, or for one that is not installed."""
    for name in (*policy.only, *policy.prefer):
        if name not in policy.deny and not backend_named(name).present:
            raise DeviceError(f"The policy names the device {name!r}, and this machine has none.", "Leave it out.")
    names = [n for n in (policy.only or usable_devices()) if n not in policy.deny]
    if memory is not None:
        names = [n for n in names if backend_named(n).memory is memory]
    if not names:
        raise DeviceError(
            "The policy leaves no device: all of them are denied.", "Take a device out of deny or RLX_DENY_DEVICES."
        )
    return names


def _cost(e: Estimate, policy: Policy) -> float:
    """Seconds of a call with its part of compiling; infinite for a device that is not considered."""
    return math.inf if _blocked(e, policy) else e.total + e.compile / policy.calls


def _blocked(e: Estimate, policy: Policy) -> str:
    """Why a device is not considered; "" if it is."""
    limit = policy.memory_limits.get(e.device)
    if limit is not None and e.memory > limit:
        return f"it needs {bytes_text(e.memory)}, and the policy allows {bytes_text(limit)}"
    return "" if policy.fallback and math.isfinite(e.seconds) else "; ".join(e.blockers)


def _kept(allowed: Sequence[Estimate], best: Estimate, policy: Policy, default: str, key: Any) -> Estimate:
    """The device that was chosen before, or is preferred, unless the best one is quicker by enough."""
    with _lock:
        incumbent = _before.get(key)
    if incumbent is not None:
        found = next((e for e in allowed if e.device == incumbent), None)
        if found is not None and _cost(found, policy) <= _STAYS * policy.margin * _cost(best, policy):
            return found
    for name in policy.prefer or (default,):
        found = next((e for e in allowed if e.device == name), None)
        if found is not None and _cost(found, policy) <= policy.margin * _cost(best, policy):
            return found
    return best


def _slower(e: Estimate, kept: Estimate, best: Estimate, policy: Policy) -> str:
    """Why a device that could run the program was not chosen, and what would change that."""
    factor = _cost(e, policy) / max(_cost(kept, policy), 1e-12)
    if e is best:
        return f"{1 / factor:.2f} times quicker, which is less than the margin of {policy.margin:g}"
    saved = kept.seconds - e.seconds
    text = f"{factor:.2f} times slower"
    if saved > 0 and e.compile > 0:
        text += f"; it would pay after {e.compile / saved:.0f} calls without transfers"
    return text


def _key(program: Program) -> bytes:
    """A digest of a program that is equal for sizes in the same powers of two."""
    digest = hashlib.blake2b(digest_size=16)
    for e in program.equations:
        digest.update(f"{e.primitive.name}({','.join(_bucket(a.type) for a in (*e.inputs, *e.outputs))})".encode())
    for inner in program.regions():
        digest.update(_key(inner))
    digest.update("".join(_bucket(t) for t in program.input_types).encode())
    return digest.digest()


def _bucket(type: TensorType) -> str:
    return f"{type.dtype}[{','.join(str(n.bit_length()) for n in type.shape)}]"


# ------------------------------------------------------------------ running
def chosen_program(
    program: Program, args: Sequence[ConcreteArray], policy: Policy | None, memory: Memory | None
) -> CompiledProgram:
    """A closed program, compiled for the device that a policy chooses. memory: where committed arguments are."""
    policy = policy or Policy.from_env()
    divided = _divided(program, policy) if policy.split and memory is None and not has_regions(program) else None
    if divided is not None:
        return SplitProgram(program, divided)
    decision = decide(program, policy, memory=memory)
    device = decision.device
    repeats = not any(e.primitive.effect(**e.params) for e in program.equations)
    if policy.measure and repeats:
        device = _measured(program, args, decision, policy)
    if config.explain:
        warn(f'{program.name} with device="auto" runs on {device}:\n{decision}')
    found = next(e for e in decision.estimates if e.device == device)
    return LearningProgram(program, backend_named(device), found)


def _divided(program: Program, policy: Policy) -> Division | None:
    """The cheapest division between the default device and others; None if one device is about as quick."""
    names = _candidates(policy, None)
    home = next((n for n in (*policy.prefer, config.device) if n in names), names[0])
    found: list[Division] = []
    others = [name for name in names if name != home]
    for group in [(other,) for other in others] + ([tuple(others)] if len(others) > 1 else []):
        with suppress(MemoryLimitError):
            found.append(divide_program(program, (home, *group), policy.memory_limits))
    best = min(found, key=lambda d: d.seconds, default=None)
    if best is None or not best.places:
        return None
    whole = [_cost(estimate_program(program, name), policy) for name in names]
    if config.explain:
        warn(f"{program.name} could be divided: {best}")
    return best if best.seconds * policy.margin < min(whole) else None


class LearningProgram(CompiledProgram):
    """A compiled program whose first calls are timed, for the costs of its device."""

    def __init__(self, program: Program, backend: Backend, expected: Estimate) -> None:
        super().__init__(program, backend)
        self.expected = expected
        self.times: list[float] = []
        self.learns = self.executable is not None and bool(expected.terms) and not has_regions(program)

    def caller(self) -> Callable[[Sequence[ConcreteArray]], list[ConcreteArray]]:
        """As for other programs, once enough calls are timed."""
        known = super().caller()
        return lambda args: self.run_there(args) if self.learns else known(args)

    def run_there(self, args: Sequence[ConcreteArray]) -> list[ConcreteArray]:
        """The results; while it learns, it waits for them."""
        if not self.learns:
            return super().run_there(args)
        begin = self.backend.clock()
        results = block_until_ready(super().run_there(args))
        self.times.append(self.backend.clock() - begin)
        if len(self.times) > _LEARNED:
            self.learns = False
            self._learn(max(sorted(self.times[1:])[_LEARNED // 2 - 1], 1e-9))
        return results

    def _learn(self, seconds: float) -> None:
        """Learn costs, or, if the number of a loop's steps is unknown, this number."""
        if self.expected.exact:
            learn(self.expected.device, Observation(self.expected.terms, seconds))
            return
        plan = None if self.executable is None else self.executable.plan
        if plan is not None:
            once, twice = (terms_of(plan, self.backend, turns).terms for turns in (1.0, 2.0))
            learn_turns(self.program, rates_of(self.expected.device), once, twice, seconds)


def _measured(program: Program, args: Sequence[ConcreteArray], decision: Decision, policy: Policy) -> str:
    """The quicker one of the two devices with the best estimates; the default stays unless it loses by the margin."""
    key = hashlib.blake2b(repr((_key(program), sorted(decision.reasons))).encode(), digest_size=16).hexdigest()
    known = known_winner(key)
    if known is not None and decision.reasons.get(known, "denied").partition(" ")[0] != "denied":
        return known
    ranked = [e.device for e in decision.estimates if math.isfinite(_cost(e, policy))]
    names = list(dict.fromkeys((decision.device, *ranked)))[:2]
    if len(names) < 2:
        return decision.device
    first, second = (_Contender(program, name, args) for name in names)
    _refuse_different(first, second, program.name)
    for _ in range(_TIMED):
        first.run()
        second.run()
    winner = second if policy.margin * min(second.times) < min(first.times) else first
    remember_winner(key, winner.device)
    return winner.device


class _Contender:
    """A program on one of the devices that a measurement compares."""

    def __init__(self, program: Program, device: str, args: Sequence[ConcreteArray]) -> None:
        self.device = device
        self.backend = backend_named(device)
        self.compiled = CompiledProgram(program, self.backend)
        self.args = [moved(x, self.backend.memory) for x in args]
        self.results = block_until_ready(self.compiled.run(self.args))
        self.times: list[float] = []

    def run(self) -> None:
        begin = self.backend.clock()
        block_until_ready(self.compiled.run(self.args))
        self.times.append(self.backend.clock() - begin)


def _refuse_different(first: _Contender, second: _Contender, name: str) -> None:
    """Raise DeviceError if two devices compute clearly different results."""
    for a, b in zip(first.results, second.results, strict=True):
        x, y = np.asarray(a), np.asarray(b)
        if x.dtype.kind in "fc":
            bound = 1e-2 if x.dtype.itemsize < 4 else 1e-3
            largest = float(np.abs(x[np.isfinite(x)]).max(initial=0.0))
            same = np.allclose(x, y, rtol=bound, atol=bound * max(1.0, largest), equal_nan=True)
        else:
            same = x.dtype.kind not in "biu" or bool(np.array_equal(x, y))
        if not same:
            raise DeviceError(
                f"{name} has different results on {first.device!r} and {second.device!r}.",
                "Deny one of them in the policy, and compare both with rlx.jit(device='reference').",
            )
