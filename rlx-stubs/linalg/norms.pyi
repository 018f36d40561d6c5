from rlx.numpy.linalg.norms import *
