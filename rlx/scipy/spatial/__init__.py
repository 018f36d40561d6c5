"""rlx.scipy.spatial: transform, rotations in three dimensions."""

from rlx.scipy.spatial import transform

__all__ = ["transform"]
