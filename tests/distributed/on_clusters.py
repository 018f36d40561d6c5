"""A program that starts its ranks by Ray or Dask: exchanges, training, and ranks that do something else."""

import contextlib
import platform
import runpy
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
SAID = {
    "raises": "ValueError: mine alone",
    "shapes": "rank 1: all_reduce (sum) of float32[4] at failing.py:",
    "killed": "waited 3 s for rank 1 in the group 'world': all_reduce (sum) of float32[3]",
}
# of a rank that is killed before all have read what it gave to the step before
GONE = "can no longer reach rank 1 in the group 'world': all_reduce (sum) of float32[3]"


def exchanges():
    """Those of every dtype, as under MPI."""
    import rlx

    found = runpy.run_path(str(HERE / "exchanging.py"))
    rank, size = rlx.process_index(), rlx.process_count()
    for dtype in ("bool", "int8", "bfloat16", "float32", "complex64"):
        found["check"](rank, size, dtype, 5)
    found["check"](rank, size, "float32", 5003)
    found["check_overlap"](rank, size)
    found["check_mesh"](rank, size)
    pair = rlx.distributed.new_group([1, 0])
    return rlx.distributed.all_gather(rank, group=pair).tolist()


def training():
    """The example, which compares with one process."""
    found = runpy.run_path(str(HERE.parents[1] / "examples" / "data_parallel.py"))
    return found["main"]("float64", 50), found["main"]("float32", 50)


def fails(how):
    """Rank 1 does something else at its second step, as under MPI."""
    return runpy.run_path(str(HERE / "failing.py"))["fails"](how)


def main(run):
    """Everything by one way of starting: run(function, *args)."""
    (loss, narrow), other = run(training)
    assert (loss, narrow) == tuple(other) and loss < 1
    assert run(fails, "slow") == [[2.0] * 3] * 2
    check(run, SAID)


def check(run, ways):
    """Exchanges, and ways in which a rank fails."""
    assert run(exchanges) == [[1, 0]] * 2
    for how in ways:
        begun = time.monotonic()
        try:
            run(fails, how)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            assert SAID[how] in said or (how == "killed" and GONE in said), said
            assert how == "raises" or "function = rlx.jit(lambda x: rlx.distributed.all_reduce(x))" in said, said
        else:
            raise AssertionError(f"{how}: nothing was raised")
        assert time.monotonic() - begun < 300
    print("fine", flush=True)


def on_ray(address):
    """On a cluster of two hosts, or on one of this machine."""
    import ray

    from rlx.distributed import ray_actors

    own = {"address": address} if address else {"num_cpus": 2, "include_dashboard": False}
    ray.init(**own, logging_level="error", log_to_driver=False)
    begin(lambda f, *args: ray_actors.run(2, f, *args), address)
    ray.shutdown()


def on_dask(address):
    """On a cluster of two hosts, or on one of this machine."""
    from distributed import Client, LocalCluster

    from rlx.distributed import dask_workers

    with contextlib.ExitStack() as scope:
        if not address:
            cluster = scope.enter_context(LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None))
        client = scope.enter_context(Client(address or cluster))
        client.wait_for_workers(2)
        begin(lambda f, *args: dask_workers.run(client, f, *args), address)


def begin(run, address):
    """Everything; on several hosts what has to do with them."""
    if address:
        assert len(set(run(platform.node))) == 2
        check(run, ["killed"])
    else:
        main(run)


if __name__ == "__main__":
    {"ray": on_ray, "distributed": on_dask}[sys.argv[1]](*sys.argv[2:] or [""])
