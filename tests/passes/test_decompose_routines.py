"""The step that puts loops and products in place of routines: where it acts, what is told of it, what it leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import lax
from rlx.backends import backend_named
from rlx.backends.claims import Claims
from rlx.errors import DeviceError
from rlx.ir.kernels import Library
from rlx.passes.decompose_routines import decompose_routines
from rlx.passes.pipeline import Context, lower_to_plan, stages

X = np.eye(6) * 4 + np.random.default_rng(0).normal(size=(6, 6))


@pytest.fixture
def device_of_c() -> None:
    """A device that decomposes small matrices, where there is a compiler."""
    try:
        backend_named("c")
    except DeviceError as error:
        pytest.skip(str(error))


def routines_of(function: Any, claims: Claims, *args: np.ndarray) -> list[str]:
    """The library kernels of a plan."""
    plan = lower_to_plan(rlx.make_program(function)(*args), context=Context(claims=claims))
    return [kernel.routine for kernel in plan.kernels if isinstance(kernel, Library)]


def test_a_program_without_routines_is_itself() -> None:
    program = rlx.make_program(lambda x: jnp.sin(x) @ x)(X)
    assert decompose_routines(program, Claims(routines=frozenset())) is program
    names = [stage.name for stage in stages(program, context=Context(claims=Claims(routines=frozenset())))]
    assert "decompose_routines" not in names


def test_what_is_claimed_stays_and_what_has_no_decomposition_too() -> None:
    def f(x: Any) -> Any:
        return jnp.linalg.solve(x, x[0]), jnp.linalg.eigvals(x)

    assert sorted(routines_of(f, Claims(), X)) == ["eig", "lu", "lu_solve"]
    assert routines_of(f, Claims(routines=frozenset()), X) == ["eig"]
    # the decomposition of lu_solve is made of a routine that this device has
    some = Claims(routines=frozenset({"lu", "triangular_solve"}))
    assert sorted(routines_of(f, some, X)) == ["eig", "lu", "triangular_solve", "triangular_solve"]


def test_small_matrices_alone() -> None:
    claims = Claims(loops_up_to=(("cholesky", 6),))
    square = np.concatenate([X @ X.T] * 2)
    assert routines_of(jnp.linalg.cholesky, claims, square[:6]) == []
    large = np.eye(7)
    assert routines_of(jnp.linalg.cholesky, claims, large) == ["cholesky"]
    assert routines_of(lambda x: jnp.linalg.qr(x), claims, square) == ["qr"]


@pytest.mark.thorough
@pytest.mark.usefixtures("device_of_c")
def test_routines_in_loops_and_in_derivatives() -> None:
    """Derivatives are those of the primitives: the step comes after them."""

    def f(x: Any) -> Any:
        first = jnp.eye(6, dtype=x.dtype)
        carry, rows = lax.scan(lambda c, row: (jnp.linalg.inv(c) + jnp.outer(row, row), c[0]), first, x)
        return (carry.sum() + rows).sum()

    gradient, mapped = rlx.grad(f), rlx.vmap(rlx.grad(f))
    for function, x in ((gradient, X), (mapped, np.stack([X, X + 1]))):
        found = np.asarray(rlx.jit(function, device="c")(x))
        np.testing.assert_allclose(found, np.asarray(rlx.jit(function)(x)), rtol=1e-9)
    report = rlx.inspect(rlx.jit(f, device="c"))(X)
    assert report.kernels.texts["host"] == ""
    assert [row.equation.split("ops.")[1].split("(")[0] for row in report.dispatch if row.how == "decomposed"] == [
        "lu",
        "lu_solve",
    ]


@pytest.mark.usefixtures("device_of_c")
def test_the_step_is_shown() -> None:
    found = rlx.inspect(rlx.jit(lambda x: jnp.linalg.cholesky(x), device="c"))(X @ X.T)
    assert "ops.cholesky" in found.stage("inline").text and "ops.scan" in found.stage("decompose_routines").text
    assert "= ops.cholesky" in found.diff("inline", "decompose_routines")
    assert found.dispatch.counts["decomposed"] == 1
    origins = {e.origin[0] for e in found.stage("decompose_routines").program.equations if e.origin}
    assert len(origins) == 1 and origins.pop().endswith("test_decompose_routines.py")


@pytest.mark.usefixtures("device_of_c")
def test_saved_programs_are_decomposed_where_they_run(tmp_path: Path) -> None:
    rlx.export(lambda x: jnp.linalg.solve(x, x[0]))(X).save(tmp_path / "solve")
    with rlx.default_device("c"):
        found = rlx.load_exported(tmp_path / "solve").call(X)
    np.testing.assert_allclose(np.asarray(found), np.linalg.solve(X, X[0]), rtol=1e-10)
    assert decompose_routines(rlx.make_program(lambda x: jnp.linalg.solve(x, x[0]))(X), backend_named("c").claims)
