"""Arrays that eight devices divide, operation by operation, in a process with eight devices."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import numpy as np
import rlx
import rlx.numpy as jnp
from rlx.errors import InputTypeError

mesh = rlx.make_mesh((4, 2), ("a", "b"), axis_types=(rlx.sharding.AxisType.Auto,) * 2)
rows = rlx.NamedSharding(mesh, rlx.P("a"))
x = rlx.device_put(np.arange(16.0, dtype=np.float32).reshape(8, 2), rows)

for made in (jnp.copy(x), jnp.array(x), jnp.zeros_like(x), jnp.ones_like(x, dtype=int), x.astype(int), x[:, ::-1]):
    assert made.sharding == rows, made.sharding
assert jnp.zeros_like(x, shape=(3,)).sharding.num_devices == 1
assert np.array_equal(jnp.copy(x), x) and (x + 1).addressable_shards[-1].data.tolist() == [[13, 14], [15, 16]]
assert [row.sharding.spec for row in x] == [rlx.P()] * 8
assert rlx.vmap(jnp.sum)(x).tolist() == x.sum(1).tolist() and x.sum(1).sharding.spec == rlx.P("a")

local = rlx.make_array_from_process_local_data
data = np.ones((8, 2))
with rlx.set_mesh(mesh):
    assert local(rlx.P("a"), data).sharding == rows
last = rlx.devices()[-1]
assert local(last, {"w": data})["w"].devices() == {last}
assert rlx.make_array_from_callback((8, 2), rows, lambda index: data[index]).sharding == rows
try:
    local("a", data)
except InputTypeError as error:
    assert "'a'" in str(error)
else:
    raise AssertionError

seen = []
explicit = rlx.make_mesh((4, 2), ("a", "b"), axis_types=(rlx.sharding.AxisType.Explicit,) * 2)
with rlx.set_mesh(explicit):
    y = rlx.device_put(x, rlx.P("b"))
    rlx.jit(lambda v: seen.append(rlx.ShapeDtypeStruct.like(v)))(y)
assert seen[0].sharding.shard_shape((8, 2)) == (4, 2)

try:
    class Own(rlx.P): pass
except InputTypeError as error:
    assert "Own" in str(error)
else:
    raise AssertionError

fifth = rlx.devices()[5]
put = rlx.device_put(np.ones(3), fifth)
for out in (rlx.jit(lambda v: (2 * v, jnp.ones(2)))(put), rlx.grad(lambda v: (v * v).sum())(put), put + 1, put[0]):
    assert {x.device for x in rlx.tree.leaves(out)} == {fifth}, out
assert rlx.jit(lambda v: 2 * v)(rlx.device_put(2 * put, rlx.devices()[0])).device == rlx.devices()[0]

def body(v):
    return 2 * v
assert rlx.pmap(body).__wrapped__ is body
"""


def test_divided_arrays_on_eight_devices() -> None:
    environment = {**os.environ, "RLX_NUM_CPU_DEVICES": "8"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
