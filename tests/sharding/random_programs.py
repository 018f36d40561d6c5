"""Random programs of branches and loops over arrays that two processes of two devices divide, against one process.

Processes are threads; start it with RLX_NUM_CPU_DEVICES=4 and the numbers of programs, or without for 30 of them. It
prints what went wrong with each: in the value, run outside of jit too, and in the gradient.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

import rlx
import rlx.numpy as jnp
from rlx import lax
from rlx.distributed import threads
from rlx.sharding import NamedSharding
from rlx.sharding import PartitionSpec as P
from tests.sharding.partitioned import gathered
from tests.sharding.spanning import device_mesh

N, AXES = 8, {"x": 2, "y": 2}
ZEROS = np.zeros((N, N))
SPECS = [P(), P("x"), P("y"), P(None, "x"), P(None, "y"), P("x", "y"), P("y", "x"), P(("x", "y")), P(None, ("y", "x"))]
Function = Callable[[Any, Any], Any]


def operation(random: np.random.RandomState) -> Function:
    """Of two square arrays."""
    k, c = int(random.randint(N)), float(random.uniform(0.2, 1.0))
    choices: list[Function] = [
        lambda a, b: jnp.sin(a) + c * b,
        lambda a, b: a.T * c,
        lambda a, b: a[::-1],
        lambda a, b: a @ b * 0.1,
        lambda a, b: jnp.zeros_like(a),
        lambda a, b: ZEROS + a[k],
        lambda a, b: jnp.ones_like(b) * a.sum() * 0.01,
        lambda a, b: jnp.full((N, N), c, "float64"),
        lambda a, b: a - a.mean(0),
        lambda a, b: jnp.where(a > b, a, 0.0),
        lambda a, b: a.at[k].set(b[0]),
        lambda a, b: jnp.concatenate([a[:4], b[4:]]),
        lambda a, b: b,
        lambda a, b: jnp.full_like(a, c) - b,
        lambda a, b: rlx.nn.softmax(a, 1),
        lambda a, b: rlx.jit(lambda a: a * c + b)(a),
        lambda a, b: lax.cumsum(a, 0) * 0.1,
    ]
    return choices[random.randint(len(choices))]


def program(random: np.random.RandomState, depth: int) -> Function:
    """Loops and branches around others, so many deep."""
    if depth == 0:
        return operation(random)
    f, g, h = (program(random, depth - 1) for _ in range(3))
    n, t = int(random.randint(1, 4)), float(random.uniform(-2, 2))
    start = (lambda a: ZEROS) if t > 0 else (lambda a: a)
    choices: list[Function] = [
        lambda a, b: lax.cond(a.sum() > t, f, g, a, b),
        lambda a, b: lax.switch((jnp.abs(b).sum() * 7).astype(int) % 3, [f, g, h], a, b),
        lambda a, b: lax.scan(lambda c, _: (f(c, a) * 0.5 + c * 0.3, None), start(b), length=n)[0],
        lambda a, b: lax.fori_loop(0, n, lambda i, c: (c[1] * 0.5 + f(c[0], a) * 0.3, g(c[0], b)), (ZEROS, a))[0],
        lambda a, b: lax.scan(lambda c, row: (c + row, f(a, b) * row.sum() * 0.1), ZEROS[0], a)[1].sum(0) + g(a, b),
        lambda a, b: lax.while_loop(lambda c: c[1] < n, lambda c: (f(c[0], b) * 0.5, c[1] + 1), (start(a), 0))[0],
        lambda a, b: rlx.checkpoint(lambda a: f(g(a, b), a))(a),
        lambda a, b: lax.cond(jnp.isfinite(a).all(), lambda: {"u": f(a, b)}, lambda: {"u": ZEROS})["u"],
        lambda a, b: g(f(a, b), h(b, a)),
    ]
    return choices[random.randint(len(choices))]


def results(seed: int, divided: bool) -> list[np.ndarray]:
    """What a program gives of arrays that are divided at random, or not at all."""
    random = np.random.RandomState(seed)
    function = program(random, 1 + seed % 2)
    arguments = [*random.randn(2, N, N)]
    specs = [SPECS[n] for n in random.randint(len(SPECS), size=2)]

    def loss(a: Any, b: Any) -> Any:
        return (jnp.sin(function(a, b)) * np.arange(64.0).reshape(N, N)).sum()

    if divided:
        mesh = device_mesh(AXES, False)
        arguments = rlx.device_put(arguments, [NamedSharding(mesh, spec) for spec in specs])
    outside = function if divided else rlx.jit(function)
    gradient = rlx.jit(rlx.grad(loss, (0, 1)))
    found = rlx.jit(function)(*arguments), outside(*arguments), gradient(*arguments)
    return [gathered(jnp.asarray(x)) for x in rlx.tree.leaves(found)]


def run(seed: int) -> str:
    """What went wrong with a program, or nothing."""
    try:
        expected = results(seed, False)
        for found in threads.run(2, results, seed, True):
            for number, (a, b) in enumerate(zip(found, expected, strict=True)):
                scale = max(1.0, float(np.abs(b).max()))
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10 * scale, err_msg=str(number))
    except Exception:
        return traceback.format_exc()[-3000:]
    return ""


if __name__ == "__main__":
    print(json.dumps({str(seed): run(seed) for seed in map(int, sys.argv[1:] or range(30))}))
