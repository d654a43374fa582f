"""Multi-task learning that one badly labelled task cannot ruin."""

from importlib import import_module
from typing import Any

from excessmtl import losses
from excessmtl.balancer import Balancer
from excessmtl.create import ExcessMTL, create, list_methods
from excessmtl.diagnosis import diagnose
from excessmtl.extras import needed_by
from excessmtl.graph.representation import representation
from excessmtl.multi_task_loss import MultiTaskLoss
from excessmtl.pareto import dominates, hypervolume, pareto_front, pareto_stationarity
from excessmtl.step.result import Step

__all__ = [
    "Balancer",
    "ExcessMTL",
    "MultiTaskLoss",
    "Step",
    "create",
    "diagnose",
    "dominates",
    "hypervolume",
    "list_methods",
    "losses",
    "pareto_front",
    "pareto_stationarity",
    "representation",
    "testing",
]
__version__ = "0.1.0"


def __dir__() -> list[str]:
    """The public names, without what this file and the package's own modules import."""
    return [*__all__, *(name for name in globals() if name.startswith("__"))]


def __getattr__(name: str) -> Any:
    """`testing`, and `Recorder`, which needs the packages of the extra `[lab]`: imported when asked for."""
    if name == "testing":
        return import_module("excessmtl.testing")
    if name == "Recorder":
        with needed_by("excessmtl.Recorder", "lab"):
            return import_module("excessmtl.lab.runs.recorder").Recorder
    raise AttributeError(f"module 'excessmtl' has no attribute {name!r}")
