"""Data-parallel training is training: two and four members learn what one does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from modules import load

import rlx
from rlx.distributed import threads
from rlx.sharding import Mesh, NamedSharding
from rlx.sharding import PartitionSpec as P

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "data_parallel.py"


@pytest.mark.parametrize(("count", "dtype"), [(2, "float64"), (4, "float64"), (2, "float32"), (4, "float32")])
@pytest.mark.selected(1)
def test_members_learn_what_one_does(count: int, dtype: str) -> None:
    example = load(EXAMPLE)  # which compares with one process, to 1e-12 in float64 and 1e-5 in float32
    values = threads.run(count, example.main, dtype)
    assert len(set(values)) == 1


def digits_step(example: Any, mesh: Mesh) -> Any:
    """A step of training whose batch is divided over a mesh."""

    def step(parameters: Any, images: Any, labels: Any) -> Any:
        loss = lambda p: rlx.lax.pmean(example.loss(p, images, labels), "data")  # noqa: E731
        value, gradient = rlx.value_and_grad(loss)(parameters)
        return rlx.tree.map(lambda p, g: p - 0.5 * g, parameters, gradient), value

    specs = (P(), P("data"), P("data"))
    return rlx.jit(rlx.shard_map(step, mesh=mesh, in_specs=specs, out_specs=P()))


def learned(dtype: str) -> list[np.ndarray]:
    """The parameters and the loss after 50 batches of the digits, of all processes."""
    example = load(EXAMPLE)
    mesh = Mesh(np.array(rlx.devices()), ("data",))
    rows, copies = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    step = digits_step(example, mesh)
    parameters = rlx.device_put(example.initial_parameters(dtype), copies)
    images, labels = example.load(dtype)
    share, own = example.BATCH // rlx.process_count(), rlx.process_index()
    value = None
    for number in range(50):
        first = number % (len(images) // example.BATCH) * example.BATCH + own * share
        batch = (images[first : first + share], labels[first : first + share])
        parameters, value = step(parameters, *rlx.make_array_from_process_local_data(rows, batch))
    return [np.asarray(leaf) for leaf in rlx.tree.leaves((parameters, value))]


@pytest.mark.parametrize(("dtype", "most"), [("float64", 1e-12), ("float32", 1e-5)])
@pytest.mark.selected(1)
def test_a_mesh_over_processes_learns_what_one_device_does(dtype: str, most: float) -> None:
    alone = learned(dtype)
    assert alone[-1] < 1.0
    for count in (2, 4):
        every = threads.run(count, learned, dtype)
        for found in every:
            for a, first, b in zip(found, every[0], alone, strict=True):
                assert (a == first).all()
                np.testing.assert_allclose(a, b, rtol=0, atol=most)
