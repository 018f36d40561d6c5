from rlx.numpy.linalg.products import *
