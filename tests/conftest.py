"""One session for all tests: 64-bit jax to compare with, fixed seeds, a cache of its own, a few quick examples."""

from __future__ import annotations

import gc
import os
import random
import signal
import tempfile
from collections.abc import Generator, Iterator
from unittest.mock import patch

_CACHE = tempfile.TemporaryDirectory(prefix="rlx-tests-")
os.environ["RLX_CACHE_DIR"] = _CACHE.name  # before rlx is imported, and inherited by subprocesses
os.environ["RLX_PROGRESS"] = "0"  # on a busy machine compiling may take long enough to be announced
os.environ.setdefault("RLX_NUM_THREADS", "2")  # plans are the same on every machine
# on Linux mx.compile calls a C++ compiler for each fused kernel: one test does so, in a process of its own
os.environ.setdefault("MLX_DISABLE_COMPILE", "1")

import jax  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402
from metal_refuses import pytest_configure  # noqa: E402, F401
from mlx_differences import pytest_itemcollected  # noqa: E402, F401
from selection import pytest_collection_modifyitems  # noqa: E402, F401

jax.config.update("jax_enable_x64", True)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a shell starts background jobs with SIGINT ignored; the tests of Ctrl-C need Python's own handler
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup; launched processes would inherit that
settings.register_profile(
    "rlx",
    deadline=None,
    max_examples=25,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("rlx")


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    """Every test starts from the same random state."""
    random.seed(0)
    np.random.seed(0)
    yield


@pytest.fixture(autouse=True, scope="module")
def _release_programs() -> Iterator[None]:
    """What a file compiled is forgotten at its end: jax keeps about 1.5 MB for each program."""
    yield
    jax.clear_caches()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failing test of rlx shows rlx's frames."""
    with patch.dict(os.environ, RLX_TRACEBACK="full"):
        return (yield)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Tests that were found stay to the end: collections of garbage need not look through them."""
    gc.collect()
    gc.freeze()
