"""Code shared by devices with work-groups: the mapping of nests to grids, launches, and loops driven by the host."""
