"""A fork while another thread holds every lock of rlx: run as a program, since other libraries forbid forks."""

from __future__ import annotations

import ast
import gc
import importlib
import inspect
import os
import pkgutil
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import rlx
import rlx.numpy as jnp
from rlx.backends.cpu.runtime.store import default_store
from rlx.profiling.timed_call import TimedCall
from rlx.progress import _Bar
from rlx.runtime import CompileCache

LOCKS = (type(threading.Lock()), type(threading.RLock()))
# held inside of `unforked` only, for which a fork waits
WAITED_FOR = {
    "rlx.backends.cpu.runtime.compile._lock",
    "rlx.backends.cpu.runtime.compile._StrengthReduction._lock",
}
# devices whose drivers allow no use in a forked child
WITHOUT_FORKS = ("rlx.backends.mlx.", "rlx.backends.gpu.")
# replaced by a hook of their own, which the tests of their rooms run
ELSEWHERE = {"rlx.distributed.members.Member.turn"}
if "c" not in sys.argv:
    ELSEWHERE.add("rlx.backends.loops.executable.TextExecutable._lock")
SECONDS = 20


def modules() -> Iterator[Any]:
    """Every module of rlx that can be imported here."""
    for found in pkgutil.walk_packages(rlx.__path__, "rlx."):
        if not found.name.endswith("__main__"):
            try:
                yield importlib.import_module(found.name)
            except (ImportError, rlx.errors.RlxError):
                continue


def attributes(owner: Any) -> dict[str, Any]:
    """What an object has: by its dict and its slots."""
    slots = [name for kind in type(owner).__mro__ for name in getattr(kind, "__slots__", ())]
    names = [*getattr(owner, "__dict__", {}), *(slots if not isinstance(slots, str) else [slots])]
    return {name: getattr(owner, name, None) for name in names if isinstance(name, str)}


class Place(NamedTuple):
    """An attribute that is a lock, or a dict of locks."""

    owner: Any
    name: str

    @property
    def label(self) -> str:
        kind = self.owner if hasattr(self.owner, "__path__") or hasattr(self.owner, "__spec__") else type(self.owner)
        return f"{'' if kind is self.owner else kind.__module__ + '.'}{kind.__name__}.{self.name}"

    @property
    def locks(self) -> list[Any]:
        """Those that are there now."""
        value = getattr(self.owner, self.name)
        return [x for x in (list(value.values()) if type(value) is dict else [value]) if isinstance(x, LOCKS)]


def places() -> list[Place]:
    """Every lock of a module or an object of rlx."""
    owners = list(modules())
    for found in gc.get_objects():
        module = getattr(type(found), "__module__", None)
        if isinstance(module, str) and module.startswith("rlx."):
            owners.append(found)
    found = [Place(owner, name) for owner in owners for name in attributes(owner)]
    return [place for place in found if hasattr(place.owner, place.name) and place.locks]


def declared() -> set[str]:
    """The labels of all locks that classes of rlx create for their objects, by their source."""
    labels = set()
    for module in modules():
        source = inspect.getsource(module)
        tree = ast.walk(ast.parse(source if "Lock()" in source else ""))
        for kind in (node for node in tree if isinstance(node, ast.ClassDef)):
            for line in ast.unparse(kind).splitlines():
                if found := re.search(r"self\.(\w+)\b.*= .*threading\.R?Lock\(\)", line):
                    labels.add(f"{module.__name__}.{kind.name}.{found[1]}")
    return labels


def work() -> None:
    """Trace, compile, run, and use the pools of memory."""
    x = np.arange(6.0)
    np.testing.assert_allclose(rlx.jit(lambda x: jnp.sin(x) * len(jitted) + x[0])(x), np.sin(x) * len(jitted))
    for f in jitted:
        f(x)
        f(x[:2])
    default_store()._makers.setdefault(b"key", threading.Lock())


jitted = [rlx.jit(lambda x: x + 1)]
# objects that computing a function does not make
others = [
    rlx.CheckpointManager(tempfile.mkdtemp()),
    CompileCache("cpu"),
    _Bar("steps", 3, {}),
    TimedCall(lambda x: x + 1, (np.ones(3),), {}),
]
if "c" in sys.argv:
    jitted.append(rlx.jit(lambda x: x + 2, device="c"))


def main() -> None:
    work()
    found = [p for p in places() if p.label not in WAITED_FOR and not p.label.startswith(WITHOUT_FORKS)]
    labels = {place.label for place in found}
    missing = {name for name in declared() - labels - ELSEWHERE - WAITED_FOR if not name.startswith(WITHOUT_FORKS)}
    assert not missing, f"make an object with each of these locks: {missing}"
    assert {"rlx.storage._lock", "rlx.passes.pipeline.ExecutableCache._lock"} <= labels, labels
    ready, done = threading.Event(), threading.Event()

    def hold() -> None:
        for lock in (lock for place in found for lock in place.locks):
            assert lock.acquire(timeout=SECONDS)
        ready.set()
        done.wait(60)

    threading.Thread(target=hold, daemon=True).start()
    assert ready.wait(SECONDS)
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        stuck = {place.label for place in found for lock in place.locks if not _free(lock)}
        if stuck:
            print("still held in the child:", *sorted(stuck), sep="\n", flush=True)
            os._exit(1)
        work()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    done.set()
    assert status == 0, f"the child ended with {status}"
    print("\n".join(sorted(labels)))


def _free(lock: Any) -> bool:
    taken = lock.acquire(blocking=False)
    if taken:
        lock.release()
    return taken


if __name__ == "__main__":
    main()
