from rlx.graph.compile import *
