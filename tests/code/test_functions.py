"""Special functions as code: checked, and run by the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from special_samples import DRAWS, LIMITS, LOOSE, close_to_scipy, drawn

from rlx.code.checking import check_function
from rlx.code.faults import CodeFault
from rlx.code.functions import CodeValue, Function, FunctionWriter, Variable, operation
from rlx.code.running import run_function
from rlx.code.special import FUNCTIONS
from rlx.ir.scalar import SPECIAL


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_well_formed(name: str) -> None:
    check_function(FUNCTIONS[name])


@pytest.mark.thorough
@pytest.mark.parametrize("name", DRAWS)
def test_the_interpreter_computes_scipys_values(name: str) -> None:
    arrays = drawn(name, 100)
    if name == "polygamma":  # of whole orders
        arrays[0] = np.floor(arrays[0])
    close_to_scipy(name, run_function(FUNCTIONS[name], *arrays), arrays, LOOSE.get(name, 2e-13))
    if name in LIMITS:
        limits = [axis.ravel() for axis in np.meshgrid(*[np.array(LIMITS[name])] * len(arrays))]
        found = run_function(FUNCTIONS[name], *limits)
        np.testing.assert_allclose(found, SPECIAL[name].evaluate(*limits), rtol=1e-10, atol=1e-249)


def test_statements() -> None:
    """Loops, branches, changes of parameters, and results for some arguments before others."""

    def collatz(f: FunctionWriter, x: Variable) -> CodeValue:
        f.give(-1, ~(x >= 1))
        steps = f.variable("steps", 0)
        with f.count("n", 0, 1000):
            f.leave(x.equals(1))
            half = f.let("half", x / 2)
            with f.when((2 * operation("floor")(half)).equals(x)):
                x.set(half)
            with f.otherwise():
                x *= 3
                x += 1
            steps += 1
        return steps

    function = Function.written(collatz)
    check_function(function)
    found = run_function(function, np.array([1.0, 6.0, 7.0, 27.0, 0.0, np.nan]))
    np.testing.assert_array_equal(found, [0, 8, 16, 111, -1, -1])


def test_a_function_without_a_result() -> None:
    def positive(f: FunctionWriter, x: Variable) -> CodeValue:
        f.give(x, x > 0)
        return x

    function = Function.written(positive)
    function.body = function.body[:1]
    assert run_function(function, np.array([2.0])) == 2
    with pytest.raises(CodeFault, match="positive ends without a result"):
        run_function(function, np.array([1.0, -1.0]))


def test_a_name_is_declared_once() -> None:
    def twice(f: FunctionWriter, x: Variable) -> CodeValue:
        return f.let("y", x) + f.let("y", 2 * x) + f.let("x", x)

    function = Function.written(twice)
    check_function(function)
    assert run_function(function, np.array([2.0])) == 8
    function.body = function.body[:1] * 2
    with pytest.raises(CodeFault, match="y is declared twice"):
        check_function(function)
