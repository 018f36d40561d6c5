"""What some tests need that `make test` does not install."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

# language models of other libraries: make test-lm installs them, and runs the tests with this mark
LM = (
    pytest.mark.lm,
    pytest.mark.skipif(os.environ.get("RLX_TEST_LM") != "1", reason="make test-lm installs what it needs, and runs it"),
)


def beside(test: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: the test compares with such libraries."""
    for mark in LM:
        test = mark(test)
    return test
