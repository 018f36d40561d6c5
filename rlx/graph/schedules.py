"""rlx.pipeline_schedule: a topological order of a pipeline's stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from rlx.errors import OptionError, did_you_mean

__all__ = ["PipelineSchedule", "pipeline_schedule"]


@dataclass(frozen=True)
class PipelineSchedule:
    """Stages in order. `levels`: groups of mutually independent stages; `deps`: the stages that each stage needs.

    >>> import rlx
    >>> rlx.pipeline_schedule("p", {"a": [], "b": ["a"]}).order
    ('a', 'b')
    """

    name: str
    order: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    deps: tuple[tuple[str, tuple[str, ...]], ...]


def pipeline_schedule(name: str, stages: Mapping[str, Iterable[str]]) -> PipelineSchedule:
    """Order stages so that each follows the stages that it needs.

    Args:
      name: the pipeline's name.
      stages: the stages that each stage needs.

    Returns: the schedule; within a level, stages keep their given order.

    Raises: OptionError for a missing stage, and for a cycle, which the message names.

    >>> import rlx
    >>> found = rlx.pipeline_schedule("train", {"load": [], "step": ["load"], "log": ["step"], "save": ["step"]})
    >>> found.levels
    (('load',), ('step',), ('log', 'save'))
    """
    needs = {stage: tuple(dict.fromkeys(deps)) for stage, deps in stages.items()}
    for stage, deps in needs.items():
        if unknown := [d for d in deps if d not in needs]:
            raise OptionError(
                f"The stage {stage!r} of {name} needs {unknown[0]!r}, which is not a stage.",
                did_you_mean(unknown[0], needs) or f"There are: {', '.join(needs)}.",
            )
    sorter = TopologicalSorter(needs)
    cycle: list[str] = []
    try:
        sorter.prepare()
    except CycleError as error:
        cycle = error.args[1]
    if cycle:
        raise OptionError(
            f"The stages of {name} form a cycle: {' -> '.join(reversed(cycle))}.",
            "Remove one of these dependencies.",
        )
    levels = []
    places = {stage: n for n, stage in enumerate(needs)}
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=places.__getitem__)
        levels.append(tuple(ready))
        sorter.done(*ready)
    order = tuple(stage for level in levels for stage in level)
    return PipelineSchedule(name, order, tuple(levels), tuple(needs.items()))
