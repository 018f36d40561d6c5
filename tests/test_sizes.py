"""Every public function that makes an array of a given size refuses a negative one with an error of rlx."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from test_axes import public_functions

import rlx
import rlx.numpy as jnp
from rlx import lax
from rlx.errors import RlxError

MODULES = re.compile(r"rlx\.(numpy|lax|random|segments|nn|scipy\.linalg|scipy\.fft)\b")
SIZE = re.compile(r"shape|sizes?|num|length|total_repeat_length|num_segments|num_classes|[NMnm]")
NO_SIZES = """
    binomial.n convolution_matrix.n cov.m diff.n flip.m fliplr.m flipud.m full_like.shape hadamard.n helmert.n
    matrix_power.n matrix_rank.M multinomial.n polyder.m polygamma.m polyint.m reshape.shape rot90.m
    shape_as_value.shape tril.m triu.m where.size
""".split()
"""Parameters that are named like a size and are none (numbers, orders, matrices), or that have rules of their own."""

ROW, ONE = np.ones(3, np.float32), np.float32(1)
PARAMETERS = dict.fromkeys("a b beta concentration df dfden dfnum lam left loc minval p rate scale".split(), ONE) | {
    "alpha": ROW,
    "cov": np.eye(3, dtype=np.float32),
    "d": 3,
    "key": rlx.random.key(0),
    "logits": ROW,
    "lower": 0.0,
    "maxval": 5,
    "mean": ROW,
    "minval": 0,
    "mode": 2.0,
    "n": 3,
    "right": 3.0,
    "upper": 2.0,
    "x": ROW,
}
"""Arguments of samplers."""
OTHERS = dict.fromkeys("a ar ar1 ar2 arr array data values x".split(), ROW) | {
    "N": 3,
    "beta": 1.0,
    "condition": np.array([True, False, True]),
    "dtype": np.int32,
    "fill_value": 0,
    "function": lambda *places: 1.0,
    "indices": np.ones(2, np.int32),
    "mask_func": jnp.triu,
    "n": 3,
    "repeats": np.ones(3, np.int32),
    "segment_ids": np.zeros(3, np.int32),
    "start": 0.0,
    "stop": 1.0,
}
"""Arguments of other functions."""
SPECIAL: dict[str, Callable[[Any], Any]] = {
    "bincount.length": lambda n: jnp.bincount(np.ones(3, int), length=n),
    "broadcast_in_dim.shape": lambda n: lax.broadcast_in_dim(1.0, n, ()),
    "broadcast_to.shape": lambda n: jnp.broadcast_to(1.0, n),
    "broadcasted_iota.shape": lambda n: lax.broadcasted_iota(np.int32, n, 0),
    "choice.shape": lambda n: rlx.random.choice(PARAMETERS["key"], ROW, n),
    "empty_like.shape": lambda n: jnp.empty_like(ROW, shape=n),
    "one_hot.num_classes": lambda n: rlx.nn.one_hot(np.ones(2, np.int32), n),
    "ones_like.shape": lambda n: jnp.ones_like(ROW, shape=n),
    "rng_bit_generator.shape": lambda n: lax.rng_bit_generator(np.zeros(4, np.uint32), n),
    "rng_uniform.shape": lambda n: lax.rng_uniform(0.0, 1.0, n),
    "scan.length": lambda n: lax.scan(lambda c, _: (c, c), 0.0, None, length=n),
    "split.num": lambda n: rlx.random.split(PARAMETERS["key"], n),
    "split.sizes": lambda n: lax.split(ROW, (*n, 1 - sum(n), 2) if isinstance(n, tuple) else n),
    "zeros_like.shape": lambda n: jnp.zeros_like(ROW, shape=n),
}
"""How functions are called with a size, where the names of parameters do not say it."""


def cases() -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Functions that are told a size, and how they are called with one."""
    for name, function in public_functions():
        module = getattr(inspect.unwrap(function), "__module__", None) or ""
        try:
            parameters = inspect.signature(function).parameters
        except (TypeError, ValueError):
            continue
        for parameter in parameters if MODULES.match(module) else ():
            key = f"{name}.{parameter}"
            if SIZE.fullmatch(parameter) and key not in NO_SIZES:
                values = PARAMETERS if module.startswith("rlx.random") else OTHERS
                yield key, SPECIAL.get(key) or _call(function, parameter, values)


def _call(function: Callable[..., Any], parameter: str, known: dict[str, Any]) -> Callable[[Any], Any]:
    needed = [
        p
        for p in inspect.signature(function).parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name != parameter
    ]
    values = {p.name: known.get(p.name, ROW) for p in needed}
    given = [values.pop(p.name) for p in needed if p.kind is p.POSITIONAL_ONLY or p.name == "self"]
    return lambda size: function(*given, **values, **{parameter: size})


CASES = list(cases())


@pytest.mark.parametrize("call", [call for _, call in CASES], ids=[name for name, _ in CASES])
def test_a_negative_size_is_refused(call: Callable[[Any], Any]) -> None:
    """As an int and in a shape, the first time and again, traced and not; sizes of 4 and (4,) are taken."""
    refused: list[Any] = []
    for size in (-3, (-3,), (2, -3)):
        for attempt in (call, call, lambda n: rlx.eval_shape(lambda: call(n))):
            with warnings.catch_warnings(), pytest.raises((RlxError, TypeError, ValueError)) as error:
                warnings.simplefilter("ignore")
                attempt(size)
            refused.append(error.value)
            assert "negative dimensions" not in str(error.value), "NumPy refused"
    assert any(isinstance(error, RlxError) for error in refused), refused
    taken = []
    for size in (4, (4,), (4, 3), (3,), 3):
        try:
            taken.append(call(size))
        except (TypeError, ValueError):
            continue
    assert taken, "no size was taken: say in SPECIAL how the function is called"


def test_every_size_is_looked_at() -> None:
    """The walk finds samplers, creation functions, and methods."""
    names = {name for name, _ in CASES}
    assert {"normal.shape", "split.num", "zeros.shape", "scan.length", "linspace.num", "nonzero.size"} <= names
    assert len(CASES) > 90
