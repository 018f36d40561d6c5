"""rlx.export_c with donate_argnums: results are written over the arguments that they replace."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import lax, optim
from rlx.backends.c.compile import compiler

try:
    compiler()
except rlx.errors.DeviceError as error:
    pytest.skip(str(error), allow_module_level=True)

FLAGS = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic", "-ffp-contract=off", "-fPIC", "-shared")
generator = np.random.default_rng(0)
X = generator.normal(size=(6, 6)).astype("f4")
Y = generator.normal(size=(6, 6)).astype("f4")
COUNT = np.int32(3)


def library(folder: Path, files: rlx.backends.c.files.CFiles, name: str) -> Any:
    """The exported function, compiled and loaded."""
    (folder / f"{name}.c").write_text(files.source)
    (folder / f"{name}.h").write_text(files.header)
    command = [*compiler().command, *FLAGS, f"{name}.c", "-o", f"{name}.so", "-lm"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[:3000]
    return getattr(ctypes.CDLL(str(folder / f"{name}.so")), name)


def shifted(x: Any, y: Any) -> Any:
    return jnp.roll(x, 1, axis=0) + y, jnp.sort(y, axis=1)


def counted(state: Any, x: Any) -> Any:
    return {"n": state["n"] + 1, "sum": state["sum"] + x.sum(), "rows": state["rows"].at[state["n"] % 6].set(x[0])}


def scanned(carry: Any, xs: Any) -> Any:
    return lax.scan(lambda c, x: (c * 0.5 + x, c[0]), carry, xs)


# a function, its arguments, the donated ones, and how many of their leaves results replace
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any, int]] = {
    "elementwise": (lambda x, y: x * 0.5 + y, (X, Y), 0, 1),
    "swapped": (lambda x, y: (y, x), (X, Y), (0, 1), 2),
    "both need both": (lambda x, y: (x @ y, x + y), (X, Y), (0, 1), 2),
    "square": (lambda x: x @ x * 0.1, (X,), 0, 1),
    "transposed": (lambda x: x.T, (X,), 0, 1),
    "reversed": (lambda x: x[::-1], (X,), 0, 1),
    "rolled and sorted": (shifted, (X, Y), (0, 1), 2),
    "running sums": (lambda x: jnp.cumsum(x, axis=0) * 0.3, (X,), 0, 1),
    "softmax": (lambda x: rlx.nn.softmax(x) + 1, (X,), 0, 1),
    "unchanged": (lambda x, y: (x, y * 2), (X, Y), (0, 1), 2),
    "one of two": (lambda x, y: x - y, (X, Y), (0, 1), 1),
    "another dtype": (lambda x, n: (x.astype("float64"), n + 1), (X, COUNT), (0, 1), 1),
    "a constant": (lambda x: jnp.ones_like(x), (X,), 0, 1),
    "a tree": (counted, ({"n": COUNT, "rows": X, "sum": np.float32(0)}, Y), 0, 3),
    "a scan's carry": (scanned, (X[0], Y), 0, 1),
    "a loop": (lambda x, n: lax.fori_loop(0, n, lambda i, c: c * 0.9 + c.T, x), (X, COUNT), 0, 1),
    "factorised": (lambda x, y: jnp.linalg.solve(x + 9 * jnp.eye(6, dtype="f4"), y), (X, Y), 0, 1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_replace_arguments(tmp_path: Path, name: str) -> None:
    """Three steps in one memory equal three steps of the compiled function."""
    function, arguments, donated, count = PROGRAMS[name]
    files = rlx.export_c(function, *arguments, name="step", donate_argnums=donated)
    replaced = [", replaced by result" in line for line in files.header.splitlines() if line.startswith("     ")]
    assert sum(replaced) == count
    step, wanted = library(tmp_path, files, "step"), rlx.jit(function)
    memory = [np.array(leaf) for leaf in rlx.tree.leaves(arguments)]
    inputs = replaced[: len(memory)]
    kinds = [(leaf.shape, leaf.dtype) for leaf in rlx.tree.leaves(wanted(*arguments))]
    left = list(kinds)
    for array, used in zip(memory, inputs, strict=True):
        if used:
            left.remove((array.shape, array.dtype))
    others = [np.empty(shape, dtype) for shape, dtype in left]
    for _ in range(3):
        now = rlx.tree.unflatten(rlx.tree.structure(arguments), [array.copy() for array in memory])
        expected = rlx.tree.leaves(wanted(*now))
        step(*(ctypes.c_void_p(array.ctypes.data) for array in (*memory, *others)))
        found = [array for array, used in zip(memory, inputs, strict=True) if used] + others
        pairs = [(f.dtype, f.shape, f.tobytes()) for f in found]
        for array in expected:
            at = next(n for n, (d, s, _) in enumerate(pairs) if (d, s) == (array.dtype, array.shape))
            np.testing.assert_allclose(
                np.frombuffer(pairs.pop(at)[2], array.dtype).reshape(array.shape), array, rtol=2e-5, atol=2e-5
            )


def test_training_writes_parameters_and_moments_where_they_are(tmp_path: Path) -> None:
    """A step of Adam has no parameter besides its state and the batch, and no temporary for a whole parameter."""
    adam = optim.adam(1e-2)
    parameters = {"w": generator.normal(size=(40, 50)), "b": np.zeros(50)}

    def loss(parameters: Any, x: Any) -> Any:
        return jnp.mean(jnp.tanh(x @ parameters["w"] + parameters["b"]) ** 2)

    def step(parameters: Any, state: Any, x: Any) -> Any:
        updates, state = adam.update(rlx.grad(loss)(parameters, x), state, parameters)
        return optim.apply_updates(parameters, updates), state

    x, state = generator.normal(size=(4, 40)), adam.init(parameters)
    files = rlx.export_c(step, parameters, state, x, name="step", donate_argnums=(0, 1))
    assert "Results:" not in files.header and " out" not in files.header
    function = library(tmp_path, files, "step")
    memory = [np.array(leaf) for leaf in rlx.tree.leaves((parameters, state))]
    for _ in range(5):
        function(*(ctypes.c_void_p(array.ctypes.data) for array in (*memory, x)))
        parameters, state = rlx.jit(step)(parameters, state, x)
    for found, wanted in zip(memory, rlx.tree.leaves((parameters, state)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-9)


def test_a_donated_argument_is_named_by_its_number() -> None:
    with pytest.raises(ValueError, match="donate_argnums"):
        rlx.export_c(lambda x: x, X, donate_argnums=3)


@pytest.mark.parametrize("end", ["", ".c", ".h"])
def test_a_path_may_have_the_ending_of_a_file(tmp_path: Path, end: str) -> None:
    files = rlx.export_c(lambda x: x, X, path=tmp_path / f"net{end}")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["net.c", "net.h"]
    assert '#include "net.h"' in files.source and "void net(" in files.header
