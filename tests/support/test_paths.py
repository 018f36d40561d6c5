"""Paths that lead into another room: what people import by JAX's paths, and by those from before there were rooms."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import rlx
from rlx.jaxnames import PATHS

ROOT = Path(rlx.__file__).resolve().parent.parent
PUBLIC = sorted(path for path in PATHS if path[4:] in rlx.__all__)


def python(code: str) -> str:
    """What a fresh process prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", sorted(PATHS))
def test_a_path_gives_the_module_itself(path: str) -> None:
    """As an import and as an attribute: one module, which knows its own place."""
    module = importlib.import_module(path)
    assert module is importlib.import_module(PATHS[path]) is getattr(rlx, path[4:])
    assert module.__name__ == PATHS[path] and module.__spec__ is not None and module.__spec__.name == PATHS[path]


def test_no_path_hides_a_module() -> None:
    """What the table names is no file, and what it leads to is one."""
    for path, target in PATHS.items():
        place, meant = (ROOT.joinpath(*name.split(".")) for name in (path, target))
        assert not place.with_suffix(".py").exists() and not (place / "__init__.py").exists(), path
        assert meant.with_suffix(".py").exists() or (meant / "__init__.py").exists(), target


@pytest.mark.thorough
def test_every_kind_of_import_works() -> None:
    """Statements as people write them, each in a process that has loaded none of it."""
    for statement, shown in (
        ("import rlx.tree_util as tu", "tu.tree_leaves"),
        ("import rlx.tree_util", "rlx.tree_util.tree_leaves"),
        ("from rlx.tree_util import tree_leaves", "tree_leaves"),
        ("from rlx import tree_util", "tree_util.tree_leaves"),
        ("import rlx.tree", "rlx.tree.leaves"),
        ("import rlx.example_libraries.stax as stax", "stax.Dense"),
        ("from rlx.example_libraries import optimizers", "optimizers.adam"),
        ("from rlx.ad_checkpoint import checkpoint", "checkpoint"),
        ("import rlx", "rlx.opt.dce"),
    ):
        assert "function" in python(f"{statement}; print({shown})"), statement


def test_one_module_by_both_paths() -> None:
    """Below a package of the table nothing is loaded twice."""
    code = "import sys, rlx.example_libraries.stax as a; import rlx.jaxnames.example_libraries.stax as b;"
    assert python(f"{code} print(a is b, a.__name__)") == "True rlx.jaxnames.example_libraries.stax\n"


def test_what_is_absent_stays_absent() -> None:
    """A path of no table is refused as ever, and so is one below a module."""
    for name in ("rlx.nothing", "rlx.tree_util.nothing"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name)


def test_pickles_by_an_older_path_are_read() -> None:
    """A class that a pickle names by the path of its time, and the pickle of today."""
    assert pickle.loads(b"crlx.stages\nShapeDtypeStruct\n.") is rlx.ShapeDtypeStruct
    assert pickle.loads(b"crlx.tree_structure\nTreeDef\n.") is type(rlx.tree.structure(1.0))
    struct = rlx.ShapeDtypeStruct((2,), "float32")
    assert pickle.loads(pickle.dumps(struct)) == struct


def test_import_loads_no_module_for_its_path() -> None:
    """The table names modules, it loads none: importing rlx does not load what is asked for later."""
    late = [PATHS[path] for path in PUBLIC if path not in ("rlx.ad", "rlx.tree")]
    loaded = python(f"import sys, rlx; print([name for name in {late} if name in sys.modules])")
    assert loaded == "[]\n"


def test_type_checkers_find_the_public_paths() -> None:
    """rlx-stubs says of each what it is, in one line, and of nothing else."""
    folder = ROOT / "rlx-stubs"
    assert {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*.pyi")} == stubs()


def stubs() -> dict[str, str]:
    """The files of rlx-stubs."""
    found = {}
    for path in PUBLIC:
        place = ROOT.joinpath(*PATHS[path].split("."))
        parts = sorted(p.stem for p in place.glob("*.py") if p.stem != "__init__")
        name = path[4:]
        line = f"from {PATHS[path]} import *\n"
        if not place.is_dir():
            found[f"{name}.pyi"] = line
            continue
        found[f"{name}/__init__.pyi"] = line
        found |= {f"{name}/{part}.pyi": f"from {PATHS[path]}.{part} import *\n" for part in parts}
    return found


if __name__ == "__main__":
    for name, text in stubs().items():
        (ROOT / "rlx-stubs" / name).parent.mkdir(exist_ok=True)
        (ROOT / "rlx-stubs" / name).write_text(text)
