from rlx.transforms.ad import *
