from rlx.jaxnames.test_util import *
