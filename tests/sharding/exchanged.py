"""What jitted programs of divided arrays send between processes, pattern by pattern, and against a budget.

Processes are threads, with one device each. It prints what is beyond the budget; with the argument `table`, for each
pattern, the kinds of exchanges with their numbers, the bytes that a process sends divided by the bytes of its part of
the first argument, and whether the results are divided.
"""

from __future__ import annotations

import json
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import rlx
import rlx.numpy as jnp
from rlx import lax
from rlx.distributed import threads
from rlx.distributed.members import Member
from rlx.sharding import Mesh, NamedSharding
from rlx.sharding import PartitionSpec as P
from tests.sharding.partitioned import gathered

PAGE = Path(__file__).parents[2] / "docs/sharding_reference.md"
COUNT = 4
N = 64
A, B = (
    np.sin(np.arange(N * N, dtype=np.float32)).reshape(N, N),
    np.cos(np.arange(N * N, dtype=np.float32)).reshape(N, N),
)
IDS = (np.arange(16) * 7) % N
IMAGES, KERNEL = np.sin(np.arange(8.0 * 16 * 8 * 2)).reshape(8, 16, 8, 2), np.cos(np.arange(54.0)).reshape(3, 3, 2, 3)
CUBES = np.stack([np.eye(8) * 9 + np.cos(np.arange(64.0)).reshape(8, 8) * k / 16 for k in range(16)])
LAYERS = np.stack([A, B, A.T, B.T]) * 0.1
# bytes that a member of a group of n sends of an array of so many bytes
SENT: dict[str, Callable[[int, int], float]] = {
    "all_gather": lambda nbytes, n: nbytes * (n - 1),
    "all_reduce": lambda nbytes, n: 2 * nbytes * (n - 1) / n,
    "reduce_scatter": lambda nbytes, n: nbytes * (n - 1) / n,
    "all_to_all": lambda nbytes, n: nbytes * (n - 1) / n,
    "permute": lambda nbytes, n: nbytes,
    "broadcast": lambda nbytes, n: nbytes * (n - 1) / n,
}


class Pattern(NamedTuple):
    """A function of whole arrays, the arrays, and their specs.

    most: the bytes that a process may send, in units of its part of the first argument. divided: whether each result
    is divided. out: the spec that out_shardings asks for.
    """

    function: Callable[..., Any]
    arrays: tuple[Any, ...]
    specs: tuple[Any, ...]
    most: float
    divided: bool
    out: Any = None


ROWS, COLUMNS, WHOLE = P("d"), P(None, "d"), P()
PATTERNS: dict[str, Pattern] = {}


def pattern(
    name: str, function: Any, *pairs: tuple[Any, Any], most: float, divided: bool = True, out: Any = None
) -> None:
    PATTERNS[name] = Pattern(function, tuple(a for a, _ in pairs), tuple(s for _, s in pairs), most, divided, out)


def convolved(x: Any, k: Any) -> Any:
    return lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def squared(x: Any) -> Any:
    return (x**2).sum()


def layers(ws: Any, x: Any) -> Any:
    return squared(lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, ws)[0])


def kept(ws: Any, x: Any) -> Any:
    return squared(lax.scan(rlx.checkpoint(lambda c, w: (jnp.tanh(c @ w), None)), x, ws)[0])


def added_up(w: Any, batches: Any) -> Any:
    """The gradient of several batches, one after another."""

    def one(total: Any, x: Any) -> Any:
        return total + rlx.grad(lambda w: squared(jnp.tanh(x @ w)))(w), None

    return lax.scan(one, jnp.zeros_like(w), batches)[0]


rows, columns, whole = (A, ROWS), (A, COLUMNS), (A, WHOLE)
small, part = 0.1, 0.75  # of sums of numbers; of a reduction by parts: a quarter of whole rows for each other process
pattern("elementwise", lambda x: jnp.tanh(x) * 2 + 1, rows, most=0)
pattern("two specs", lambda x, y: x + y, rows, (B, COLUMNS), most=part)
pattern("product: rows", lambda x, y: x @ y, rows, (B, WHOLE), most=0)
pattern("product: columns", lambda x, y: x @ y, whole, (B, COLUMNS), most=0)
pattern("product: contracted", lambda x, y: x @ y, columns, (B, ROWS), most=6, divided=False)
pattern("product: contracted, divided result", lambda x, y: x @ y, columns, (B, ROWS), most=3, out=ROWS)
pattern("product: contracted on one side", lambda x, y: x @ y, columns, (B, WHOLE), most=6, divided=False)
pattern("product: FSDP", lambda x, w: x @ w, rows, (B, ROWS), most=3)
pattern("gradient: FSDP", rlx.grad(lambda w, x: squared(x @ w)), (B, ROWS), rows, most=6)
pattern("gradient: FSDP, divided result", rlx.grad(lambda w, x: squared(x @ w)), (B, ROWS), rows, most=6, out=ROWS)
pattern("gradient: data parallel", rlx.grad(lambda w, x: squared(x @ w)), (B, WHOLE), rows, most=6, divided=False)
pattern("gradient: data parallel, 4 batches", added_up, (B, WHOLE), (LAYERS, COLUMNS), most=6, divided=False)
pattern("gradient: FSDP over layers", rlx.grad(layers), (LAYERS, COLUMNS), rows, most=6, out=COLUMNS)
pattern("gradient: FSDP over layers, checkpoint", rlx.grad(kept), (LAYERS, COLUMNS), rows, most=9, out=COLUMNS)
pattern("x.T @ x", lambda x: x.T @ x, rows, most=6, divided=False)
pattern("sum", lambda x: x.sum(0), rows, most=6 / 16 + small, divided=False)
pattern("argmax", lambda x: x.argmax(0), rows, most=1, divided=False)
pattern("softmax", lambda x: rlx.nn.softmax(x, axis=0), rows, most=1)
pattern("look-up: rows divided", lambda t, i: t[i], rows, (IDS, WHOLE), most=1.5, divided=False)
pattern("look-up: columns divided", lambda t, i: t[i], columns, (IDS, WHOLE), most=0)
pattern("look-up: ids divided", lambda t, i: t[i], whole, (IDS, ROWS), most=0)
pattern("look-up's gradient: rows divided", rlx.grad(lambda t, i: squared(t[i])), rows, (IDS, WHOLE), most=1.5)
pattern("scatter: rows divided", lambda x, i, u: x.at[i].add(u), rows, (IDS, WHOLE), (A[:16], WHOLE), most=0)
pattern(
    "segment sum: ids divided",
    lambda x, i: rlx.ops.segment_sum(x, i, 16),
    rows,
    (np.arange(N) % 16, ROWS),
    most=1.5,
    divided=False,
)
pattern("one row", lambda x: x[3], rows, most=0.2, divided=False)
pattern("rows by index", lambda x: x[jnp.arange(8)], rows, most=1.0, divided=False)
pattern(
    "dynamic row",
    lambda x, n: lax.dynamic_slice(x, (n, 0), (1, N)),
    rows,
    (np.int32(5), WHOLE),
    most=0.2,
    divided=False,
)
pattern("slice", lambda x: x[:32], rows, most=1)
pattern("slice of a remainder", lambda x: x[:31], rows, most=3, divided=False)
pattern("roll", lambda x: jnp.roll(x, 1, 0), rows, most=small)
pattern("pad", lambda x: jnp.pad(x, ((2, 2), (0, 0))), rows, most=1)
pattern("halo", lambda x: x[2:] + x[:-2] - 2 * x[1:-1], rows, most=4, divided=False)
pattern("halo, periodic", lambda x: jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0) - 2 * x, rows, most=2 * small)
pattern("reverse", lambda x: x[::-1], rows, most=1)
pattern("concatenate", lambda x, y: jnp.concatenate([x, y], 0), rows, (B, ROWS), most=2)
pattern("one row set", lambda x: x.at[3].set(1.0), rows, most=0)
pattern("rows set", lambda x: x.at[2:5].set(1.0), rows, most=0)
pattern(
    "dynamic row set",
    lambda x, n: lax.dynamic_update_slice(x, np.ones((1, N), np.float32), (n, 0)),
    rows,
    (np.int32(5), WHOLE),
    most=0,
)
pattern("convolution: batch", convolved, (IMAGES, ROWS), (KERNEL, WHOLE), most=0)
pattern("convolution: space", convolved, (IMAGES, COLUMNS), (KERNEL, WHOLE), most=0.6)
pattern(
    "pooling: space",
    lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
    (IMAGES, COLUMNS),
    most=0,
)
pattern("factorisations", rlx.vmap(lambda a: jnp.linalg.cholesky(a @ a.T)), (CUBES, ROWS), most=0)
pattern("solutions", rlx.vmap(jnp.linalg.solve), (CUBES, ROWS), (CUBES[:, 0], ROWS), most=0)
pattern("eigenvalues", rlx.vmap(lambda a: jnp.linalg.eigh(a + a.T)[0]), (CUBES, ROWS), most=0)
pattern("FFT: another axis", lambda x: jnp.fft.fft(x, axis=1).real, rows, most=0)
pattern("FFT", lambda x: jnp.fft.fft(x, axis=0).real, rows, most=3.1)
pattern("sort", lambda x: jnp.sort(x, 0), rows, most=1.6)
pattern("sort: another axis", lambda x: jnp.sort(x, 1), rows, most=0)
pattern("cumulative sum", lambda x: jnp.cumsum(x, 0), rows, most=1)
pattern("cumulative sum: another axis", lambda x: jnp.cumsum(x, 1), rows, most=0)
pattern("one exchange per value", lambda x, y: (x @ y, jnp.tanh(x) @ y, y @ y), rows, (B, ROWS), most=3)
pattern("reshape: merge minor", lambda x: x.reshape(N, N), (A.reshape(4, 16, N), COLUMNS), most=3, divided=False)
pattern(
    "scan along", lambda ws: lax.scan(lambda c, w: (c + w.sum(), c), jnp.float32(0), ws)[1], rows, most=3, divided=False
)


class Record:
    """What members of all groups send: numbers of exchanges by kind, and bytes, summed over members."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.nbytes = 0.0
        self.lock = threading.Lock()

    def add(self, kind: str, nbytes: float) -> None:
        with self.lock:
            self.kinds[kind] += 1
            self.nbytes += nbytes


@contextmanager
def recorded() -> Iterator[Record]:
    """Record the exchanges of all members."""
    record, originals = Record(), {kind: getattr(Member, kind) for kind in SENT}

    def wrapped(kind: str) -> Callable[..., None]:
        def exchange(self: Member, array: np.ndarray, *rest: Any) -> None:
            if not getattr(inside, "value", False):
                silent = kind == "permute" and all(source != self.rank for source, _ in rest[-1])
                record.add(kind, 0 if silent else SENT[kind](array.nbytes, self.size))
            inside.value, before = True, getattr(inside, "value", False)
            try:
                originals[kind](self, array, *rest)
            finally:
                inside.value = before

        return exchange

    inside = threading.local()
    try:
        for kind in SENT:
            setattr(Member, kind, wrapped(kind))
        yield record
    finally:
        for kind, original in originals.items():
            setattr(Member, kind, original)


def compiled(given: Pattern) -> tuple[Callable[..., Any], list[Any]]:
    """The jitted function, and its divided arguments."""
    mesh = Mesh(np.array([rlx.local_devices(rank)[0] for rank in rlx.process_indices()]), ("d",))
    arguments = rlx.device_put(list(given.arrays), [NamedSharding(mesh, spec) for spec in given.specs])
    out = None if given.out is None else NamedSharding(mesh, given.out)
    return rlx.jit(given.function, out_shardings=out), arguments


def called(given: Pattern) -> tuple[list[Any], list[bool]]:
    """The values of the results, and whether they are divided."""
    function, arguments = compiled(given)
    leaves = rlx.tree.leaves(function(*arguments))
    divided = [not leaf.is_fully_replicated for leaf in leaves]
    return leaves, divided


def measured(given: Pattern) -> tuple[dict[str, int], float, bool]:
    """The exchanges of a process, the bytes that it sends in units of its part, and whether all results are divided."""
    expected = rlx.tree.leaves(rlx.jit(given.function)(*given.arrays))
    with recorded() as record:
        found = threads.run(COUNT, called, given)
    values = threads.run(COUNT, lambda: [gathered(leaf) for leaf in called(given)[0]])
    for value, wanted in zip(values[0], expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=2e-4, atol=2e-4)
    nbytes = np.asarray(given.arrays[0]).nbytes / COUNT
    kinds = {kind: count // COUNT for kind, count in record.kinds.items()}
    return kinds, record.nbytes / COUNT / nbytes, all(found[0][1])


def row(name: str) -> tuple[dict[str, int], float, bool]:
    """A row of the table: a process's exchanges, their bytes in units of its part, and whether results are divided."""
    kinds, sent, divided = measured(PATTERNS[name])
    return kinds, round(sent, 3), divided


def line(name: str, kinds: dict[str, int], sent: float, divided: bool) -> str:
    """A line of the table in the documents."""
    listed = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "nothing"
    return f"| {name} | {sent:g} | {listed} | {'yes' if divided else 'no'} |"


def run(name: str) -> str:
    """What went wrong with a pattern, or nothing."""
    try:
        kinds, sent, divided = row(name)
        given = PATTERNS[name]
        assert sent <= given.most + 1e-6, f"{sent} parts are sent, more than {given.most}: {kinds}"
        assert divided >= given.divided, "the results are not divided"
        said = line(name, kinds, sent, divided)
        assert said in PAGE.read_text(), f"{PAGE.name} has no line {said}"
    except Exception:
        return traceback.format_exc()[-3000:]
    return ""


if __name__ == "__main__":
    names = sys.argv[1:] or [*PATTERNS]
    if names[0] == "table":
        print("\n".join(line(name, *row(name)) for name in PATTERNS))
    else:
        print(json.dumps({name: run(name) for name in names}))
