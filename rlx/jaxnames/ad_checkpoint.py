"""rlx.ad_checkpoint: computing intermediate values again for derivatives, and names of those to keep."""

from __future__ import annotations

from rlx.transforms.checkpoint import checkpoint, checkpoint_name, checkpoint_policies
from rlx.transforms.saved_residuals import print_saved_residuals

__all__ = ["checkpoint", "checkpoint_name", "checkpoint_policies", "print_saved_residuals", "remat"]

remat = checkpoint
