"""pjit, which is jit."""

from rlx.call.jit import jit as pjit

__all__ = ["pjit"]
