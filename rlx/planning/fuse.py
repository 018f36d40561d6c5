"""Fusion: nests that share an iteration space become one, greedily and in linear time.

Every group of fused nests has a rank above the ranks of all groups it depends on. A nest may join
a group if its other producers have smaller ranks; so no cycle between groups can arise.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Set
from dataclasses import replace
from typing import NamedTuple

from rlx.ir.kernels import Branch, Buffer, Callback, Collective, Kernel, Plan, Scan, While
from rlx.ir.options import LoweringOptions
from rlx.lowering.nest import Nest, Nests, NestStore, Step, store_roots
from rlx.lowering.nodes import Node, NodeTable, postorder
from rlx.planning.merge import Merged, alone, merge

__all__ = ["FusionDecision", "fuse", "fuse_chunks"]

_CANDIDATES = 8  # the most groups that are tried for a nest; keeps fusion linear in time
_SIBLINGS = 3


class FusionDecision(NamedTuple):
    """The outcome for a kernel: `into` names the kernel that it joined, or `reason` says why it joined none."""

    kernel: str
    into: str | None
    reason: str

    def __str__(self) -> str:
        if self.into is not None:
            return f"{self.kernel}: fused into {self.into}"
        return f"{self.kernel}: own kernel ({self.reason})"


class _FusedNests:
    """Nests that became one, or a single kernel of another kind."""

    __slots__ = (
        "awaits",
        "consumed",
        "depths",
        "edges",
        "kernel",
        "nest",
        "parent",
        "position",
        "rank",
        "reads",
    )

    def __init__(self, step: Step, position: int) -> None:
        self.nest = step if isinstance(step, Nest) else None
        self.kernel = step if isinstance(step, Kernel) else None
        self.position = position
        self.rank = 0
        self.consumed = False
        self.edges: set[_FusedNests] = set()
        self.depths: dict[Node, int] = {}
        self.reads: set[Buffer] = set()
        self.parent: _FusedNests | None = None
        self.awaits = False  # an exchange that other kernels can overlap

    def find(self) -> _FusedNests:
        """The group that this one has become part of."""
        group = self
        while group.parent is not None:
            if group.parent.parent is not None:
                group.parent = group.parent.parent
            group = group.parent
        return group


def step_reads(step: Step) -> frozenset[Buffer]:
    """The buffers whose contents a step needs."""
    return step.reads if isinstance(step, Nest) else frozenset(step.reads)


def step_writes(step: Step) -> frozenset[Buffer]:
    """The buffers that a step writes, wholly or in part."""
    return step.writes if isinstance(step, Nest) else frozenset(step.writes)


def has_effect(kernel: Step) -> bool:
    """Whether a step calls the host or exchanges with other processes, so that it must run, and in order."""
    plans: tuple[Plan, ...] = ()
    if isinstance(kernel, (Callback, Collective)):
        return True
    if isinstance(kernel, Scan):
        plans = (kernel.body,)
    elif isinstance(kernel, While):
        plans = (kernel.condition, kernel.body)
    elif isinstance(kernel, Branch):
        plans = kernel.branches
    return any(has_effect(inner) for plan in plans for inner in plan.kernels)


def without_dead(steps: Iterable[Step], outputs: Iterable[Buffer]) -> list[Step]:
    """The steps, and in nests the stores, that an output or an effect needs; order kept."""
    live = set(outputs)
    kept: list[Step] = []
    for step in reversed(list(steps)):
        if isinstance(step, Nest):
            stores = [s for s in step.stores if s.buffer in live]
            if not stores:
                continue
            if len(stores) < len(step.stores):
                step = replace(step, stores=stores)
        elif not (has_effect(step) or any(b in live for b in step.writes)):
            continue
        live |= step_reads(step)
        kept.append(step)
    kept.reverse()
    return kept


class _Fusion:
    """The state of one greedy pass over the steps."""

    def __init__(self, table: NodeTable, options: LoweringOptions) -> None:
        self.table = table
        self.limits = options.fusion
        self.rows = options.rows
        self.least_overlap = options.least_overlap
        self.groups: list[_FusedNests] = []
        self.writers: dict[Buffer, list[_FusedNests]] = {}
        self.readers: dict[Buffer, list[_FusedNests]] = {}
        self.last_effect: _FusedNests | None = None
        self.report: list[FusionDecision] = []

    def add(self, step: Step, position: int) -> None:
        """Place the next step: in a group it may join, or in a new one."""
        reads, writes = step_reads(step), step_writes(step)
        soft = {g.find() for buffer in reads for g in self.writers.get(buffer, ())}
        hard = self._hard_dependencies(step, writes)
        awaits = any(self._is_awaited(g) for g in soft)
        group = None
        if isinstance(step, Nest) and not step.frozen:
            group = self._join(step, reads, writes, soft, hard, awaits)
        if group is None:
            group = self._new_group(step, reads, soft | hard, position)
            group.awaits = awaits
        for dependency in soft | hard:
            if dependency.find() is not group:
                dependency.find().consumed = True
                group.edges.add(dependency)
        group.position = position
        group.reads |= reads
        for buffer in reads:
            self.readers.setdefault(buffer, []).append(group)
        for buffer in writes:
            self.writers.setdefault(buffer, []).append(group)
        if has_effect(step):
            self.last_effect = group

    def _is_awaited(self, group: _FusedNests) -> bool:
        """Whether a group's readers wait for a large exchange that other kernels need not wait for."""
        exchange = group.kernel
        large = isinstance(exchange, Collective) and exchange.output.buffer.nbytes >= self.least_overlap
        return large or group.awaits

    def _hard_dependencies(self, step: Step, writes: Set[Buffer]) -> set[_FusedNests]:
        """Groups that must have finished, regardless of index maps."""
        hard: set[_FusedNests] = set()
        if isinstance(step, Nest) and step.ordered:
            for buffer in writes:
                hard |= {g.find() for g in self.writers.get(buffer, ())}
                hard |= {g.find() for g in self.readers.get(buffer, ())}
        if self.last_effect is not None and has_effect(step):
            hard.add(self.last_effect)
        return hard

    def _new_group(self, step: Step, reads: Set[Buffer], dependencies: set[_FusedNests], position: int) -> _FusedNests:
        group = _FusedNests(step, position)
        group.rank = 1 + max((d.rank for d in dependencies), default=-1)
        if isinstance(step, Nest):
            self._adopt(group, step, alone(self.table, step))
        self.groups.append(group)
        return group

    def _candidates(
        self, reads: Set[Buffer], writes: Set[Buffer], soft: set[_FusedNests], hard: set[_FusedNests]
    ) -> list[_FusedNests]:
        """Groups to try: producers of highest rank, then those that share an operand."""
        producers = sorted(soft, key=lambda g: (-g.rank, -g.position))[:_CANDIDATES]
        found = dict.fromkeys(producers)
        for table, buffers in ((self.writers, writes), (self.readers, reads)):
            for buffer in sorted(buffers, key=lambda b: -b.size)[:_CANDIDATES]:
                for group in reversed(table.get(buffer, ())[-_SIBLINGS:]):
                    found[group.find()] = None
        return [g for g in found if g.nest is not None and not g.nest.frozen and g not in hard]

    def _join(
        self,
        step: Nest,
        reads: Set[Buffer],
        writes: Set[Buffer],
        soft: set[_FusedNests],
        hard: set[_FusedNests],
        awaits: bool,
    ) -> _FusedNests | None:
        """Merge a nest into the first group that takes it."""
        reason = "nothing shares its loops"
        candidates = self._candidates(reads, writes, soft, hard)
        for group in candidates:
            others = [d for d in soft | hard if d is not group]
            needed = 1 + max((d.rank for d in others), default=-1)
            if group.nest is not None and group.nest.epoch != step.epoch:
                reason = "there is a barrier between them"
                continue
            if needed > group.rank and group.consumed:
                reason = "it would have to run before its operands"
                continue
            if group.awaits != awaits:
                reason = "one of the two can overlap an exchange"
                continue
            outcome = self._serial_cost(group.nest, step) or self._attempt(group, step, group in soft)
            if isinstance(outcome, str):
                reason = outcome if group in soft or reason.startswith("nothing") else reason
                continue
            into = "+".join(group.nest.label) if group.nest else ""
            self.report.append(FusionDecision("+".join(step.label), into, ""))
            self._adopt(group, step, outcome)
            group.rank = max(group.rank, needed)
            self._absorb(group, candidates, soft)
            return group
        self.report.append(FusionDecision("+".join(step.label), None, reason))
        return None

    def _serial_cost(self, first: Nest | None, second: Nest) -> str | None:
        """Why two nests stay separate if one scatters, and the other computes much or has sums to share."""
        assert first is not None
        if first.scatters == second.scatters:
            return None
        other = second if first.scatters else first
        many = other.operations > self.limits.serial_operations or (other.sums and not self.limits.mixed_sums)
        expensive = many and other.total >= self.limits.serial_elements
        return "the other scatters element by element" if expensive else None

    def _attempt(self, group: _FusedNests, step: Nest, related: bool) -> Merged | str:
        assert group.nest is not None
        produced = step_writes(group.nest)
        outcome = merge(self.table, group.nest, step, produced, related, self.rows)
        if isinstance(outcome, str):
            return outcome
        if outcome.row and not self.limits.mixed_sums and any(_adds_in_rows(s, outcome.row) for s in outcome.stores):
            return "one sums rows, the other sums elements of rows"
        return self._within_limits(group, outcome)

    def _within_limits(self, group: _FusedNests, outcome: Merged) -> Merged | str:
        known = {} if outcome.rebuilt else group.depths
        fresh = postorder(store_roots(outcome.stores), known)
        if len(known) + len(fresh) > self.limits.instructions:
            return "the kernel would be too large"
        depths = dict(known) if outcome.rebuilt else known
        added: dict[Node, int] = {}
        buffers = set(group.reads) | {s.buffer for s in outcome.stores}
        for node in fresh:
            below = max((added.get(a, depths.get(a, 0)) for a in node.args), default=0)
            added[node] = below + (node.op in ("reduce", "cumulate"))
            if node.op == "load":
                buffers.add(node.attribute.buffer)
        if max(added.values(), default=0) > self.limits.reduce_depth:
            return "too many reductions depend on each other"
        if len(buffers) > self.limits.operands:
            return "the kernel would have too many operands"
        outcome.depths = added
        return outcome

    def _adopt(self, group: _FusedNests, step: Nest, outcome: Merged) -> None:
        """Make the merged nest the group's own."""
        old = group.nest
        assert old is not None
        group.nest = replace(
            old,
            sizes=outcome.sizes,
            stores=outcome.stores,
            row=outcome.row,
            preferred_row=0,
            ordered=old.ordered or step.ordered,
            origins=tuple(dict.fromkeys((*old.origins, *step.origins))),
            label=tuple(dict.fromkeys((*old.label, *step.label))),
            equations=old.equations + step.equations,
        )
        if outcome.rebuilt:
            group.depths = dict(outcome.depths)
        else:
            group.depths.update(outcome.depths)

    def _absorb(self, group: _FusedNests, candidates: list[_FusedNests], producers: set[_FusedNests]) -> None:
        """Pull in further producers and siblings; no group may depend on either (no cycles)."""
        for other in candidates:
            if other is group or other.consumed or group.consumed or other.nest is None:
                continue
            assert group.nest is not None
            apart = other.awaits != group.awaits or other.nest.epoch != group.nest.epoch
            if apart or self._serial_cost(other.nest, group.nest):
                continue
            outcome = self._attempt(other, group.nest, other in producers)
            if isinstance(outcome, str):
                continue
            self._adopt(other, group.nest, outcome)
            group.nest, group.depths = other.nest, other.depths
            group.rank = max(group.rank, other.rank)
            group.reads |= other.reads
            group.edges |= other.edges
            other.parent, other.nest = group, None

    def ordered(self) -> list[Step]:
        """The merged steps, each at the position of its last member."""
        roots = [g for g in self.groups if g.parent is None]
        users: dict[_FusedNests, list[_FusedNests]] = {g: [] for g in roots}
        waiting: dict[_FusedNests, int] = {}
        for group in roots:
            before = {d.find() for d in group.edges} - {group}
            waiting[group] = len(before)
            for dependency in before:
                users[dependency].append(group)
        ready = [(g.position, id(g), g) for g in roots if not waiting[g]]
        heapq.heapify(ready)
        order: list[Step] = []
        while ready:
            _, _, group = heapq.heappop(ready)
            step = group.nest if group.nest is not None else group.kernel
            assert step is not None
            order.append(step)
            for user in users[group]:
                waiting[user] -= 1
                if not waiting[user]:
                    heapq.heappush(ready, (user.position, id(user), user))
        assert len(order) == len(roots), "fusion made a cycle"
        return order


def _adds_in_rows(store: NestStore, row: int) -> bool:
    """Whether several elements of a row are accumulated in one place."""
    return bool(store.accumulate) and not store.once and not all(store.strides[len(store.strides) - row :])


def fuse(nests: Nests, options: LoweringOptions) -> Nests:
    """Merge nests where possible, remove dead steps, and record the decisions."""
    steps = without_dead(nests.steps, nests.outputs)
    if not options.fuse:
        steps = [_alone(nests.table, step) if isinstance(step, Nest) else step for step in steps]
        return replace(nests, steps=tuple(steps))
    fusion = _Fusion(nests.table, options)
    for position, step in enumerate(steps):
        fusion.add(step, position)
    merged = without_dead(fusion.ordered(), nests.outputs)
    return replace(nests, steps=tuple(merged), report=(*nests.report, *fusion.report))


def fuse_chunks(nests: Nests, options: LoweringOptions) -> Nests:
    """Merge nests that combine chunks with the readers of the result."""
    chunked = any(isinstance(step, Nest) and step.chunks > 1 for step in nests.steps)
    return fuse(nests, options) if chunked else nests


def _alone(table: NodeTable, nest: Nest) -> Nest:
    """A nest in its unmerged form: its accumulations over a row are reductions."""
    form = alone(table, nest)
    return replace(nest, sizes=form.sizes, stores=form.stores, row=form.row, preferred_row=0)
