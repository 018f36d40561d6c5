"""rlx.splat: differentiable rendering of 3D Gaussians on every device."""

from rlx.offered_names import offer_names as _offer_names
from rlx.splat.camera import Camera
from rlx.splat.colmap import ColmapImage, ColmapScene, load_colmap
from rlx.splat.harmonics import harmonic_basis, spherical_harmonics
from rlx.splat.images import load_views
from rlx.splat.losses import image_loss, psnr, ssim
from rlx.splat.pictures import save_png
from rlx.splat.ply import load_ply, save_ply
from rlx.splat.projection import Footprints, covariances, project, rotation_matrices
from rlx.splat.rendering import PreparedSplats, Rendered, RenderInfo, intersections, render
from rlx.splat.scene import Splats, View, init_from_points
from rlx.splat.seeds import (
    GaussianSplatInputs,
    RenderParams,
    gaussian_splat_prepare,
    gaussian_splat_rasterize,
    gaussian_splat_render,
    gaussian_splat_render_backward,
    make_parity_scene,
    register,
    unpack_gaussian_splat_packed_grads,
)
from rlx.splat.training import Densification, Fitted, fit, training_optimizer
from rlx.splat.viewer import viewer_page

__all__ = [
    "Camera",
    "ColmapImage",
    "ColmapScene",
    "Densification",
    "Fitted",
    "Footprints",
    "GaussianSplatInputs",
    "PreparedSplats",
    "RenderInfo",
    "RenderParams",
    "Rendered",
    "Splats",
    "View",
    "covariances",
    "fit",
    "gaussian_splat_prepare",
    "gaussian_splat_rasterize",
    "gaussian_splat_render",
    "gaussian_splat_render_backward",
    "harmonic_basis",
    "image_loss",
    "init_from_points",
    "intersections",
    "load_colmap",
    "load_ply",
    "load_views",
    "make_parity_scene",
    "project",
    "psnr",
    "register",
    "render",
    "rotation_matrices",
    "save_ply",
    "save_png",
    "spherical_harmonics",
    "ssim",
    "training_optimizer",
    "unpack_gaussian_splat_packed_grads",
    "viewer_page",
]

_offer_names(globals())
