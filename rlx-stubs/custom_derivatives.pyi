from rlx.jaxnames.custom_derivatives import *
