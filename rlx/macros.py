"""The decorator `rlx_model`, which is `rlx.model`, and the order of pipeline stages."""

from __future__ import annotations

from rlx.call.model import model
from rlx.graph.schedules import pipeline_schedule
from rlx.offered_names import offer_names

__all__ = ["pipeline_schedule", "rlx_model"]

rlx_model = model

offer_names(globals())
