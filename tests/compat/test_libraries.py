"""JAX's libraries on rlx: each program of `libraries` gives under rlx what it gives under jax.

`make test-compat` installs what requirements.txt pins in an environment of its own; elsewhere these tests are skipped.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))
jax_paths = importlib.import_module("jax_paths")

skipped = "RLX_TEST_LIBRARIES" not in os.environ
pytestmark = pytest.mark.skipif(skipped, reason="make test-compat installs the libraries")
PROGRAMS = sorted((FOLDER / "libraries").glob("*.py"))
LIBRARIES = """blackjax chex diffrax distrax einops equinox flax folx haiku jaxlie jaxopt jaxtyping lineax numpyro optax
    optimistix orbax""".split()
# what a library names for JAXs of other years, and looks for before it uses it
OLD = frozenset(
    """jax.ArrayRef jax._src.literals.LiteralArray jax.core.TraceTag jax.core.cur_sublevel jax.core.get_aval
    jax.core.mapped_aval jax.core.raise_to_shaped jax.core.set_current_trace jax.core.take_current_trace
    jax.core.thread_local_state jax.core.unmapped_aval jax.errors.JAXRuntimeError jax.experimental.MutableArray
    jax.experimental.enable_x64 jax.experimental.jax2tf jax.experimental.layout.DeviceLocalLayout
    jax.extend.core.primitives.xla_pmap_p jax.lib.xla_extension jax.linear_util jax.numpy.random jax.pxla
    jax.random.PRNGKeyArray jax.extend.core.find_top_trace jax.core.find_top_trace
    jax.core.get_opaque_trace_state""".split()
)
# used by functions for machines that rlx has not: several hosts, Pathways, 8-bit floats of GPUs
ABSENT = frozenset(
    """jax._src.core.physical_aval jax.experimental.colocated_python.func._make_prng_wrapped_fun
    jax.interpreters.pxla.global_avals_to_results_handler""".split()
)


def environment() -> dict[str, str]:
    """That of a run of one program."""
    path = os.pathsep.join([str(FOLDER.parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}


def given(program: Path, framework: str, result: Path) -> dict[str, np.ndarray]:
    """What a program gives, in a process of its own."""
    command = [sys.executable, str(FOLDER / "run_library.py"), str(program), framework, str(result)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment(), timeout=600)
    assert done.returncode == 0, f"{framework}: {done.stderr[-4000:]}"
    return dict(np.load(result))


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_library_gives_on_rlx_what_it_gives_on_jax(program: Path, tmp_path: Path) -> None:
    wanted, found = (given(program, name, tmp_path / f"{name}.npz") for name in ("jax", "rlx"))
    rtol, atol = wanted.pop("tolerance")
    found.pop("tolerance")
    assert found.keys() == wanted.keys() and len(wanted) > 2
    for name, x in wanted.items():
        assert (found[name].shape, found[name].dtype) == (x.shape, x.dtype), name
        np.testing.assert_allclose(found[name], x, rtol=rtol, atol=atol, err_msg=name)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ["equinox_digits", "flax_digits"])
def test_an_example_with_a_library(name: str) -> None:
    """It asserts its own result."""
    path = FOLDER.parent.parent / "examples" / f"{name}.py"
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, check=False, env=environment(), timeout=600
    )
    assert done.returncode == 0 and "accuracy on the test images" in done.stdout, done.stderr[-4000:]


def test_programs_of_every_library() -> None:
    used = "\n".join(path.read_text() for path in PROGRAMS)
    assert not [name for name in LIBRARIES if name not in used]


def reached(path: str) -> str:
    """How far a path of jax leads: all of it, or the first part that is not there."""
    found: Any = importlib.import_module("jax")
    here = "jax"
    for part in path.split(".")[1:]:
        here = f"{here}.{part}"
        if not hasattr(found, part):
            try:
                importlib.import_module(here)
            except ImportError:
                return here
        found = getattr(found, part)
        if not isinstance(found, ModuleType):
            break  # a class or a function: its attributes are no paths
    return path


_LISTS = """
import json, sys
sys.path.insert(0, {folder!r})
import rlx.compat
rlx.compat.as_jax()
from test_libraries import reached
print(json.dumps([path for path in json.loads(sys.stdin.read()) if reached(path) != path]))
"""


def test_every_path_that_the_libraries_name_is_there() -> None:
    """A scan of their sources: what they import or name of jax is found in rlx's place of it."""
    named: dict[str, str] = {}
    for library in LIBRARIES:
        spec = importlib.util.find_spec(library)
        assert spec is not None and spec.submodule_search_locations
        for folder in spec.submodule_search_locations:
            named.update(jax_paths.paths_named_by(Path(folder)))
    assert len(named) > 500
    known = [path for path in sorted(named) if not any(path == o or path.startswith(f"{o}.") for o in OLD | ABSENT)]
    program = _LISTS.format(folder=str(FOLDER))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        input=json.dumps(known), capture_output=True, text=True, check=False, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    missing = {path: named[path] for path in json.loads(done.stdout)}
    assert not missing
