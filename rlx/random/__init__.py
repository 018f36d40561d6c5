from rlx.random.keys import *
from rlx.random.uniform import *
