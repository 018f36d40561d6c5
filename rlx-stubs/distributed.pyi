from rlx.jaxnames.distributed import *
