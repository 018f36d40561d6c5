"""Fourier transforms as scripts: a pass over memory for each axis, several transforms at a time.

Real signals of even length are transformed as complex ones of half the length. Lengths with other prime
factors than 2, 3 and 5 go through a convolution of a length without (Bluestein 1970).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from math import prod

import numpy as np

from rlx.backends.cpu.routines.action_code import VECTOR_BYTES
from rlx.backends.cpu.routines.script_builder import MatrixAddress, MissingRoutine, Script
from rlx.backends.cpu.routines.spectrum import RADICES
from rlx.code.butterflies import radices

__all__ = ["LONGEST", "Pass", "fourier_passes", "write_pass"]

LONGEST = 8192


@dataclass(frozen=True)
class Pass:
    """The transforms along one axis: (outer, length, width) numbers in memory, of `given` and `wanted`
    elements along the axis. With width 0 the transforms are consecutive rows."""

    kind: str
    length: int
    outer: int
    width: int
    source: MatrixAddress
    target: MatrixAddress

    @property
    def given(self) -> int:
        """Numbers that a transform reads."""
        return self.length // 2 + 1 if self.kind == "irfft" else self.length

    @property
    def wanted(self) -> int:
        """Numbers that a transform writes."""
        return self.length // 2 + 1 if self.kind == "rfft" else self.length

    def blocks(self, lanes: int) -> int:
        """The number of panels of transforms."""
        return -(-self.outer // lanes) if self.width == 0 else self.outer * -(-self.width // lanes)


def _smooth_length(least: int) -> int:
    """The next length that has no other prime factors than 2, 3 and 5."""
    return next(length for length in count(least) if prod(radices(length, RADICES)) == length)


def fourier_passes(
    kind: str,
    batch: int,
    lengths: Sequence[int],
    source: MatrixAddress,
    target: MatrixAddress,
    between: Callable[[int], MatrixAddress],
) -> list[Pass]:
    """The passes of a transform, in order. `between` returns memory for a number of complex numbers."""
    *others, last = lengths
    rows = batch * prod(others)
    inner_kind = "ifft" if kind in ("ifft", "irfft") else "fft"
    half = last // 2 + 1 if kind in ("rfft", "irfft") else last
    middle = target
    if kind == "irfft" and others:
        middle = between(rows * half)
    along_rows = Pass(kind, last, rows, 0, middle if kind == "irfft" and others else source, target)
    first, rest = source if kind == "irfft" else middle, []
    order = range(len(others)) if kind == "irfft" else reversed(range(len(others)))
    for axis in order:
        outer, width = batch * prod(others[:axis]), prod(others[axis + 1 :]) * half
        rest.append(Pass(inner_kind, others[axis], outer, width, first, middle))
        first = middle
    return [*rest, along_rows] if kind == "irfft" else [along_rows, *rest]


@lru_cache(maxsize=64)
def _factor_words(length: int, powers: tuple[tuple[int, ...], ...], real: str) -> tuple[int, ...]:
    """exp(2 pi j k / length) for each k, as operations read factors."""
    turns = np.concatenate([np.array(p, np.int64) for p in powers]) % length
    return _words(np.exp(2j * np.pi * turns.astype(np.float64) / length), real)


def _words(factors: np.ndarray, real: str) -> tuple[int, ...]:
    """Complex numbers as operations read factors."""
    numbers = np.stack([factors.real, factors.real, -factors.imag, factors.imag], -1).astype(real)
    return tuple(numbers.reshape(-1).view(np.int64).tolist())


@lru_cache(maxsize=64)
def _chirps(length: int, longer: int, sign: int, real: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Bluestein's factors of the numbers, and of the spectrum that the convolution multiplies."""
    turns = np.arange(length, dtype=np.int64) ** 2 % (2 * length)
    chirp = np.exp(1j * np.pi * sign * turns.astype(np.float64) / length)
    response = np.zeros(longer, np.complex128)
    response[:length] = chirp.conj()
    response[longer - length + 1 :] = chirp[:0:-1].conj()
    return _words(chirp, real), _words(np.fft.fft(response) / longer, real)


class _ScriptWriter:
    """Writes the actions of one pass into a script."""

    def __init__(self, script: Script, work: Pass) -> None:
        self.script = script
        self.work = work
        self.real = np.dtype(f"f{script.real_item}")
        self.item = 2 * script.real_item
        self.sign = 1 if work.kind in ("ifft", "irfft") else -1
        direction = np.array([-self.sign, self.sign] * 2, self.real).view(np.int64).tolist()
        self.directions = {1: script.constant(*direction)}
        self.directions[-1] = script.constant(*(-np.array(direction).view(self.real)).view(np.int64).tolist())
        numbers = max(work.length + 1, self.longer(work.length))
        self.here, self.there = (script.scratch(numbers * VECTOR_BYTES) for _ in range(2))

    @staticmethod
    def longer(length: int) -> int:
        """The length of the transforms that are used for one of a length."""
        return length if prod(radices(length, RADICES)) == length else _smooth_length(2 * length - 1)

    def move(self, action: str, place: MatrixAddress, numbers: int, nbytes: int) -> None:
        """Numbers between memory and the lanes."""
        if self.work.width == 0:
            lane_step, element_step, width, outer_step = numbers * nbytes, nbytes, self.work.outer, 0
        else:
            width = self.work.width
            lane_step, element_step, outer_step = nbytes, width * nbytes, numbers * width * nbytes
        place = replace(place, step=0)
        self.script.act(
            action, self.here, place, numbers, lane_step, element_step, width, outer_step, nbytes
        )  # fmt: skip

    def factors(self, length: int, *powers: tuple[int, ...], way: int = 1) -> MatrixAddress:
        """Constants exp(+-2 pi j k / length), k the powers."""
        signed = tuple(tuple(way * self.sign * k for k in group) for group in powers)
        return self.script.constant(*_factor_words(length, signed, self.real.str))

    def swap(self) -> None:
        """Exchange the source and the target of the next pass."""
        self.here, self.there = self.there, self.here

    def transform(self, length: int) -> None:
        """A whole transform; the results are `here`."""
        longer = self.longer(length)
        if longer == length:
            self.stages(length)
            return
        chirp, response = (self.script.constant(*w) for w in _chirps(length, longer, self.sign, self.real.str))
        self.script.act("multiply_lanes", self.here, chirp, length, longer - length)
        # the convolution's own transforms go one way and back, its factor 1 / longer is in the response
        self.stages(longer, -self.sign)
        self.script.act("multiply_lanes", self.here, response, longer, 0)
        self.stages(longer, self.sign)
        self.script.act("multiply_lanes", self.here, chirp, length, 0)

    def stages(self, length: int, way: int = 1) -> None:
        """A transform whose length has no other prime factors than 2, 3 and 5; the other way if way is -1."""
        size, width = length, 1
        for radix in radices(length, RADICES):
            groups = size // radix
            powers = tuple(tuple(group * k for k in range(1, radix)) for group in range(groups))
            factors = self.factors(size, *powers, way=way)
            self.script.act(
                "transform_stage", self.here, self.there, factors, self.directions[way], radix, groups, width
            )  # fmt: skip
            self.swap()
            size, width = groups, width * radix

    def halves(self, action: str) -> None:
        """Convert between the spectrum of a real signal and a spectrum of half the length."""
        half = self.work.length // 2
        factors = self.factors(self.work.length, tuple(range(half + 1)))
        self.script.act(action, self.there, self.here, factors, self.directions[1], half)
        self.swap()

    def scale(self, numbers: int) -> None:
        """The inverse transforms' factor."""
        factor = np.full(16 // self.real.itemsize, 1 / numbers, self.real).view(np.int64).tolist()
        self.script.act("scale_lanes", self.here, self.script.constant(*factor), numbers)


def _write_real(writer: _ScriptWriter, work: Pass) -> None:
    length, item = work.length, writer.item
    half = length // 2
    if work.kind == "rfft" and length % 2 == 0:
        writer.move("load_panel", work.source, half, item)
        writer.transform(half)
        writer.halves("join_spectrum")
        writer.move("store_panel", work.target, half + 1, item)
    elif work.kind == "rfft":
        writer.move("load_panel", work.source, length, item // 2)
        writer.transform(length)
        writer.move("store_panel", work.target, half + 1, item)
    elif length % 2 == 0:
        writer.move("load_panel", work.source, half + 1, item)
        writer.halves("part_spectrum")
        writer.transform(half)
        writer.scale(half)
        writer.move("store_panel", work.target, half, item)
    else:
        writer.move("load_panel", work.source, half + 1, item)
        writer.script.act("mirror_spectrum", writer.here, length)
        writer.transform(length)
        writer.scale(length)
        writer.move("store_panel", work.target, length, item // 2)


def write_pass(script: Script, work: Pass) -> None:
    """The actions of a pass; raises MissingRoutine for a long one."""
    if work.length > LONGEST:
        raise MissingRoutine(f"the length {work.length} of a Fourier transform is over {LONGEST}")
    writer = _ScriptWriter(script, work)
    if work.kind in ("rfft", "irfft"):
        _write_real(writer, work)
        return
    writer.move("load_panel", work.source, work.length, writer.item)
    writer.transform(work.length)
    if work.kind == "ifft":
        writer.scale(work.length)
    writer.move("store_panel", work.target, work.length, writer.item)
