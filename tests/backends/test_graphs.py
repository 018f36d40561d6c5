"""Graphs of launches: order, addresses and memory with the driver that is none; values by OpenCL.

OpenCL's engine has no graphs here. One is put beside it that keeps launches and queues them again, as a device would.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fake_cupy import FakeCupy, installed

import rlx
import rlx.numpy as jnp
from rlx import backends, lax
from rlx.backends.gpu.graphs import stretches

X = np.random.default_rng(0).normal(size=(40, 50)).astype(np.float32)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCupy]:
    """A driver with one device."""
    yield from installed(monkeypatch, FakeCupy())


def chain(x: Any) -> Any:
    """Four launches or more, with temporaries between them."""
    y = jnp.sort(x, axis=1)
    z = jnp.cumsum(y, axis=0)
    return jnp.sort(z.T, axis=1) + jnp.cumsum(z.T, axis=1)


def kinds(cupy: FakeCupy) -> list[str]:
    """What was logged since the last time, but for events."""
    found = [entry[0] for entry in cupy.log if entry[0] not in ("record", "copy", "wait")]
    del cupy.log[:]
    return found


def test_the_third_run_is_a_graph(cupy: FakeCupy) -> None:
    """The first is queued, the second is queued and recorded; the graph has the same launches in the same order."""
    f, x = rlx.jit(chain), rlx.device_put(X, "cuda")
    runs = []
    for _ in range(4):
        del cupy.log[:]
        f(x).block_until_ready()
        gc.collect()
        runs.append([entry for entry in cupy.log if entry[0] in ("launch", "graph")])
    first, second, third, fourth = runs
    assert len(first) >= 3 and "graph" not in [e[0] for e in (*first, *second)]
    assert third[0] == ("graph", len(first)) and fourth[0] == third[0]
    names = [[entry[1:4] for entry in run if entry[0] == "launch"] for run in runs]
    assert names[0] == names[1] == names[2] == names[3]


def touched(cupy: FakeCupy) -> set[int]:
    """The addresses that launches since the last time read and write."""
    found = {place for entry in cupy.log if entry[0] == "launch" for place in entry[-1]}
    del cupy.log[:]
    return found


def test_a_graph_serves_all_addresses(cupy: FakeCupy) -> None:
    """Its kernels follow the addresses of inputs and outputs, which each run writes to memory."""
    f = rlx.jit(chain)
    arrays = [rlx.device_put(X, "cuda") for _ in range(4)]
    f(arrays[0]), f(arrays[0])
    kept = []
    for x in arrays:
        del cupy.log[:]
        kept.append(f(x))
        assert [entry[0] for entry in cupy.log if entry[0] in ("graph", "copy", "synchronize")] == ["copy", "graph"]
        others = {a.storage().pointer for a in (*arrays, *kept)} - {x.storage().pointer, kept[-1].storage().pointer}
        places = touched(cupy)
        assert {x.storage().pointer, kept[-1].storage().pointer} <= places and not others & places


def product(w: Any, x: Any) -> Any:
    """Launches around a product, which a library computes from an input."""
    return chain(jnp.tanh(chain(x)) @ w)


def test_a_library_has_copies_of_inputs(cupy: FakeCupy) -> None:
    """A library has addresses themselves: of copies that the graph makes."""
    f, x = rlx.jit(product), rlx.device_put(X, "cuda")
    for _ in range(5):
        w = rlx.device_put(np.ones((40, 40), np.float32), "cuda")
        del cupy.log[:]
        f(w, x)
    assert [entry[0] for entry in cupy.log if entry[0] in ("graph", "matmul")] == ["graph", "matmul"]
    assert w.storage().pointer in touched(cupy)


def test_large_inputs_of_a_library_are_not_copied(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a graph for each of their addresses; graphs share the rest of the memory."""
    monkeypatch.setattr("rlx.backends.gpu.graphs._MOST_COPIED", 0)
    f, x = rlx.jit(product), rlx.device_put(X, "cuda")
    weights = [rlx.device_put(np.ones((40, 40), np.float32), "cuda") for _ in range(6)]
    used, graphs = [], []
    for w in weights * 4:
        del cupy.log[:]
        f(w, x)
        graphs.append("graph" in kinds(cupy))
        used.append(cupy.used)
    assert not any(graphs[:12]) and all(graphs[12:]) and used[7] == used[-1]


def test_recordings_share_their_memory(cupy: FakeCupy) -> None:
    f, used = rlx.jit(chain), []
    arrays = [rlx.device_put(X + n, "cuda") for n in range(8)]
    for x in arrays * 3:
        f(x).block_until_ready()
        used.append(cupy.used)
    assert used[3] == used[-1]


def test_temporaries_are_the_recordings_own(cupy: FakeCupy) -> None:
    """No array gets the memory that a graph writes."""
    f, x = rlx.jit(chain), rlx.device_put(X, "cuda")
    for _ in range(3):
        y = f(x)
    del cupy.log[:]
    y = f(x)
    written = touched(cupy)
    temporary = written - {x.storage().pointer, y.storage().pointer}
    assert temporary
    arrays = [rlx.device_put(np.zeros(n, np.uint8), "cuda") for n in range(0, 20_000, 400)]
    assert not temporary & {a.storage().pointer for a in arrays}


def test_few_launches_are_no_graph(cupy: FakeCupy) -> None:
    f, x = rlx.jit(lambda x: jnp.exp(x) * 2), rlx.device_put(X, "cuda")
    for _ in range(5):
        f(x)
    assert "graph" not in kinds(cupy)


def test_a_library_s_products_lie_inside_of_graphs(cupy: FakeCupy) -> None:
    """In their order; the library chooses nothing, and nothing is allocated, while they are recorded."""
    f, x = rlx.jit(lambda x: chain(chain(x) @ x)), rlx.device_put(X, "cuda")
    orders = []
    for _ in range(4):
        del cupy.log[:]
        f(x)
        gc.collect()
        orders.append([entry[0] for entry in cupy.log if entry[0] in ("graph", "matmul", "launch")])
    queued, _, replayed, again = orders
    assert queued.count("matmul") == 1 and replayed == ["graph", "launch", *queued] and again == replayed
    assert cupy.cublas_lt.asked == ["DEFAULT"] * 2  # for any addresses, and for these


def test_the_host_lies_between_graphs(cupy: FakeCupy) -> None:
    def f(x: Any) -> Any:
        y = chain(x)
        return chain(rlx.pure_callback(np.sin, rlx.ShapeDtypeStruct(y.shape, y.dtype), y))

    f, x = rlx.jit(f), rlx.device_put(X, "cuda")
    for _ in range(3):
        del cupy.log[:]
        f(x)
        gc.collect()
    order = [entry[:2] if entry[0] == "copy" else entry[:1] for entry in cupy.log if entry[0] in ("graph", "copy")]
    there, back = [place for place, entry in enumerate(order) if entry == ("graph",)]
    assert ("copy", 2) in order[there:back] and ("copy", 1) in order[there:back]


def test_a_loop_is_one_graph(cupy: FakeCupy) -> None:
    """Of steps that are too much for one group: its copies of carries are in it, too."""
    x = rlx.device_put(np.zeros((5, 200, 200), np.float32), "cuda")
    f = rlx.jit(lambda x: lax.scan(lambda c, r: (c + jnp.sort(r), c.sum()), x[0], x))
    for _ in range(3):
        del cupy.log[:]
        f(x)
        gc.collect()
    graphs = [entry for entry in cupy.log if entry[0] == "graph"]
    assert len(graphs) == 1 and graphs[0][1] >= 15


def shrunk(x: Any) -> Any:
    """A loop whose end depends on values, with steps of several launches: a product, a sum of all."""
    return lax.while_loop(lambda c: (c * c).sum() > 1, lambda c: jnp.tanh(c @ c) / 3, x)


def together(x: Any) -> Any:
    """That loop among other launches."""
    return chain(shrunk(x)[:40, :50])


def test_a_loop_of_groups_is_in_the_graph(cupy: FakeCupy) -> None:
    """It is two launches, and the host waits for nothing; the driver is asked once how many groups there are."""
    f, x = rlx.jit(together), rlx.device_put(np.ones((200, 200), np.float32), "cuda")
    runs = []
    for _ in range(3):
        del cupy.log[:]
        f(x)
        gc.collect()
        runs.append([e[0] for e in cupy.log if e[0] != "record"])
    assert runs[0].count("launch together") == 1 and {*runs[0]} == {"wait for", "launch", "launch together"}
    assert runs[2][:2] == ["copy", "graph"] and runs[2].count("launch together") == 1


def test_memory_of_recordings_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the device has no more; the next run is queued."""
    for cupy in installed(monkeypatch, FakeCupy(capacity=1 << 20)):
        f, x = rlx.jit(chain), rlx.device_put(X, "cuda")
        for _ in range(3):
            f(x)
        before = cupy.used
        backends.memory_named("cuda").clear_pool()
        assert cupy.used < before
        del cupy.log[:]
        f(x)
        assert "graph" not in kinds(cupy)


def test_what_cannot_be_recorded_is_said_and_queued(cupy: FakeCupy) -> None:
    f, x = rlx.jit(chain), rlx.device_put(X, "cuda")
    cupy.broken.add("capture")
    f(x)
    with pytest.warns(UserWarning, match="could not be recorded.*illegal memory access"):
        f(x)
    cupy.broken.clear()
    for _ in range(3):
        f(x)
    assert "graph" not in kinds(cupy)


def test_hip_has_no_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    for cupy in installed(monkeypatch, FakeCupy(is_hip=True)):
        f, x = rlx.jit(chain), rlx.device_put(X, "rocm")
        for _ in range(4):
            f(x)
        assert "graph" not in kinds(cupy)


def test_stretches_are_cut_where_a_graph_would_be_too_long() -> None:
    sizes = {"a": 3000, "b": 1000, "c": 97, "d": 2}
    assert [s.launches for s in stretches("abcd", sizes.get)] == [4000, 99]


# ------------------------------------------------------------------ values
SCRIPT = """
import gc
import numpy as np
import rlx, rlx.numpy as jnp
from rlx import lax
from rlx.backends.gpu.engine import FollowedView, View
from rlx.backends.opencl import engine as module
from test_graphs import X, chain

class Graphs(module.OpenCLEngine):
    records, kept, begun = True, None, 0
    def followed(self, table, nbytes): return FollowedView(table, -1, nbytes)
    def stage(self, view, array): self.write(view, array)
    numbers, views = {}, []  # OpenCL has no addresses: the number of each place
    def address(self, view):
        place = view.memory.int_ptr, view.start
        if place not in self.numbers:
            self.numbers[place] = len(self.views)
            self.views.append(view)
        return self.numbers[place]
    def found(self, view):
        if not isinstance(view, FollowedView): return view
        number = np.zeros(1, np.uint64)
        self.read(view.memory, number.view(np.uint8))
        begin = self.views[int(number[0])]
        return View(begin.memory, begin.start + ~view.start, view.nbytes)
    def begin_graph(self): self.kept = []
    def end_graph(self):
        kept, self.kept = self.kept, None
        return kept
    def launch_graph(self, graph):
        Graphs.begun += 1
        for function, arguments in graph: function(*arguments)
    def launch(self, *arguments): self._do(self.launch_found, arguments)
    def launch_found(self, prepared, views, grid, block):
        super().launch(prepared, [self.found(view) for view in views], grid, block)
    def copy(self, *arguments): self._do(super().copy, arguments)
    def _do(self, function, arguments):
        self.kept.append((function, arguments)) if self.kept is not None else function(*arguments)
    def allocate(self, nbytes):
        assert self.kept is None
        return super().allocate(nbytes)

import rlx.backends.opencl as backend
backend.OpenCLEngine = Graphs

def looped(x):
    return lax.scan(lambda c, r: (c + jnp.sort(r), c.sum()), x, jnp.stack([x, 2 * x, 3 * x, x * x]))

def waited(x):
    return lax.while_loop(lambda s: s[0] < 6, lambda s: (s[0] + 1, chain(s[1])[:40].T[:40] / 50), (0, x[:, :40]))

for f in (chain, looped, waited, lambda x: chain(chain(x) @ x)):
    there = rlx.jit(f, device="opencl")
    for n in range(6):  # other values at other places, and the same ones again
        x = X * (1 + n % 2)
        given = rlx.device_put(x, "opencl")
        for found, expected in zip(rlx.tree.leaves(there(given)), rlx.tree.leaves(rlx.jit(f)(x))):
            np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-4, atol=1e-4)
        gc.collect()
print("graphs:", Graphs.begun)
"""


@pytest.mark.thorough
def test_recorded_runs_compute_the_same() -> None:
    if os.environ.get("RLX_TEST_OPENCL") != "1":
        pytest.importorskip("pyopencl", reason="pyopencl is not installed: make test-opencl")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) >= 12, done.stdout
