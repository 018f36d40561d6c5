"""The sizes of tiles: what a group, and a work-item, takes of products, of attention, and of rows."""

from __future__ import annotations

from rlx.backends.gpu.fragments import FRAGMENT_ROWS

# ------------------------------------------------------------------ products
PRODUCT_TILE = 64  # rows and columns of the result that a group computes
LARGE_PRODUCT_TILE = 128  # of a matrix unit that loads matrices, if there are enough groups
PRODUCT_WARPS = (2, 4)  # that divide its rows and columns
COPIED_DEPTH = 32  # of its slices
COPIED_SLICES = 3  # in a group's memory: one is multiplied while two are copied
PRODUCT_DEPTH = 16  # the depth of the operands' tiles without fragments
PRODUCT_EACH = 4  # rows and columns of a work-item
LEAST_PRODUCT_TILE = 16  # for a thin result: the same number of elements, in fewer rows or columns
LEAST_PRODUCT = 16  # smaller results are computed by single work-items, or as rows
LEAST_PART = 256  # depth of a product that a group takes at least if several groups share a tile
LONG_SUM = 64  # if there are few sums, work-items share a sum of at least this many products

# ------------------------------------------------------------------ attention
ATTENTION_BYTES = 40 << 10  # of a group's memory for tiles
GRADIENT_BYTES = 44 << 10
ATTENTION_SUMS = 32  # registers of a work-item for the mixture, or for both gradients
ACROSS = 16  # features are divided in multiples of this number
ATTENTION_TURNS = 4  # unroll factor of loops over features and columns: more would not fit in registers
LEAST_QUERIES = 16  # fewer leave most of a group idle
# up to this many features, a warp takes twice the rows or keys, and both gradients have one launch
FEW_FEATURES = 64
MANY_FEATURES = 128  # with more, rows or sums do not fit in the registers of every device
MOST_FEATURES = 256  # with more, the sums do not fit in registers

# with fragments
FRAGMENT_WARPS = 4  # of a group
FRAGMENT_ONE_EACH = FRAGMENT_WARPS * FRAGMENT_ROWS  # rows of a group whose warps have one fragment each
FRAGMENT_KEYS = 64  # that a group multiplies at a time
FRAGMENT_BYTES = 48 << 10  # of a group's memory for tiles of copied columns
GRADIENT_COLUMNS = 32  # of a group
FRAGMENT_PADDING = 4  # words between rows, so that the words that a warp reads at once are in different banks
FRAGMENT_LOADS = 8  # features that a work-item loads at once, if they are contiguous

# ------------------------------------------------------------------ maps, scans, systems
MAP_ELEMENTS = 8  # the most elements that a work-item takes at once
MAP_ROWS = 8  # rows of a transposed tile that the items of a group load at once
LEAST_SCAN_TILES = 16  # tiles of a part of a scan
RIGHT_SIDES = 16  # of systems, that a group solves together
