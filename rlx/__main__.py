"""`python -m rlx`: the command line, see rlx.cli."""

from __future__ import annotations

import sys

from rlx.cli import main

if __name__ == "__main__":
    sys.exit(main())
