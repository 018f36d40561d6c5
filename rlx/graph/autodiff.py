"""rlx.autodiff: derivatives of graphs and functions, under the names of graph APIs.

Everything here is built from rlx.grad, jvp, vmap and the custom rules. A function called with a Graph returns a
Graph; called with a Python function it returns a function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from rlx import numpy as jnp
from rlx.call.jit import Jitted, ShapeDtypeStruct, make_program
from rlx.errors import RlxError
from rlx.graph.elementwise_regions import MarkElementwiseRegions
from rlx.graph.graph import Graph, Node
from rlx.graph.module import GraphModule
from rlx.ir.program import Program, Var, dead_code
from rlx.ir.types import TensorType, is_inexact
from rlx.offered_names import offer_names
from rlx.passes.cse import eliminate_common
from rlx.passes.pipeline import everywhere
from rlx.passes.rebuild import bound, rebuilt, walk
from rlx.passes.simplify import simplify
from rlx.trace.interpret import interpret
from rlx.trace.lower import map_regions
from rlx.transforms import forward, functional, reverse
from rlx.transforms import vmap as mapping
from rlx.transforms.own_rules import custom_fn
from rlx.trees import tree

__all__ = [
    "AutodiffError",
    "ForceEnergyLossWeights",
    "GradWithLossOptions",
    "HigherOrderOptions",
    "PrepareForAutodiff",
    "build_force_energy_loss",
    "custom_fn",
    "directional_nth_grad",
    "grad",
    "grad_subgraph",
    "grad_with_loss",
    "grad_with_loss_opts",
    "hvp",
    "jvp",
    "nth_order_grad",
    "nth_order_grad_with_options",
    "prepare_graph_for_ad",
    "vmap",
]

offer_names(globals())


class AutodiffError(RlxError, TypeError):
    """A derivative that does not exist: with respect to an unknown name, or to an unused input.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.autodiff.grad(rlx.Graph.trace(jnp.sin, 1.0), "nothing")
    Traceback (most recent call last):
        ...
    rlx.graph.autodiff.AutodiffError: Graph 'sin' has no input or parameter 'nothing' to differentiate with r...
    """


@dataclass(frozen=True)
class GradWithLossOptions:
    """zero_missing_wrt: return zeros for inputs that the loss does not use, instead of raising AutodiffError.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import autodiff
    >>> g = rlx.Graph.trace(lambda x, y: jnp.sum(x), jnp.ones(2), jnp.ones(2))
    >>> options = autodiff.GradWithLossOptions(zero_missing_wrt=True)
    >>> loss, slope = autodiff.grad_with_loss_opts(g, "y", options)(jnp.ones(2), jnp.ones(2))
    >>> slope.tolist()
    [0.0, 0.0]
    """

    zero_missing_wrt: bool = False
    STRICT: ClassVar[GradWithLossOptions]
    TRAINING: ClassVar[GradWithLossOptions]


GradWithLossOptions.STRICT = GradWithLossOptions()
GradWithLossOptions.TRAINING = GradWithLossOptions(zero_missing_wrt=True)


@dataclass(frozen=True)
class HigherOrderOptions:
    """fuse_elementwise: mark elementwise regions in the result; values do not change.

    >>> from rlx import autodiff
    >>> options = autodiff.HigherOrderOptions(fuse_elementwise=False)
    >>> float(autodiff.nth_order_grad_with_options(lambda x: x**4, None, 2, options)(1.0))
    12.0
    """

    fuse_elementwise: bool = True


class ForceEnergyLossWeights(NamedTuple):
    """Weights of the two terms of a force and energy loss.

    >>> from rlx import autodiff
    >>> autodiff.ForceEnergyLossWeights(energy=0.1)
    ForceEnergyLossWeights(force=1.0, energy=0.1)
    """

    force: float = 1.0
    energy: float = 1.0


Wrt = str | int | Node
Subject = Graph | GraphModule


# ------------------------------------------------------------------ graphs
def _graph(subject: Subject) -> Graph:
    """The graph of a module at HIR or MIR. Raises WrongStageError at LIR."""
    return subject.graph() if isinstance(subject, GraphModule) else subject


def _like(subject: Subject, graph: Graph) -> Any:
    return GraphModule.from_graph(graph) if isinstance(subject, GraphModule) else graph


def _positions(graph: Graph, wrt: Iterable[Wrt] | Wrt | None) -> list[int]:
    """Positions in the signature of names, nodes or node numbers; None means all parameters."""
    if wrt is None:
        wrt = list(graph.params)
    given = [wrt] if isinstance(wrt, (str, int, Node)) else list(wrt)
    names = list(graph.signature)
    ids = {int(node.id): name for name, node in graph.signature.items()}
    found: list[int] = []
    for one in given:
        name = one if isinstance(one, str) else ids.get(int(one.id if isinstance(one, Node) else one))
        if name not in names:
            raise AutodiffError(
                f"Graph {graph.name!r} has no input or parameter {one!r} to differentiate with respect to.",
                f"It has: {', '.join(names) or 'none'}.",
            )
        type = graph.signature[name].atom.type
        if not is_inexact(type.dtype):
            raise AutodiffError(
                f"{name!r} of graph {graph.name!r} is of dtype {type.dtype.name}: it has no derivative."
            )
        found.append(names.index(name))
    return found


def _traced(
    graph: Graph, function: Callable[..., Any], suffix: str, extra: Sequence[tuple[str, TensorType]] = ()
) -> Graph:
    """The graph of a function that takes the graph's signature and extra inputs."""
    types = [node.atom.type for node in graph.signature.values()]
    places = [ShapeDtypeStruct(t.shape, t.dtype) for t in (*types, *(t for _, t in extra))]
    program = make_program(function)(*places)
    names = [*graph.signature, *(name for name, _ in extra)]
    roles = ["param" if name in graph.params else "input" for name in names]
    return Graph.from_program(program, names, roles, f"{graph.name}_{suffix}")


def _restricted(program: Program, values: Sequence[Any], positions: Sequence[int]) -> Callable[..., list[Any]]:
    """The program's outputs as a function of some of its inputs."""

    def function(*chosen: Any) -> list[Any]:
        full = list(values)
        for position, value in zip(positions, chosen, strict=True):
            full[position] = value
        return interpret(program, full)

    return function


def _unused(program: Program, positions: Sequence[int]) -> list[int]:
    """The positions of inputs that the first output does not depend on."""
    first = dead_code(program, [k == 0 for k in range(len(program.outputs))])
    used = {a for e in first.equations for a in e.inputs if isinstance(a, Var)} | set(first.outputs)
    return [p for p in positions if program.inputs[p] not in used]


def _check_used(
    program: Program, positions: Sequence[int], names: Mapping[int, str], options: GradWithLossOptions
) -> None:
    unused = [] if options.zero_missing_wrt else _unused(program, positions)
    if unused:
        raise AutodiffError(
            f"The loss of {program.name} does not depend on {', '.join(names[p] for p in unused)}.",
            "Leave it out of wrt, or pass GradWithLossOptions.TRAINING for zeros.",
        )


# ------------------------------------------------------------------ gradients
def grad_with_loss(
    subject: Any,
    wrt: Any = None,
    options: GradWithLossOptions = GradWithLossOptions.STRICT,
) -> Any:
    """The loss and its gradients.

    Args:
      subject: a Graph or GraphModule whose first output is the scalar loss, or a function.
      wrt: names, nodes or node numbers (all parameters if left out); positions for a function
        (0 if left out).
      options: whether an input that the loss does not use is an error or gives zeros of the input's dtype.

    Returns: a graph with outputs [loss, gradients..., further outputs...], or a function that
    returns (loss, gradients).

    >>> import rlx, rlx.numpy as jnp
    >>> g = rlx.Graph.trace(lambda w, x: jnp.sum(w * x), jnp.ones(2), jnp.ones(2), params=["w"])
    >>> rlx.autodiff.grad_with_loss(g)(jnp.ones(2), jnp.array([3.0, 4.0]))
    (Array(7., dtype=float32), Array([3., 4.], dtype=float32))
    """
    if not isinstance(subject, (Graph, GraphModule)):
        return _function_with_loss(subject, 0 if wrt is None else wrt, options)
    graph = _graph(subject)
    positions, program = _positions(graph, wrt), graph.program
    _check_used(program, positions, dict(enumerate(graph.signature)), options)

    def both(*values: Any) -> Any:
        def loss(*chosen: Any) -> Any:
            first, *others = _restricted(program, values, positions)(*chosen)
            return first, others

        picked = [values[p] for p in positions]
        (value, others), gradients = reverse.value_and_grad(loss, tuple(range(len(picked))), has_aux=True)(*picked)
        return (value, *gradients, *others)

    return _like(subject, _traced(graph, both, "grad"))


def grad_with_loss_opts(subject: Any, wrt: Any, options: GradWithLossOptions) -> Any:
    """grad_with_loss with options.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import autodiff
    >>> g = rlx.Graph.trace(lambda x, y: jnp.sum(x * y), jnp.ones(2), jnp.ones(2))
    >>> both = autodiff.grad_with_loss_opts(g, "x", autodiff.GradWithLossOptions())
    >>> loss, slope = both(jnp.ones(2), 3 * jnp.ones(2))
    >>> slope.tolist()
    [3.0, 3.0]
    """
    return grad_with_loss(subject, wrt, options)


def _function_with_loss(function: Callable[..., Any], wrt: Any, options: GradWithLossOptions) -> Callable[..., Any]:
    both = reverse.value_and_grad(function, wrt)
    numbers = [wrt] if isinstance(wrt, int) else list(wrt)

    def checked(*args: Any) -> Any:
        program = Jitted(function).trace(*args).program
        owners = [number for number, a in enumerate(args) for _ in tree.leaves(a)]
        held = len(program.inputs) - len(owners)  # captured values are the first inputs
        places = {held + k: f"argument {n}" for k, n in enumerate(owners) if n in numbers}
        _check_used(program, list(places), places, options)
        return both(*args)

    return both if options.zero_missing_wrt else checked


def grad(subject: Any, wrt: Any = None) -> Any:
    """The gradients without the loss; otherwise like grad_with_loss.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import autodiff
    >>> g = rlx.Graph.trace(lambda w, x: jnp.sum(w * x), jnp.ones(2), jnp.ones(2), params=["w"])
    >>> autodiff.grad(g)(jnp.ones(2), jnp.array([3.0, 4.0]))
    Array([3., 4.], dtype=float32)
    """
    if not isinstance(subject, (Graph, GraphModule)):
        return reverse.grad(subject, 0 if wrt is None else wrt)
    full = _graph(grad_with_loss(subject, wrt))
    count = len(_positions(_graph(subject), wrt))
    full.set_outputs(full.outputs[1 : 1 + count])
    return _like(subject, full)


def grad_subgraph(subject: Any, wrt: Any = None) -> Any:
    """[energy, gradients...] as a graph that can be part of another, differentiated again, or pushed forward.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import autodiff
    >>> g = rlx.Graph.trace(lambda x: jnp.sum(x**2), jnp.ones(2))
    >>> energy, gradient = autodiff.grad_subgraph(g, "x")(jnp.array([1.0, 2.0]))
    >>> gradient.tolist()
    [2.0, 4.0]
    """
    graph = _graph(grad_with_loss(subject, wrt))
    count = len(_positions(_graph(subject), wrt))
    graph.set_outputs(graph.outputs[: 1 + count])
    return _like(subject, graph)


# ------------------------------------------------------------------ forward mode and batches
def jvp(subject: Any, *args: Any, **options: Any) -> Any:
    """Directional derivatives.

    For a graph: jvp(graph, names) -> a graph with an input tangent_<name> for each name, and outputs
    [outputs..., their tangents...]. For a function: rlx.jvp.

    >>> import rlx
    >>> from rlx import autodiff
    >>> g = rlx.Graph.trace(lambda x: x**2, 1.0)
    >>> value, tangent = autodiff.jvp(g, ["x"])(3.0, 1.0)
    >>> float(tangent)
    6.0
    """
    if not isinstance(subject, (Graph, GraphModule)):
        return forward.jvp(subject, *args, **options)
    graph = _graph(subject)
    positions, program = _positions(graph, *args, **options), graph.program
    names = list(graph.signature)

    def pushed(*values: Any) -> Any:
        function = _restricted(program, values[: len(names)], positions)
        primals = [values[p] for p in positions]
        results, tangents = forward.jvp(function, primals, values[len(names) :])
        return (*results, *tangents)

    extra = [(f"tangent_{names[p]}", program.inputs[p].type) for p in positions]
    return _like(subject, _traced(graph, pushed, "jvp", extra))


def hvp(subject: Any, *args: Any, **options: Any) -> Any:
    """Products of the Hessian with a vector, forward over reverse.

    For a graph: hvp(graph, names) -> a graph with an input tangent_<name> for each name, and outputs
    [loss, gradients..., products...]. For a function: rlx.hvp.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import autodiff
    >>> g = rlx.Graph.trace(lambda x: jnp.sum(x**3), jnp.ones(2))
    >>> loss, gradient, product = autodiff.hvp(g, ["x"])(jnp.ones(2), jnp.array([1.0, 0.0]))
    >>> product.tolist()
    [6.0, 0.0]
    """
    if not isinstance(subject, (Graph, GraphModule)):
        return functional.hvp(subject, *args, **options)
    wrt = options.pop("wrt", args[0] if args else None)
    graph = _graph(subject)
    names = list(graph.signature)
    count = len(_positions(graph, wrt))
    pushed = jvp(_graph(grad_subgraph(graph, wrt)), [names[p] for p in _positions(graph, wrt)])
    outputs = pushed.outputs
    pushed.set_outputs([*outputs[: 1 + count], *outputs[2 + count :]])
    return _like(subject, pushed)


def vmap(subject: Any, *args: Any, **options: Any) -> Any:
    """Batches.

    For a graph: vmap(graph, names, size) -> a graph whose named inputs and whose outputs have a
    leading axis. Parameters may be named too. For a function: rlx.vmap.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import autodiff
    >>> g = rlx.Graph.trace(lambda w, x: jnp.sum(w * x), jnp.ones(2), jnp.ones(2))
    >>> autodiff.vmap(g, ["x"], 3)(jnp.ones(2), jnp.ones((3, 2)))
    Array([2., 2., 2.], dtype=float32)
    """
    if not isinstance(subject, (Graph, GraphModule)):
        return mapping.vmap(subject, *args, **options)
    return _like(subject, _batched(_graph(subject), *args, **options))


def _batched(graph: Graph, names: Sequence[str], batch: int) -> Graph:
    unknown = [name for name in names if name not in graph.signature]
    if unknown:
        raise AutodiffError(f"Graph {graph.name!r} has no input or parameter {unknown[0]!r}.")
    types = {name: node.atom.type for name, node in graph.signature.items()}
    wide = [t.update(shape=(batch, *t.shape)) if name in names else t for name, t in types.items()]
    axes = tuple(0 if name in names else None for name in types)
    mapped = mapping.vmap(lambda *values: tuple(interpret(graph.program, values)), axes, axis_size=batch)
    program = make_program(mapped)(*[ShapeDtypeStruct(t.shape, t.dtype) for t in wide])
    roles = ["param" if name in graph.params else "input" for name in types]
    return Graph.from_program(program, list(types), roles, f"{graph.name}_vmap")


# ------------------------------------------------------------------ higher orders
def nth_order_grad(subject: Any, wrt: Any = None, order: int = 2, options: HigherOrderOptions | None = None) -> Any:
    """The derivative of any order of a scalar function of a scalar; other inputs are constant.

    For a graph: a graph with this one output, without duplicates. For a function: a function; `wrt`
    is a position.

    >>> import rlx, rlx.numpy as jnp
    >>> float(rlx.autodiff.nth_order_grad(lambda x: x ** 4, order=3)(2.0))
    48.0
    """
    if order < 0:
        raise AutodiffError(f"nth_order_grad got order={order}.", "The order must be zero or more.")
    if not isinstance(subject, (Graph, GraphModule)):
        return _nth_of_function(subject, wrt or 0, order)
    graph = _graph(subject)
    positions, program = _positions(graph, wrt), graph.program
    if len(positions) != 1 or program.inputs[positions[0]].type.shape != () or program.output_types[0].shape != ():
        raise AutodiffError(
            "nth_order_grad differentiates a scalar output with respect to one scalar.",
            "Use directional_nth_grad for arrays.",
        )

    def derivative(*values: Any) -> Any:
        return _nth_of_function(lambda *v: interpret(program, v)[0], positions[0], order)(*values)

    chosen = options or HigherOrderOptions()
    return _like(subject, _tidied(_traced(graph, derivative, f"grad{order}"), chosen))


def nth_order_grad_with_options(subject: Any, wrt: Any, order: int, options: HigherOrderOptions) -> Any:
    """nth_order_grad with options.

    >>> from rlx import autodiff
    >>> options = autodiff.HigherOrderOptions()
    >>> float(autodiff.nth_order_grad_with_options(lambda x: x**4, None, 3, options)(2.0))
    48.0
    """
    return nth_order_grad(subject, wrt, order, options)


def _nth_of_function(function: Callable[..., Any], position: int, order: int) -> Callable[..., Any]:
    """Nest forward mode `order` times."""
    if order == 0:
        return function
    below = _nth_of_function(function, position, order - 1)

    def derivative(*args: Any) -> Any:
        def along(x: Any) -> Any:
            return below(*args[:position], x, *args[position + 1 :])

        x = jnp.asarray(args[position])
        return forward.jvp(along, (x,), (jnp.ones_like(x),))[1]

    return derivative


def _tidied(graph: Graph, options: HigherOrderOptions) -> Graph:
    program = graph.program
    for step in (simplify, eliminate_common, dead_code):
        program = everywhere(step)(program)
    return graph.with_program(MarkElementwiseRegions().run(program) if options.fuse_elementwise else program)


def directional_nth_grad(subject: Any, wrt: Any = None, order: int | Sequence[str] = 2) -> Any:
    """The derivative of a scalar function along one direction for each level: the n-th one contracted n times.

    For a graph: a graph with inputs dir_1, ..., dir_n (or the names given as `order`) and one scalar
    output. For a function: a function of its arguments and then the directions; `wrt` is a position.

    >>> import rlx, rlx.numpy as jnp
    >>> f = lambda x: jnp.sum(x ** 3)
    >>> v = jnp.array([1.0, 0.0])
    >>> float(rlx.autodiff.directional_nth_grad(f)(jnp.array([2.0, 5.0]), v, v))
    12.0
    """
    names = [f"dir_{k + 1}" for k in range(order)] if isinstance(order, int) else list(order)
    if not isinstance(subject, (Graph, GraphModule)):
        return _directional(subject, wrt or 0, len(names))
    graph = _graph(subject)
    positions, program = _positions(graph, wrt), graph.program
    if len(positions) != 1 or program.output_types[0].shape != ():
        raise AutodiffError("directional_nth_grad differentiates a scalar output with respect to one input.")
    contracted = _directional(lambda *v: interpret(program, v)[0], positions[0], len(names))
    extra = [(name, program.inputs[positions[0]].type) for name in names]
    return _like(subject, _traced(graph, contracted, "directional", extra))


def _directional(function: Callable[..., Any], position: int, order: int) -> Callable[..., Any]:
    def contracted(*args: Any) -> Any:
        given = args[: len(args) - order]

        def level(number: int) -> Callable[[Any], Any]:
            if number == 0:
                return lambda x: function(*given[:position], x, *given[position + 1 :])
            direction = args[len(given) + number - 1]
            return lambda x: forward.jvp(level(number - 1), (x,), (direction,))[1]

        return level(order)(given[position])

    return contracted


# ------------------------------------------------------------------ losses
def build_force_energy_loss(subject: Any, positions: Any = None, weights: ForceEnergyLossWeights | None = None) -> Any:
    """weights.force * mean((-dE/dpositions - F)^2) + weights.energy * (E - E_ref)^2.

    For a graph whose first output is the energy: a graph with further inputs force_ref, energy_ref.
    For a function energy(positions, *rest): a function loss(positions, force_ref, energy_ref, *rest).

    >>> import rlx.numpy as jnp
    >>> from rlx import autodiff
    >>> loss = autodiff.build_force_energy_loss(lambda positions: jnp.sum(positions**2) / 2)
    >>> float(loss(jnp.ones(3), -jnp.ones(3), 1.0))
    0.25
    """
    w = weights or ForceEnergyLossWeights()

    def loss(energy: Callable[[Any], Any], at: Any, force_ref: Any, energy_ref: Any) -> Any:
        value, slope = reverse.value_and_grad(energy)(at)
        return w.force * jnp.mean(jnp.square(-slope - force_ref)) + w.energy * jnp.square(value - energy_ref)

    if not isinstance(subject, (Graph, GraphModule)):
        return lambda at, force_ref, energy_ref, *rest: loss(lambda x: subject(x, *rest), at, force_ref, energy_ref)
    graph = _graph(subject)
    (place,), program = _positions(graph, positions), graph.program
    count = len(graph.signature)

    def of_graph(*values: Any) -> Any:
        energy = _restricted(program, values[:count], [place])
        return loss(lambda x: energy(x)[0], values[place], *values[count:])

    extra = [("force_ref", program.inputs[place].type), ("energy_ref", program.output_types[0])]
    return _like(subject, _traced(graph, of_graph, "loss", extra))


# ------------------------------------------------------------------ preparation and own rules
class PrepareForAutodiff:
    """A pass that inlines calls of plain programs and marked regions; custom rules stay.

    Derivatives need no preparation. The pass shows the program that they see, and removes the names.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> from rlx import autodiff
    >>> g = rlx.Graph.trace(rlx.jit(jnp.sin), 1.0)
    >>> opt.run_passes(g, [autodiff.PrepareForAutodiff()])(0.0).item()
    0.0
    """

    name = "prepare_for_autodiff"

    def run(self, program: Program) -> Program:
        """The program without plain calls."""
        return rebuilt(program, self._replace)

    def _replace(self, equation: Any, operands: Sequence[Any]) -> Sequence[Any]:
        if equation.primitive.name == "call":
            return walk(equation.params["program"], operands, self._replace)
        return bound(map_regions(equation, self.run), operands)


def prepare_graph_for_ad(subject: Subject) -> Any:
    """PrepareForAutodiff on a graph or a module at HIR or MIR.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import autodiff
    >>> g = rlx.Graph.trace(rlx.jit(jnp.sin), 1.0)
    >>> autodiff.prepare_graph_for_ad(g)(0.0).item()
    0.0
    """
    graph = _graph(subject)
    return _like(subject, graph.with_program(PrepareForAutodiff().run(graph.program)))
