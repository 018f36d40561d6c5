"""rlx.scipy.cluster: vq, vector quantisation."""

from rlx.scipy.cluster import vq

__all__ = ["vq"]
