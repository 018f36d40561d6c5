from rlx.numpy.linalg.determinants import *
