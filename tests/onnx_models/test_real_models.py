"""Models that people use, from the wheels that bring them: Magika (what a file is) and Silero VAD (who speaks when).

`make test-lm` installs the wheels.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from needs import LM

import rlx

pytestmark = list(LM)


def model_path(package: str, inside: str) -> Path:
    """A file of a package, which is not imported."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        pytest.skip(f"`make test-lm` installs {package}")
    return Path(found.origin).parent / inside


def agrees(path: Path, known: dict[str, Any], drawn: dict[str, Any]) -> None:
    """Eagerly and compiled, as onnxruntime."""
    expected = onnxruntime.InferenceSession(str(path)).run(None, known | drawn)
    function, parameters = rlx.onnx.load(path)
    compiled = rlx.jit(lambda parameters, inputs: function(parameters, **known, **inputs))
    for found in (function(parameters, **known, **drawn), compiled(parameters, drawn)):
        for a, b in zip(rlx.tree.leaves(found), expected, strict=True):
            np.testing.assert_allclose(np.asarray(a), b, rtol=1e-4, atol=1e-5)


def test_magika() -> None:
    """Bytes of a file to the probabilities of its types."""
    path = model_path("magika", "models/standard_v3_3/model.onnx")
    agrees(path, {}, {"bytes": np.random.default_rng(0).integers(0, 256, (3, 2048), np.int32)})


@pytest.mark.parametrize("name", ["silero_vad", "silero_vad_16k_op15", "silero_vad_op18_ifless"])
def test_silero_vad(name: str) -> None:
    """A window of sound and a state to the probability of speech, and the next state."""
    path = model_path("silero_vad", f"data/{name}.onnx")
    rng = np.random.default_rng(0)
    sound = 0.1 * rng.standard_normal((1, 576)).astype(np.float32)
    state = rng.standard_normal((2, 1, 128)).astype(np.float32)
    agrees(path, {"sr": np.array(16000, np.int64)}, {"input": sound, "state": state})
