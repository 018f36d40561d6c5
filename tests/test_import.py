"""The modules that `import rlx` loads, and the attributes and names that appear on first use."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# errors, settings, arrays without operations, and hooks; a module that is added here is loaded by every program
LOADED = """
    rlx rlx.advice rlx.advice.habits rlx.advice.refused_calls rlx.advice.refused_uses rlx.advice.tracebacks rlx.array
    rlx.call rlx.call.hooks rlx.config rlx.errors rlx.forks rlx.garbage rlx.ir rlx.ir.dims rlx.ir.extended
    rlx.ir.formats rlx.ir.program rlx.ir.size_functions rlx.ir.types rlx.jaxnames rlx.numpy rlx.numpy.buffers
    rlx.numpy.names rlx.offered_names rlx.ops rlx.passes rlx.passes.hooks rlx.settings rlx.statics rlx.storage rlx.trace
    rlx.trace.hooks rlx.transforms rlx.transforms.table rlx.version rlx.wiring
""".split()
# packages, and modules of Python that take long to import and that NumPy does not need
LATE = "cupy importlib.metadata jax llvmlite mlx numba optree scipy subprocess torch urllib.request".split()


def run(code: str) -> str:
    """What a new process prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_import_loads_little() -> None:
    """Of rlx the modules above, of others none that is slow; rlx.numpy adds nothing before one of its names is used."""
    code = "import sys, numpy; before = set(sys.modules); import rlx, rlx.numpy; print(*(set(sys.modules) - before))"
    loaded = run(code).split()
    assert sorted(name for name in loaded if name.split(".")[0] == "rlx") == LOADED
    assert not set(LATE).intersection(loaded)


def test_the_table_of_late_names_is_current() -> None:
    """rlx/numpy/names.py has the names of the modules, and the attributes that arrays get."""
    path = ROOT / "docs" / "make_numpy_names.py"
    specification = importlib.util.spec_from_file_location("make_numpy_names", path)
    assert specification is not None and specification.loader is not None
    generator = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(generator)
    assert generator.TARGET.read_text(encoding="utf-8") == generator.page(), "run python docs/make_numpy_names.py"


FIRST_USES = {
    "operator": "(x + 1.0).tolist() == [2.0, 3.0]",
    "reflected": "(1.0 - x).tolist() == [0.0, -1.0]",
    "in place": "exec('y = x\\ny += x') is None",
    "comparison": "(x == x).all()",
    "truth": "bool(rlx.array.ConcreteArray(np.ones(1)))",
    "length": "len(x) == 2",
    "iteration": "[float(v) for v in x] == [1.0, 2.0]",
    "item": "float(x[1]) == 2.0",
    "assignment": "refused(lambda: x.__setitem__(0, 1.0), rlx.errors.ImmutableArrayError)",
    "method": "float(x.sum()) == 3.0",
    "property": "x.T.shape == (2,)",
    "update": "x.at[0].set(5.0).tolist() == [5.0, 2.0]",
    "class attribute": "callable(rlx.array.Array.reshape)",
    "absent attribute": "not hasattr(rlx.array.Array, 'detach')",
    "hash": "refused(lambda: hash(x), TypeError)",
    "NumPy's array": "np.asarray(x).tolist() == [1.0, 2.0]",
    "NumPy's ufunc": "np.add(np.ones(2), x).tolist() == [2.0, 3.0]",
    "NumPy's function": "np.stack([x, x]).shape == (2, 2)",
    "operator of NumPy's array": "isinstance(np.ones(2) * x, rlx.Array)",
    "dlpack": "np.from_dlpack(x).tolist() == [1.0, 2.0]",
    "bytes": "len(bytes(x)) == 16",
    "text": "repr(x).startswith('Array([1., 2.]')",
    "format": "f'{rlx.array.ConcreteArray(np.array(1.5)):.2f}' == '1.50'",
    "copy": "copy.deepcopy(x).tolist() == [1.0, 2.0]",
    "pickle": "pickle.loads(pickle.dumps(x)).tolist() == [1.0, 2.0]",
    "names": "'at' in dir(x) and 'detach' not in dir(x)",
    "traced": "rlx.jit(lambda x: (2.0 * x)[0])(x) == 2.0",
    "threads": "all(pool.ThreadPool(4).map(lambda n: float((x + n)[0]) == n + 1.0, range(8)))",
}
_IN_FORKS = """
import copy, os, pickle, sys
from multiprocessing import pool
import numpy as np
import rlx, rlx.array, rlx.call.jitted
from rlx.numpy import conversion, operators, placement, printing, protocols, searching, sorting, statistics, updates
def refused(function, error):
    try:
        function()
    except error:
        return True
x = rlx.array.ConcreteArray(np.array([1.0, 2.0]))
for name, use in {uses!r}.items():
    assert "rlx.numpy.methods" not in sys.modules
    child = os.fork()
    if not child:
        try:
            os._exit(not eval(use))
        finally:
            os._exit(2)
    if os.waitpid(child, 0)[1]:
        print(name)
"""


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="every use is the first one of a forked process")
def test_first_uses_of_arrays() -> None:
    """Whatever is done first with an array finds its operators and methods."""
    assert run(_IN_FORKS.format(uses=FIRST_USES)).split("\n") == [""]


def test_all_names_appear() -> None:
    """Names of rlx and rlx.numpy are the objects of their modules, listed before they are loaded."""
    code = """
import rlx, rlx.numpy as jnp
assert set(rlx.numpy.names.FUNCTIONS["elementwise"].split()) <= set(dir(jnp)) and "jit" in dir(rlx)
from rlx.numpy import *
from rlx import remat, typeof, jit, checkpoint
from rlx.numpy import elementwise, dtypes
assert remat is checkpoint and typeof is rlx.call.divisions.typeof and jnp.bool is dtypes.bool_
assert jnp.exp is elementwise.exp and exp is jnp.exp
print("done")
"""
    assert run(code) == "done\n"
