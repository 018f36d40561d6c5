from rlx.jaxnames.profiler import *
