from rlx.lax.ref import *
