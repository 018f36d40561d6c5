from rlx.jaxnames.example_libraries import *
