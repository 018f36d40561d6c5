"""Processes of which rank 1 does something else at its second step: those of MPI, where this is the program."""

import os
import signal
import sys
import time

import rlx
import rlx.numpy as jnp


def fails(how):
    """All ranks make two steps, but for rank 1."""
    function = rlx.jit(lambda x: rlx.distributed.all_reduce(x))
    other = rlx.jit(lambda x: rlx.distributed.all_reduce(jnp.sin(x)))
    function(jnp.ones(3))  # compiles it, which may take its time
    if how in ("killed", "raises"):
        os.environ["RLX_COLLECTIVE_TIMEOUT"] = "3"
    if rlx.process_index() == 1:
        match how:
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
    return function(jnp.ones(3)).tolist()


if __name__ == "__main__":
    rlx.distributed.initialize()
    fails(sys.argv[1])
    print("went on", flush=True)
