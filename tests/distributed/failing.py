"""A program for processes of MPI in which rank 1 does something else at its second step."""

import os
import signal
import sys
import time

import rlx
import rlx.numpy as jnp

rlx.distributed.initialize()
function = rlx.jit(lambda x: rlx.distributed.all_reduce(x))
other = rlx.jit(lambda x: rlx.distributed.all_reduce(jnp.sin(x)))
function(jnp.ones(3))  # compiles it, which may take its time
if sys.argv[1] == "killed":
    os.environ["RLX_COLLECTIVE_TIMEOUT"] = "3"
if rlx.process_index() == 1:
    match sys.argv[1]:
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "raises":
            raise ValueError("mine alone")
        case "shapes":
            function(jnp.ones(4))
        case "programs":
            other(jnp.ones(3))
        case "slow":
            time.sleep(5)
function(jnp.ones(3))
print("went on", flush=True)
