"""print_saved_residuals: what a derivative keeps, and where that comes from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx.ad_checkpoint import checkpoint_name, print_saved_residuals

W, X = np.ones((3, 2), np.float32), np.ones(2, np.float32)


def layer(w: Any, x: Any) -> Any:
    return jnp.sin(checkpoint_name(w @ x, "product"))


def kept(capsys: pytest.CaptureFixture[str], f: Any, *args: Any, **kwargs: Any) -> list[str]:
    """The printed lines without the places in files, which follow what was computed."""
    print_saved_residuals(f, *args, **kwargs)
    lines = capsys.readouterr().out.splitlines()
    for line in lines:
        assert "the argument" in line or "constant" in line or "from test_saved_residuals.py:" in line
    return [line.partition(" from test_")[0] for line in lines]


def test_arguments_and_what_is_computed(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["float32[3,2] from the argument w", "float32[2] from the argument x"]
    for f in (layer, rlx.jit(layer)):
        assert kept(capsys, f, W, X) == [*arguments, "float32[3] output of cos"]
        assert kept(capsys, f, w=W, x=X) == [*arguments, "float32[3] output of cos"]
    assert kept(capsys, rlx.checkpoint(layer), W, X) == arguments


def test_what_a_policy_keeps(capsys: pytest.CaptureFixture[str]) -> None:
    policies = rlx.checkpoint_policies
    named = rlx.checkpoint(layer, policy=policies.save_only_these_names("product"))
    assert kept(capsys, named, W, X)[2:] == ["float32[3] named 'product'"]
    products = rlx.checkpoint(layer, policy=policies.dots_saveable)
    assert kept(capsys, products, W, X)[2:] == ["float32[3] output of dot_general"]


def test_arguments_are_named_by_their_path(capsys: pytest.CaptureFixture[str]) -> None:
    def f(parameters: Any, *xs: Any, scale: float = 2.0) -> Any:
        return (parameters["w"] @ xs[0]) * scale

    found = kept(capsys, f, {"w": W}, X, scale=3.0)
    assert found[:3] == [
        "float32[3,2] from the argument parameters['w']",
        "float32[2] from the argument xs[0]",
        "float32[] from the argument scale",
    ]
    assert kept(capsys, lambda x: x * jnp.asarray(X), X) == ["float32[2] from a constant"]
