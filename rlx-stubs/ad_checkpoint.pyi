from rlx.jaxnames.ad_checkpoint import *
