"""A program for processes of MPI: jit alone divides training on digits among them, as it is on one."""

import sys
from pathlib import Path

import numpy as np

import rlx
import rlx.numpy as jnp
from rlx.experimental.multihost_utils import process_allgather
from rlx.sharding import Mesh, NamedSharding
from rlx.sharding import PartitionSpec as P

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from data_parallel import BATCH, initial_parameters, load, loss, train

STEPS = 50


def trained(mesh):
    """The parameters and the last loss: batches are divided among processes, parameters are everywhere."""
    batch, copies = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    optimizer = rlx.optim.sgd(0.5, momentum=0.9)

    @rlx.jit
    def step(parameters, state, images, labels):
        value, gradient = rlx.value_and_grad(loss)(parameters, images, labels)
        updates, state = optimizer.update(gradient, state, parameters)
        return rlx.optim.apply_updates(parameters, updates), state, value

    images, labels = load("float64")
    parameters = rlx.device_put(initial_parameters("float64"), copies)
    state, value = optimizer.init(parameters), None
    share = BATCH // rlx.process_count()
    for number in range(STEPS):
        first = number % (len(images) // BATCH) * BATCH + rlx.process_index() * share
        own = slice(first, first + share)
        parts = (rlx.make_array_from_process_local_data(batch, data[own]) for data in (images, labels))
        parameters, state, value = step(parameters, state, *parts)
    assert value.sharding == copies
    return parameters, float(value)


def check_shardings(mesh):
    """What in_shardings and out_shardings say is so, of arrays that all processes have and of divided ones."""
    rows, columns, copies = (NamedSharding(mesh, spec) for spec in (P("data"), P(None, "data"), P()))
    x = np.arange(64.0).reshape(8, 8)
    divided = rlx.device_put(x, rows)
    for given in (x, divided):
        found = rlx.jit(lambda x: x @ x.T, in_shardings=rows, out_shardings=columns)(given)
        assert found.sharding == columns
        np.testing.assert_allclose(process_allgather(found), x @ x.T)
    whole = rlx.jit(lambda x: jnp.sin(x), out_shardings=copies)(divided)
    np.testing.assert_allclose(whole, np.sin(x), rtol=1e-12)
    assert whole.sharding == copies


def check_scans(mesh):
    """Along the axis that is divided, which is gathered, and along another one."""
    x = np.sin(np.arange(64.0)).reshape(8, 8)
    running = rlx.jit(lambda x: rlx.lax.scan(lambda c, row: (c + row, c * row), 0 * x[0], x))
    for spec, last, products in ((P("data"), P(), P()), (P(None, "data"), P("data"), P(None, "data"))):
        divided = rlx.device_put(x, NamedSharding(mesh, spec))
        expected = (x.sum(0), (np.cumsum(x, 0) - x) * x)
        for found, wanted, lies in zip(running(divided), expected, (last, products), strict=True):
            np.testing.assert_allclose(process_allgather(found) if lies != P() else found, wanted, atol=1e-12)
            assert lies == P() or found.sharding == NamedSharding(mesh, lies)


rlx.distributed.initialize()
mesh = Mesh(np.array(rlx.devices()), ("data",))
check_shardings(mesh)
check_scans(mesh)
parameters, value = trained(mesh)
alone, expected = train("float64", STEPS, 0, 1, lambda tree: tree)
away = max(float(abs(a - b).max()) for a, b in zip(*map(rlx.tree.leaves, (parameters, alone)), strict=True))
assert value < 1.0 and abs(value - expected) < 1e-12 and away <= 1e-12, (value, expected, away)
print(f"rank {rlx.process_index()} of {rlx.process_count()}: loss {value:.4f}, {away:.1e} from one process")
rlx.distributed.shutdown()
