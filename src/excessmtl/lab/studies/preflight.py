"""What would stop every run of a study alike, found before any of them starts."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from excessmtl.lab.data.base import DataNotFoundError
from excessmtl.lab.runs.config import SINGLE, RunConfig
from excessmtl.lab.runs.folder import folder_of
from excessmtl.lab.training.learner import make_balancer
from excessmtl.lab.training.processes import make_fabric
from excessmtl.lab.training.resolve import load_benchmark, resolve


def check_runs(runs: Sequence[RunConfig]) -> None:
    """Raises what the first run of each kind would: data that is missing, options that do not fit, no such device.

    Every benchmark is loaded once, for one seed; that also fills the cache of those that make their data.
    """
    by_benchmark: dict[str, dict[str, RunConfig]] = {}
    for config in runs:
        data, method, *_ = folder_of(config).parts
        by_benchmark.setdefault(data, {}).setdefault(method, config)
    for methods in by_benchmark.values():
        first = next(iter(methods.values()))
        try:
            benchmark = load_benchmark(first)
        except DataNotFoundError as error:
            if first.data is None and Path(first.benchmark).suffix:  # a table, whose name is in the sentence
                raise
            advice = "In a study, the key `data` of the benchmark's entry stands for --data."
            raise DataNotFoundError(f"{first.benchmark}: {error} {advice}") from error
        names = [task.name for task in benchmark.tasks]
        for config in methods.values():
            make_fabric(config)
            resolved = resolve(config, benchmark, torch.device("cpu"))
            if config.method != SINGLE:
                make_balancer(config.method, names, nn.Linear(1, 1), resolved.options)
