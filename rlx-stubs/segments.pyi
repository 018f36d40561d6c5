from rlx.jaxnames.segments import *
