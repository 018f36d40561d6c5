"""Processes that SLURM starts, on a cluster of this machine alone: the recipe of docs/distributed.md."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path

import pytest

from tests.distributed import hosts, slurm

ROOT = Path(__file__).parents[2]
TRAINING = ROOT / "examples" / "data_parallel.py"

pytestmark = [
    pytest.mark.skipif("RLX_TEST_CLUSTERS" not in os.environ, reason="RLX_TEST_CLUSTERS is not set"),
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed"),
    pytest.mark.skipif(not slurm.is_installed(), reason="apt-get install slurmctld slurmd munge"),
]


def recipe(folder: Path, nodes: int, tasks: int) -> Path:
    """The script of docs/distributed.md, with fewer nodes and tasks, as a file."""
    found = re.search(r"```sh\n(#!/bin/bash\n#SBATCH.*?)```", (ROOT / "docs" / "distributed.md").read_text(), re.S)
    assert found is not None
    text = found[1]
    for said, here in (("--nodes=2", f"--nodes={nodes}"), ("node=4", f"node={tasks}"), ("task=8", "task=1")):
        assert said in text
        text = text.replace(said, here)
    assert "python train.py" in text
    (folder / "job.sh").write_text(text.replace("python train.py", f"{sys.executable} {TRAINING}"))
    (folder / "slurm").mkdir()
    return folder / "job.sh"


def check(state: str, text: str, size: int) -> None:
    assert "JobState=COMPLETED" in state, state + text
    for rank in range(size):
        assert text.count(f"process {rank} of {size}") == 2, text  # in float64 and in float32
    assert text.count("same bits everywhere: True") == 2 * size, text


def test_the_recipe_trains_as_one_process(tmp_path: Path) -> None:
    job = recipe(tmp_path, 1, 2)
    with slurm.cluster(tmp_path / "slurm") as environment:
        check(*slurm.finished(job, tmp_path / "said", environment), 2)


@pytest.mark.skipif(hosts.missing() != "", reason=hosts.missing() or "there are hosts")
def test_the_recipe_trains_on_two_nodes(tmp_path: Path) -> None:
    job = recipe(tmp_path, 2, 1)
    with hosts.network(tmp_path, 2) as nodes, slurm.cluster(tmp_path / "slurm", nodes) as environment:
        state, text = slurm.finished(job, tmp_path / "said", environment, nodes[1])
    assert "NodeList=a,b" in state or "NodeList=[a-b]" in state, state
    check(state, text, 2)
