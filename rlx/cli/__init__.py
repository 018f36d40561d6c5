"""The command `rlx`: look at this installation, at what the compiler made of a function, and at its speed.

Nothing in rlx imports this package.
"""

from __future__ import annotations

from rlx.cli.main import main

__all__ = ["main"]
