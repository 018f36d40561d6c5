"""What devices with work-groups share: mapping of nests to grids, launches, loops driven by the host."""
