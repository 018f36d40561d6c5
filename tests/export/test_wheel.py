"""rlx.export_wheel: packages that run where there is no rlx."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import nn
from rlx.backends.c.compile import compiler

try:
    compiler()
except rlx.errors.DeviceError as error:
    pytest.skip(str(error), allow_module_level=True)

generator = np.random.default_rng(0)
PARAMS = {"w": generator.normal(size=(5, 3)).astype("f4"), "b": [np.zeros(3, "f4"), np.ones(3, "f4")]}
X = generator.normal(size=(4, 5)).astype("f4")


class Pair(NamedTuple):
    left: Any
    right: Any


def network(params: Any, x: Any) -> Any:
    return nn.softmax(jnp.tanh(x @ params["w"] + params["b"][0]) + params["b"][1])


def gradients(params: Any, x: Any) -> Any:
    return rlx.value_and_grad(lambda params: jnp.mean(network(params, x)[:, 0]))(params)


# rlx cannot be imported in the process that uses a package
SCRIPT = """
import sys, threading
for name in ("rlx", "numba", "optree", "ml_dtypes"):
    sys.modules[name] = None
import numpy as np
data = np.load("in.npz")
params, x = {"w": data["w"], "b": [data["b0"], data["b1"]]}, data["x"]
"""


def run(folder: Path, wheels: list[Any], text: str) -> str:
    for wheel in wheels:
        (folder / wheel.name).write_bytes(wheel.data)
        with zipfile.ZipFile(folder / wheel.name) as archive:
            assert archive.testzip() is None
            archive.extractall(folder / "site")
    np.savez(folder / "in.npz", w=PARAMS["w"], b0=PARAMS["b"][0], b1=PARAMS["b"][1], x=X)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"PYTHONPATH": str(folder / "site")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + text], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_packages_compute_what_rlx_computes(tmp_path: Path) -> None:
    wheels = [
        rlx.export_wheel(gradients, PARAMS, X, name="gradients"),
        rlx.export_wheel(network, X, params=PARAMS, name="exp", version="1.2"),
    ]
    text = """
import gradients, exp
value, found = gradients.gradients(params, x)
np.savez("out.npz", value, found["w"], *found["b"], exp.exp(x), exp.exp(x=x.tolist()))
same = []
threads = [threading.Thread(target=lambda: same.append(exp.exp(x).tobytes())) for _ in range(8)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
assert set(same) == {exp.exp(x).tobytes()} and len(same) == 8
assert exp.__version__ == "1.2" and "x: float32[4, 5]" in exp.exp.__doc__
for wrong in (x[:2], x * 1j, "text"):
    try:
        exp.exp(wrong)
    except TypeError as error:
        print(error)
"""
    said = run(tmp_path, wheels, text).splitlines()
    assert (
        said[0] == "x must be float32[4, 5], and is float32[2, 5]." and "complex64[4, 5]" in said[1] and len(said) == 3
    )
    value, gradient = rlx.jit(gradients)(PARAMS, X)
    wanted = [value, gradient["w"], *gradient["b"], *[rlx.jit(network)(PARAMS, X)] * 2]
    with np.load(tmp_path / "out.npz") as found:
        for name, array in zip(found.files, wanted, strict=True):
            np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)


def test_structures_and_dtypes(tmp_path: Path) -> None:
    """Named tuples are arguments by their fields, and results as their leaves; narrow floats are codes."""

    def mixed(pair: Pair, flag: Any) -> Any:
        return {"h": pair.left + 1, "z": (pair.right * 1j, ~flag), "none": None}

    half = X[0].astype(ml_dtypes.bfloat16)
    wheels = [
        rlx.export_wheel(mixed, Pair(half, X), np.array(True), name="mixed"),
        rlx.export_wheel(lambda x: Pair(x, x + 1), X, name="pair"),
    ]
    text = """
import collections, mixed, pair
Pair = collections.namedtuple("Pair", "left right")
codes = np.arange(16256, 16261, dtype="uint16")
found = mixed.mixed(Pair(codes, x), True)
assert found["h"].dtype == np.uint16 and found["none"] is None and found["z"][1].item() is False
np.testing.assert_array_equal(found["z"][0], x * np.complex64(1j))
left, right = pair.pair(x)
np.testing.assert_array_equal(right, x + 1)
"""
    run(tmp_path, wheels, text)


@pytest.mark.thorough
def test_pip_installs_a_wheel(tmp_path: Path) -> None:
    wheel = rlx.export_wheel(network, X, params=PARAMS, folder=tmp_path, name="network")
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", str(tmp_path / "site")]
    done = subprocess.run([*pip, str(tmp_path / wheel.name)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    run(tmp_path, [], "import network; assert network.network(x).shape == (4, 3)")


def test_equal_functions_have_equal_wheels() -> None:
    assert rlx.export_wheel(jnp.sin, X) == rlx.export_wheel(jnp.sin, X)


@pytest.mark.parametrize(("options", "says"), [
    ({"name": "a-b"}, "cannot be called 'a-b'"),
    ({"name": "class"}, "cannot be called 'class'"),
    ({"version": "one"}, "'one' is not the version"),
])  # fmt: skip
def test_names_and_versions_are_checked(options: Any, says: str) -> None:
    with pytest.raises(rlx.errors.OptionError, match=says):
        rlx.export_wheel(jnp.sin, X, **options)
