from rlx.jaxnames.example_libraries.stax import *
