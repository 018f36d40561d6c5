"""Completion: Tab offers the names that work, in IPython and in editors."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import jedi
import pytest
from IPython.core.completer import IPCompleter, provisionalcompleter
from test_docstrings import PUBLIC

import rlx
import rlx.numpy as jnp
from rlx.advice.habits import ARRAY_NAMES

MODULES = {
    "rlx": rlx,
    "jnp": jnp,
    "jnp.linalg": jnp.linalg,
    "rlx.lax": rlx.lax,
    "rlx.nn": rlx.nn,
    "rlx.optim": rlx.optim,
    "rlx.random": rlx.random,
    "rlx.scipy": rlx.scipy,
    "rlx.sharding": rlx.sharding,
}


def offered(text: str, use_jedi: bool, **names: Any) -> set[str]:
    """The public names that IPython offers after a text."""
    completer = IPCompleter(namespace={"rlx": rlx, "jnp": jnp, **names}, global_namespace={})
    completer.use_jedi = use_jedi
    with provisionalcompleter():
        found = {completion.text.lstrip(".").partition("(")[0] for completion in completer.completions(text, len(text))}
    return {name for name in found if not name.startswith("_")}


@pytest.mark.selected("all")
@pytest.mark.parametrize("name", MODULES)
def test_modules_offer_their_public_names(name: str) -> None:
    module: ModuleType = MODULES[name]
    assert dir(module) == sorted(module.__all__)
    assert offered(f"{name}.", False) == {public for public in module.__all__ if not public.startswith("_")}


@pytest.mark.selected("all")
@pytest.mark.parametrize("use_jedi", [False, True])
def test_arrays_offer_what_they_have(use_jedi: bool) -> None:
    """Names of other libraries' arrays, which only advise, are not among them: IPython also lists the class."""
    x = jnp.ones((2, 2))
    names = offered("x.", use_jedi, x=x)
    assert {"sum", "at", "T", "reshape", "shape", "astype"} <= names
    assert not [name for name in names if not hasattr(x, name)]
    absent = {name for name in ARRAY_NAMES if not hasattr(x, name)}
    assert len(absent) > 100 and not absent & (names | set(dir(rlx.Array)) | set(dir(type(x))))


@pytest.mark.parametrize("name", [n for n in PUBLIC if n != "rlx.config"])
def test_every_public_module_offers_its_names_only(name: str) -> None:
    module = importlib.import_module(name)
    assert dir(module) == sorted(module.__all__)


def test_tracers_offer_no_other_librarys_names() -> None:
    def f(x: Any) -> Any:
        assert {"sum", "at", "shape"} <= set(dir(x)) and not {"backward", "cuda", "detach"} & set(dir(x))
        return x

    rlx.jit(f)(1.0)


@pytest.mark.thorough
@pytest.mark.selected("all")
@pytest.mark.parametrize(
    "expression",
    ["jnp.sin(x)", "(x + 1)", "x.at[0].set(1)", "jnp.linalg.solve(a, x)", "x.T", "x[0]", "rlx.nn.relu(x)"],
)
def test_editors_complete_results(expression: str) -> None:
    """jedi reads the source alone, as language servers do."""
    code = f"import rlx\nimport rlx.numpy as jnp\nx = jnp.ones(3)\na = jnp.eye(3)\ny = {expression}\ny."
    names = {completion.name for completion in jedi.Script(code).complete(6, 2)}
    assert {"sum", "reshape", "at", "shape"} <= names
