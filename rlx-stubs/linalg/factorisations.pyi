from rlx.numpy.linalg.factorisations import *
