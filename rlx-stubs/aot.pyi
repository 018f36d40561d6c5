from rlx.export.aot import *
