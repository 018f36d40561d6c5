"""The page of rlx.inspect for a browser: one file, with nothing fetched."""

from __future__ import annotations

from rlx.explain.page.page import frame, page

__all__ = ["frame", "page"]
