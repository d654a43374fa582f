"""How a balancer computes gradients and decides: its options `engine`, `tasks_at_once` and `record`."""

from typing import Any, Literal

from excessmtl.gradients.any_graph import AnyGraph
from excessmtl.gradients.one_pass import Fastest
from excessmtl.graph.places import Probe
from excessmtl.recording.recorded import Recorded

EngineName = Literal["fast", "reference"]


def chosen_engine(engine: EngineName | AnyGraph, probe: Probe, tasks_at_once: Any, record: bool) -> AnyGraph:
    """What the options stand for; a ValueError for those that do not fit together."""
    if tasks_at_once is not None and not probe.to_the_end:
        raise ValueError("tasks_at_once is not used by this method as it is set up here; leave it out")
    if tasks_at_once is not None and (not isinstance(tasks_at_once, int) or tasks_at_once < 1):
        raise ValueError(f"tasks_at_once must be a whole number of tasks, at least 1, found {tasks_at_once!r}")
    if engine == "fast":
        return (Recorded if record else Fastest)(tasks_at_once)
    if engine == "reference":
        if tasks_at_once is not None:
            raise ValueError("tasks_at_once is an option of engine='fast', found engine='reference'; leave it out")
        return AnyGraph()
    if isinstance(engine, str | type) or not hasattr(engine, "task_gradients"):
        raise ValueError(f"engine must be 'fast', 'reference' or an engine, found {engine!r}")
    if tasks_at_once is not None:
        raise ValueError("tasks_at_once has no effect on an engine that was made already; pass it to the engine")
    if not record and isinstance(engine, Recorded):
        raise ValueError("record=False has no effect on what records already; pass a Fastest")
    return engine
