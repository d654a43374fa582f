"""Multi-task learning that one badly labelled task cannot ruin."""

from importlib import import_module
from typing import Any

from excessmtl.balancer import Balancer
from excessmtl.bayes_agg import BayesAgg
from excessmtl.create import ExcessMTL, create, list_methods
from excessmtl.diagnosis import diagnose
from excessmtl.extras import needed_by
from excessmtl.graph.representation import representation
from excessmtl.pareto import dominates, hypervolume, pareto_front, pareto_stationarity
from excessmtl.recording.replay import Replay
from excessmtl.step.result import Step

__all__ = [
    "Balancer",
    "BayesAgg",
    "ExcessMTL",
    "Replay",
    "Step",
    "create",
    "diagnose",
    "dominates",
    "hypervolume",
    "list_methods",
    "pareto_front",
    "pareto_stationarity",
    "representation",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`Recorder`, which needs the packages of the extra `[lab]`: imported when asked for."""
    if name == "Recorder":
        with needed_by("excessmtl.Recorder", "lab"):
            return import_module("excessmtl.training.recorder").Recorder
    raise AttributeError(f"module 'excessmtl' has no attribute {name!r}")
