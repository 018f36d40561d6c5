"""rlx.example_libraries: the small libraries for networks and optimisers that JAX's examples use.

stax: layers as pairs of functions. optimizers: update rules as triples of functions. See rlx.nn and rlx.optim for
new code.
"""

from rlx.jaxnames.example_libraries import optimizers, stax

__all__ = ["optimizers", "stax"]
