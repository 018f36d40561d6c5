"""A program for processes of MPI: each has rows of an array; together they write a folder, and read it again."""

import sys

import numpy as np

import rlx
from rlx.sharding import Mesh, NamedSharding
from rlx.sharding import PartitionSpec as P


def main(folder):
    """The rows of all of them are 0, 1, 2, ..."""
    rlx.distributed.initialize()
    rank = rlx.process_index()
    sharding = NamedSharding(Mesh(np.array(rlx.devices()), ("rows",)), P("rows"))
    own = np.arange(20.0).reshape(2, 10) + 20 * rank
    tree = {"rows": rlx.make_array_from_process_local_data(sharding, own), "step": np.int32(7)}
    rlx.save(folder, tree)
    again = rlx.load(folder, tree)
    np.testing.assert_array_equal(again["rows"].addressable_shards[0].data, own)
    assert again["step"] == 7
    print(f"rank {rank} has its rows again", flush=True)
    rlx.distributed.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
