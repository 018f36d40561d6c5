"""The bars: what each figure is to reach; tables of results show them beside the figures."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["BESIDE", "CALLS", "COLD_MEAN", "DECODING", "DEPTH", "DEPTH_BESIDE", "FIRST", "IMPORT", "KERNELS", "LIBRARY"]
__all__ += ["LIBRARY_MEANS", "MEAN", "MEMORY_MEAN", "MODEL", "MODEL_SECONDS", "NBITS", "NEW_BATCH", "OTHERS", "SECOND"]
__all__ += ["SPARSE", "SPARSE_GRADIENT", "Goal", "packed_goal", "program_goal"]


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
# and of rlx by itself: opening its file, the first token of a second process and of the very first
MODEL_SECONDS: dict[str, Goal] = {
    "opened": Goal(0.3, least=False, unit=" s"),
    "first": Goal(1.0, least=False, unit=" s"),
    "cold": Goal(5.0, least=False, unit=" s"),
}
# jax's seconds as a multiple of rlx's in quick-starts of libraries written for it: a second run of each of them,
LIBRARY = Goal(1.0, least=True)
# and the geometric mean from start to end, with an empty cache of compiled kernels and a filled one
LIBRARY_MEANS = {"cold": Goal(2.0, least=True), "warm": Goal(2.0, least=True)}
# libgguf's time as a multiple of rlx's where packed numbers are decoded
DECODING = Goal(0.7, least=True)
# float32's time as a multiple of that of a product with a packed weight of 4096 x 4096
_ONE_ROW = {
    **dict.fromkeys(("gguf_q4_0", "gguf_q4_1", "gguf_q4_k", "int4/32", "nf4/64"), Goal(3.0, least=True)),
    **dict.fromkeys(("gguf_q8_0", "int8/32"), Goal(2.0, least=True)),
}
_MANY_ROWS = Goal(0.8, least=True)
# and that of onnxruntime's product with weights of four bits, of one row
NBITS = Goal(0.7, least=True)
# rlx's time as a part of another library's, in sparse products and solvers by case and library
SPARSE: dict[tuple[str, str], Goal] = {
    ("random columns", "scipy"): Goal(0.6, least=False),
    ("random columns", "jax"): Goal(0.125, least=False),
    ("five diagonals", "scipy"): Goal(0.5, least=False),
    ("32 columns", "scipy"): Goal(0.5, least=False),
    ("first direct solve", "scipy"): Goal(0.85, least=False),
    ("direct solve, new values", "scipy"): Goal(0.6, least=False),
    ("conjugate gradients", "scipy"): Goal(0.6, least=False),
}
# a solve with its gradient as a multiple of a solve
SPARSE_GRADIENT = Goal(1.3, least=False)


def packed_goal(rows: int, scheme: str) -> Goal | None:
    """How many times a packed product's time float32's is to be; None: no bar."""
    return _ONE_ROW.get(scheme) if rows == 1 else _MANY_ROWS if rows == 128 else None


def program_goal(program: str, library: str) -> Goal:
    """How many times a library's time is to be rlx's in a program."""
    return _JAX.get(program, OTHERS) if library == "jax" else OTHERS
