from rlx.graph.fusion import *
