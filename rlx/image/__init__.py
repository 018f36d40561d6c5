"""rlx.image: images in another size, under jax.image's names."""

from __future__ import annotations

from rlx.image.resizing import ResizeMethod, resize, scale_and_translate

__all__ = ["ResizeMethod", "resize", "scale_and_translate"]
