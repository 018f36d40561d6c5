from rlx.jaxnames.example_libraries.optimizers import *
