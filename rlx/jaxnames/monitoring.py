"""jax.monitoring: events that libraries record, and their listeners (flax, orbax)."""

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
    "unregister_event_duration_listener",
    "unregister_event_listener",
    "unregister_event_time_span_listener",
    "unregister_scalar_listener",
]

Listener = Callable[..., None]
_listeners: dict[str, list[Listener]] = {"event": [], "duration": [], "time_span": [], "scalar": []}


def _tell(kind: str, *what: Any, **more: Any) -> None:
    for listener in list(_listeners[kind]):
        listener(*what, **more)


def record_event(event: str, **more: str | int) -> None:
    """Notify listeners of an event.

    >>> from rlx.jaxnames import monitoring
    >>> monitoring.register_event_listener(print)
    >>> monitoring.record_event("/saved")
    /saved
    >>> monitoring.clear_event_listeners()
    """
    _tell("event", event, **more)


def record_event_duration_secs(event: str, duration: float, **more: str | int) -> None:
    """Notify listeners of the duration of an event."""
    _tell("duration", event, duration, **more)


def record_event_time_span(event: str, start_time: float, end_time: float, **more: str | int) -> None:
    """Notify listeners of the start and end of an event."""
    _tell("time_span", event, start_time, end_time, **more)


def record_scalar(event: str, value: float, **more: str | int) -> None:
    """Notify listeners of a number."""
    _tell("scalar", event, value, **more)


def register_event_listener(callback: Listener) -> None:
    """Call this function for each event."""
    _listeners["event"].append(callback)


def register_event_duration_secs_listener(callback: Listener) -> None:
    """Call this function for each duration."""
    _listeners["duration"].append(callback)


def register_event_time_span_listener(callback: Listener) -> None:
    """Call this function for each time span."""
    _listeners["time_span"].append(callback)


def register_scalar_listener(callback: Listener) -> None:
    """Call this function for each number."""
    _listeners["scalar"].append(callback)


def clear_event_listeners() -> None:
    """Remove all listeners."""
    for found in _listeners.values():
        found.clear()


def unregister_event_listener(callback: Listener) -> None:
    """Remove a listener to events. Raises ValueError if it is not registered."""
    _listeners["event"].remove(callback)


def unregister_event_duration_listener(callback: Listener) -> None:
    """Remove a listener to durations. Raises ValueError if it is not registered."""
    _listeners["duration"].remove(callback)


def unregister_event_time_span_listener(callback: Listener) -> None:
    """Remove a listener to time spans. Raises ValueError if it is not registered."""
    _listeners["time_span"].remove(callback)


def unregister_scalar_listener(callback: Listener) -> None:
    """Remove a listener to numbers. Raises ValueError if it is not registered."""
    _listeners["scalar"].remove(callback)
