"""Choosing the engine of a balancer by name."""

from typing import Any, Literal

from excessmtl.cuda_graphs.engine import GraphedEngine
from excessmtl.engine.plan import Probe
from excessmtl.engine.reference import Engine, ReferenceEngine
from excessmtl.fast.engine import FastEngine

EngineName = Literal["fast", "reference"]


def make_engine(engine: EngineName | Engine, probe: Probe, tasks_at_once: Any, record: bool) -> Engine:
    """The engine of this name with these options, or the engine itself where one was given."""
    if tasks_at_once is not None and probe is not Probe.SHARED:
        raise ValueError("tasks_at_once is not used by this method as it is set up here; leave it out")
    if tasks_at_once is not None and (not isinstance(tasks_at_once, int) or tasks_at_once < 1):
        raise ValueError(f"tasks_at_once must be a whole number of tasks, at least 1, found {tasks_at_once!r}")
    if not isinstance(engine, str):
        if isinstance(engine, type) or not hasattr(engine, "task_gradients"):
            raise ValueError(f"engine must be 'fast', 'reference' or an engine, found {engine!r}")
        if tasks_at_once is not None:
            raise ValueError("tasks_at_once has no effect on an engine that was made already; pass it to the engine")
        if not record and isinstance(engine, GraphedEngine):
            raise ValueError("record=False has no effect on a GraphedEngine; pass the FastEngine that it holds")
        return engine
    if engine == "fast":
        fast = FastEngine(tasks_at_once)
        return GraphedEngine(fast) if record else fast
    if engine != "reference":
        raise ValueError(f"engine must be 'fast' or 'reference', found {engine!r}")
    if tasks_at_once:
        raise ValueError("tasks_at_once is an option of engine='fast', found engine='reference'; leave it out")
    return ReferenceEngine()
