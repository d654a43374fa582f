"""From a configuration with gaps to one without."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from excessmtl.lab.data import find
from excessmtl.lab.data.base import Benchmark
from excessmtl.lab.data.noise import check_kind
from excessmtl.lab.runs.config import Resolved, RunConfig
from excessmtl.lab.training.batches import noise_of
from excessmtl.lab.training.learner import make_optimiser

_WARMUP_EPOCHS = 3


def load_benchmark(config: RunConfig) -> Benchmark:
    """The benchmark of a configuration, with clean labels."""
    return find.load_benchmark(config.benchmark, config.data, config.seed, config.benchmark_options)


def resolve(config: RunConfig, benchmark: Benchmark, device: torch.device, by_name: bool = True) -> Resolved:
    """The configuration with every gap filled by what the benchmark says.

    `by_name`: whether the benchmark was loaded by the name in the configuration, with its options, or is an object.
    """
    if not by_name and (config.benchmark_options or config.data is not None):
        raise ValueError("data and benchmark_options belong to a benchmark that is loaded by name; leave them out")
    recipe = benchmark.recipe
    noisy = benchmark.noisy_tasks if config.noisy_tasks is None else config.noisy_tasks
    names = [task.name for task in benchmark.tasks]
    unknown = [name for name in noisy if name not in names]
    if unknown:
        raise ValueError(f"noisy_tasks names unknown task {unknown[0]!r}; the tasks are {names}")
    if config.noise and not noisy:
        raise ValueError(f"noise is {config.noise:g}, but noisy_tasks is empty; name the tasks that get it, of {names}")
    chosen = {
        name: getattr(recipe, name) if getattr(config, name) is None else getattr(config, name)
        for name in ("epochs", "batch_size", "learning_rate", "weight_decay", "schedule", "warmup_steps", "optimiser")
    }
    # The recipe's further options are those of its own optimiser.
    default = recipe.optimiser_options if chosen["optimiser"] == recipe.optimiser else {}
    chosen |= {
        "noisy_tasks": tuple(noisy),
        "noise_seed": config.seed if config.noise_seed is None else config.noise_seed,
        "optimiser_options": dict(default if config.optimiser_options is None else config.optimiser_options),
        "options": _method_options(config, benchmark, chosen["batch_size"]),
        "label": config.name,
        "benchmark_options": find.complete_options(config.benchmark, config.benchmark_options) if by_name else {},
        "device": device.type,
    }
    resolved = Resolved(**{**vars(config), **chosen})
    check_kind(benchmark.train, benchmark.tasks, noise_of(resolved))
    make_optimiser(resolved, [nn.Parameter(torch.zeros(1, device=device))], device)  # refuses options that do not fit
    smallest = min(resolved.batch_size, *(benchmark.train.length(name) for name in names))
    if resolved.batch_size % config.devices or smallest < config.devices:
        raise ValueError(
            f"batch_size is {resolved.batch_size} and devices is {config.devices}; a batch, of {smallest} in the "
            "smallest task, must divide evenly: choose other numbers"
        )
    return resolved


def _method_options(config: RunConfig, benchmark: Benchmark, batch_size: int) -> Mapping[str, Any]:
    """The options of the method, completed where the paper has one for the benchmark and the user has not chosen.

    The paper divides excess risks by their initial values where tasks have losses of different kinds (NYUv2), the
    mean over three warm-up epochs, during which the weights rest.
    """
    options = dict(config.options)
    mixed = len({task.kind for task in benchmark.tasks}) > 1
    literal = config.method == "excess" and options.get("estimator") == "paper"
    if literal and mixed and "normalize" not in options:
        longest = max(benchmark.train.length(task.name) for task in benchmark.tasks)
        steps = min(max(1, longest // batch_size), config.limit_batches or longest)
        options |= {"normalize": "initial", "warmup_steps": options.get("warmup_steps", _WARMUP_EPOCHS * steps)}
    return options
