"""Special functions as programs that other compilers run: SciPy's values, limits, and the C that is read for them."""

from __future__ import annotations

import numpy as np
import pytest
from special_samples import DRAWS, close_to_scipy, drawn
from test_special_text import LIMITS, LOOSE
from test_stablehlo import on_pjrt

from rlx.backends.c.special import SPECIAL_TEXTS
from rlx.ir.scalar import SPECIAL
from rlx.stablehlo.writing import write_program
from rlx.standalone.c_statements import Break, For, If, Return, assigned, read_function, returns
from rlx.standalone.special_functions import has_special_program, special_program


def computed(name: str, arrays: list[np.ndarray]) -> np.ndarray:
    """What PJRT computes."""
    text = write_program(special_program(name, arrays[0].shape), name)
    return on_pjrt(text, arrays)[0]


@pytest.mark.parametrize("name", DRAWS)
def test_values_and_limits(name: str) -> None:
    """Over the function's range, at zero, infinity and NaN, and beyond where there is a function, all at once."""
    arrays = drawn(name, 300)
    if name == "polygamma":  # of whole orders
        arrays[0] = np.floor(arrays[0])
    count = arrays[0].size
    if name in LIMITS:
        axes = np.meshgrid(*[np.array(LIMITS[name])] * len(arrays))
        arrays = [np.concatenate([x, axis.ravel()]) for x, axis in zip(arrays, axes, strict=True)]
    found = computed(name, arrays)
    close_to_scipy(name, found[:count], [x[:count] for x in arrays], LOOSE.get(name, 2e-13))
    limits = SPECIAL[name].evaluate(*(x[count:] for x in arrays))
    np.testing.assert_allclose(found[count:], limits, rtol=1e-10, atol=1e-249)


def test_those_without_a_text() -> None:
    missing = {name for name in SPECIAL if not has_special_program(name)}
    assert {n.removesuffix("_real_part").removesuffix("_imaginary_part") for n in missing} == {
        "lgamma", "igamma_inverse", "bessel_j", "confluent_hypergeometric", "hypergeometric", "faddeeva",
    }  # fmt: skip


def test_texts_are_read_whole() -> None:
    for text in SPECIAL_TEXTS.values():
        assert read_function(text).parameters


def test_statements() -> None:
    """Loops, branches, and which variables they change."""
    body = """double f(double x) {
        double sum = 0; /* of x */
        for (int n = 1; n <= (int)x && x > 0; ++n) { const double y = -n; sum -= y * 2; if (sum > 9) break; }
        if (!(sum < 9.5e-1)) return x == 0x1.8p+1 ? sum : (double)INFINITY;
        return x;
    }"""
    function = read_function(body)
    _, loop, branch, last = function.body
    assert function.parameters == ("x",) and isinstance(loop, For) and isinstance(branch, If)
    assert assigned(function.body) == [] and assigned((loop,)) == ["sum"] and not returns((loop,))
    assert isinstance(loop.body[-1], If) and loop.body[-1].then == (Break(),)
    assert returns((branch,)) and isinstance(last, Return)


@pytest.mark.parametrize("line", ["return 1 / 2;", "int n = 3; return x * (n / (n - 1));", "while (x) x = 0;", "x++;"])
def test_what_is_not_read(line: str) -> None:
    """Quotients that C would round, and statements that no text has."""
    with pytest.raises(AssertionError):
        read_function(f"double f(double x) {{ {line} }}")
