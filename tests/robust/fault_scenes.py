"""Scenes in which faults are raised, run as a process of its own: python fault_scenes.py SCENE KIND."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import shutil
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from faults import descriptors, sweep

import rlx
import rlx.numpy as jnp
from rlx import forks, interrupts, serialization
from rlx.backends.cpu.routines import native_library, special
from rlx.backends.cpu.runtime import compile, entry, folder, store

STORE = (store, folder, compile, forks)
TEXT = "define i64 @{}() {{\nret i64 {}\n}}\n"
SECONDS = 20.0  # a deadlock by then


class Number:
    """A code to compile: a function that answers a number."""

    def __init__(self, number: int) -> None:
        self.key, self.number, self.symbol = b"%d" % number, number, f"answer{number}"
        self.ir = TEXT.format(self.symbol, number)

    def ask(self, of: store.CodeStore) -> None:
        """The function in a store answers its number."""
        address = of.address(self.key, self.symbol, lambda: self.ir)
        assert ctypes.CFUNCTYPE(ctypes.c_int64)(address)() == self.number


def in_a_thread(work: Callable[[], object]) -> None:
    """Do work in another thread: no lock that it needs is held by this one."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive(), "a lock is held"
    assert not failures, failures


def in_a_child(work: Callable[[], object]) -> None:
    """Do work in a forked child: no lock is held, neither there nor on the way."""
    if not hasattr(os, "fork"):
        return
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        work()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, "the child failed or hung"


def soon(holds: Callable[[], bool]) -> bool:
    """Whether something holds before long: a thread that is done may still let go of what it held."""
    end = time.monotonic() + SECONDS
    while not holds():
        if time.monotonic() > end:
            return False
        gc.collect()
        time.sleep(0.001)
    return True


class StoreScene:
    """A store that is new each time, asked for codes; `full`: what they are is on disk."""

    files = (*STORE, interrupts)

    def __init__(self, root: Path, full: bool) -> None:
        self.root, self.full = root, full
        self.codes = [Number(n) for n in range(1, 4)]
        self.store = store.CodeStore(None)
        self.open_before = 0

    def prepare(self, number: int) -> Callable[[], object]:
        """A store over a folder of its own."""
        shutil.rmtree(self.root, ignore_errors=True)
        if self.full:
            for code in self.codes:
                code.ask(store.CodeStore(self.root))
        self.store = store.CodeStore(None)
        gc.collect()
        self.open_before = descriptors()
        self.store = store.CodeStore(self.root, limit=3000)
        return self.work

    def work(self) -> None:
        """One code alone, then several."""
        self.codes[0].ask(self.store)
        self.store.prepare(self.codes)
        for code in self.codes:
            code.ask(self.store)

    def check(self, number: int) -> None:
        """The store answers here, in other threads and in children; on disk are whole files only."""
        assert not self.store._lock.locked() and not forks._inside
        in_a_thread(self.work)
        self.work()
        if number % 10 == 0:
            in_a_child(self.work)
            in_a_child(lambda: Number(9).ask(self.store))
        if self.root.exists():
            for code in self.codes:
                code.ask(store.CodeStore(self.root))
            names = [file.name for file in self.root.iterdir()]
            assert all(folder.NAME.fullmatch(name) for name in names), names
        self.store = store.CodeStore(None)
        assert soon(lambda: descriptors() <= self.open_before), "a file is open"


class JitScene:
    """A jitted function that is new each time: elementwise work, a product, a sort, a loop, a routine of LAPACK."""

    files = (*STORE, interrupts, entry, native_library, special)

    def __init__(self, root: Path) -> None:
        self.x = np.random.default_rng(0).normal(size=(5, 5))
        self.function: Callable[[np.ndarray], rlx.Array] = lambda x: x
        self.root, self.number = root, 0

    def prepare(self, number: int) -> Callable[[], object]:
        """A function that nobody has compiled, in a process whose store forgot all but what is on disk."""
        rlx.clear_caches()
        entry.load_runtime.cache_clear()
        native_library.native_addresses.cache_clear()
        store._default = store.CodeStore(self.root)
        self.number, power = number, 2.0 + number / 1000

        def function(x: np.ndarray) -> rlx.Array:
            y = jnp.sin(x * power) @ x
            root = jnp.linalg.cholesky(y @ y.T + 9 * jnp.eye(5))
            return rlx.lax.fori_loop(0, 3, lambda i, c: jnp.tanh(c + root), y).sum()

        self.function = rlx.jit(function)
        return lambda: self.function(self.x)

    def expected(self) -> float:
        """The same in NumPy."""
        y = np.sin(self.x * (2.0 + self.number / 1000)) @ self.x
        root = np.linalg.cholesky(y @ y.T + 9 * np.eye(5))
        for _ in range(3):
            y = np.tanh(y + root)
        return float(y.sum())

    def check(self, number: int) -> None:
        """The next call is right, here and in another thread."""
        in_a_thread(lambda: self.function(self.x))
        np.testing.assert_allclose(self.function(self.x), self.expected(), rtol=1e-9)
        if number % 10 == 0:
            in_a_child(lambda: rlx.jit(lambda x: x * number + 1)(self.x))
        names = [file.name for file in self.root.iterdir()] if self.root.exists() else []
        assert all(folder.NAME.fullmatch(name) for name in names), names


class SaveScene:
    """A file that is written over."""

    files = (*(module for name, module in sys.modules.items() if name.startswith(serialization.__name__)), interrupts)

    def __init__(self, root: Path, suffix: str) -> None:
        self.path = root / f"model{suffix}"
        self.old, self.new = {"w": np.arange(5.0)}, {"w": np.arange(7.0), "b": [np.ones(3), np.zeros(2)]}

    def prepare(self, number: int) -> Callable[[], object]:
        """The file holds what is old."""
        shutil.rmtree(self.path.parent, ignore_errors=True)
        self.path.parent.mkdir()
        rlx.save(self.path, self.old)
        return lambda: rlx.save(self.path, self.new)

    def check(self, number: int) -> None:
        """It holds the old or the new tree, nothing is beside it, and it can be written."""
        assert os.listdir(self.path.parent) == [self.path.name]
        assert rlx.tree.structure(rlx.load(self.path)) in map(rlx.tree.structure, (self.old, self.new))
        rlx.save(self.path, self.new)
        np.testing.assert_array_equal(rlx.load(self.path)["w"], self.new["w"])


def main(scene: str, kind: str, first: int, step: int) -> None:
    """Run a scene and say how many faults there were."""
    faulthandler.enable()
    warnings.simplefilter("ignore", RuntimeWarning)  # the store says that it goes without a disk
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "files"
        scenes = {
            "new codes": lambda: StoreScene(root, full=False),
            "codes on disk": lambda: StoreScene(root, full=True),
            "jit": lambda: JitScene(root),
            "safetensors": lambda: SaveScene(root, ".safetensors"),
            "npz": lambda: SaveScene(root, ".npz"),
        }
        played = scenes[scene]()
        played.prepare(0)()  # imports, and what is done once
        played.check(1)
        gc.collect()
        gc.freeze()
        # a thread that cannot begin its work cannot say so
        files = [file for file in played.files if kind == "interrupt" or file is not interrupts]
        reaches = kind != "disk" or isinstance(played, SaveScene)  # compiled code does without a disk
        print("faults", sweep(kind, files, played.prepare, played.check, first, step, reaches))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
