"""How a traced value is divided, for queries while a function is traced.

The program so far is propagated forward, from the inputs of the function. Without a query, nothing is computed.
`Builder.given` has the values that the inputs of inner functions stand for.
"""

from __future__ import annotations

from typing import Any

from rlx.ir.program import Program, Var
from rlx.sharding.mesh import current
from rlx.sharding.propagation import followed
from rlx.sharding.shardings import NamedSharding
from rlx.sharding.spec import names_of_entry
from rlx.trace.builder import Builder, Tracer
from rlx.trace.tracing import place_of
from rlx.transforms.varying import equations_behind, value_behind

__all__ = ["here", "traced_sharding", "undivided"]


def traced_sharding(x: Any) -> Any:
    """The sharding of a value, including traced values, as far as it is known; None if it is not.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx.sharding.traced_places import traced_sharding
    >>> traced_sharding(jnp.ones(2)) is None
    True
    """
    said = place_of(x)
    if said is not None or not isinstance(x, Tracer) or not isinstance(x.atom, Var):
        return said
    marks = x.builder.facts("places")
    equations, sources = equations_behind(x.builder, x.atom, marks)
    given = [marks[var] if var in marks else _of_source(x.builder, var) for var in sources]
    if all(sharding is None for sharding in given):
        return None
    program = Program(sources, equations, [x.atom], (), x.builder.name)
    return followed(program, [here(sharding) for sharding in given], {})[0][0]


def undivided(x: Any) -> bool:
    """Whether a value without a sharding comes only from values without one: then it was never divided."""
    if not isinstance(x, Tracer):
        return place_of(x) is None
    if not isinstance(x.atom, Var):
        return True
    marks = x.builder.facts("places")
    _, sources = equations_behind(x.builder, x.atom, marks)
    values = [None if var in marks else value_behind(x.builder, var) for var in sources]
    return all(value is not None and undivided(value) for value in values)


def _of_source(builder: Builder, var: Var) -> Any:
    """How the value of a variable is divided that no equation defines: a captured value or an argument."""
    value = value_behind(builder, var)
    # a slice of a value has fewer axes, and the dropped axis is unknown
    return None if value is None or value.ndim != var.type.ndim else traced_sharding(value)


def here(sharding: Any) -> Any:
    """A sharding with the types that its mesh's axes have here: in a shard_map Manual axes do not divide."""
    mesh = current().abstract
    if not isinstance(sharding, NamedSharding) or mesh is None or mesh.shape_tuple != sharding.mesh.shape_tuple:
        return sharding
    if mesh.axis_types == sharding.mesh.axis_types:
        return sharding
    spec, manual = sharding.spec, frozenset(mesh.manual_axes)
    entries = [tuple(n for n in names_of_entry(e) if n not in manual) for e in spec.partitions]
    return NamedSharding(mesh, spec.update(entries, spec.unreduced - manual, spec.reduced - manual))
