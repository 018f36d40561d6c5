"""KernelBuilder: the interface of a primitive's `lower`.

A NestBuilder whose methods are the functions of the other modules of this package, so that rules find them. Those
functions call one another, and depend only on nest_builder.py.
"""

from __future__ import annotations

from rlx.lowering import contract, control_flow, equations, indexing, reduction, views
from rlx.lowering.nest_builder import ElementFunction, NestBuilder, PlanRegion

__all__ = ["ElementFunction", "KernelBuilder", "PlanRegion"]


class KernelBuilder(NestBuilder):
    """Keeps the nests under construction, and has a method for everything that builds nests."""

    # ------------------------------------------------------------ index maps where possible, partial writes where not
    broadcast = views.broadcast
    transpose = views.transpose
    reshape = views.reshape
    slice = views.slice
    reverse = views.reverse
    window = views.window
    pad = views.pad
    pad_where_read = views.pad_where_read
    concatenate = views.concatenate

    # ------------------------------------------------------------ reductions
    reduce = reduction.reduce
    reduce_general = reduction.reduce_general
    cumulate = reduction.cumulate

    # ------------------------------------------------------------ computed positions
    dynamic_slice = indexing.dynamic_slice
    gather = indexing.gather
    dynamic_update_slice = indexing.dynamic_update_slice
    scatter = indexing.scatter

    # ------------------------------------------------------------ products
    contract = contract.contract

    # ------------------------------------------------------------ kernels over whole buffers
    scan = control_flow.scan
    in_blocks = control_flow.in_blocks
    sum_of_blocks = control_flow.sum_of_blocks
    while_loop = control_flow.while_loop
    branch = control_flow.branch
    callback = control_flow.callback
    exchange = control_flow.exchange
    library = control_flow.library
    sort = control_flow.sort

    # ------------------------------------------------------------ equations
    inline = equations.inline
