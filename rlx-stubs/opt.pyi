from rlx.graph.opt import *
