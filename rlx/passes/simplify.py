"""Algebra: equations replaced by cheaper ones of exactly the same value, control flow cut down."""

from __future__ import annotations

from rlx.ir.program import Program
from rlx.ir.rewrite import RuleSet, rewrite
from rlx.passes.algebra import arithmetic, dtypes, folding, logic, splats
from rlx.passes.control import control_rules
from rlx.passes.movement import movement
from rlx.passes.prune import prune
from rlx.trace.primitive import registry

__all__ = ["rules", "simplify"]


def simplify(program: Program) -> Program:
    """Apply every rule that matches, and remove dead equations.

    Its inputs and outputs stay; regions that no rule matches stay the same objects.
    """
    while True:
        rewritten = rewrite(program, rules, registry)
        pruned = prune(rewritten)
        # only control flow that lost results can be simplified further
        if pruned is rewritten or not any(e.primitive.region for e in pruned.equations):
            return pruned
        program = pruned


rules: RuleSet = folding + arithmetic + logic + dtypes + splats + movement + control_rules(simplify)
