"""The project rules, checked: layers, no import cycles, docstrings, public names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "rlx"
FILES = sorted(PACKAGE.rglob("*.py"))


def module_of(path: Path) -> str:
    """The name of a file as a module."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in FILES}

# package -> what of rlx it may import, besides itself (see docs/architecture.md)
FOUNDATION = {"errors", "advice", "statics", "config", "forks", "interrupts", "trees", "version", "routines"}
FOUNDATION |= {"offered_names", "storage", "device_memory", "columns", "owners"}
FOUNDATION |= {"garbage", "installation", "settings"}
ARRAYS = FOUNDATION | {"ir", "array", "trace"}
FRONTS = ARRAYS | {"ops", "transforms", "numpy", "lax", "nn", "random"}
LAYERS: dict[str, set[str]] = {
    "errors": set(),
    "advice": {"errors"},
    "offered_names": {"errors", "advice", "garbage"},
    "garbage": set(),
    "statics": set(),
    "config": {"errors", "statics"},
    "version": set(),
    "installation": set(),
    "columns": set(),
    "owners": set(),
    "settings": {"errors"},
    "forks": set(),
    "interrupts": set(),
    "storage": {"forks"},
    "device_memory": {"storage"},
    "routines": {"forks"},
    "trees": {"offered_names", "errors", "statics"},
    "ir": FOUNDATION,
    "array": FOUNDATION | {"ir"},
    "trace": FOUNDATION | {"ir", "array"},
    "ops": FOUNDATION | {"ir", "array", "trace"},
    "transforms": FOUNDATION | {"ir", "array", "trace", "ops"},
    "code": FOUNDATION | {"ir"},
    "backends": FOUNDATION | {"ir", "code"},
    "lowering": FOUNDATION | {"ir", "trace"},
    "planning": FOUNDATION | {"ir", "trace", "lowering"},
    "passes": FOUNDATION | {"ir", "trace", "backends", "lowering", "planning"},
    "numpy": ARRAYS | {"ops", "transforms", "sharding"},
    "sharding": ARRAYS | {"ops", "transforms", "backends"},
    "lax": ARRAYS | {"ops", "transforms", "numpy", "sharding"},
    "random": ARRAYS | {"ops", "transforms", "numpy", "lax"},
    "nn": ARRAYS | {"ops", "transforms", "numpy", "lax", "random"},
    "optim": ARRAYS | {"ops", "transforms", "numpy", "lax", "nn", "scipy"},
    "data": FRONTS | {"call"},
    "progress": FRONTS,
    # the parts over SciPy's solvers compile, and use sparse Jacobians; sparse uses others (see the test of cycles)
    "scipy": FRONTS | {"call", "sparse", "sparse_derivatives"},
    "sparse": FRONTS | {"scipy"},
    "splat": FRONTS | {"call", "optim"},
    "sparse_derivatives": FRONTS | {"sparse"},
    "image": FRONTS,
    "precision": ARRAYS | {"ops", "transforms", "numpy"},
    "serialization": ARRAYS | {"numpy", "sharding"},
    "testing": ARRAYS | {"transforms"},
    "typing": {"offered_names", "array"},
    # a device that takes programs as StableHLO
    "xla": FOUNDATION | {"ir", "backends", "stablehlo"},
    # jit asks the whole compiler
    "call": ARRAYS | {"ops", "transforms", "backends", "lowering", "planning", "passes", "sharding"},
    # shows what the compiler did; only fronts read it
    "explain": ARRAYS | {"ops", "backends", "code", "lowering", "planning", "passes", "call"},
    # chooses devices for programs, and runs one on two
    "placement": ARRAYS | {"ops", "numpy", "lax", "code", "backends", "lowering", "planning", "passes", "call"}
    | {"profiling"},
    "host": ARRAYS | {"ops", "sharding"},
    "experimental": FRONTS | {"sharding", "call", "distributed", "scipy", "sparse", "sparse_derivatives"},
    # what processes exchange, over the primitives for it
    "distributed": ARRAYS | {"ops", "transforms", "numpy"},
    # ways to divide a model over a mesh, and what they cost
    "parallel": ARRAYS | {"ops", "transforms", "numpy", "lax", "nn", "optim", "sharding", "distributed", "call"},
    "bench": ARRAYS | {"numpy", "call", "explain", "testing"},
    # the command knows the whole of rlx
    "cli": FOUNDATION | {"", "ir", "backends", "bench", "profiling", "testing", "gguf", "lm", "distributed"}
    | {"splat", "placement", "cortexm", "fpga"},
    "__main__": {"cli"},
    "gguf": {"offered_names", "columns", "errors", "forks", "installation", "call", "numpy", "lax", "serialization"},
    # fronts over what users have
    "onnx": {"offered_names", "errors", "installation", "ir", "ops", "numpy", "lax", "nn", "scipy", "standalone"}
    | {"quant", "", "backends", "export", "passes", "trace"},
    "export": ARRAYS | {"ops", "transforms", "backends", "passes", "call", "serialization", "version", "stablehlo"},
    "stablehlo": FRONTS | {"scipy", "backends", "passes", "call", "export", "standalone"},
    "quant": FRONTS | {"gguf"},
    "cortexm": FRONTS | {"quant", "standalone", "backends", "call"},
    "lm": FRONTS | {"gguf", "quant", "call", "serialization"},
    "fpga": {"offered_names", "errors", "planning", "quant"},
    "standalone": ARRAYS
    | {"ops", "code", "backends", "planning", "passes", "call", "serialization", "export"},
    "profiling": ARRAYS | {"numpy", "backends", "call", "explain"},
    "graph": FRONTS | {"lowering", "planning", "passes", "backends", "precision", "call", "explain"},
    # names from several rooms for graphs that are built by hand
    "prelude": {"offered_names", "storage", "backends", "graph", "precision", "quant"},
    "runtime": {"offered_names", "graph"},
    "driver": {"offered_names", "storage", "backends", "call", "placement"},
    "macros": {"offered_names", "call", "graph"},
    # JAX's names are those of all rooms; compat puts the top, which is "", in place of jax
    "jaxnames": FRONTS | {"optim", "sharding", "testing", "call", "export", ""},
}
# the top names what users call, and fills the hooks of every room
EVERYTHING = {"", "wiring"}


def unit_of(path: Path) -> str:
    """The layer that a file belongs to: its top-level package or module under rlx."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return "" if parts == ("__init__",) else parts[0]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports_of(path: Path) -> list[tuple[str, int, bool]]:
    """(module, line, inside a function) for every import of rlx in a file, those for annotations alone, too."""
    found: list[tuple[str, int, bool]] = []

    def visit(node: ast.AST, inside: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                found.extend((a.name, child.lineno, inside) for a in child.names if a.name.split(".")[0] == "rlx")
            elif isinstance(child, ast.ImportFrom) and (child.module or "").split(".")[0] == "rlx":
                found.extend((f"{child.module}.{a.name}", child.lineno, inside) for a in child.names)
            if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):  # only these contain imports
                visit(child, inside or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)))

    visit(parsed(path), False)
    return found


@cache
def named_in(path: Path) -> list[tuple[str, int]]:
    """(module, line) for every module that a file loads by its name: strings that name one, where importlib is used."""
    if not any(module in path.read_text() for module in ("importlib", "offered_names")):
        return []
    tree = parsed(path)
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    named = [(node.value, node.lineno) for node in strings if node.value in MODULES and node.value != "rlx"]
    return named if imported & {"importlib", "rlx.offered_names"} else []


def test_files_import_only_from_layers_below() -> None:
    """Arrows point downwards: see LAYERS."""
    wrong = []
    for path in FILES:
        unit = unit_of(path)
        if unit in EVERYTHING:
            continue
        assert unit in LAYERS, f"give rlx.{unit} a layer in LAYERS"
        for module, line in (*((module, line) for module, line, _ in imports_of(path)), *named_in(path)):
            target = module.split(".")[1] if "." in module else ""
            if target != unit and target not in LAYERS[unit]:
                where = f"{path.relative_to(PACKAGE)}:{line}"
                wrong.append(f"{where} imports {module}, but rlx.{unit} may not import rlx.{target}")
    assert not wrong, "\n".join(wrong)


def test_examples_of_the_core_use_no_graphs() -> None:
    """Docstrings and error pages below rlx/graph do not use its names: an import that LAYERS would refuse."""
    below = {room for room, seen in LAYERS.items() if "graph" not in seen} - {"graph", "jaxnames", "quant"}
    graphs = r"(opt|fusion|autodiff|compile|graph|Graph|Session)\b"
    names = re.compile(rf"rlx\.{graphs}|from rlx import {graphs}")
    files = [path for path in FILES if unit_of(path) in below]
    wrong = [f"{path.relative_to(PACKAGE)}: {found[0]}" for path in files if (found := names.search(path.read_text()))]
    assert not wrong


def test_rlx_is_imported_at_the_top_of_a_file() -> None:
    """No function-local import of rlx, except for a backend's own lazy parts."""
    files = [path for path in FILES if unit_of(path) != "backends"]
    local = [(path, module, line) for path in files for module, line, inside in imports_of(path) if inside]
    assert not local


def edges_of(path: Path) -> set[str]:
    """The modules that a file needs: imported anywhere, for annotations alone, or loaded by name."""
    imported = [module if module in MODULES else module.rpartition(".")[0] for module, _, _ in imports_of(path)]
    found = {*imported, *(module for module, _ in named_in(path))}
    return found & MODULES.keys()


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    """A way from a node back to itself, empty if there is none."""
    state: dict[str, int] = {}

    def visit(name: str, trail: list[str]) -> list[str]:
        if state.get(name) == 1:
            return [*trail[trail.index(name) :], name]
        if name not in state:
            state[name] = 1
            for edge in sorted(graph[name]):
                if found := visit(edge, [*trail, name]):
                    return found
            state[name] = 2
        return []

    return next((found for name in graph if (found := visit(name, []))), [])


def test_there_is_no_import_cycle() -> None:
    """Modules can be put in one order, even those that are loaded late or only by type checkers."""
    # the top is loaded before everything, and names what users call
    graph = {name: edges_of(path) - {"rlx", name} for name, path in MODULES.items() if name != "rlx"}
    cycle = cycle_in(graph)
    assert not cycle, " -> ".join(cycle)


def test_cycles_are_found(tmp_path: Path) -> None:
    """Through an import, one for annotations, one in a function, and a name that is loaded late."""
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert cycle_in({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
    path = tmp_path / "example.py"
    for source in (
        "from rlx.trees import tree",
        "if TYPE_CHECKING:\n    from rlx.trees.tree import TreeDef",
        "def f():\n    import rlx.trees.tree",
        "import importlib\nmodule = importlib.import_module('rlx.trees.tree')",
    ):
        path.write_text(source)
        assert edges_of(path) == {"rlx.trees.tree"}, source


def hooks_filled(tree: ast.Module) -> list[int]:
    """The lines that set an attribute of something imported from rlx while the module is loaded."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and (node.module or "")[:3] == "rlx"]
    foreign = {alias.asname or alias.name for node in imports for alias in node.names} | {"rlx"}

    def is_foreign(node: ast.AST) -> bool:
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and node.id in foreign

    def is_set(node: ast.AST) -> bool:
        match node:
            case ast.Attribute(ctx=ast.Store()):
                return is_foreign(node)
            case ast.Call(func=ast.Name(id="setattr"), args=[owner, *_]):
                return is_foreign(owner)
            case ast.Subscript(value=ast.Call(func=ast.Name(id="vars"), args=[owner]), ctx=ast.Store()):
                return is_foreign(owner)
        return False

    def lines(node: ast.AST) -> list[int]:
        inside = [c for c in ast.iter_child_nodes(node) if not isinstance(c, (ast.FunctionDef, ast.Lambda))]
        return [line for child in inside for line in ([child.lineno] if is_set(child) else lines(child))]

    return lines(tree)


def test_only_wiring_fills_hooks() -> None:
    """A module sets attributes of other modules and their classes in functions only; rlx/wiring.py fills the hooks.

    rlx.jaxnames is a front end that adds JAX's attributes to classes of the core when it is loaded.
    """
    files = [path for path in FILES if unit_of(path) not in ("wiring", "jaxnames")]
    wrong = [f"{path.relative_to(PACKAGE)}:{line}" for path in files for line in hooks_filled(parsed(path))]
    assert not wrong, f"{wrong} fill hooks, which is done in rlx/wiring.py"
    assert len(hooks_filled(parsed(PACKAGE / "wiring.py"))) > 10


def test_filled_hooks_are_found() -> None:
    """An assignment, one to several names, setattr and the namespace of a module, but nothing in a function."""
    sources = ("room.hook = f", "room.hook.part, x = f, g", "setattr(room, 'hook', f)", "vars(room)['hook'] = f")
    for source in (*sources, "if TYPE_CHECKING:\n    room.hook: int = 3"):
        assert hooks_filled(ast.parse(f"from rlx.house import room\n{source}")), source
    assert not hooks_filled(ast.parse("from rlx.house import room\ndef f():\n    room.hook = 3\nown.x = room.hook"))


def test_every_module_says_what_it_is() -> None:
    """A module has a docstring."""
    assert not [path for path in FILES if not ast.get_docstring(parsed(path))]


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


_SHADOWS = """
import importlib, pkgutil, types, rlx
found = pkgutil.walk_packages(rlx.__path__, "rlx.", onerror=lambda name: None)
modules = [m for m in found if "__main__" not in m.name]
packages = {"rlx": rlx}
def load(name):
    try:
        return importlib.import_module(name)
    except ImportError:  # of an optional package
        return None
packages |= {m.name: load(m.name) for m in modules if m.ispkg}
public = {}
for name, package in packages.items():
    for part in pkgutil.iter_modules(getattr(package, "__path__", ())):
        if part.name in dir(package) and not isinstance(getattr(package, part.name), types.ModuleType):
            public[name, part.name] = getattr(package, part.name)
for m in modules:
    load(m.name)
print([names for names, value in public.items() if getattr(packages[names[0]], names[1]) is not value])
"""


def test_no_submodule_replaces_a_public_name() -> None:
    """Importing a submodule makes it an attribute of its package: a dtype or a function of that name would be gone."""
    found = subprocess.run([sys.executable, "-c", _SHADOWS], capture_output=True, text=True, check=True)
    assert found.stdout.strip().splitlines()[-1] == "[]", found.stdout


def primitives_named(tree: ast.Module) -> list[str]:
    """The expressions that take one primitive from the registry, or compare a primitive's name with fixed names."""

    def fixed(node: ast.AST) -> bool:
        return isinstance(node, (ast.Constant, ast.Tuple, ast.Set)) or (
            isinstance(node, ast.Name) and node.id.isupper()
        )

    def names(node: ast.AST) -> bool:
        match node:
            case ast.Subscript(value=ast.Name(id="registry"), slice=key):
                return fixed(key)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="registry")), args=[key, *_]):
                return fixed(key)
            case ast.Compare(left=left, comparators=others):
                of_primitive = [n for n in (left, *others) if ast.unparse(n).endswith("primitive.name")]
                return bool(of_primitive) and any(map(fixed, (left, *others)))
            case ast.Match(subject=subject):
                return ast.unparse(subject).endswith("primitive.name")
        return False

    return [ast.unparse(node) for node in ast.walk(tree) if names(node)]


def test_only_passes_and_rooms_above_the_primitives_name_one() -> None:
    """A pass may name the primitives that it rewrites, and a room the primitives that it may import.

    All other rooms ask a primitive through its rules and attributes, so that they need no change for a new one. The
    tracer records calls of functions that backends may claim as the primitive `block`.
    """
    rooms = {room for room, below in LAYERS.items() if "ops" in below} | EVERYTHING | {"ops", "passes"}
    files = [path for path in FILES if unit_of(path) not in rooms]
    named = [f"{p.relative_to(PACKAGE)}: {node}" for p in files for node in primitives_named(parsed(p))]
    assert named == ["trace/replay.py: registry['block']"]
    assert primitives_named(parsed(PACKAGE / "passes/rematerialize.py"))


def test_named_primitives_are_found() -> None:
    """In the registry, in comparisons and in match statements, but not where the name is a variable."""
    for source in (
        "registry['add']",
        "registry.get('add')",
        "e.primitive.name == 'add'",
        "'add' != primitive.name",
        "e.primitive.name in _SUMS",
        "match e.primitive.name:\n    case 'add': pass",
    ):
        assert primitives_named(ast.parse(source)), source
    assert not primitives_named(ast.parse("registry[name]; e.primitive.name == name; f(e.primitive.name, 'add')"))


def test_passes_holds_only_passes_of_the_pipeline() -> None:
    """Every module of rlx/passes is imported by the pipeline, directly or through other passes."""
    passes = {name for name in MODULES if name.startswith("rlx.passes.")}
    reached: set[str] = set()
    waiting = ["rlx.passes.pipeline"]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting.extend(edges_of(MODULES[name]) & passes)
    assert passes == reached, f"the pipeline does not run {sorted(passes - reached)}"


# rooms with an interface for users, whose classes have the names of the libraries that users know
FRONT_ENDS = set("numpy lax nn random scipy optim image experimental jaxnames graph onnx stablehlo gguf lm".split())
FRONT_ENDS |= set("fpga quant bench cli data parallel precision sparse sparse_derivatives splat standalone".split())


def test_class_names_of_the_core_are_unique() -> None:
    """A class name has one meaning outside front ends, with or without an underscore.

    The nodes of the code tree are an alphabet with the names of statements and expressions.
    """
    found: dict[str, list[str]] = {}
    for path in FILES:
        if unit_of(path) not in FRONT_ENDS and path != PACKAGE / "code/tree.py":
            for node in ast.walk(parsed(path)):
                if isinstance(node, ast.ClassDef):
                    found.setdefault(node.name.lstrip("_"), []).append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    repeated = {name: places for name, places in found.items() if len(places) > 1}
    assert not repeated, f"rename classes by what distinguishes them: {repeated}"


_ARRAY_CLASSES = {"Array", "ConcreteArray", "Tracer"}
_MODULES_OF_ARRAYS = ("rlx.array", "rlx.trace.builder")


def _array_names(tree: ast.Module) -> set[str]:
    """The names that a file has imported of classes of arrays."""
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module in _MODULES_OF_ARRAYS]
    return {alias.asname or alias.name for node in froms for alias in node.names if alias.name in _ARRAY_CLASSES}


def _array_classes_tested(tree: ast.Module) -> list[int]:
    """The lines with isinstance on a class of arrays."""
    names = _array_names(tree)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance"]
    return [c.lineno for c in calls if names & {n.id for n in ast.walk(c.args[1]) if isinstance(n, ast.Name)}]


def test_only_arrays_tracing_and_sharding_ask_for_the_class_of_an_array() -> None:
    rooms = (PACKAGE / "trace", PACKAGE / "sharding", PACKAGE / "array.py")
    files = [path for path in FILES if not any(path.is_relative_to(room) for room in rooms)]
    found = {str(path): lines for path in files if (lines := _array_classes_tested(ast.parse(path.read_text())))}
    assert not found, f"use is_array, is_concrete or is_traced: {found}"


def test_tests_of_the_class_of_an_array_are_found() -> None:
    text = "from rlx.array import Array as A, Device\nisinstance(x, (int, A))\nisinstance(x, Device)"
    assert _array_classes_tested(ast.parse(text)) == [2]


def test_there_are_three_classes_of_arrays() -> None:
    found = []
    for path in FILES:
        tree = ast.parse(path.read_text())
        names = _array_names(tree) | (_ARRAY_CLASSES if path == PACKAGE / "array.py" else set())
        classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        found += [node.name for node in classes if names & set(map(ast.unparse, node.bases))]
    assert sorted(found) == ["ConcreteArray", "Tracer"]


COMPILER = set("ir code trace transforms passes lowering planning backends call explain".split())
# classes and aliases of the compiler that have one of these words as their whole name
ONE_MEANING = {
    "Place": "code/tree.py", "Plan": "ir/kernels.py", "Rule": "ir/rewrite.py", "Stage": "passes/pipeline.py",
    "Writer": None,
}  # fmt: skip


def test_common_words_have_one_meaning() -> None:
    """A word that fits many things names one of them in the compiler, with or without an underscore, or none."""
    found: dict[str, list[str]] = {}
    for path in FILES:
        if unit_of(path) not in COMPILER:
            continue
        for node in parsed(path).body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            names = [node.name] if isinstance(node, ast.ClassDef) else [ast.unparse(target) for target in targets]
            for name in names:
                if name.lstrip("_") in ONE_MEANING:
                    found.setdefault(name.lstrip("_"), []).append(str(path.relative_to(PACKAGE)))
    assert found == {word: [path] for word, path in ONE_MEANING.items() if path}, found


def test_the_architecture_fits_one_screen() -> None:
    """docs/architecture.md is the diagram, the steps and the borders; lists of names are generated."""
    lines = (PACKAGE.parent / "docs" / "architecture.md").read_text().splitlines()
    assert len(lines) <= 60 and max(map(len, lines)) <= 125


def test_cached_properties_have_no_lock() -> None:
    """functools' has one in Python 3.11, which a forked child would find held by a thread of its parent."""
    found = [path for path in PACKAGE.rglob("*.py") if "cached_property" in path.read_text().split("__all__")[0]]
    wrong = [
        f"{path.name}:{node.lineno}"
        for path in found
        if path.name != "forks.py"
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ImportFrom) and node.module == "functools"
        if any(alias.name == "cached_property" for alias in node.names)
    ]
    assert len(found) > 10
    assert not wrong, f"from rlx.forks import cached_property instead: {wrong}"
