from rlx.trees.tree import *
