from rlx.jaxnames.core import *
