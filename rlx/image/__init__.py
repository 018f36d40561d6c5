"""rlx.image: resizing of images, as in jax.image."""

from __future__ import annotations

from rlx.image.resizing import ResizeMethod, resize, scale_and_translate
from rlx.offered_names import offer_names

__all__ = ["ResizeMethod", "resize", "scale_and_translate"]

offer_names(globals())
