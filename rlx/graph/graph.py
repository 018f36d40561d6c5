"""Graphs built by hand: names and node numbers over a program under construction."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from rlx.array import Array
from rlx.call.jit import make_program
from rlx.errors import DtypeError, RlxError, ShapeError
from rlx.graph.named_sizes import bound, recorded, renamed
from rlx.graph.operations import Operations
from rlx.graph.types import NodeId, NodeOrigin, Op, OpKind, Shape
from rlx.ir.program import Atom, Equation, Program, dead_code
from rlx.ir.show import show_program
from rlx.ir.types import TensorType, dtype_kind
from rlx.numpy.operators import OPERATORS, REFLECTED
from rlx.ops.arithmetic import convert
from rlx.ops.call import call
from rlx.trace.builder import Builder, Tracer, state
from rlx.trace.flat import as_array, function_name
from rlx.trace.lower import inline_blocks
from rlx.trees import tree

__all__ = ["Graph", "Node", "node_label"]

_RANKS = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}  # the kinds that a Python number may convert to


# sizes that stand for names while a graph is built: primes, so that no product of other sizes equals one
_STAND_INS = (10007, 10009, 10037, 10039, 10061, 10067, 10069, 10079, 10091, 10093, 10099, 10103)


class RecordedCall(NamedTuple):
    """A call that built a part of a graph."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any


class Node:
    """A value of a graph: an operation's result, an input, a parameter, or a constant.

    Arithmetic and ordering work as on arrays. `==` tests whether two nodes are the same node; graph.equal is the
    elementwise comparison.

    >>> import rlx
    >>> g = rlx.Graph("line")
    >>> x = g.input("x", rlx.Shape([2]))
    >>> y = 2.0 * x + 1.0
    >>> y.shape
    Shape([2], F32)
    """

    __slots__ = ("atom", "graph")
    __array_priority__ = 2000  # NumPy arrays defer mixed operators to nodes

    def __init__(self, graph: Graph, atom: Atom) -> None:
        self.graph = graph
        self.atom = atom

    @property
    def id(self) -> NodeId:
        """The node's number."""
        return self.graph._numbers[self.atom]

    @property
    def shape(self) -> Shape:
        """Sizes and element type. In a graph with named sizes, a size that follows from names is called "derived"."""
        return self.graph._named_shape(Shape.of(self.atom.type))

    @property
    def op(self) -> Op:
        """The operation that computes the value."""
        equation = self.graph._producer(self.atom)
        if equation is not None:
            return Op(OpKind(equation.primitive.name), equation.params)
        role = self.graph._roles.get(self.atom)
        return Op(OpKind(role[0] if role else "constant"), {"name": role[1]} if role else {})

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The operation's operands."""
        equation = self.graph._producer(self.atom)
        return () if equation is None else tuple(self.graph._node(a) for a in equation.inputs)

    @property
    def origin(self) -> NodeOrigin:
        """The user's line that created the node, and its label."""
        equation = self.graph._producer(self.atom)
        return NodeOrigin(None if equation is None else equation.origin, node_label(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self.atom is other.atom

    def __hash__(self) -> int:
        return id(self.atom)

    def __getitem__(self, index: Any) -> Node:
        found: Node = self.graph.apply(lambda x: x[index], self)
        return found

    def __rlx_array__(self) -> Any:
        raise RlxError(
            "A node of a graph was passed to a function of arrays; it has no value yet.",
            "Record the function into the graph: graph.apply(rlx.numpy.sin, node).",
        )

    def __bool__(self) -> bool:
        raise RlxError(
            "A node of a graph has no value yet, so it is neither true nor false.",
            "Use graph.where, graph.cond or graph.while_loop.",
        )

    def __repr__(self) -> str:
        return f"<node {self.id!r} {node_label(self)}: {self.atom.type!r}>"


def _operator(name: str) -> Callable[..., Node]:
    def method(self: Node, *others: Any) -> Node:
        found: Node = self.graph.apply(lambda x, *rest: getattr(x, name)(*rest), self, *others)
        return found

    method.__name__ = name
    return method


_ELEMENTWISE = [name for name in OPERATORS if name not in ("eq", "ne")]  # == compares identity
for _name in (*_ELEMENTWISE, *[f"r{name}" for name in REFLECTED], "neg", "pos", "abs", "invert"):
    setattr(Node, f"__{_name}__", _operator(f"__{_name}__"))


def node_label(node: Node) -> str:
    """A node in a few words: its name, or its operation and number.

    >>> g = Graph("g")
    >>> node_label(g.input("x", Shape([2])))
    'x'
    """
    role = node.graph._roles.get(node.atom)
    return role[1] if role else f"{node.op.kind}{node.id!r}"


class Graph(Operations):
    """A program built by hand, operation by operation.

    It only adds names to a Program: `program` is that program. A graph can be called as a function, also inside
    jit, grad and vmap.

    >>> import rlx
    >>> g = rlx.Graph("double")
    >>> x = g.input("x", rlx.Shape([2]))
    >>> g.set_outputs([x + x])
    >>> g(rlx.numpy.ones(2))
    Array([2., 2.], dtype=float32)
    """

    def __init__(self, name: str = "graph") -> None:
        self.name = self.__name__ = name  # like a function's, for jit and its messages
        self._builder = Builder(name)
        self._atoms: list[Atom] = []
        self._numbers: dict[Atom, NodeId] = {}
        self._roles: dict[Atom, tuple[str, str]] = {}  # ("input" or "param", name)
        self._producers: dict[Atom, Equation] = {}
        self._seen = 0
        self._outputs: tuple[Atom, ...] | None = None
        self._program: tuple[Any, Program] | None = None  # cache: (state, program)
        self.symbols: dict[str, int] = {}  # named sizes, and the sizes that stand for them while the graph is built
        self._calls: list[RecordedCall] = []  # what built the graph, to build it again for other sizes
        self._depth = 0

    # ------------------------------------------------------------------ named sizes
    def _recorded(self, name: str, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a method that builds, and keep the call unless it is part of another one."""
        if self._depth:
            return method(self, *args, **kwargs)
        self._depth += 1
        try:
            result = method(self, *self._sized(args), **self._sized(kwargs))
        finally:
            self._depth -= 1
        self._calls.append(RecordedCall(name, args, kwargs, result))
        return result

    def _sized(self, values: Any) -> Any:
        """Arguments with the sizes that stand for names."""
        return bound(values, self.symbols)

    def _named_shape(self, shape: Shape) -> Shape:
        """A shape with names in place of the sizes that stand for them."""
        if not self.symbols:
            return shape
        names = {size: name for name, size in self.symbols.items()}
        known = [names.get(n, "derived" if n > min(names) else n) for n in shape.type.shape]
        return Shape(known, shape.dtype)

    def specialize(self, sizes: Mapping[str, int] | None = None, **named: int) -> Graph:
        """The graph built again with values for its named sizes. Every shape is checked again.

        Raises: RlxError for a name without a value or a value without a name; ShapeError if the sizes do not fit.

        >>> import rlx
        >>> g = rlx.Graph("rows")
        >>> x = g.input("x", rlx.Shape(["batch", 4]))
        >>> g.set_outputs([g.reduce("sum", x, [1])])
        >>> g.specialize(batch=3)(rlx.numpy.ones((3, 4)))
        Array([4., 4., 4.], dtype=float32)
        """
        given = {**(sizes or {}), **named}
        missing, unknown = self.symbols.keys() - given.keys(), given.keys() - self.symbols.keys()
        for what, names in (("no value for the size", missing), ("no size named", unknown)):
            if names:
                raise RlxError(f"Graph {self.name!r} has {what} {', '.join(sorted(names))}.", self._sizes_text())
        graph = Graph(self.name)
        nodes: dict[Any, Node] = {}
        for made in self._calls:
            args, kwargs = renamed((made.args, made.kwargs), nodes)
            result = getattr(graph, made.name)(*bound(args, given), **bound(kwargs, given))
            pairs = zip(tree.leaves(made.result, _is_node), tree.leaves(result, _is_node), strict=True)
            nodes.update((old.atom, new) for old, new in pairs if isinstance(old, Node))
        return graph

    def _sizes_text(self) -> str:
        return f"Its named sizes are: {', '.join(self.symbols) or 'none'}."

    # ------------------------------------------------------------------ leaves
    @recorded
    def input(self, name: str, shape: Any, dtype: Any = None) -> Node:
        """A value that is passed to each run. `shape`: a Shape, or sizes (with `dtype`, float32 if left out)."""
        return self._leaf("input", name, shape, dtype)

    @recorded
    def param(self, name: str, shape: Any, dtype: Any = None) -> Node:
        """A value that is set once (CompiledGraph.set_param) and used by every run."""
        return self._leaf("param", name, shape, dtype)

    @recorded
    def constant(self, value: Any) -> Node:
        """An array that is part of the graph."""
        listed = np.asarray(value) if isinstance(value, (list, tuple)) else value
        return self._number(self._builder.lift(as_array(listed)))

    def _leaf(self, role: str, name: str, shape: Any, dtype: Any) -> Node:
        if name in self.signature:
            raise RlxError(
                f"Graph {self.name!r} already has an input or parameter {name!r}.", "Choose another name."
            )
        full = Shape(shape, dtype) if dtype is not None else Shape.of(shape)
        for symbol in full.symbols:
            self.symbols.setdefault(symbol, _STAND_INS[len(self.symbols) % len(_STAND_INS)])
        full = full.bind(self.symbols)
        atom = self._builder.input(full.type).atom
        self._roles[atom] = (role, name)
        return self._number(atom)

    # ------------------------------------------------------------------ operations
    @recorded
    def apply(self, function: Callable[..., Any], *operands: Any, **options: Any) -> Any:
        """Record any function of arrays (of rlx.numpy, rlx.nn, or your own); nodes stand for arrays.

        Returns: a node, or a tree of nodes with the structure of the function's result.
        """
        values, named = tree.map(self._value, (operands, options), is_leaf=_is_node)
        with self._recording():
            results = function(*values, **named)
        return tree.map(self._adopt, results)

    @contextmanager
    def _recording(self) -> Generator[None]:
        before, state.builder = state.builder, self._builder
        try:
            yield
        finally:
            state.builder = before
            self._number_new()

    def _value(self, operand: Any) -> Any:
        if not isinstance(operand, Node):
            return operand
        if operand.graph is not self:
            raise RlxError(
                f"Graph {self.name!r} got a node of graph {operand.graph.name!r}.",
                "Call the other graph as a function of nodes: graph.apply(other, x).",
            )
        return Tracer(self._builder, operand.atom)

    def _adopt(self, result: Any) -> Node:
        return self._number(self._builder.lift(as_array(result)))

    def _number(self, atom: Atom) -> Node:
        self._number_new()
        if atom not in self._numbers:
            self._numbers[atom] = NodeId(len(self._atoms))
            self._atoms.append(atom)
        return Node(self, atom)

    def _number_new(self) -> None:
        fresh = self._builder.equations[self._seen :]
        self._seen += len(fresh)
        for equation in fresh:
            self._producers.update(dict.fromkeys(equation.outputs, equation))
        atoms = (a for e in fresh for a in (*e.inputs, *e.outputs))
        for atom in (*self._builder.inputs, *atoms):
            if atom not in self._numbers:
                self._numbers[atom] = NodeId(len(self._atoms))
                self._atoms.append(atom)

    def _producer(self, atom: Atom) -> Equation | None:
        return self._producers.get(atom)

    def _node(self, atom: Atom) -> Node:
        return Node(self, atom)

    # ------------------------------------------------------------------ contents
    @property
    def nodes(self) -> list[Node]:
        """Every node, by number."""
        return [Node(self, atom) for atom in self._atoms]

    def node(self, id: int) -> Node:
        """The node with a number."""
        return Node(self, self._atoms[id])

    def __len__(self) -> int:
        return len(self._atoms)

    @property
    def signature(self) -> dict[str, Node]:
        """Inputs and parameters by name, in the order in which they were declared."""
        return {self._roles[v][1]: Node(self, v) for v in self._builder.inputs}

    def _of_role(self, role: str) -> dict[str, Node]:
        return {name: node for name, node in self.signature.items() if self._roles[node.atom][0] == role}

    @property
    def inputs(self) -> dict[str, Node]:
        """Inputs by name."""
        return self._of_role("input")

    @property
    def params(self) -> dict[str, Node]:
        """Parameters by name."""
        return self._of_role("param")

    @property
    def outputs(self) -> list[Node]:
        """The nodes of the outputs."""
        if self._outputs is None:
            raise RlxError(f"Graph {self.name!r} has no outputs yet.", "Call graph.set_outputs([...]) first.")
        return [Node(self, atom) for atom in self._outputs]

    @recorded
    def set_outputs(self, outputs: Node | Sequence[Node]) -> None:
        """Set the outputs of the graph."""
        nodes = [outputs] if isinstance(outputs, Node) else list(outputs)
        self._outputs = tuple(self._value(node).atom for node in nodes)

    @property
    def program(self) -> Program:
        """The program, without dead code; its inputs are `signature`, in order. Raises RlxError for named sizes."""
        if self.symbols:
            raise RlxError(
                f"Graph {self.name!r} has sizes without a value: {', '.join(self.symbols)}.",
                "Bind them: graph.specialize(batch=8), or the option dim_binding of rlx.compile.CompileOptions.",
            )
        outputs = tuple(node.atom for node in self.outputs)
        state_of = (len(self._builder.inputs), outputs)
        if self._program is None or self._program[0] != state_of:
            constants = list(self._builder.captures.values())
            whole = Program(self._builder.inputs, self._builder.equations, outputs, constants, self.name)
            self._program = (state_of, dead_code(whole))
        return self._program[1]

    # ------------------------------------------------------------------ as a function
    def __call__(self, *args: Any, **named: Any) -> Any:
        """The outputs (a single one, or a tuple) for values of the signature, by position or by name."""
        program = self.program
        values = self.bind_values(args, named)
        held = [array for _, array in program.constants]
        opened = program.replace(inputs=[*[v for v, _ in program.constants], *program.inputs], constants=())
        results = call(*held, *values, program=opened, name=self.name)
        return results[0] if len(results) == 1 else tuple(results)

    def bind_values(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Array]:
        """Values in the order of the signature, checked. Raises RlxError, ShapeError, DtypeError."""
        signature = self.signature
        if len(args) > len(signature):
            raise RlxError(f"Graph {self.name!r} takes {len(signature)} values, got {len(args)}.")
        given = dict(zip(signature, args, strict=False))
        twice = given.keys() & named.keys()
        unknown = named.keys() - signature.keys()
        missing = [name for name in signature if name not in given and name not in named]
        for what, names in (("values given twice", twice), ("no input or parameter named", unknown)):
            if names:
                raise RlxError(f"Graph {self.name!r}: {what}: {', '.join(sorted(names))}.", self._usage())
        if missing:
            raise RlxError(f"Graph {self.name!r} got no value for: {', '.join(missing)}.", self._usage())
        given.update(named)
        return [fit(given[name], node.atom.type, name) for name, node in signature.items()]

    def _usage(self) -> str:
        listed = ", ".join(f"{name}: {node.atom.type!r}" for name, node in self.signature.items())
        return f"Its signature is ({listed})."

    # ------------------------------------------------------------------ conversion
    @classmethod
    def trace(
        cls, function: Callable[..., Any], *args: Any, params: Sequence[str] = (), **kwargs: Any
    ) -> Graph:
        """The graph of a function for arguments of these shapes and dtypes.

        Inputs are named as the function's arguments (trees: with the path to the leaf); inputs whose
        name, or argument, is among `params` are parameters. Outputs are the leaves of the result.
        """
        program = inline_blocks(make_program(function)(*args, **kwargs))
        names = list(_leaf_names(function, args, kwargs))
        roles = ["param" if name in params or head in params else "input" for name, head in names]
        return cls.from_program(program, [name for name, _ in names], roles, function_name(function))

    @classmethod
    def from_program(
        cls,
        program: Program,
        names: Sequence[str] | None = None,
        roles: Sequence[str] | None = None,
        name: str | None = None,
    ) -> Graph:
        """A graph over a program; its inputs are named x0, x1, ... by default."""
        graph = cls(name or program.name)
        given = [f"x{k}" for k in range(len(program.inputs))] if names is None else list(names)
        kinds = ["input"] * len(given) if roles is None else list(roles)
        graph._builder.inputs = list(program.inputs)
        graph._builder.equations = list(program.equations)
        graph._builder.captures = {id(array): (v, array) for v, array in program.constants}
        if len(graph._builder.captures) < len(program.constants):  # the same array as several variables
            graph._builder.captures = {id(v): (v, array) for v, array in program.constants}
        for variable, label, kind in zip(program.inputs, given, kinds, strict=True):
            graph._roles[variable] = (kind, label)
        graph._number_new()
        for atom in program.outputs:
            graph._number(atom)
        graph._outputs = tuple(program.outputs)
        return graph

    def with_program(self, program: Program) -> Graph:
        """A graph of another program with this graph's names and roles."""
        roles = [self._roles[node.atom][0] for node in self.signature.values()]
        return Graph.from_program(program, list(self.signature), roles, self.name)

    def __str__(self) -> str:
        return show_program(self.program)

    def __repr__(self) -> str:
        return f"<graph {self.name}: {len(self._atoms)} nodes>"


def _is_node(value: Any) -> bool:
    return isinstance(value, Node)


def _leaf_names(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """(name of the leaf, name of its argument) in the order of a program's inputs."""
    try:
        heads = list(inspect.signature(function).bind(*args).signature.parameters.values())
    except (TypeError, ValueError):
        heads = []
    plain = [p.name for p in heads if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    for number, value in enumerate(args):
        head = plain[number] if number < len(plain) else f"x{number}"
        for path, _ in tree.leaves_with_path(value):
            yield f"{head}{tree.path_text(path)}", head
    for path, _ in tree.leaves_with_path(dict(kwargs)):
        head = str(path[0])
        yield f"{head}{tree.path_text(path[1:])}", head


def fit(value: Any, type: TensorType, name: str) -> Array:
    """Convert a value to an array of exactly a type. Raises ShapeError, DtypeError."""
    array = as_array(value, f"the value of {name!r}")
    if array.shape != type.shape:
        raise ShapeError(f"{name!r} has shape {type.shape}, and got a value of shape {array.shape}.")
    if array.dtype == type.dtype and not array.weak_type:
        return array
    if array.weak_type and _RANKS[dtype_kind(array.dtype)] <= _RANKS[dtype_kind(type.dtype)]:
        found: Array = convert(array, dtype=type.dtype, weak=False)
        return found
    raise DtypeError(
        f"{name!r} is of dtype {type.dtype.name}, and got a value of {array.dtype.name}.",
        f"Use value.astype({type.dtype.name!r}).",
    )
