"""examples/digits_web: training in Node and in a browser, beside training on the CPU. `make test-wasm` runs it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from modules import load
from served import dom_of

import rlx

pytestmark = pytest.mark.skipif(os.environ.get("RLX_TEST_WASM") != "1", reason="`make test-wasm` runs it")
STEPS = 150
SCRIPT = """
import { trainer } from "./training.js";
const training = await trainer(), losses = [];
for (let n = 0; n < STEPS; ++n) losses.push(training.step());
console.log(JSON.stringify({ losses, accuracy: training.test_now().accuracy }));
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """The example's module, and the folder that it writes."""
    build = load(Path(__file__).parents[2] / "examples/digits_web/build.py")
    folder = tmp_path_factory.mktemp("digits_web")
    build.main(folder)
    return build, folder


def test_node_trains_as_the_cpu_does(page: tuple[Any, Path]) -> None:
    build, folder = page
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed")
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "run.mjs").write_text(SCRIPT.replace("STEPS", str(STEPS)))
    done = subprocess.run([node, "run.mjs"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    images, _, labels, _ = build.digits.load()
    state, losses, step = rlx.jit(build.initial)(np.uint32(0)), [], rlx.jit(build.step)
    for number in range(20):
        rows = build.batch_rows(number, len(images))
        state, loss = step(state, images[rows] * 16, labels[rows])
        losses.append(float(loss))
    np.testing.assert_allclose(found["losses"][:20], losses, rtol=1e-3)
    assert found["accuracy"] > 0.95 and np.mean(found["losses"][-20:]) < 0.4 * losses[0]


def test_the_page_shows_a_falling_loss(page: tuple[Any, Path]) -> None:
    shown = dom_of(page[1], "index.html?steps=60", 60_000)
    values = dict(re.findall(r'data-(\w+)="([^"]*)"', shown))
    assert values.get("done") == "yes" and values["steps"] == "60", shown[-2000:]
    assert float(values["last"]) < 0.6 * float(values["first"]) and float(values["accuracy"]) > 0.8
    (points,) = re.findall(r'points="([^"]*)"', shown)
    assert len(points.split()) == 60 and shown.count("<figcaption") == 20
