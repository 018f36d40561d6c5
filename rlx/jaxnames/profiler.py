"""Timelines of a program's parts for chrome://tracing and Perfetto, as in jax.profiler."""

from __future__ import annotations

import functools
import json
import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from rlx.offered_names import offer_names

__all__ = ["StepTraceAnnotation", "TraceAnnotation", "annotate_function", "start_trace", "stop_trace", "trace"]

offer_names(globals())

FILE = "rlx.trace.json"


class _Recording:
    """The current trace: its folder, and its events."""

    folder: Path | None = None

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []


_recording = _Recording()


def start_trace(
    log_dir: str | os.PathLike[str],
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: Any = None,
) -> None:
    """Begin to record annotations. Raises RuntimeError if a trace is already being recorded.

    Args:
      log_dir: the folder that receives the file rlx.trace.json, which Perfetto reads.
      create_perfetto_link, create_perfetto_trace, profiler_options: accepted as JAX's, without effect.

    >>> import rlx, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rlx.profiler.start_trace(folder)
    ...     rlx.profiler.stop_trace().name
    'rlx.trace.json'
    """
    if _recording.folder is not None:
        raise RuntimeError("a trace is already being recorded: call stop_trace() first")
    folder = Path(log_dir)
    folder.mkdir(parents=True, exist_ok=True)
    _recording.events, _recording.folder = [], folder


def stop_trace() -> Path:
    """End the trace and write it. Returns the file. Raises RuntimeError if none is being recorded.

    >>> import rlx
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rlx.profiler.start_trace(folder)
    ...     rlx.profiler.stop_trace().is_file()
    True
    """
    if _recording.folder is None:
        raise RuntimeError("no trace is being recorded: call start_trace(folder) first")
    target = _recording.folder / FILE
    _recording.folder = None
    target.write_text(json.dumps({"traceEvents": _recording.events}), encoding="utf-8")
    return target


@contextmanager
def trace(
    log_dir: str | os.PathLike[str],
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: Any = None,
) -> Generator[None]:
    """Record the annotations inside a `with` block. The arguments are the same as for start_trace.

    rlx.profile times the kernels of a function.

    >>> import json, pathlib, rlx, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with rlx.profiler.trace(folder):
    ...         with rlx.profiler.TraceAnnotation("step"):
    ...             _ = rlx.numpy.ones(3) * 2
    ...     events = json.loads((pathlib.Path(folder) / "rlx.trace.json").read_text())["traceEvents"]
    >>> events[0]["name"]
    'step'
    """
    start_trace(log_dir)
    try:
        yield
    finally:
        stop_trace()


class TraceAnnotation:
    """A named time span: a `with` block. Keyword arguments are stored with it.

    >>> import rlx
    >>> with rlx.profiler.TraceAnnotation("loading"):
    ...     data = rlx.numpy.ones(3)
    """

    def __init__(self, name: str, **kwargs: Any) -> None:
        self.name, self.details = name, kwargs
        self._begin = 0.0

    def __enter__(self) -> TraceAnnotation:
        self._begin = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if _recording.folder is None:
            return
        event = {
            "name": self.name,
            "ph": "X",
            "ts": self._begin * 1e6,
            "dur": (time.perf_counter() - self._begin) * 1e6,
            "pid": os.getpid(),
            "tid": threading.get_ident(),
            "args": {key: str(value) for key, value in self.details.items()},
        }
        _recording.events.append(event)


class StepTraceAnnotation(TraceAnnotation):
    """The time span of a training step with number `step_num`.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> for step in range(2):
    ...     with rlx.profiler.StepTraceAnnotation("train", step_num=step):
    ...         y = rlx.jit(jnp.sin)(1.0)
    """


def annotate_function(function: Callable[..., Any], name: str | None = None, **kwargs: Any) -> Callable[..., Any]:
    """A function whose calls are named time spans.

    >>> import rlx
    >>> rlx.profiler.annotate_function(lambda x: x + 1, name="increment")(1)
    2
    """
    label = name or getattr(function, "__name__", type(function).__name__)

    @functools.wraps(function)
    def annotated(*args: Any, **given: Any) -> Any:
        with TraceAnnotation(label, **kwargs):
            return function(*args, **given)

    return annotated
