"""The cost of each class of work on a device, typical numbers, and the terms and runs that are priced by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rlx.code.cost import Cost, Counts, Rates, cost_of

__all__ = ["COSTS", "DeviceRates", "Observation", "Term", "WAITS", "memory_class", "typical_rates"]

# seconds for one unit of each class of work, on one thread of a processor, roughly
COSTS: dict[str, float] = {
    "call": 5e-6,  # one call of a program
    "launch": 3e-7,  # one kernel of a plan
    "step": 1e-7,  # one kernel in a step of a loop
    "host": 2e-5,  # one kernel that Python runs
    "near": 2e-11,  # a byte of data that fit in a core's cache
    "middle": 4e-11,  # a byte of data that fit in the last cache
    "far": 1e-10,  # a byte of other data
    "operation": 6e-11,
    "function": 6e-10,
    "sine": 6e-10,  # a sine, a cosine or a tangent
    "product": 1.5e-11,  # an operation of a product of float32
    "product64": 3e-11,
    "product16": 3e-11,
    "thin": 1.5e-11,  # an operation of a product with few rows or columns
    "division": 1e-10,  # a division or a square root
    "reduced": 3e-11,  # an element of a sum
    "extremum": 3e-11,  # an element of a maximum
    "strided": 2e-10,  # an element that moves from a row to a column
    "serial": 1e-9,  # an element of a running sum
    "scatter": 2e-9,  # an element that is written at a computed position
    "gather": 5e-10,  # a row or an element that is read at a computed position
    "sort": 4e-9,  # an element, times the logarithm of the length
    "routine": 2e-10,  # an operation of a factorisation or a transform
    "routine.cholesky": 2e-10,
    "routine.lu": 2e-10,
    "routine.fft": 5e-10,
    "latency": 0.0,  # one copy from or to the device
    "link": 0.0,  # a byte of such a copy
    "compile": 2e-2,  # a kernel that is not in a cache
}
WAITS = ("launch", "step", "host")
_OVERLAP = 4  # the exponent that weighs the shorter one of two overlapping times
_NEAR, _MIDDLE = 1 << 21, 1 << 25  # bytes of data that fit in a processor's caches


class Term(NamedTuple):
    """Equal kernels of a plan: what one does, how many there are, and how each is started (launch, step or host)."""

    counts: Counts
    times: float = 1.0
    wait: str = "launch"


class Observation(NamedTuple):
    """A run of a program: its kernels, and its time in seconds."""

    terms: tuple[Term, ...]
    seconds: float


@dataclass(frozen=True)
class DeviceRates:
    """The cost of each class of work on a device, in seconds a unit, and their source.

    basis: "typical", "published" or "measured". Classes of routines ("routine.cholesky") count as "routine" if absent.

    >>> from rlx.placement.rates import typical_rates
    >>> rates = typical_rates("cpu")
    >>> rates.basis, rates.costs["product"] > 0
    ('typical', True)
    """

    device: str
    costs: Mapping[str, float]
    basis: str = "typical"
    observations: tuple[Observation, ...] = ()

    def seconds(self, terms: Sequence[Term]) -> float:
        """The time of one call of a program."""
        return self.costs["call"] + sum(t.times * self.cost(t).seconds for t in terms)

    def cost(self, term: Term) -> Cost:
        """The time of one kernel."""
        return cost_of(term.counts, self._table(term))

    def copy_seconds(self, nbytes: float, copies: int = 1) -> float:
        """The time of copies from or to the device."""
        return copies * self.costs["latency"] + nbytes * self.costs["link"]

    def class_of(self, unit: str) -> str:
        """The class that operations of a unit belong to."""
        return unit if unit in self.costs else unit.partition(".")[0]

    def shares(self, terms: Sequence[Term]) -> dict[str, float]:
        """The seconds of each class in one call. A kernel's memory and arithmetic overlap: the longer one counts, and
        the shorter one has a part of it, so that fitting can also raise it."""
        found = {"call": self.costs["call"]}

        def add(name: str, seconds: float) -> None:
            found[name] = found.get(name, 0.0) + seconds

        for term in terms:
            cost, counts = self.cost(term), term.counts
            add(term.wait, term.times * cost.waiting)
            longer = max(cost.memory, cost.arithmetic)
            if not longer:
                continue
            memory, arithmetic = (part / longer for part in (cost.memory, cost.arithmetic))
            weight = memory**_OVERLAP / (memory**_OVERLAP + arithmetic**_OVERLAP)
            add(memory_class(counts), term.times * longer * weight)
            if not cost.arithmetic:
                continue
            part = term.times * longer * (1 - weight) / cost.arithmetic
            add("operation", part * counts.operations * self.costs["operation"])
            add("function", part * counts.functions * self.costs["function"])
            for unit, number in counts.products.items():
                add(self.class_of(unit), part * number * self.costs[self.class_of(unit)])
        return found

    def _table(self, term: Term) -> Rates:
        """The table that the cost function takes, for a kernel's amount of data and the way it is started."""
        costs = self.costs
        units = {unit: 1 / costs[self.class_of(unit)] for unit in term.counts.products}
        function = costs["function"] / costs["operation"]
        bandwidth = 1 / costs[memory_class(term.counts)]
        return Rates(
            self.device, bandwidth, 1 / costs["operation"], costs[term.wait], function=function, special=8 * function,
            units=units,
        )  # fmt: skip


def memory_class(counts: Counts) -> str:
    """The caches that a kernel's data fit in."""
    return "near" if counts.moved <= _NEAR else "middle" if counts.moved <= _MIDDLE else "far"


# ------------------------------------------------------------------ typical numbers
# by platform: factors of the costs above, and costs of their own
_TYPICAL: dict[str, dict[str, float]] = {
    "cpu": {},
    "c": {"call": 1.5e-5, "product": 1e-10, "product64": 1.5e-10, "product16": 2e-10, "function": 6e-9,
          "sine": 6e-9, "compile": 0.1},
    "numba": {"call": 2e-5, "product": 2e-10, "product64": 2e-10, "product16": 4e-10, "function": 6e-9,
              "sine": 6e-9, "sort": 1e-8,
              "compile": 1.0},
    "opencl": {"call": 5e-5, "launch": 3e-5, "step": 3e-5, "host": 1e-4, "product": 1e-10, "product64": 2e-10,
               "sort": 2e-8, "latency": 2e-5, "link": 2e-10, "compile": 0.2},
    "wgpu": {"call": 3e-4, "launch": 3e-5, "step": 3e-5, "host": 1e-3, "product": 1e-10, "product64": 2e-10,
             "sort": 2e-8, "latency": 3e-4, "link": 5e-10, "compile": 0.2},
    "mlx": {"call": 5e-5, "launch": 1e-5, "step": 1e-5, "latency": 2e-5, "link": 1e-10, "compile": 1e-3},
    "xla": {"call": 5e-5, "launch": 1e-6, "latency": 2e-5, "link": 1e-10, "compile": 5e-2},
    "reference": {"call": 5e-5, "launch": 2e-5, "step": 2e-5, "operation": 1e-9, "function": 5e-9, "sine": 5e-9,
                  "near": 3e-10, "compile": 0.0},
}  # fmt: skip
# data sheets: copies near 80 % of the memory's peak, products of float32 without matrix units, dense products with them
_CARDS: dict[str, dict[str, float]] = {
    "H100": {"far": 3.0e12, "operation": 67e12, "product": 67e12, "product64": 67e12, "product16": 989e12},
    "H200": {"far": 3.9e12, "operation": 67e12, "product": 67e12, "product64": 67e12, "product16": 989e12},
    "MI300X": {"far": 4.2e12, "operation": 163e12, "product": 163e12, "product64": 163e12, "product16": 1307e12},
    "M4": {"far": 0.1e12, "operation": 4.3e12, "product": 4.3e12, "product64": 0.1e12, "product16": 4.3e12},
}
_GPU = {
    "call": 3e-5, "launch": 2e-6, "step": 2e-6, "host": 1e-4, "reduced": 1e-13, "extremum": 1e-13, "strided": 1e-12,
    "serial": 1e-11, "scatter": 1e-11, "gather": 1e-11,
    "sort": 2e-11, "routine": 1e-11, "routine.cholesky": 1e-11, "routine.lu": 1e-11, "routine.fft": 1e-12,
    "latency": 1e-5, "link": 4e-11, "compile": 0.3,
}  # fmt: skip
_DEFAULT_CARD = {"cuda": "H100", "rocm": "MI300X"}


def typical_rates(device: str, card: str = "") -> DeviceRates:
    """Typical costs of a device, without a measurement; of a GPU by the data sheet of its card, or of one like it.

    >>> from rlx.placement.rates import typical_rates
    >>> typical_rates("cuda").basis
    'published: H100'
    """
    kind = device.partition(":")[0]
    name = next((known for known in _CARDS if known in card), _DEFAULT_CARD.get(kind, ""))
    if not name:
        return DeviceRates(device, {**COSTS, **_TYPICAL.get(kind, {})})
    rates = _CARDS[name]
    costs = {**COSTS, **_GPU, **{unit: 1 / rate for unit, rate in rates.items()}}
    costs |= {"near": costs["far"], "middle": costs["far"], "function": 20 * costs["operation"]}
    costs |= {"division": 4 * costs["operation"], "sine": costs["function"], "thin": costs["product"]}
    return DeviceRates(device, costs, f"published: {name}")
