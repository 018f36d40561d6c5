"""Write docs/source_tree.md: packages of rlx, primitives and methods of KernelBuilder, from the docstrings.

Run it after a change of one of these docstrings: python docs/make_source_tree.py
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))
TARGET = ROOT / "docs" / "source_tree.md"


def first_sentence(text: str | None) -> str:
    """The summary line of a docstring, as one cell of a table."""
    return " ".join((text or "").strip().partition("\n\n")[0].split()).replace("|", "\\|")


def package_rows() -> list[str]:
    """A row for each package and each module at the top of rlx."""
    rows = []
    for path in sorted((ROOT / "rlx").iterdir(), key=lambda path: path.name):
        source = path / "__init__.py" if path.is_dir() else path
        if source.suffix == ".py" and source.exists() and path.name not in ("__init__.py", "__main__.py"):
            text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8")))
            rows.append(f"| `rlx/{path.name}` | {first_sentence(text)} |")
    return rows


def primitive_rows() -> list[str]:
    """For each file of rlx/ops, its primitives with their parameters."""
    import rlx.ops
    from rlx.trace.primitive import registry

    for module in pkgutil.iter_modules(rlx.ops.__path__):
        importlib.import_module(f"rlx.ops.{module.name}")
    files: dict[str, list[str]] = {}
    for name, primitive in sorted(registry.items()):
        module = type(primitive).__module__
        if module.startswith("rlx.ops."):
            taken = inspect.signature(type(primitive).type).parameters.values()
            names = [p.name for p in taken if p.kind is p.KEYWORD_ONLY]
            files.setdefault(module.removeprefix("rlx.ops."), []).append(f"`{name}{shown(names)}`")
    return [f"| `{file}.py` | {', '.join(found)} |" for file, found in sorted(files.items())]


def shown(names: list[str]) -> str:
    """Parameters in parentheses, nothing if there are none."""
    return f"({', '.join(names)})" if names else ""


def method_rows() -> list[str]:
    """The public methods of KernelBuilder, after those of the class that it extends."""
    from rlx.lowering.builder import KernelBuilder

    names = [name for part in reversed(KernelBuilder.__mro__) for name in vars(part) if not name.startswith("_")]
    rows = []
    for name in names:
        method = getattr(KernelBuilder, name)
        taken = list(inspect.signature(method).parameters)[1:]
        rows.append(f"| `k.{name}({', '.join(taken)})` | {first_sentence(method.__doc__)} |")
    return rows


def page() -> str:
    """The text of the page."""
    return "\n".join(
        [
            "# The source tree",
            "",
            "Generated from the docstrings by `python docs/make_source_tree.py`.",
            "",
            "| path | contents |",
            "| --- | --- |",
            *package_rows(),
            "",
            "`tests/test_house.py` states which package may import which.",
            "",
            "## Primitives",
            "",
            "Each file of `rlx/ops` defines a family of primitives. The names in parentheses are parameters.",
            "",
            "| file | primitives |",
            "| --- | --- |",
            *primitive_rows(),
            "",
            "## Methods of KernelBuilder",
            "",
            "The `lower` rule of a primitive calls these methods ([internals](internals.md#lowering-rlxloweringbuilderpy)).",
            "",
            "| method | result |",
            "| --- | --- |",
            *method_rows(),
            "",
        ]
    )


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
    print(f"{TARGET.relative_to(ROOT)} written")
