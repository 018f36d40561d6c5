"""The bars: what each figure is to reach; tables of results show them beside the figures."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["BESIDE", "CALLS", "COLD_MEAN", "DEPTH", "DEPTH_BESIDE", "FIRST", "IMPORT", "KERNELS", "MEMORY_MEAN", "MEAN"]
__all__ += ["MODEL", "NEW_BATCH", "OTHERS", "SECOND", "Goal", "program_goal"]


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


# another library's milliseconds as a multiple of rlx's, for each program: no program slower than any
OTHERS = Goal(1.0, least=True)
# and more than that beside JAX
_JAX: dict[str, Goal] = {
    "elementwise_chain": Goal(5.0, least=True),
    "softmax_rows": Goal(4.0, least=True),
    "layer_norm_gradient": Goal(5.0, least=True),
    "transformer_gradient": Goal(3.0, least=True),
    "convolution_gradient": Goal(3.0, least=True),
    "recurrent_gradient": Goal(3.0, least=True),
    "per_example_gradients": Goal(3.0, least=True),
    "scan_gradient": Goal(15.0, least=True),
}
# microseconds of a call that computes next to nothing
CALLS: dict[str, Goal] = {
    "dispatch_one_array": Goal(1.5, least=False, unit=" µs"),
    "dispatch_tree": Goal(8.0, least=False, unit=" µs"),
}
# geometric means over all programs: JAX's figure as a multiple of rlx's; for memory rlx's as a multiple of JAX's
MEAN = Goal(3.0, least=True)
COLD_MEAN = Goal(2.0, least=True)
MEMORY_MEAN = Goal(1.0, least=False)
# a new batch size: its first call as a part of the very first one, and how many kernels it compiles
NEW_BATCH = Goal(0.05, least=False)
KERNELS = Goal(0.0, least=False)
# seconds of `import rlx` beyond NumPy's
IMPORT = Goal(150.0, least=False, unit=" ms")
# a saved program with object code: its first result in a fresh process, once rlx is imported
FIRST = Goal(150.0, least=False, unit=" ms")
# seconds of a second process from import to the first gradient
SECOND = Goal(0.5, least=False, unit=" s")
# JAX's seconds as a multiple of rlx's there, for each way to run JAX
BESIDE = Goal(3.0, least=True)
# the first call of 24 layers as a multiple of that of 2, and JAX's as a multiple of rlx's
DEPTH = Goal(3.0, least=False)
DEPTH_BESIDE = Goal(2.0, least=True)
# tokens a second of SmolLM2 as a multiple of another library's, decoding and for a prompt of 512
MODEL: dict[tuple[str, str], Goal] = {
    ("decode", "llama.cpp"): Goal(0.6, least=True),
    ("decode", "transformers"): Goal(1.5, least=True),
    ("prefill", "transformers"): Goal(0.7, least=True),
}


def program_goal(program: str, library: str) -> Goal:
    """How many times a library's time is to be rlx's in a program."""
    return _JAX.get(program, OTHERS) if library == "jax" else OTHERS
