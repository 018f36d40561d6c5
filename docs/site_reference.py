"""The reference pages of the site: a table for each module, and a page for each public function or class."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# Modules in the order of the navigation. A function that several modules export has its page in the first of them.
GROUPS = {
    "Everyday": (
        "rlx rlx.numpy rlx.nn rlx.nn.initializers rlx.optim rlx.random rlx.lax rlx.data rlx.tree rlx.debug rlx.errors"
    ),
    "NumPy and SciPy": (
        "rlx.numpy.linalg rlx.numpy.fft rlx.lax.linalg rlx.scipy.special rlx.scipy.linalg rlx.scipy.optimize"
        " rlx.scipy.stats rlx.scipy.signal rlx.scipy.fft rlx.scipy.integrate rlx.scipy.interpolate rlx.scipy.ndimage"
        " rlx.sparse rlx.scipy.sparse.linalg rlx.scipy.spatial.transform rlx.scipy.cluster.vq rlx.image rlx.segments"
    ),
    "Measure and inspect": (
        "rlx.profiling rlx.profiler rlx.bench rlx.memory rlx.fusion rlx.compile rlx.call.stages rlx.call.switches"
        " rlx.config rlx.testing rlx.precision"
    ),
    "Save, export, models": (
        "rlx.serialization rlx.export rlx.aot rlx.onnx rlx.gguf rlx.lm rlx.quant rlx.compat rlx.graph rlx.opt"
    ),
    "Several devices": "rlx.sharding rlx.parallel rlx.distributed rlx.placement",
    "Derivatives and types": "rlx.autodiff rlx.custom_derivatives rlx.custom_batching rlx.ref rlx.dtypes rlx.typing",
}
REST = "Further modules of JAX"
# the names of a module that people use most, most used first; the others follow in alphabetical order
COMMON = {
    "rlx": (
        "jit grad value_and_grad vmap inspect profile jvp vjp hvp jacfwd jacrev hessian checkpoint custom_vjp"
        " custom_jvp save load model make_program device_put devices debug_nans disable_jit shard_map make_mesh P"
    ),
    "rlx.numpy": (
        "array asarray zeros ones full arange linspace eye sum mean std var max min argmax argmin sort argsort where"
        " concatenate stack reshape transpose broadcast_to expand_dims squeeze matmul dot einsum exp log sqrt sin cos"
        " tanh abs clip maximum minimum cumsum any all isnan take nonzero unique"
    ),
    "rlx.nn": (
        "relu gelu silu sigmoid tanh softmax log_softmax softplus one_hot standardize logsumexp dot_product_attention"
    ),
    "rlx.optim": (
        "adam adamw sgd apply_updates chain clip_by_global_norm warmup_cosine_decay_schedule cosine_decay_schedule"
        " softmax_cross_entropy softmax_cross_entropy_with_integer_labels l2_loss huber_loss"
    ),
    "rlx.random": "key split normal uniform randint permutation choice bernoulli categorical fold_in truncated_normal",
    "rlx.lax": "scan fori_loop while_loop cond switch map stop_gradient dynamic_slice dynamic_update_slice top_k conv",
    "rlx.data": "batches prefetch",
    "rlx.tree": "map leaves flatten unflatten structure reduce map_with_path",
    "rlx.numpy.linalg": "norm solve inv det eigh svd qr cholesky lstsq pinv eig",
    "rlx.debug": "print callback breakpoint",
    "rlx.scipy.optimize": "minimize least_squares curve_fit root",
}
SMALL = 6  # a module with at most this many names is one page


@dataclass
class Entry:
    """A public value: the names of its module for it, the first of them its page's, and every dotted name."""

    module: str
    name: str
    value: Any
    aliases: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)

    @property
    def path(self) -> str:
        """The page in the folder of the reference; a small module has an anchor on its own page."""
        if len(public_names(self.module)) <= SMALL:
            return f"{self.module}.md#{self.name}"
        same = [n for n in public_names(self.module) if n.lower() == self.name.lower()]  # file systems may ignore case
        return f"{self.module}/{self.name}{'_' * same.index(self.name)}.md"


# ------------------------------------------------------------------ the names
@cache
def public_modules() -> list[str]:
    """The modules whose names tests/test_docstrings.py asks an example of, in the order of the navigation."""
    text = (ROOT / "tests" / "test_docstrings.py").read_text(encoding="utf-8")
    found = re.findall(r'^    "(rlx[\w.]*)",$', text, re.MULTILINE)
    listed = [name for group in GROUPS.values() for name in group.split()]
    if unknown := set(listed) - set(found):
        raise ValueError(f"docs/site_reference.py lists modules without documented names: {sorted(unknown)}")
    return [*listed, *sorted(set(found) - set(listed))]


def groups() -> dict[str, list[str]]:
    """The modules of each group of the navigation."""
    listed = {title: names.split() for title, names in GROUPS.items()}
    known = {name for names in listed.values() for name in names}
    return listed | {REST: [name for name in public_modules() if name not in known]}


@cache
def public_names(module: str) -> list[str]:
    """The public names of a module that are not modules: the common ones first."""
    found = importlib.import_module(module)
    names = sorted({n for n in found.__all__ if not inspect.ismodule(getattr(found, n))}, key=lambda n: (n.lower(), n))
    common = [name for name in COMMON.get(module, "").split() if name in names]
    return [*common, *(name for name in names if name not in common)]


@cache
def entries() -> dict[str, Entry]:
    """The entry of each dotted public name; names of the same function share one."""
    found: dict[str, Entry] = {}
    known: dict[int, Entry] = {}
    for module in public_modules():
        for name in public_names(module):
            value = getattr(importlib.import_module(module), name)
            entry = known.get(id(value)) if callable(value) else None
            if entry is None:
                entry = known[id(value)] = Entry(module, name, value)
            elif entry.module == module:
                entry.aliases.append(name)
            else:
                entry.elsewhere.append(f"{module}.{name}")
            found[f"{module}.{name}"] = entry
    return found


# ------------------------------------------------------------------ pages
def reference_pages() -> dict[str, str]:
    """The Markdown of every page of the reference, by its path in the folder of the reference."""
    pages = {"index.md": index_page()}
    for module in public_modules():
        own = [e for n in public_names(module) if (e := entries()[f"{module}.{n}"]).module == module and e.name == n]
        if len(public_names(module)) <= SMALL:
            pages[f"{module}.md"] = small_page(module, own)
            continue
        pages[f"{module}.md"] = module_page(module)
        for before, entry, after in zip([None, *own], own, [*own[1:], None], strict=False):
            pages[entry.path] = function_page(entry, before, after)
    return pages


def small_page(module: str, own: list[Entry]) -> str:
    """The page of a small module: its functions, and a table of the names whose pages are another module's."""
    parts = [*heading(module), *(part for entry in own for part in section(entry))]
    if others := [name for name in public_names(module) if name not in {entry.name for entry in own}]:
        parts.append("\n".join(["| name | |", "| --- | --- |", *(row(module, name) for name in others)]))
    return "\n\n".join(parts) + "\n"


def index_page() -> str:
    """The modules by their groups, each with its first sentence."""
    parts = [
        "# Reference",
        "Every public name of rlx, with its signature and an example. Most programs need the first group.",
    ]
    for title, names in groups().items():
        rows = [f"| [{n}]({n}.md) | {summary(importlib.import_module(n))} | {len(public_names(n))} |" for n in names]
        parts += [f"## {title}", "\n".join(["| module | contents | names |", "| --- | --- | ---: |", *rows])]
    return "\n\n".join(parts) + "\n"


def heading(module: str) -> list[str]:
    """The title of a module's page, and the first paragraph of its docstring."""
    text = inspect.getdoc(importlib.import_module(module)) or ""
    return [f"# {module}", escaped(text.partition("\n\n")[0])]


def module_page(module: str) -> str:
    """The table of a module: each name with the first sentence of its docstring."""
    names = public_names(module)
    common = [name for name in names if name in COMMON.get(module, "").split()]
    parts = heading(module)
    for title, part in (("Used most", common), ("All others", [name for name in names if name not in common])):
        if part:
            parts += [f"## {title}"] if common else []
            parts.append("\n".join(["| name | |", "| --- | --- |", *(row(module, name) for name in part)]))
    return "\n\n".join(parts) + "\n"


def row(module: str, name: str) -> str:
    """A row of a module's table."""
    entry = entries()[f"{module}.{name}"]
    home = "" if (entry.module, entry.name) == (module, name) else f" (the same as `{entry.module}.{entry.name}`)"
    text = summary(entry.value) if callable(entry.value) else f"`{signature(name, entry.value)}`"
    return f"| [`{name}`]({entry.path}) {{ #{name} }} | {text}{home} |"


def summary(value: Any) -> str:
    """The first sentence of a docstring, for a table."""
    text = " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
    sentence = re.split(r"(?<=[.!?])\s+(?=[A-Z`])", text)[0]
    return escaped(sentence if len(sentence) < 160 else sentence[:157] + " ...").replace("|", "\\|")


def function_page(entry: Entry, before: Entry | None, after: Entry | None) -> str:
    """The page of a name, with links to the names before and after it in the module's table."""
    parts = [f"# {entry.module}.{entry.name}", *body(entry)]
    links = [f"[{title}]({Path(e.path).name})" for e, title in neighbours(before, after)]
    parts.append(" · ".join([*links[:1], f"[all of {entry.module}](../{entry.module}.md)", *links[1:]]))
    return "\n\n".join(parts) + "\n{ .rlx-pager }\n"


def neighbours(before: Entry | None, after: Entry | None) -> Iterator[tuple[Entry, str]]:
    """The entries before and after one, with their titles."""
    if before:
        yield before, f"← {before.name}"
    if after:
        yield after, f"{after.name} →"


def section(entry: Entry) -> Iterator[str]:
    """The part of a small module's page about one name."""
    yield f"## {entry.name} {{ #{entry.name} }}"
    yield from body(entry)


def body(entry: Entry) -> Iterator[str]:
    """The signature, the other names and the docstring."""
    yield f"```python\n{signature(entry.name, entry.value)}\n```"
    if others := [*(f"{entry.module}.{name}" for name in entry.aliases), *entry.elsewhere]:
        yield "Also " + ", ".join(f"`{name}`" for name in others) + "."
    yield from described((inspect.getdoc(entry.value) if callable(entry.value) else None) or "")


# ------------------------------------------------------------------ signatures
def signature(name: str, value: Any) -> str:
    """How a name is called, a parameter a line if it is long; the value of a constant."""
    if not callable(value):
        return f"{name} = {value!r}" if isinstance(value, (int, float, str, tuple)) else name
    head = f"class {name}" if isinstance(value, type) else f"def {name}"
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return f"{head}(...)"
    parts = list(parameters(found))
    result = annotation(found.return_annotation)
    arrow = f" -> {result}" if result and not isinstance(value, type) else ""
    short = f"{head}({', '.join(parts)}){arrow}"
    return short if len(short) <= 80 else f"{head}(\n    " + ",\n    ".join(parts) + f",\n){arrow}"


def parameters(found: inspect.Signature) -> Iterator[str]:
    """The parameters of a signature as they are written, with the marks `/` and `*`."""
    kinds = [p.kind for p in found.parameters.values()]
    starred = False
    for place, parameter in enumerate(found.parameters.values()):
        if parameter.name.startswith("_"):  # accepted for code that is written for JAX
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            yield "*"
        starred |= parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        yield written(parameter)
        last = place + 1 == len(kinds) or kinds[place + 1] is not parameter.POSITIONAL_ONLY
        if parameter.kind is parameter.POSITIONAL_ONLY and last:
            yield "/"


def written(parameter: inspect.Parameter) -> str:
    """One parameter: its name, its type unless that is Any, its default."""
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    kind = annotation(parameter.annotation)
    text = stars + parameter.name + (f": {kind}" if kind else "")
    if parameter.default is parameter.empty:
        return text
    default = re.sub(r"<(?:function |class |bound method )?'?([\w.]+)[^<>]*>", r"\1", repr(parameter.default))
    return f"{text} = {default}" if kind else f"{text}={default}"


def annotation(found: Any) -> str:
    """A type as it is written in the source; nothing for Any."""
    if found is inspect.Signature.empty or found in ("Any", Any):
        return ""
    return found if isinstance(found, str) else inspect.formatannotation(found)


# ------------------------------------------------------------------ docstrings
def described(text: str) -> Iterator[str]:
    """A docstring as Markdown: prose, arguments as a list, examples as blocks."""
    examples = {e.lineno: e for e in doctest.DocTestParser().get_examples(text)}
    if not examples:
        yield from prose(text)
        return
    lines = text.split("\n")
    first = min(examples)
    yield from prose("\n".join(lines[:first]))
    for block in re.split(r"\n[ \t]*\n(?=[^>\s])", "\n".join(lines[first:])):
        if block.lstrip().startswith(">>>"):
            yield f"```pycon\n{block.strip()}\n```"
        else:
            yield from prose(block)


def prose(text: str) -> Iterator[str]:
    """Paragraphs; a list of arguments becomes a list."""
    parts = re.split(r"\n\s*\n|\s+(?=(?:Returns|Raises): )", text)
    for paragraph in filter(None, (p.strip("\n") for p in parts)):
        lines = paragraph.split("\n")
        if lines[0].rstrip().endswith(":") and len(lines) > 1 and lines[1].startswith("  "):
            yield f"**{escaped(lines[0].strip())}**"
            joined = re.sub(r"\n\s{4,}", " ", "\n".join(lines[1:]))
            yield "\n".join(argument(line.strip()) for line in joined.split("\n"))
        else:
            label, rest = re.fullmatch(
                r"((?:Args|Returns|Raises)[^:]*:)? ?(.*)", " ".join(s.strip() for s in lines)
            ).groups()
            if label == "Args:":
                yield "**Args:**"
                yield "\n".join(argument(part) for part in re.split(r"; (?=[\w*, ]+: )", rest))
            else:
                yield (f"**{label}** " if label else "") + escaped(rest)


def argument(line: str) -> str:
    """`name: meaning` as an item of a list."""
    name, colon, what = line.partition(": ")
    return f"* `{name}`: {escaped(what)}" if colon and re.fullmatch(r"[\w*., ]+", name) else f"* {escaped(line)}"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, except for code in backquotes."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([*_\[\]<>#\\])", r"\\\1", p) for p in parts)
