"""The house rules, held by a machine: layers, no cycles, docstrings, public names."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "rlx"
FILES = sorted(PACKAGE.rglob("*.py"))

# package -> what of rlx it may import, besides itself (see docs/architecture.md)
FOUNDATION = {"errors", "habits", "config", "forks", "interrupts", "tree", "version", "storage", "routines"}
LAYERS: dict[str, set[str]] = {
    "errors": set(),
    "habits": {"errors"},
    "config": {"errors"},
    "version": set(),
    "forks": set(),
    "interrupts": set(),
    "storage": {"forks"},
    "routines": set(),
    "tree_keys": set(),
    "tree_structure": set(),
    "tree": {"errors", "tree_keys", "tree_structure"},
    "tree_util": {"tree", "tree_keys"},
    "ir": FOUNDATION,
    "array": FOUNDATION | {"ir"},
    "trace": FOUNDATION | {"ir", "array"},
    "ops": FOUNDATION | {"ir", "array", "trace"},
    "transforms": FOUNDATION | {"ir", "array", "trace", "ops"},
    "backends": FOUNDATION | {"ir"},
    "lowering": FOUNDATION | {"ir", "trace"},
    "planning": FOUNDATION | {"ir", "trace", "lowering"},
    "passes": FOUNDATION | {"ir", "trace", "backends", "lowering", "planning"},
    "numpy": FOUNDATION | {"ir", "array", "trace", "ops", "transforms"},
    # a front of its own; only its jitted parts (jit with shardings, pmap) know of jit
    "sharding": FOUNDATION | {"ir", "array", "trace", "ops", "transforms", "backends", "api", "jit_options", "memory"},
    "lax": FOUNDATION | {"ir", "array", "trace", "ops", "transforms", "numpy", "sharding"},
    "scipy": FOUNDATION | {"ir", "array", "trace", "ops", "transforms", "numpy", "lax", "nn", "random"},
    "nn": FOUNDATION | {"ir", "array", "trace", "ops", "transforms", "numpy", "lax", "random"},
    "random": FOUNDATION | {"ir", "array", "trace", "ops", "transforms", "numpy", "lax"},
    "callback": FOUNDATION | {"ir", "array", "trace", "ops"},
    "numba_functions": FOUNDATION | {"ir", "array", "trace", "ops"},
    "optim": FOUNDATION | {"ir", "array", "trace", "ops", "transforms", "numpy", "lax"},
    "experimental": FOUNDATION | {"ir", "array", "trace", "ops", "transforms", "numpy", "lax", "sharding", "api"},
    "distributed": FOUNDATION,
    "example_libraries": FOUNDATION
    | {"array", "trace", "ops", "transforms", "numpy", "lax", "nn", "optim", "random"},
    "scopes": FOUNDATION | {"trace"},
    "switches": FOUNDATION | {"ir", "array", "backends", "trace"},
    "jit_options": FOUNDATION | {"trace"},
    "typing": {"array"},
    "profiler": set(),
    "memory": set(),
    "dtypes": FOUNDATION | {"ir", "array", "numpy"},
    "flatten_util": FOUNDATION | {"array", "trace", "numpy"},
    "segments": FOUNDATION | {"ir", "array", "trace", "numpy"},
    "image": FOUNDATION | {"array", "trace", "numpy", "lax"},
    "serialization": FOUNDATION | {"array", "ir", "tree_keys", "trace", "numpy"},
    # a front over public functions: nothing below knows of it
    "gguf": {"errors", "api", "numpy", "lax", "serialization"},
    "precision": FOUNDATION | {"ir", "array", "trace", "ops", "transforms", "numpy"},
}
EVERYTHING = {"api", "compiled", "device", "inspection", "debug", "testing", ""}
EVERYTHING |= {"compat", "test_util"}
EVERYTHING |= {
    "exhausted",
    "ad_checkpoint",
    "forward_backward",
    "stages",
    "autodiff",
    "compile",
    "core",
    "custom_batching",
    "custom_derivatives",
    "fusion",
    "graph",
    "opt",
    "profiling",
}


def unit_of(path: Path) -> str:
    """The layer that a file belongs to: its top-level package or module under rlx."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return "" if parts == ("__init__",) else parts[0]


def imports_of(path: Path) -> list[tuple[str, int, bool]]:
    """(module, line, inside a function) for every import of rlx in a file, TYPE_CHECKING aside."""
    tree = ast.parse(path.read_text())
    found: list[tuple[str, int, bool]] = []

    def visit(node: ast.AST, inside: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.Import):
                found.extend((a.name, child.lineno, inside) for a in child.names if a.name.split(".")[0] == "rlx")
            elif isinstance(child, ast.ImportFrom) and (child.module or "").split(".")[0] == "rlx":
                found.extend((f"{child.module}.{a.name}", child.lineno, inside) for a in child.names)
            visit(child, inside or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)))

    visit(tree, False)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_file_imports_only_from_layers_below(path: Path) -> None:
    """Arrows point downwards: see LAYERS."""
    unit = unit_of(path)
    if unit in EVERYTHING:
        return
    assert unit in LAYERS, f"give rlx.{unit} a layer in LAYERS"
    for module, line, _ in imports_of(path):
        target = module.split(".")[1] if "." in module else ""
        if target != unit:
            where = f"{path.name}:{line} imports {module}"
            assert target in LAYERS[unit], f"{where}: rlx.{unit} may not import rlx.{target}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_rlx_is_imported_at_the_top_of_a_file(path: Path) -> None:
    """No function-local import of rlx, except for a backend's own lazy parts."""
    if unit_of(path) == "backends":
        return
    local = [(module, line) for module, line, inside in imports_of(path) if inside]
    assert not local, f"{path.name}: {local}"


def test_there_is_no_import_cycle() -> None:
    """Modules can be put in one order."""
    names = {}
    for path in FILES:
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    graph = {}
    for name, path in names.items():
        edges = set()
        for imported, _, inside in imports_of(path):
            module = imported if imported in names else imported.rpartition(".")[0]
            if not inside and module in names and module != name:
                edges.add(module)
        graph[name] = edges
    state: dict[str, int] = {}

    def visit(name: str, trail: list[str]) -> None:
        if state.get(name) == 2:
            return
        assert state.get(name) != 1, f"import cycle: {' -> '.join([*trail[trail.index(name) :], name])}"
        state[name] = 1
        for edge in sorted(graph[name]):
            visit(edge, [*trail, name])
        state[name] = 2

    for name in graph:
        if name != "rlx":
            visit(name, [])


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_every_module_says_what_it_is(path: Path) -> None:
    """A module has a docstring."""
    assert ast.get_docstring(ast.parse(path.read_text())), path


def test_public_names_have_docstrings_and_exist() -> None:
    """Everything in rlx.__all__ is there and documented."""
    import rlx

    for name in rlx.__all__:
        value = getattr(rlx, name)
        assert value is not None
        if callable(value):
            assert value.__doc__, name


def test_import_is_light() -> None:
    """`import rlx` loads neither numba, llvmlite, scipy, cupy nor mlx."""
    code = (
        "import sys, rlx; heavy = [m for m in ('numba', 'llvmlite', 'scipy', 'cupy', 'mlx', 'jax', 'torch')"
        " if m in sys.modules]; print(heavy); sys.exit(bool(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_passes_and_backends_name_no_primitive() -> None:
    """The compiler asks primitives through their rules; only rewrite rules may name them."""
    import rlx  # noqa: F401  registers the primitives
    from rlx.trace.primitive import registry

    for path in FILES:
        if unit_of(path) in ("backends",):
            for module, line, _ in imports_of(path):
                assert not module.startswith("rlx.ops"), f"{path}:{line}"
    assert len(registry) > 80
