from rlx.sharding.memory import *
