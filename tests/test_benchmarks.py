"""The benchmarks run, their tables say where a bar is missed, and README and picture are what the results say."""

from __future__ import annotations

import importlib
import itertools
import math
import xml.etree.ElementTree
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest

import rlx

ROOT = Path(__file__).resolve().parent.parent


class Benchmarks:
    """The modules of the folder, imported as `make bench` does."""

    def __getattr__(self, name: str) -> ModuleType:
        return importlib.import_module(f"benchmarks.{name}")


@pytest.fixture(scope="module")
def benchmarks() -> Iterator[Benchmarks]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        yield Benchmarks()


def program(name: str = "softmax_rows", ours: float = 1e-3, theirs: float = 2e-3) -> dict[str, Any]:
    """A result as a run writes it."""
    return {
        "name": name,
        "median": {"rlx": ours, "jax": theirs, "numpy": 4e-3},
        "cold": {"rlx": 0.1, "jax": 0.3},
        "memory": {"rlx": 1 << 20, "jax": 1 << 21},
        "difference": {"jax": 0.0, "numpy": 0.0},
        "wrong": [],
        "rounds": {},
    }


# ---------------------------------------------------------------------- what is written down
def test_the_pages_hold_the_results(benchmarks: Benchmarks) -> None:
    readme = benchmarks.readme
    for path in readme.SECTIONS:
        text = path.read_text(encoding="utf-8")
        assert text == readme.page(path, text, readme.results()), "run python -m benchmarks.readme"


def test_the_picture_is_of_the_results(benchmarks: Benchmarks) -> None:
    text = benchmarks.readme.PICTURE.read_text(encoding="utf-8")
    assert benchmarks.picture.digest(benchmarks.readme.results()) in text, "run python -m benchmarks.readme"


def test_the_results_are_of_every_program(benchmarks: Benchmarks) -> None:
    found = benchmarks.readme.results()
    assert [p["name"] for p in found["programs"]] == [p.name for p in benchmarks.programs.programs]
    measured = set(found["figures"])  # a language model and JAX's libraries where they were installed
    assert measured | {"language_model", "libraries", "packed_weights"} == set(benchmarks.figures.figures)
    assert not [p["name"] for p in found["programs"] if p["wrong"]]


def test_a_readme_without_marks_is_refused(benchmarks: Benchmarks) -> None:
    with pytest.raises(ValueError, match="lacks the marks"):
        benchmarks.readme.page(benchmarks.readme.README, "no marks", benchmarks.readme.results())


# ---------------------------------------------------------------------- the picture
def luminance(colour: str) -> float:
    """Relative luminance by the Web Content Accessibility Guidelines, 2.1."""
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def contrast(colour: str, page: str) -> float:
    """Their contrast ratio, 1 to 21."""
    dark, light = sorted((luminance(colour), luminance(page)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("page", ["#ffffff", "#0d1117"])
def test_colours_are_readable_on_light_and_dark_pages(benchmarks: Benchmarks, page: str) -> None:
    assert contrast(benchmarks.picture.TEXT, page) >= 4.0
    assert all(contrast(colour, page) >= 3.0 for colour in benchmarks.picture.COLOURS.values())


def test_the_picture_is_drawn(benchmarks: Benchmarks, tmp_path: Path) -> None:
    results = {"programs": [program(), program("dispatch_tree", theirs=5e-4)]}
    benchmarks.picture.draw(results, tmp_path / "picture.svg")
    text = (tmp_path / "picture.svg").read_text(encoding="utf-8")
    xml.etree.ElementTree.fromstring(text)
    for part in ("softmax rows", "dispatch tree", benchmarks.picture.digest(results)):
        assert part in text
    assert "#ffffff" not in text, "the background is the page's"


# ---------------------------------------------------------------------- bars and tables
def test_bars_have_two_sides(benchmarks: Benchmarks) -> None:
    least, most = benchmarks.goals.Goal(2.0, least=True), benchmarks.goals.Goal(15.0, least=False, unit=" µs")
    assert (str(least), str(most)) == ("≥ 2", "≤ 15 µs")
    assert [least.verdict(v) for v in (1.9, 2.0, math.nan)] == ["missed", "", "missed"]
    assert [most.verdict(v) for v in (15.1, 15.0, math.nan)] == ["missed", "", "missed"]


def test_the_table_says_what_is_missed(benchmarks: Benchmarks) -> None:
    fast, slow = program("gather_rows"), program("gather_rows", ours=3e-3)
    wrong = fast | {"wrong": ["jax"]}
    call = program("dispatch_tree", ours=18e-6, theirs=20e-6)
    rows = benchmarks.report.program_rows([fast, slow, wrong, call, program()])
    assert [row[-1] for row in rows] == ["missed", "", "missed: jax", "differs: jax", "", "missed: jax"]
    assert rows[1][:6] == ["gather rows", "1.00", "2.00", "4.00", "2.00", "4.00"]
    assert rows[-1][-2] == "≥ 4", "softmax has a bar of its own"
    figures = benchmarks.report.figure_rows({"programs": [call], "figures": {}})
    assert ["dispatch tree", "18.0 µs", "20.0 µs", "≤ 8 µs", "missed"] in figures


def test_geometric_means(benchmarks: Benchmarks) -> None:
    found = benchmarks.report.means([program(), program(ours=1e-3, theirs=8e-3)])
    assert found == pytest.approx({"jax": 4.0, "numpy": 4.0, "cold": 3.0, "memory": 0.5})


def test_figures_of_processes_have_rows(benchmarks: Benchmarks) -> None:
    batch = {"cold": 1.0, "new": 0.1, "again": 0.01, "compiled": 2}
    figures = {
        "import": {"rlx": 0.3, "jax": 0.6, "numpy": 0.1},
        "second_process": {"rlx": 0.5, "jax": 2.0, "jax, its cache on": 1.0},
        "new_batch": {"rlx": {"mlp_adam_step": batch}, "jax": {"mlp_adam_step": batch}},
        "depth": {"2": {"rlx": 1.0, "jax": 3.0}, "24": {"rlx": 7.0, "jax": 9.0}},
    }
    rows = benchmarks.report.figure_rows({"programs": [], "figures": figures})
    verdicts = {row[0]: row[-1] for row in rows[1:]}
    assert list(verdicts.values()) == ["missed", "", "", "missed", "missed", "missed", "", "missed", "missed"]
    assert all(len(row) == 5 for row in rows)
    assert len(benchmarks.report.markdown(rows).splitlines()) == len(rows) + 1
    assert len(benchmarks.report.text(rows).splitlines()) == len(rows)


def test_a_language_model_has_rows_and_what_lacks_is_named(benchmarks: Benchmarks) -> None:
    found = {
        "rlx": {"decode": 50.0, "prefill": 500.0, "opened": 0.2, "first": 1.1},
        "transformers": {"decode": 40.0, "prefill": 600.0},
        "skipped": {"llama.cpp": "xllamacpp"},
        "cold": 4.0,
    }
    rows = benchmarks.report.figure_rows({"programs": [], "figures": {"language_model": found}})[1:]
    assert [row[-1] for row in rows] == ["not installed: xllamacpp", "", "missed", "", "missed", ""]
    assert rows[4][1:4] == ["50 tokens/s", "40 tokens/s", "rlx/transformers ≥ 1.5"]


def test_products_with_packed_weights_have_bars(benchmarks: Benchmarks) -> None:
    """At one row by how many bits they have, at many rows all the same, and beside onnxruntime's."""
    one = {"float32": 4e-3, "gguf_q4_0": 1e-3, "gguf_q8_0": 2.5e-3, "gguf_q6_k": 4e-3, "int4/32": 1.3e-3}
    many = {"float32": 4e-2, "gguf_q4_0": 6e-2, "int4/32": 4e-2}
    found = {"products": {"1": one | {"MatMulNBits": 1e-3}, "8": one, "128": many}}
    found["decoding"] = {"Q4_0": {"rlx": 1e-3, "libgguf": 8e-4}, "Q4_K": {"rlx": 1e-3, "libgguf": 6e-4}}
    rows = benchmarks.report.figure_rows({"programs": [], "figures": {"packed_weights": found}})[1:]
    assert [row[0].split(" ")[0] for row in rows] == ["1", "1", "1", "128", "128", "1", "decoding", "decoding"]
    assert [row[-1] for row in rows] == ["", "missed", "", "missed", "", "", "", "missed"]
    assert [row[3] for row in rows[:2]] == ["jax/rlx ≥ 3", "jax/rlx ≥ 2"] and rows[-1][3] == "jax/rlx ≥ 0.7"


def test_sparse_matrices_have_bars_beside_scipy_and_jax(benchmarks: Benchmarks) -> None:
    """A case without a bar has a row too; a gradient is compared with its function."""
    found = {
        "random columns": {"scipy": 2e-3, "rlx": 1e-3, "jax": 4e-3},
        "direct solve, new values": {"scipy": 1.0, "rlx": 0.5, "rlx, with its gradient": 0.7},
        "another": {"scipy": 1.0, "rlx": 2.0},
    }
    rows = benchmarks.report.figure_rows({"programs": [], "figures": {"sparse_matrices": found}})[1:]
    assert [row[-1] for row in rows] == ["", "missed", "", "", "missed", ""]
    assert rows[0] == ["sparse: random columns, scipy in jax's place", "1.00 ms", "2.00 ms", "rlx/scipy ≤ 0.6", ""]
    assert rows[4][1:4] == ["1.40", "", "≤ 1.3"]


def test_every_kind_of_packed_weight_that_is_timed_is_there(benchmarks: Benchmarks) -> None:
    module = benchmarks.language_model
    barred = {scheme for scheme in module.SCHEMES if benchmarks.goals.packed_goal(1, scheme) is not None}
    assert barred == set(benchmarks.goals._ONE_ROW) and {1, 128} <= set(module.ROWS)


def test_libraries_have_rows_and_what_lacks_is_named(benchmarks: Benchmarks) -> None:
    quick, slow = {"start to end": 1.0, "again": 0.1}, {"start to end": 4.0, "again": 0.4}
    fast, lame = {"jax": slow, "cold": quick, "warm": quick}, {"jax": quick, "cold": slow, "warm": slow}
    programs = {"flax_linen": fast, "equinox_mlp": lame}
    found = {"programs": programs, "skipped": ["diffrax"]}
    rows = benchmarks.report.figure_rows({"programs": [], "figures": {"libraries": found}})[1:]
    assert [row[-1] for row in rows] == ["not installed: diffrax", "", "missed", "missed", "missed"]
    assert rows[1][:4] == ["flax linen, second run", "100 ms", "400 ms", "jax/rlx ≥ 1"]
    assert [row[1] for row in rows[3:]] == ["1.00", "1.00"]


# ---------------------------------------------------------------------- measuring
def test_a_program_is_measured(benchmarks: Benchmarks) -> None:
    (case,) = [p for p in benchmarks.programs.programs if p.name == "segment_sum"]
    found = benchmarks.contenders.measure(case, {"rlx": rlx, "jax": jax}, rounds=1)
    assert set(found["median"]) == {"rlx", "jax", "numpy"}
    assert not found["wrong"] and found["difference"]["jax"] < 1e-4
    assert all(len(times) == 1 for times in found["rounds"].values())


def test_a_wrong_result_is_told(benchmarks: Benchmarks) -> None:
    (case,) = [p for p in benchmarks.programs.programs if p.name == "gather_rows"]
    case = case._replace(numpy=lambda table, rows: -table[rows])
    found = benchmarks.contenders.measure(case, {"rlx": rlx, "jax": jax}, rounds=1)
    assert found["wrong"] == ["numpy"]


def test_what_is_asked_for_must_exist(benchmarks: Benchmarks) -> None:
    assert benchmarks.run.chosen("depth,sort_vector") == ["sort_vector", "depth"]
    with pytest.raises(SystemExit, match="nothing is called sorted_vector"):
        benchmarks.run.chosen("sorted_vector")


@pytest.mark.thorough
def test_a_probe_runs_in_a_process_of_its_own(benchmarks: Benchmarks, tmp_path: Path) -> None:
    first = benchmarks.figures.probe(["depth", "rlx", "1"], str(tmp_path))
    assert 0 < first["seconds"] < 60
    assert list((tmp_path / "rlx").rglob("*.o")), "kernels went to the cache that was named"
    with pytest.raises(RuntimeError, match="ModuleNotFoundError"):
        benchmarks.figures.probe(["import", "no_such_library"], str(tmp_path))


# ---------------------------------------------------------------------- PyTorch's versions
def test_torch_versions_are_of_programs(benchmarks: Benchmarks) -> None:
    names = {p.name for p in benchmarks.programs.programs}
    there = set(benchmarks.torch_programs.torch_programs)
    assert there <= names
    assert {"transformer_gradient", "convolution_gradient", "layer_norm_gradient", "matrix_product"} <= there


@pytest.mark.parametrize("name", ["layer_norm_gradient", "convolution_gradient", "transformer_gradient"])
def test_torch_versions_compute_the_same(benchmarks: Benchmarks, name: str) -> None:
    torch = pytest.importorskip("torch")
    (case,) = [p for p in benchmarks.programs.programs if p.name == name]
    every = benchmarks.contenders.contenders(case, {"rlx": rlx, "jax": jax, "torch": torch})
    found = dict(itertools.islice(every, 3))  # the fourth is compiled by torch, which takes long
    leaves = benchmarks.torch_programs.leaves
    ours, theirs = ([np.asarray(v) for v in leaves(found[key].result)] for key in ("rlx", "torch"))
    assert benchmarks.contenders.distance(ours, theirs) < 1e-3


# ---------------------------------------------------------------------- what a profile says
def test_profiles_are_put_beside_calls(benchmarks: Benchmarks) -> None:
    trust = benchmarks.profile_trust
    rows = trust.measure("perceptron", 256)
    assert [row["profile"] for row in rows] == ["first", "second"]
    assert all(row["kernels"] > 0 and row["outside"] > 0 and 0 < row["share"] <= 1 for row in rows)
    rows = [row | {"kernels": 2e-3, "outside": outside} for row, outside in zip(rows, (1e-3, 2.1e-3), strict=True)]
    table = trust.text(rows).splitlines()
    assert table[0].split() == [word for word in trust.HEADINGS if word] and "2.00" in table[1] and "0.95" in table[2]
    assert table[-1].startswith("1 of 2 profiles are within 0.7 to 1.3 of the call; largest share ")


# ---------------------------------------------------------------------- what a saved program needs to begin
@pytest.mark.thorough
def test_first_results_are_measured_in_fresh_processes(benchmarks: Benchmarks, tmp_path: Path) -> None:
    first = benchmarks.first_result
    files = first.saved("softmax_rows", tmp_path)
    row = first.measure("softmax_rows", files, 1)
    wall, processor, loading, least, largest = row["times"]
    assert least == wall == largest and 0 < loading < wall and processor > 0
    assert "load_exported" in first.alone(files, "profile")
    table = first.text([row | {"times": (wall, 1.0, 2.0, 3.0, 4.0)} for wall in (149.0, 151.0)]).splitlines()
    assert [line.endswith("missed") for line in table] == [False, False, True]
