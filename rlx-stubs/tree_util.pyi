from rlx.trees.tree_util import *
