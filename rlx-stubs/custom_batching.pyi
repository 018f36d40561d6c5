from rlx.jaxnames.custom_batching import *
