"""jax.monitoring: events that libraries record, and who listens to them (flax, orbax)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = [
    "clear_event_listeners",
    "record_event",
    "record_event_duration_secs",
    "record_event_time_span",
    "record_scalar",
    "register_event_duration_secs_listener",
    "register_event_listener",
    "register_event_time_span_listener",
    "register_scalar_listener",
]

Listener = Callable[..., None]
_listeners: dict[str, list[Listener]] = {"event": [], "duration": [], "time_span": [], "scalar": []}


def _tell(kind: str, *what: Any, **more: Any) -> None:
    for listener in list(_listeners[kind]):
        listener(*what, **more)


def record_event(event: str, **more: str | int) -> None:
    """Tell listeners that an event happened.

    >>> from rlx.jaxnames import monitoring
    >>> monitoring.register_event_listener(print)
    >>> monitoring.record_event("/saved")
    /saved
    >>> monitoring.clear_event_listeners()
    """
    _tell("event", event, **more)


def record_event_duration_secs(event: str, duration: float, **more: str | int) -> None:
    """Tell listeners how long an event took."""
    _tell("duration", event, duration, **more)


def record_event_time_span(event: str, start_time: float, end_time: float, **more: str | int) -> None:
    """Tell listeners when an event began and ended."""
    _tell("time_span", event, start_time, end_time, **more)


def record_scalar(event: str, value: float, **more: str | int) -> None:
    """Tell listeners of a number."""
    _tell("scalar", event, value, **more)


def register_event_listener(callback: Listener) -> None:
    """Call this for each event."""
    _listeners["event"].append(callback)


def register_event_duration_secs_listener(callback: Listener) -> None:
    """Call this for each duration."""
    _listeners["duration"].append(callback)


def register_event_time_span_listener(callback: Listener) -> None:
    """Call this for each span of time."""
    _listeners["time_span"].append(callback)


def register_scalar_listener(callback: Listener) -> None:
    """Call this for each number."""
    _listeners["scalar"].append(callback)


def clear_event_listeners() -> None:
    """Forget all listeners."""
    for found in _listeners.values():
        found.clear()
