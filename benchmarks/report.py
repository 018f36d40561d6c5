"""Tables of results: as text for a terminal, as Markdown for the README, from the same rows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from typing import Any

from benchmarks import goals
from benchmarks.ecosystem import geometric_means, ratios

__all__ = ["figure_rows", "means", "markdown", "program_rows", "text"]

OTHERS = ("jax", "torch", "torch.compile", "numpy")
# bytes below which a difference in memory means nothing
SMALL = 1 << 12
Row = list[str]
Results = dict[str, Any]


def spoken(name: str) -> str:
    """A program's name in words."""
    return name.replace("_", " ")


def duration(seconds: float) -> str:
    """Seconds in the unit that suits them."""
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if seconds * scale >= 0.9995:
            return f"{_digits(seconds * scale)} {unit}"
    return f"{_digits(seconds * 1e6)} µs"


def _digits(value: float) -> str:
    """Three significant digits, and no more than five behind the point."""
    before = math.floor(math.log10(value)) + 1 if value > 0 else 1
    return f"{value:.{min(max(3 - before, 0), 5)}f}"


def mebibytes(count: int) -> str:
    """Bytes in MiB."""
    return f"{count / 2**20:.2f}" if count else "0"


def ratio(program: Results, other: str) -> float:
    """The other library's time as a multiple of rlx's."""
    return program["median"][other] / program["median"]["rlx"]


def missed(program: Results) -> list[str]:
    """The libraries that rlx falls behind in a program."""
    # NumPy and PyTorch run one operation where a jitted call looks up a program: for calls, JAX is the measure
    measures = ("jax",) if program["name"] in goals.CALLS else OTHERS
    there = (name for name in measures if name in program["median"])
    return [name for name in there if goals.program_goal(program["name"], name).missed(ratio(program, name))]


def program_rows(programs: list[Results]) -> list[Row]:
    """A header, and a row for each program: milliseconds, ratios, first calls, temporary memory, the bar."""
    others = [name for name in OTHERS if any(name in p["median"] for p in programs)]
    rows = [["program", *(f"{name} ms" for name in ("rlx", *others)), *(f"{name}/rlx" for name in others)]]
    rows[0] += [*(f"first call {name} ms" for name in ("rlx", "jax")), *(f"MiB {name}" for name in ("rlx", "jax"))]
    rows[0] += ["bar", "missed"]
    for program in programs:
        median = program["median"]
        row = [spoken(program["name"])]
        row += [_digits(median[name] * 1e3) if name in median else "" for name in ("rlx", *others)]
        row += [f"{ratio(program, name):.2f}" if name in median else "" for name in others]
        row += [_digits(program["cold"][name] * 1e3) for name in ("rlx", "jax")]
        row += [mebibytes(program["memory"][name]) for name in ("rlx", "jax")]
        behind = [f"missed: {', '.join(missed(program))}"] if missed(program) else []
        wrong = [f"differs: {', '.join(program['wrong'])}"] if program["wrong"] else []
        rows.append([*row, str(goals.program_goal(program["name"], "jax")), "; ".join(behind + wrong)])
    return rows


def means(programs: list[Results]) -> dict[str, float]:
    """Geometric means over the programs: other libraries' times by rlx's, first calls, memory."""
    found = {}
    for name in OTHERS:
        ratios = [ratio(p, name) for p in programs if name in p["median"]]
        if ratios:
            found[name] = statistics.geometric_mean(ratios)
    found["cold"] = statistics.geometric_mean([p["cold"]["jax"] / p["cold"]["rlx"] for p in programs])
    used = [p["memory"] for p in programs if max(p["memory"].values()) >= SMALL]
    if used:
        logarithms = [math.log(max(m["rlx"], SMALL) / max(m["jax"], SMALL)) for m in used]
        found["memory"] = math.exp(statistics.fmean(logarithms))
    return found


def _mean_rows(programs: list[Results]) -> Iterator[Row]:
    found = means(programs)
    for name in OTHERS:
        if name in found:
            goal = goals.MEAN if name == "jax" else goals.OTHERS
            label = f"geometric mean of {name}'s times by rlx's"
            yield [label, f"{found[name]:.2f}", "", str(goal), goal.verdict(found[name])]
    goal = goals.COLD_MEAN
    yield ["the same of first calls, jax", f"{found['cold']:.2f}", "", str(goal), goal.verdict(found["cold"])]
    if "memory" in found:
        goal, value = goals.MEMORY_MEAN, found["memory"]
        yield ["geometric mean of temporary memory by jax's", f"{value:.2f}", "", str(goal), goal.verdict(value)]


def _call_rows(programs: list[Results]) -> Iterator[Row]:
    for program in programs:
        if program["name"] in goals.CALLS:
            goal, median = goals.CALLS[program["name"]], program["median"]
            verdict = goal.verdict(median["rlx"] * 1e6)
            yield [spoken(program["name"]), duration(median["rlx"]), duration(median["jax"]), str(goal), verdict]


def _import_rows(found: Results) -> Iterator[Row]:
    beyond, theirs = (found[name] - found["numpy"] for name in ("rlx", "jax"))
    goal = goals.IMPORT
    yield ["import beyond NumPy's", duration(beyond), duration(theirs), str(goal), goal.verdict(beyond * 1e3)]


def _second_rows(found: Results) -> Iterator[Row]:
    goal, label = goals.SECOND, "second process, import to first gradient"
    yield [label, duration(found["rlx"]), duration(found["jax"]), str(goal), goal.verdict(found["rlx"])]
    goal = goals.BESIDE
    for name, seconds in found.items():
        if name != "rlx":
            label = f"… beside {name}"
            verdict = goal.verdict(seconds / found["rlx"])
            yield [label, duration(found["rlx"]), duration(seconds), f"jax/rlx {goal}", verdict]


def _batch_rows(found: Results) -> Iterator[Row]:
    for name, ours in found["rlx"].items():
        theirs, goal = found["jax"][name], goals.NEW_BATCH
        parts = [f"{duration(f['new'])} of {duration(f['cold'])}" for f in (ours, theirs)]
        verdict = goal.verdict(ours["new"] / ours["cold"])
        yield [f"new batch size, {spoken(name)}: call, of the first call", *parts, f"part {goal}", verdict]
        count, goal = ours["compiled"], goals.KERNELS
        yield ["… kernels it compiles", f"{count:g}", "all", str(goal), goal.verdict(count)]


def _depth_rows(found: Results) -> Iterator[Row]:
    shallow, deep = sorted(found, key=int)
    for layers in (shallow, deep):
        ours, theirs, goal = found[layers]["rlx"], found[layers]["jax"], goals.DEPTH_BESIDE
        label = f"first call, GPT of {layers} layers"
        yield [label, duration(ours), duration(theirs), f"jax/rlx {goal}", goal.verdict(theirs / ours)]
    growth = {name: found[deep][name] / found[shallow][name] for name in ("rlx", "jax")}
    parts = [f"{growth[name]:.1f}" for name in ("rlx", "jax")]
    label = f"… {deep} layers as a multiple of {shallow}"
    yield [label, *parts, str(goals.DEPTH), goals.DEPTH.verdict(growth["rlx"])]


_STEPS = {"decode": "a token of SmolLM2", "prefill": "a prompt of 512 tokens"}


_ALONE = {
    "opened": "SmolLM2's file is opened",
    "first": "its first token in a second process",
    "cold": "its first token in the very first process",
}


def _packed_rows(found: Results) -> Iterator[Row]:
    products = found["products"]
    for rows, seconds in products.items():
        for name, taken in seconds.items():
            goal = goals.packed_goal(int(rows), name)
            if goal is not None and name not in ("float32", "MatMulNBits"):
                label = f"{rows} × 4096 × 4096, {name}, float32 in jax's place"
                verdict = goal.verdict(seconds["float32"] / taken)
                yield [label, duration(taken), duration(seconds["float32"]), f"jax/rlx {goal}", verdict]
    if "MatMulNBits" in products["1"]:
        ours, theirs = products["1"]["int4/32"], products["1"]["MatMulNBits"]
        label = "1 × 4096 × 4096, int4/32, MatMulNBits in jax's place"
        yield [label, duration(ours), duration(theirs), f"jax/rlx {goals.NBITS}", goals.NBITS.verdict(theirs / ours)]
    for kind, seconds in found["decoding"].items():
        ours, theirs = seconds["rlx"], seconds["libgguf"]
        label, goal = f"decoding {kind}, libgguf in jax's place", goals.DECODING
        yield [label, duration(ours), duration(theirs), f"jax/rlx {goal}", goal.verdict(theirs / ours)]


def _model_rows(found: Results) -> Iterator[Row]:
    for name, packages in found["skipped"].items():
        yield [f"SmolLM2, {name}", "skipped", "", "", f"not installed: {packages}"]
    for part, label in _ALONE.items():
        if "rlx" in found:
            goal, seconds = goals.MODEL_SECONDS[part], {**found["rlx"], "cold": found["cold"]}[part]
            yield [label, duration(seconds), "", str(goal), goal.verdict(seconds)]
    for step, label in _STEPS.items():
        for name in ("llama.cpp", "transformers"):
            if "rlx" in found and name in found:
                ours, theirs = found["rlx"][step], found[name][step]
                goal = goals.MODEL.get((step, name))
                parts = [f"{ours:.0f} tokens/s", f"{theirs:.0f} tokens/s"]
                verdict = "" if goal is None else goal.verdict(ours / theirs)
                yield [f"{label}, {name} in jax's place", *parts, "" if goal is None else f"rlx/{name} {goal}", verdict]


def _library_rows(found: Results) -> Iterator[Row]:
    for name in found["skipped"]:
        yield [f"programs of {name}", "skipped", "", "", f"not installed: {name}"]
    for name, program in found["programs"].items():
        verdict = goals.LIBRARY.verdict(ratios(program)["again"])
        parts = [duration(program[framework]["again"]) for framework in ("warm", "jax")]
        yield [f"{spoken(name)}, second run", *parts, f"jax/rlx {goals.LIBRARY}", verdict]
    if found["programs"]:
        means = geometric_means(found["programs"].values())
        for name, goal in goals.LIBRARY_MEANS.items():
            label = f"libraries written for JAX, start to end, {name}, geometric mean"
            yield [label, f"{means[name]:.2f}", "", f"jax/rlx {goal}", goal.verdict(means[name])]


_GRADIENT = "rlx, with its gradient"


def _sparse_rows(found: Results) -> Iterator[Row]:
    """A row for each form of rlx beside each of SciPy, one beside JAX, and one for a gradient beside its function."""
    for case, seconds in found.items():
        forms, others = ([name for name in seconds if name.startswith(library)] for library in ("rlx", "scipy"))
        pairs = [(ours, theirs) for theirs in others for ours in forms]
        pairs += [("rlx", "jax")] if "jax" in seconds else []
        for ours, theirs in pairs:
            goal = goals.SPARSE.get((case, theirs)) if ours != _GRADIENT else None
            form = f" ({ours.removeprefix('rlx, ')})" if ours != "rlx" else ""
            place = f", {theirs} in jax's place" if theirs != "jax" else ""
            verdict = "" if goal is None else goal.verdict(seconds[ours] / seconds[theirs])
            bar = "" if goal is None else f"rlx/{theirs} {goal}"
            yield [f"sparse: {case}{form}{place}", duration(seconds[ours]), duration(seconds[theirs]), bar, verdict]
        if _GRADIENT in seconds:
            goal, part = goals.SPARSE_GRADIENT, seconds[_GRADIENT] / seconds["rlx"]
            yield [f"sparse: {case}, gradient as a multiple", f"{part:.2f}", "", str(goal), goal.verdict(part)]


def figure_rows(results: Results) -> list[Row]:
    """A header, and a row for each figure that is not a program's own."""
    parts = {"import": _import_rows, "second_process": _second_rows, "new_batch": _batch_rows, "depth": _depth_rows}
    parts |= {"packed_weights": _packed_rows, "language_model": _model_rows, "libraries": _library_rows}
    parts |= {"sparse_matrices": _sparse_rows, "sparse_solvers": _sparse_rows}
    rows = [["figure", "rlx", "jax", "bar", "missed"]]
    if results["programs"]:
        rows += [*_mean_rows(results["programs"]), *_call_rows(results["programs"])]
    for name, make in parts.items():
        if name in results["figures"]:
            rows += make(results["figures"][name])
    return rows


def text(rows: list[Row]) -> str:
    """A table for a terminal: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [first.ljust(widths[0]), *(c.rjust(w) for c, w in zip(others, widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def markdown(rows: list[Row]) -> str:
    """A table in Markdown; columns of numbers to the right."""
    header, *others = rows
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, rule, *others))
