"""The page: data, style and script in one file of HTML."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

__all__ = ["frame", "page"]

_FOLDER = Path(__file__).resolve().parent


def page(title: str, contents: dict[str, Any]) -> str:
    """A whole document; the contents are read by its script, and nothing is fetched.

    >>> from rlx.explain.page import page
    >>> page("f", {}).startswith("<!doctype html>")
    True
    """
    style, script = ((_FOLDER / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    # "</" would end the element, regardless of context
    data = json.dumps(contents, separators=(",", ":")).replace("</", "<\\/")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\';'
        " style-src 'unsafe-inline'; script-src 'unsafe-inline'\">"
        f"<style>{style}</style></head><body>"
        f'<script type="application/json" id="contents">{data}</script><script>{script}</script></body></html>'
    )


def frame(document: str) -> str:
    """The document inside of a notebook's output, apart from the notebook's own style and script."""
    return f'<iframe srcdoc="{html.escape(document)}" style="width:100%;height:640px;border:1px solid #8886"></iframe>'
