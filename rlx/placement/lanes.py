"""Steps of a program on several devices, run one after another, or each lane in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from rlx.interrupts import in_background
from rlx.placement.schedule import HeldValue, LaneStep
from rlx.storage import Storage

__all__ = ["HeldValues", "run_in_order", "run_together"]

Run = Callable[[LaneStep, Sequence[Storage]], Sequence[Storage]]


class HeldValues:
    """The values of one run by their memories, each freed after its last reader. Safe to use from several threads."""

    def __init__(self, readers: Mapping[HeldValue, int]) -> None:
        self._left = dict(readers)
        self._held: dict[HeldValue, Storage] = {}
        self._changed = threading.Condition()
        self._failure: BaseException | None = None

    def put(self, place: HeldValue, storage: Storage) -> None:
        """Keep a value for its readers."""
        with self._changed:
            if self._left.get(place):
                self._held[place] = storage
            self._changed.notify_all()

    def get(self, place: HeldValue) -> Storage:
        """A value, which is there."""
        return self._held[place]

    def wait(self, places: Sequence[HeldValue]) -> list[Storage] | None:
        """The values, once they are there; None if a step has failed."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or all(p in self._held for p in places))
            return None if self._failure is not None else [self._held[p] for p in places]

    def done(self, places: Sequence[HeldValue]) -> None:
        """A step no longer needs these values."""
        with self._changed:
            for place in places:
                self._left[place] -= 1
                if not self._left[place]:
                    self._held.pop(place, None)

    def fail(self, error: BaseException) -> None:
        """Stop all lanes before their next steps."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    @property
    def failure(self) -> BaseException | None:
        """The first error."""
        return self._failure


def run_in_order(steps: Sequence[LaneStep], held: HeldValues, run: Run) -> None:
    """Run the steps one after another."""
    for step in steps:
        _run_step(step, [held.get(p) for p in step.reads], held, run)


def run_together(steps: Sequence[LaneStep], held: HeldValues, run: Run) -> None:
    """Run the steps of each lane in a thread, each when its values are there. Raises the first error of a step.

    If no threads can be started, the steps run one after another.
    """
    caller = threading.get_ident()
    lanes: dict[str, list[LaneStep]] = {}
    for step in steps:
        lanes.setdefault(step.lane, []).append(step)
    begin = threading.Event()
    given_up: list[bool] = []

    def work(lane: Sequence[LaneStep]) -> None:
        if threading.get_ident() == caller:
            given_up.append(True)
            return
        begin.wait()
        if given_up:
            return
        try:
            _run_lane(lane, held, run)
        except BaseException as error:
            held.fail(error)

    finished = False
    ends = []
    try:
        ends = [in_background(lambda lane=lane: work(lane)) for lane in lanes.values()]
        begin.set()
        for end in ends:
            with end:
                pass
        finished = True
    finally:
        if not finished:
            held.fail(KeyboardInterrupt())
            begin.set()
    if given_up:
        run_in_order(steps, held, run)
    if held.failure is not None:
        raise held.failure


def _run_lane(lane: Sequence[LaneStep], held: HeldValues, run: Run) -> None:
    for step in lane:
        taken = held.wait(step.reads)
        if taken is None:
            return
        _run_step(step, taken, held, run)


def _run_step(step: LaneStep, taken: Sequence[Storage], held: HeldValues, run: Run) -> None:
    made = run(step, taken)
    for place, storage in zip(step.writes, made, strict=True):
        held.put(place, storage)
    held.done(step.reads)
