from rlx.host.debug import *
