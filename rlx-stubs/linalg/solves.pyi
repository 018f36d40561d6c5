from rlx.numpy.linalg.solves import *
