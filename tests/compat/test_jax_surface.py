"""JAX's whole public surface, read from the jax that is installed: every name is there, and takes JAX's keywords."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import rlx.compat
from rlx.errors import UnsupportedError
from rlx.jaxnames import refused

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))
jax_surface = importlib.import_module("jax_surface")

Parameters = list[tuple[str, str, bool]]
# classes that only tracing and compiling make: users name them for isinstance and annotations
MADE_BY_JAX = frozenset(
    """Compiled ConcretizationTypeError DropVar Exported JAXIndexError JAXTypeError JVPTracer JaxprEqn KeyReuseError
    Literal Lowered NonConcreteBooleanIndexError PartialVal Ref Shard SymbolicZero Traced Tracer
    TracerArrayConversionError TracerBoolConversionError TracerIntegerConversionError UnexpectedTracerError Var
    WrappedFun Wrapped ArgInfo SourceInfo NameStack Error JAXSparse""".split()
)
# parameters that rlx does not take, and why users do not miss them
WITHOUT = {
    ("vmap", "sum_match"): "for the rules of hijax types, which rlx does not have",
    ("ShapeDtypeStruct", "manual_axis_type"): "the type of a value in a shard_map, which only tracing makes",
    ("ShapeDtypeStruct", "is_ref"): "the type of a reference, which only tracing makes",
    ("flatten_fun", "use_eq_store"): "how JAX stores what it leaves",
    ("flatten_fun", "unk_names"): "for JAX's debug information",
    ("flatten_fun_nokwargs", "use_eq_store"): "how JAX stores what it leaves",
    ("flatten_fun_nokwargs", "unk_names"): "for JAX's debug information",
    ("flatten_fun", "fun"): "comes first, by position",
    ("flatten_fun_nokwargs", "fun"): "comes first, by position",
    ("transformation", "fun"): "comes first, by position",
    ("transformation2", "fun"): "comes first, by position",
    ("transformation_with_aux", "fun"): "comes first, by position",
    ("transformation_with_aux2", "fun"): "comes first, by position",
    ("transformation_with_aux2", "use_eq_store"): "how JAX stores what it leaves",
    ("transformation_with_aux2", "unk_names"): "for JAX's debug information",
}
# functions that raise without an argument in JAX as well, though its signature has a default
NEED_A_VALUE = frozenset(
    """default_device default_matmul_precision default_prng_impl legacy_prng_key log numpy_dtype_promotion
    numpy_rank_promotion transfer_guard_device_to_device transfer_guard_device_to_host
    transfer_guard_host_to_device""".split()
)


@pytest.fixture(scope="module")
def surface() -> dict[str, dict[str, Parameters | None]]:
    """JAX's, read in a process of its own: importing all of JAX leaves much behind."""
    done = subprocess.run(
        [sys.executable, str(FOLDER / "jax_surface.py")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _module(path: str) -> Any:
    with warnings.catch_warnings(action="ignore"):
        return importlib.import_module(path)


def test_every_public_name_is_there(surface: dict[str, dict[str, Parameters | None]]) -> None:
    assert len(surface) > 150 and sum(map(len, surface.values())) > 2500
    missing = []
    with rlx.compat.as_jax():
        for path, names in surface.items():
            module = _module(path)
            missing += [f"{path}.{name}" for name in names if not hasattr(module, name)]
    assert not missing


def test_names_are_in_dir(surface: dict[str, dict[str, Parameters | None]]) -> None:
    with rlx.compat.as_jax():
        hidden = [
            f"{path}.{name}"
            for path, names in surface.items()
            if not refused.is_refused_module(path)
            for name in sorted(names.keys() - {*dir(_module(path))})
        ]
    assert not hidden


def test_refused_names_say_so(surface: dict[str, dict[str, Parameters | None]]) -> None:
    with rlx.compat.as_jax():
        for path, names in surface.items():
            module = _module(path)
            for name in names:
                value = getattr(module, name)
                if not isinstance(value, refused._Refused):
                    continue
                assert isinstance(value, type) and not isinstance(3, value)
                with pytest.raises(UnsupportedError, match="is not part of rlx: it ") as raised:
                    value()
                assert f"{path}.{name}" in str(raised.value)


@pytest.mark.parametrize("path", sorted(refused.REFUSALS))
def test_the_table_of_refused_names_has_no_idle_rows(
    path: str, surface: dict[str, dict[str, Parameters | None]]
) -> None:
    if path.startswith("jax._src"):
        return
    here = surface.get(path, {})
    known = {*here, *(p.rpartition(".")[2] for p in surface if p.startswith(f"{path}."))}
    idle = set(refused.refused_names(path)) - known
    assert not idle - _NOT_LISTED, "names of the table that JAX does not have"


# names that JAX has but does not list, or that are modules
_NOT_LISTED = frozenset("ir ifrt_proxy TraceTag set_current_trace take_current_trace".split())


def _faults(name: str, theirs: Parameters, ours: Parameters) -> list[str]:
    """What a call that JAX takes would run into here."""
    by_name = {p[0]: p for p in ours}
    kinds = {p[1] for p in ours}
    order = [p[0] for p in ours if p[1] in ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD")]
    found = []
    for place, (parameter, kind, default) in enumerate(theirs):
        if kind.startswith("VAR") or parameter.startswith("_") or (name, parameter) in WITHOUT:
            continue
        here = by_name.get(parameter)
        by_keyword = here is not None and here[1] in ("POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY")
        if kind != "POSITIONAL_ONLY" and not by_keyword and "VAR_KEYWORD" not in kinds:
            found.append(f"{parameter} is not a keyword")
        if kind != "KEYWORD_ONLY" and here is not None and "VAR_POSITIONAL" not in kinds:
            if here[1] == "KEYWORD_ONLY" or order.index(parameter) != place:
                found.append(f"{parameter} is not at place {place}")
        if default and here is not None and not here[2] and not here[1].startswith("VAR") and name not in NEED_A_VALUE:
            found.append(f"{parameter} has no default")
    return found


def test_every_signature_takes_jax_s_keywords(surface: dict[str, dict[str, Parameters | None]]) -> None:
    faults = []
    with rlx.compat.as_jax():
        for path, names in surface.items():
            module = _module(path)
            for name, theirs in names.items():
                value = getattr(module, name)
                if theirs is None or name in MADE_BY_JAX or isinstance(value, refused._Refused):
                    continue
                ours = jax_surface.parameters(value)
                if ours is not None:
                    faults += [f"{path}.{name}: {fault}" for fault in _faults(name, theirs, ours)]
    assert not faults, "\n".join(faults)
