"""The rewriter: patterns, fixpoints, hits, and rules that are wrong."""

# annotations are the types of printed programs, not Python's
# ruff: noqa: F821

import pytest

from rlx.errors import RlxError, VerificationError
from rlx.ir.program import Program
from rlx.ir.rewrite import Match, Rule, RuleSet, rewrite
from rlx.trace.primitive import registry
from rlx.trace.text import float32, ops, program


def apply(before: Program, *rules: Rule, commutative: tuple[str, ...] = ()) -> Program:
    return rewrite(before, RuleSet(rules, commutative), registry)


@program
def sample(x: "float32[3]", y: "float32[3]"):
    return ops.add(ops.multiply(x, float32(2.0)), ops.negative(y))


def test_a_program_that_no_rule_matches_is_itself() -> None:
    assert apply(sample, Rule("sin(x) -> x"), Rule("multiply(x, 3) -> x"), Rule("multiply(x, x) -> x")) is sample


def test_nested_pattern() -> None:
    @program
    def after(x: "float32[3]", y: "float32[3]"):
        doubled = ops.multiply(x, float32(2.0))
        ops.negative(y)
        return ops.subtract(doubled, y)

    assert apply(sample, Rule("add(x, negative(y)) -> subtract(x, y)")) == after


def test_commutative_rules_hold_both_ways() -> None:
    rule = Rule("multiply(2, x) -> x")
    assert apply(sample, rule) is sample
    assert len(apply(sample, rule, commutative=("multiply",)).equations) == 2


def test_the_right_side_is_rewritten_too() -> None:
    rules = (Rule("add(x, y) -> subtract(x, negative(y))"), Rule("negative(negative(x)) -> x"))

    @program
    def after(x: "float32[3]", y: "float32[3]"):
        doubled = ops.multiply(x, float32(2.0))
        ops.negative(y)
        return ops.subtract(doubled, y)

    assert apply(sample, *rules) == after


def test_numbers_on_the_right_take_the_dtype_of_the_result() -> None:
    @program
    def before(x: "float32[3]"):
        return ops.square(x)

    @program
    def after(x: "float32[3]"):
        return ops.multiply(x, 2.0)

    assert apply(before, Rule("square(x) -> multiply(x, 2)")) == after


def test_kinds_guard_the_first_operand() -> None:
    @program
    def before(x: "float32[3]", n: "int32[3]"):
        return ops.negative(ops.negative(x)), ops.negative(ops.negative(n))

    found = apply(before, Rule("negative(negative(x)) -> x", kinds="i"))
    assert found.outputs[1] is found.inputs[1] and found.outputs[0] is not found.inputs[0]


def test_functions_see_the_match_and_may_decline() -> None:
    seen = []

    def function(m: Match) -> object:
        producer = m.producer(m["x"])
        seen.append((m.equation.primitive.name, producer and producer.primitive.name, m.type.shape))
        return m["x"] if producer is None else None

    @program
    def before(x: "float32[3]"):
        return ops.sin(ops.exp(ops.sin(x)))

    @program
    def after(x: "float32[3]"):
        return ops.sin(ops.exp(x))

    assert apply(before, Rule("sin(x) -> x where x is an input", function)) == after
    assert seen == [("sin", None, (3,)), ("sin", "exp", (3,))]


def test_the_sign_of_zero_counts_for_floats() -> None:
    @program
    def before(x: "float32[3]"):
        return ops.add(x, 0.0), ops.add(x, -0.0)

    found = apply(before, Rule("add(x, -0.0) -> x"))
    assert len(found.equations) == 1 and found.outputs[1] is found.inputs[0]


def test_sets_add_and_count() -> None:
    one = RuleSet([Rule("negative(negative(x)) -> x")])
    both = one + RuleSet([Rule("any -> nothing", lambda m: None), Rule("add(x, 0) -> x")], commutative=("add",))
    assert [r.text for r in both] == ["negative(negative(x)) -> x", "any -> nothing", "add(x, 0) -> x"]
    assert len(both) == 3 and "test_rewrite.py:" in repr(next(iter(both)))

    @program
    def before(x: "int32[3]"):
        return ops.add(0, ops.negative(ops.negative(x)))

    rewrite(before, both, registry)
    assert both.hits == {"negative(negative(x)) -> x": 1, "add(x, 0) -> x": 1}
    assert not one.hits


def test_wrong_rules_are_refused() -> None:
    with pytest.raises(RlxError, match="no arrow"):
        Rule("add(x, 0)")
    with pytest.raises(RlxError, match="names, numbers and calls"):
        Rule("add(x, [y]) -> x")
    with pytest.raises(RlxError, match="matches no equation"):
        Rule("1 -> x", lambda m: None)
    with pytest.raises(RlxError, match="do not come to an end"):
        apply(sample, Rule("add(x, y) -> add(y, x)"))
    with pytest.raises(VerificationError, match="replaced results of types"):
        apply(sample, Rule("multiply -> 2", lambda m: m.inputs[1]))
