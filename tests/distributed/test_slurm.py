"""Processes that SLURM starts, on a cluster of this machine alone: the recipe of docs/distributed.md."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distributed import slurm

ROOT = Path(__file__).parents[2]
TRAINING = ROOT / "examples" / "data_parallel.py"

pytestmark = [
    pytest.mark.skipif("RLX_TEST_CLUSTERS" not in os.environ, reason="RLX_TEST_CLUSTERS is not set"),
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed"),
    pytest.mark.skipif(not slurm.is_installed(), reason="apt-get install slurmctld slurmd munge"),
]


def test_the_recipe_trains_as_one_process(tmp_path: Path) -> None:
    found = re.search(r"```sh\n(#!/bin/bash\n#SBATCH.*?)```", (ROOT / "docs" / "distributed.md").read_text(), re.S)
    assert found is not None
    recipe = found[1]
    for said, here in (("--nodes=2", "--nodes=1"), ("node=4", "node=2"), ("task=8", "task=1")):
        assert said in recipe
        recipe = recipe.replace(said, here)
    assert "python train.py" in recipe
    script = tmp_path / "job.sh"
    script.write_text(recipe.replace("python train.py", f"{sys.executable} {TRAINING}"))
    (tmp_path / "slurm").mkdir()
    with slurm.cluster(tmp_path / "slurm") as environment:
        command = ["sbatch", "--wait", "-o", str(tmp_path / "said"), str(script)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    text = (tmp_path / "said").read_text()
    assert done.returncode == 0, done.stderr + text
    for rank in range(2):
        assert text.count(f"process {rank} of 2") == 2, text  # in float64 and in float32
    assert text.count("same bits everywhere: True") == 4, text
