"""What rlx.inspect found as a page for a browser: one file, with nothing fetched."""

from __future__ import annotations

from rlx.call.page.page import frame, page

__all__ = ["frame", "page"]
