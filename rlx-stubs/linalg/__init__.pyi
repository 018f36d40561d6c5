from rlx.numpy.linalg import *
