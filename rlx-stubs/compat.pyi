from rlx.jaxnames.compat import *
