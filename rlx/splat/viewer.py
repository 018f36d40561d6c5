"""A page that shows a scene of splats in a browser: one file, which fetches nothing."""

from __future__ import annotations

import base64
import html
import json
from pathlib import Path
from typing import Any

import numpy as np

from rlx.errors import OptionError
from rlx.splat.harmonics import BAND_0
from rlx.splat.projection import covariances
from rlx.splat.scene import Splats, check_splats

__all__ = ["viewer_page"]

_SCRIPT = Path(__file__).resolve().parent / "viewer.js"
_STYLE = (
    "html,body{margin:0;height:100%;font:14px system-ui,sans-serif;background:#222;color:#eee}"
    "canvas{width:100%;height:100%;display:block;touch-action:none;cursor:grab}"
    "#words{position:fixed;left:12px;bottom:12px;padding:4px 8px;background:#0008;border-radius:4px}"
)


def viewer_page(splats: Splats, title: str = "Splats", *, background: Any = (0.0, 0.0, 0.0), up: float = 1.0) -> str:
    """A document of HTML with a scene that is turned with the mouse or the arrow keys. It needs WebGL 2.

    Colours are those of degree 0: they do not change with the direction of view.

    Args:
      splats: a scene; title: of the page; background: (3,), from 0 to 1.
      up: 1 if the scene's y axis points up, -1 if it points down, as in most reconstructions.

    Raises: OptionError for a scene without splats whose numbers are finite.

    >>> import numpy as np
    >>> from rlx.splat import init_from_points, viewer_page
    >>> viewer_page(init_from_points(np.eye(3), np.ones((3, 3)))).startswith("<!doctype html>")
    True
    """
    check_splats(splats)
    arrays = [np.asarray(a, np.float32) for a in splats]
    usable = np.all([np.isfinite(a).reshape(len(a), -1).all(1) for a in arrays], axis=0) & arrays[1].any(1)
    means, quats, log_scales, logits, harmonics = (a[usable] for a in arrays)
    if len(means) == 0:
        raise OptionError("viewer_page got no splats whose numbers are finite.", "Check the scene.")
    full = np.asarray(covariances(quats, log_scales))
    colours = np.clip(0.5 + BAND_0 * harmonics[:, 0], 0, None)
    opacities = 1 / (1 + np.exp(-np.clip(logits, -80, 80)))
    middle = np.median(means, axis=0)
    contents = {
        "means": _encoded(means),
        "covariances": _encoded(full[:, (0, 0, 0, 1, 1, 2), (0, 1, 2, 1, 2, 2)]),
        "colours": _encoded(np.concatenate([colours, opacities[:, None]], 1)),
        "centre": middle.tolist(),
        "extent": max(float(np.quantile(np.linalg.norm(means - middle, axis=1), 0.9)), 1e-3),
        "background": [float(x) for x in background],
        "down": -1 if up > 0 else 1,
    }
    data = json.dumps(contents, separators=(",", ":")).replace("</", "<\\/")
    shown = html.escape(title)
    words = f"{shown}: {len(means)} splats. Drag to turn, scroll to zoom."
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{shown}</title>'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';"
        " style-src 'unsafe-inline'; script-src 'unsafe-inline'\">"
        f'<style>{_STYLE}</style></head><body><canvas id="scene" tabindex="0" aria-label="{shown}"></canvas>'
        f'<div id="words">{words}</div><script type="application/json" id="contents">{data}</script>'
        f"<script>{_SCRIPT.read_text(encoding='utf-8')}</script></body></html>"
    )


def _encoded(array: np.ndarray) -> str:
    """float32 numbers in base 64, little endian."""
    return base64.b64encode(np.ascontiguousarray(array, "<f4").tobytes()).decode("ascii")
