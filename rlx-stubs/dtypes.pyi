from rlx.jaxnames.dtypes import *
