"""The command `rlx`: it checks an installation, shows how a function is compiled, and measures its speed.

Nothing in rlx imports this package.
"""

from __future__ import annotations

from rlx.cli.main import main

__all__ = ["main"]
