from rlx.jaxnames.flatten_util import *
