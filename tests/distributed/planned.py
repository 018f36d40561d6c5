"""A program for processes of MPI, one a host: steps of a small GPT, divided in five ways, beside what is planned."""

import sys
import time
from pathlib import Path

import numpy as np

import rlx
from rlx import parallel

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from parallel_plan import AXES, WAYS, Sizes, planned, sizes_of, step_of

SIZES, STEPS = Sizes(2, 128, 4, 512, 32, 8, 2), 4


def sent():
    """Bytes that this host has sent to others."""
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("eth0:"))
    return int(line.split(":")[1].split()[8])


def steps(way, machine):
    """What is held, sent and taken, each as found and as planned."""
    n = rlx.process_count()
    plan, shapes, specs = planned(way, SIZES, n)
    mesh, generator = rlx.make_mesh(tuple(sizes_of(way, n).values()), AXES), np.random.default_rng(0)
    w = rlx.tree.map(lambda s: (generator.normal(size=s.shape) / 4).astype("float32"), shapes[0])
    state = rlx.tree.map(lambda s: np.zeros(s.shape, s.dtype), shapes[1])
    tokens = [generator.integers(0, SIZES.vocabulary, shapes[2].shape).astype("int32") for _ in range(2)]
    leaves, structure = rlx.tree.flatten((w, state, *tokens))
    pairs = zip(leaves, structure.flatten_up_to(specs), strict=True)
    given = rlx.tree.unflatten(structure, [rlx.device_put(x, rlx.NamedSharding(mesh, spec)) for x, spec in pairs])
    held = sum(x.addressable_shards[0].data.nbytes for x in rlx.tree.leaves(given))
    shard = rlx.shard_map(step_of(way, SIZES), mesh=mesh, in_specs=specs, out_specs=specs[:2], check_vma=False)
    step, taken = rlx.jit(shard), []
    step(*given)  # compiles it
    rlx.distributed.barrier()
    before = sent()
    for _ in range(STEPS):
        begun = time.perf_counter()
        rlx.block_until_ready(step(*given))
        taken.append(time.perf_counter() - begun)
    rlx.distributed.barrier()
    seconds = machine.seconds(flops=plan.flops, rounds=plan.traffic.rounds, sent=plan.traffic.sent)
    return (held, plan.held), ((sent() - before) / STEPS, plan.traffic.sent), (np.median(taken), seconds)


def main():
    """A line for each way, or for those that are asked for."""
    rlx.distributed.initialize()
    machine = parallel.measure(nbytes=1 << 20, repeats=9)
    rates = machine.flops / 1e9, machine.latency * 1e6, machine.bandwidth / 1e6
    print("{:.1f} GFLOP/s, {:.0f} us, {:.1f} MB/s".format(*rates), flush=True)
    for way in sys.argv[1:] or WAYS:
        held, bytes_sent, seconds = steps(way, machine)
        print(
            f"{way} holds {held[0]} of {held[1]} bytes, sends {bytes_sent[0]:.0f} of {bytes_sent[1]},"
            f" takes {seconds[0] * 1e3:.1f} of {seconds[1] * 1e3:.1f} ms",
            flush=True,
        )
    rlx.distributed.shutdown()


if __name__ == "__main__":
    main()
