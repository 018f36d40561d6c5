"""Runs one program of tests/compat/libraries in this process, with jax or with rlx in its place.

python run_library.py PROGRAM jax|rlx RESULT.npz
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path

import numpy as np


def main(program: str, framework: str, result: str) -> None:
    """Run it."""
    warnings.simplefilter("ignore")
    if framework == "rlx":
        import rlx.compat

        rlx.compat.as_jax()
    import jax

    if framework == "rlx":
        assert jax.jit is rlx.jit
    spec = importlib.util.spec_from_file_location(Path(program).stem, program)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[Path(program).stem] = module
    spec.loader.exec_module(module)
    found = jax.tree_util.tree_flatten_with_path(module.run())[0]
    rtol, atol = getattr(module, "TOLERANCE", (2e-3, 2e-4))
    np.savez(result, **{jax.tree_util.keystr(path): np.asarray(x) for path, x in found}, tolerance=[rtol, atol])


if __name__ == "__main__":
    main(*sys.argv[1:])
