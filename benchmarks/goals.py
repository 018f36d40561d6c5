"""The bars: what each figure is to reach; tables of results show them beside the figures."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["BESIDE", "CALLS", "COLD_MEAN", "DEPTH", "DEPTH_BESIDE", "IMPORT", "KERNELS", "MEMORY_MEAN", "MEAN"]
__all__ += ["NEW_BATCH", "PROGRAM", "Goal"]


class Goal(NamedTuple):
    """A bound, from below or above, and the unit it is stated in."""

    limit: float
    least: bool
    unit: str = ""

    def __str__(self) -> str:
        return f"{'≥' if self.least else '≤'} {self.limit:g}{self.unit}"

    def missed(self, value: float) -> bool:
        """Whether a value is on the wrong side; NaN always is."""
        return not (value >= self.limit if self.least else value <= self.limit)

    def verdict(self, value: float) -> str:
        """What stands in the table beside the goal."""
        return "missed" if self.missed(value) else ""


# another library's milliseconds as a multiple of rlx's, for each program
PROGRAM: dict[str, Goal] = {
    "jax": Goal(1.0, least=True),
    "torch": Goal(1.0, least=True),
    "torch.compile": Goal(1.0, least=True),
    "numpy": Goal(1.0, least=True),
}
# microseconds of a call that computes next to nothing
CALLS: dict[str, Goal] = {
    "dispatch_one_array": Goal(3.0, least=False, unit=" µs"),
    "dispatch_tree": Goal(15.0, least=False, unit=" µs"),
}
# geometric means over all programs: JAX's figure as a multiple of rlx's; for memory rlx's as a multiple of JAX's
MEAN = Goal(2.0, least=True)
COLD_MEAN = Goal(2.0, least=True)
MEMORY_MEAN = Goal(1.0, least=False)
# a new batch size: its first call as a part of the very first one, and how many kernels it compiles
NEW_BATCH = Goal(0.2, least=False)
KERNELS = Goal(0.0, least=False)
# seconds of `import rlx` beyond NumPy's
IMPORT = Goal(150.0, least=False, unit=" ms")
# JAX's seconds as a multiple of rlx's in a second process, for each way to run JAX
BESIDE = Goal(3.0, least=True)
# the first call of 24 layers as a multiple of that of 2, and JAX's as a multiple of rlx's
DEPTH = Goal(6.0, least=False)
DEPTH_BESIDE = Goal(2.0, least=True)
