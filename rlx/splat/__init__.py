"""rlx.splat: differentiable rendering of 3D Gaussians on every device."""

from rlx.splat.camera import Camera
from rlx.splat.harmonics import harmonic_basis, spherical_harmonics
from rlx.splat.projection import Footprints, covariances, project, rotation_matrices
from rlx.splat.rendering import Rendered, RenderInfo, intersections, render

__all__ = [
    "Camera",
    "Footprints",
    "RenderInfo",
    "Rendered",
    "covariances",
    "harmonic_basis",
    "intersections",
    "project",
    "render",
    "rotation_matrices",
    "spherical_harmonics",
]
