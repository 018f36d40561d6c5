"""Strategies that divide a model over the members of a mesh axis, and their costs. See docs/parallel.md."""

from __future__ import annotations

from rlx.offered_names import offer_names
from rlx.parallel.experts import Routing, combine, dispatch, mixture_of_experts, route
from rlx.parallel.planning import Machine, Plan, measure, plan
from rlx.parallel.sequence import ring_attention
from rlx.parallel.stages import Step, pipeline, schedule
from rlx.parallel.tensor import attention, column_parallel, copied, feed_forward, row_parallel, summed
from rlx.parallel.traffic import AxisTraffic, Traffic, traffic
from rlx.parallel.zero import zero1

__all__ = [
    "AxisTraffic",
    "Machine",
    "Plan",
    "Routing",
    "Step",
    "Traffic",
    "attention",
    "column_parallel",
    "combine",
    "copied",
    "dispatch",
    "feed_forward",
    "measure",
    "mixture_of_experts",
    "pipeline",
    "plan",
    "ring_attention",
    "route",
    "row_parallel",
    "schedule",
    "summed",
    "traffic",
    "zero1",
]

offer_names(globals())
