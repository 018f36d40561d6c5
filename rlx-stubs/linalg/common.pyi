from rlx.numpy.linalg.common import *
