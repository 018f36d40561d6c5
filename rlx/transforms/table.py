"""The program transforms as one object, handed to the rules of primitives with regions."""

from __future__ import annotations

from types import SimpleNamespace

__all__ = ["transforms"]

# filled by rlx.wiring: the transforms refer to one another
transforms = SimpleNamespace()
