"""pjit, which is jit."""

from rlx.api import jit as pjit

__all__ = ["pjit"]
