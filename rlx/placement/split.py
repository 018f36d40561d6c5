"""Plans of several devices: a program's units, their costs on each, and the cheapest division that fits in memory."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rlx.backends import backend_named
from rlx.backends.base import Backend, Executable
from rlx.call.compiled import CompiledProgram
from rlx.call.jit import Jitted
from rlx.errors import MemoryLimitError, OptionError, bytes_text
from rlx.ir.kernels import Plan
from rlx.ir.program import Equation, Program, Var
from rlx.passes.pipeline import Context, lower_program, stages
from rlx.placement.estimate import estimate_program
from rlx.placement.executable import PlacedExecutable
from rlx.placement.minimum_cut import CutGraph, CutValue, cheapest_division, cut_cost
from rlx.placement.segments import Segment, segments_of
from rlx.placement.stored_rates import rates_of

__all__ = ["Division", "SplitProgram", "divide", "divide_program"]

_MOST_UNITS = 200
_ENUMERATED = 4096  # divisions up to which each is tried if memory is limited
_RISES = 40  # of prices, by a factor of 4
_BISECTIONS = 8


class Division(NamedTuple):
    """A program divided between its own device and others: the places of its equations, and the expected seconds.

    sides: for each unit of the graph, the number of its device. alone: the seconds of the program's own device alone;
    infinite if it cannot run the program.

    >>> import rlx, rlx.numpy as jnp
    >>> found = rlx.placement.divide(lambda x: jnp.sin(x).sum(), jnp.ones(8), devices=("cpu", "reference"))
    >>> [segment.device for segment in found.segments]
    ['cpu']
    """

    program: Program
    devices: tuple[str, ...]
    places: Mapping[Equation, str]
    seconds: float
    alone: float
    graph: CutGraph
    sides: tuple[int, ...]

    @property
    def segments(self) -> list[Segment]:
        """The parts of the program in order, each with its device."""
        return segments_of(self.program, self.places, self.devices[0])

    def __str__(self) -> str:
        parts = ", ".join(f"{s.device} ({len(s.program.equations)} equations)" for s in self.segments)
        return f"{parts}: {self.seconds * 1e3:.4g} ms; on {self.devices[0]} alone {self.alone * 1e3:.4g} ms"


def divide(
    fun: Callable[..., Any],
    *args: Any,
    devices: Sequence[str],
    memory: Mapping[str, int] | None = None,
    **kwargs: Any,
) -> Division:
    """A cheap division of a function's program between devices, by estimate. Nothing is run.

    Between two devices it is a minimum cut: no other division has a smaller sum of kernels and copies. Between more,
    no two devices can save anything by dividing their parts anew. With a limit on memory it is the best of all for few
    units (12 for two devices, 7 for three), and otherwise the best for some price of a byte.

    Args:
      devices: the device of arguments and results, and the other ones.
      memory: the bytes that the program may use on a device; by default as many as the device reports.

    Raises: MemoryLimitError if no division that was tried fits; OptionError for fewer than two devices, or one twice.

    >>> import rlx, rlx.numpy as jnp
    >>> print(rlx.placement.divide(lambda x: x + 1.0, jnp.ones(8), devices=("cpu", "reference")))
    cpu (1 equations): ...
    """
    if len(devices) < 2 or len(set(devices)) < len(devices):
        raise OptionError(
            f"divide got the devices {', '.join(map(repr, devices)) or 'none'}.",
            "Name two or more different devices, the one of the arguments first: devices=('cpu', 'c').",
        )
    jitted = fun if isinstance(fun, Jitted) else Jitted(fun)
    return divide_program(jitted.trace(*args, **kwargs).closed(), tuple(devices), memory or {})


def divide_program(program: Program, devices: tuple[str, ...], memory: Mapping[str, int]) -> Division:
    """The division of a closed program; see `divide`."""
    backends = [*map(backend_named, devices)]
    program = stages(program, context=Context())[-1].program
    units = _units(program, lower_program(program)) if program.equations else []
    graph = _graph(program, units, backends)
    fits = _Fits(program, units, tuple(_limit(b, name, memory) for b, name in zip(backends, devices, strict=True)))
    sides = _cheapest(graph, fits)
    if sides is None:
        needed = bytes_text(min(fits.peaks([d] * len(units))[d] for d in range(len(devices))))
        raise MemoryLimitError(
            f"No division of {program.name} between {' and '.join(map(repr, devices))} fits in their memories; one"
            f" device alone would need {needed}.",
            "Raise the limit, or compute less at once.",
        )
    places = {e: devices[side] for unit, side in zip(units, sides, strict=True) if side for e in unit}
    alone = estimate_program(program, devices[0])
    fits_alone = not alone.blockers and fits([0] * len(units))
    calls = sum(_call_costs(program, places, devices))
    return Division(
        program,
        devices,
        places,
        cut_cost(graph, sides) + calls,
        alone.total if fits_alone else math.inf,
        graph,
        tuple(sides),
    )


def _call_costs(program: Program, places: Mapping[Equation, str], devices: Sequence[str]) -> Iterable[float]:
    """The seconds of calling each segment."""
    return [rates_of(s.device).costs["call"] for s in segments_of(program, places, devices[0])]


def _limit(backend: Backend, name: str, memory: Mapping[str, int]) -> float:
    """The bytes that a program may use on a device."""
    given, has = memory.get(name), backend.memory.capacity()
    return min(math.inf if given is None else given, math.inf if has is None else has)


# ------------------------------------------------------------------ units
def _units(program: Program, plan: Plan) -> list[list[Equation]]:
    """The equations of each kernel of a plan, in order; an equation belongs to the first kernel that computes it.

    An equation without a kernel, such as a view, belongs to the last unit that its operands need.
    """
    unit_of: dict[int, int] = {}
    for number, kernel in enumerate(plan.kernels):
        for equation in kernel.equations:
            unit_of.setdefault(equation, number)
    maker = {v: n for n, e in enumerate(program.equations) for v in e.outputs}
    last = 0
    found: dict[int, list[Equation]] = {}
    for number, e in enumerate(program.equations):
        needed = max((unit_of[maker[a]] for a in e.inputs if isinstance(a, Var) and a in maker), default=0)
        at = max(unit_of.get(number, needed), needed)
        if e.primitive.effect(**e.params):
            at = last = max(at, last)
        unit_of[number] = at
        found.setdefault(at, []).append(e)
    groups = [found[n] for n in sorted(found)]
    size = -(-len(groups) // _MOST_UNITS) or 1
    return [list(itertools.chain.from_iterable(groups[n : n + size])) for n in range(0, len(groups), size)]


def _graph(program: Program, units: Sequence[Sequence[Equation]], backends: Sequence[Backend]) -> CutGraph:
    """The costs of units on each device, and the values between them."""
    known: dict[tuple[bytes, str], float] = {}
    programs = _unit_programs(program, units)
    costs = tuple(tuple(_unit_seconds(p, b.name, known) for b in backends) for p in programs)
    copies = [[_copies(device, other) for other in backends] for device in backends]
    places = ["host" if b.memory.host else b.memory for b in backends]
    maker = {v: n for n, unit in enumerate(units) for e in unit for v in e.outputs}
    values = []
    for v, readers in _readers(program, units).items():
        outside = {r for r in readers if r != maker.get(v)}
        if outside:
            ordered = tuple(sorted(outside, key=lambda r: -1 if r is None else r))
            seconds = tuple(tuple(copy(v.type.nbytes) for copy in row) for row in copies)
            values.append(CutValue(maker.get(v), ordered, seconds))
    return CutGraph(costs, tuple(values), tuple(map(places.index, places)))


def _copies(device: Backend, other: Backend) -> Callable[[int], float]:
    """The seconds of copying some bytes between two devices: nothing if they share a memory."""
    if device.memory is other.memory:
        return lambda nbytes: 0.0
    away = [rates_of(b.name) for b in (device, other) if not b.memory.host]
    return lambda nbytes: sum(rates.copy_seconds(nbytes) for rates in away)


def _readers(program: Program, units: Sequence[Sequence[Equation]]) -> dict[Var, set[int | None]]:
    """The units that read each variable; None: it is a result."""
    constants = {v for v, _ in program.constants}
    found: dict[Var, set[int | None]] = {}
    for number, unit in enumerate(units):
        for a in (a for e in unit for a in e.inputs if isinstance(a, Var) and a not in constants):
            found.setdefault(a, set()).add(number)
    for a in program.outputs:
        if isinstance(a, Var) and a not in constants:
            found.setdefault(a, set()).add(None)
    return found


def _unit_programs(program: Program, units: Sequence[Sequence[Equation]]) -> list[Program]:
    """Each unit as a program of its own."""
    readers = _readers(program, units)
    constants = dict(program.constants)
    found = []
    for number, unit in enumerate(units):
        made = [v for e in unit for v in e.outputs]
        taken = dict.fromkeys(a for e in unit for a in e.inputs if isinstance(a, Var) and a not in set(made))
        outputs = [v for v in made if readers.get(v, set()) - {number}]
        held = [(v, constants[v]) for v in taken if v in constants]
        found.append(Program([v for v in taken if v not in constants], unit, outputs, held, program.name))
    return found


def _unit_seconds(program: Program, device: str, known: dict[tuple[bytes, str], float]) -> float:
    """The seconds of a unit's kernels; infinite if the device cannot run them."""
    key = program.fingerprint, device
    if key not in known:
        found = estimate_program(program, device)
        known[key] = math.inf if found.blockers else max(0.0, found.seconds - rates_of(device).costs["call"])
    return known[key]


# ------------------------------------------------------------------ memory
class _Fits:
    """Whether a division fits in the memories of all devices."""

    def __init__(self, program: Program, units: Sequence[Sequence[Equation]], limits: tuple[float, ...]) -> None:
        self.program, self.units, self.limits = program, units, limits
        self.readers = _readers(program, units)
        self.maker = {v: n for n, unit in enumerate(units) for e in unit for v in e.outputs}

    @property
    def limited(self) -> bool:
        """Whether any memory is limited."""
        return any(map(math.isfinite, self.limits))

    def __call__(self, sides: Sequence[int]) -> bool:
        return not self.over(sides)

    def over(self, sides: Sequence[int]) -> list[int]:
        """The devices whose memory is too small."""
        pairs = zip(self.peaks(sides), self.limits, strict=True) if self.limited else ()
        return [d for d, (peak, limit) in enumerate(pairs) if peak > limit]

    def peaks(self, sides: Sequence[int]) -> list[int]:
        """The most bytes that values need at once on each device, if units run in order. Each is kept from its maker,
        or its first reader on a device, to the last reader there; arguments and results stay on the first device."""
        events: list[list[tuple[int, int]]] = [[] for _ in self.limits]  # by device: unit, change
        end = len(self.units)
        for v in {**dict.fromkeys(self.program.inputs), **self.maker, **self.readers}:
            at = self.maker.get(v)
            uses: list[list[int]] = [[] for _ in self.limits]
            uses[0 if at is None else sides[at]].append(-1 if at is None else at)
            for reader in self.readers.get(v, ()):
                uses[0 if reader is None else sides[reader]].append(end if reader is None else reader)
            if at is None:
                uses[0].append(end)
            for side, used in enumerate(uses):
                if used:
                    events[side] += [(min(used), v.type.nbytes), (max(used) + 1, -v.type.nbytes)]
        return [*map(_peak, events)]

    def bytes_of(self, unit: int) -> int:
        """The bytes of a unit's operands and results."""
        made = [v for e in self.units[unit] for v in e.outputs if self.readers.get(v, set()) - {unit}]
        taken = [a for e in self.units[unit] for a in e.inputs if isinstance(a, Var) and self.maker.get(a) != unit]
        return sum(v.type.nbytes for v in {**dict.fromkeys(made), **dict.fromkeys(taken)})


def _peak(events: Iterable[tuple[int, int]]) -> int:
    held = most = 0
    for _, change in sorted(events):
        held += change
        most = max(most, held)
    return most


def _cheapest(graph: CutGraph, fits: _Fits) -> list[int] | None:
    """The cheapest division that fits; None if none is found."""
    best = cheapest_division(graph)
    if math.isinf(cut_cost(graph, best)):
        return None
    if fits(best):
        return best
    count, devices = len(graph.costs), range(len(graph.memories))
    if len(devices) ** count <= _ENUMERATED:
        possible = [(cut_cost(graph, sides), [*sides]) for sides in itertools.product(devices, repeat=count)]
        return next((s for cost, s in sorted(possible) if math.isfinite(cost) and fits(s)), None)
    return _priced(graph, fits)


def _priced(graph: CutGraph, fits: _Fits) -> list[int] | None:
    """The cheapest division among those for some prices of a byte on the devices whose memories are too small.

    Prices rise until a division fits; then each falls as far as one still fits.
    """
    amounts = [fits.bytes_of(unit) for unit in range(len(graph.costs))]
    least = 1e-9 / max(1, max(amounts, default=1))
    prices = [0.0] * len(graph.memories)
    found: list[tuple[float, list[int]]] = []

    def over(prices: Sequence[float]) -> list[int]:
        sides = cheapest_division(_with_prices(graph, amounts, prices))
        exceeded = fits.over(sides)
        cost = cut_cost(graph, sides)
        if not exceeded and math.isfinite(cost):
            found.append((cost, sides))
        return exceeded

    for _ in range(_RISES):
        exceeded = over(prices)
        if not exceeded:
            break
        prices = [max(least, 4 * price) if d in exceeded else price for d, price in enumerate(prices)]
    for device, price in enumerate(prices) if found else ():
        low, high = price / 4, price
        for _ in range(_BISECTIONS if price else 0):
            prices[device] = math.sqrt(low * high)
            low, high = (prices[device], high) if over(prices) else (low, prices[device])
        prices[device] = high
    return min(found, default=(math.inf, None))[1]


def _with_prices(graph: CutGraph, amounts: Sequence[int], prices: Sequence[float]) -> CutGraph:
    """The graph in which each byte of a unit costs something on a device."""
    pairs = zip(graph.costs, amounts, strict=True)
    costs = [tuple(c + p * amount for c, p in zip(row, prices, strict=True)) for row, amount in pairs]
    return graph._replace(costs=tuple(costs))


# ------------------------------------------------------------------ running
class SplitProgram(CompiledProgram):
    """A closed program that runs on several devices, by the division of its optimised form."""

    def __init__(self, program: Program, division: Division) -> None:
        self.division = division
        super().__init__(program, backend_named(division.devices[0]))

    def compiled_core(self, core: Program, usual: Callable[[Program], Executable]) -> Executable:
        """The executable of the part of the optimised program that corresponds to `core`."""
        whole, results = self.division.program, list(self.program.outputs)
        inputs = [whole.inputs[i] for i in self.used]
        outputs = [whole.outputs[results.index(a)] for a in core.outputs]
        return PlacedExecutable(whole.replace(inputs=inputs, outputs=outputs), self.division.places, self.backend)
