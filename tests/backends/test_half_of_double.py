"""float16 beside float64 in one kernel: LLVM may round a double to float16 at once, by a function that rlx brings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import lax

# the sign of each depends on a number that comes from a double
SIGNED = {
    "tanh": jnp.tanh, "arcsinh": jnp.arcsinh, "arctan": jnp.arctan, "sin": jnp.sin, "cbrt": jnp.cbrt, "erf": lax.erf,
    "sign": jnp.sign, "copysign": lambda v: jnp.copysign(v * 2, v),
}  # fmt: skip


@pytest.mark.parametrize("function", SIGNED.values(), ids=SIGNED)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_signs_of_special_functions_in_float16(function: Callable[[Any], Any], dtype: str) -> None:
    x = np.linspace(0.1, 3, 7).astype(dtype)

    def program(v: Any) -> Any:
        return function(lax.lgamma(v)).astype("float16"), function(lax.digamma(v).astype("float16"))

    with rlx.disable_jit():
        expected = program(jnp.asarray(x))
    for found, wanted in zip(rlx.jit(program)(x), expected, strict=True):
        assert found.dtype == np.float16
        np.testing.assert_allclose(*(np.asarray(y).astype("float64") for y in (found, wanted)), rtol=2e-3, atol=1e-3)


def test_a_double_is_rounded_to_float16_once() -> None:
    """Ties that a float32 between would round the other way, subnormal results, overflow, infinities and NaN."""
    import ctypes

    from rlx.backends.cpu.routines.special import TO_HALF_TEXT
    from rlx.backends.cpu.runtime.compile import compile_ir

    text = f"{TO_HALF_TEXT}\ndefine void @convert(ptr %x, ptr %y) {{\n%v = load double, ptr %x\n"
    text += "%h = call half @__truncdfhf2(double %v)\nstore half %h, ptr %y\nret void\n}\n"
    convert = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(compile_ir(text, "convert")[1])
    tie = 1 + 2.0**-11
    ties = [tie, tie + 2.0**-40, tie - 2.0**-40, -tie, 2.0**-25, 2.0**-25 * (1 + 1e-12), 65519.99, 65520]
    for value in [*ties, 1e300, np.inf, -np.inf, np.nan, 0.0, -0.0, 1 / 3]:
        given, taken = np.array([value], float), np.zeros(1, np.float16)
        convert(given.ctypes.data, taken.ctypes.data)
        with np.errstate(over="ignore", under="ignore"):
            wanted = given.astype(np.float16)
        np.testing.assert_array_equal(taken, wanted)
        assert np.signbit(taken) == np.signbit(wanted)
