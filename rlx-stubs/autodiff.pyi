from rlx.graph.autodiff import *
