"""Method options that belong to a benchmark in the paper, where the user has not chosen."""

from collections.abc import Mapping
from typing import Any

from excessmtl.benchmarks.base import Benchmark
from excessmtl.training.config import RunConfig

_WARMUP_EPOCHS = 3


def method_options(config: RunConfig, benchmark: Benchmark, batch_size: int) -> Mapping[str, Any]:
    """The options of the method, completed.

    The paper divides excess risks by their initial values where tasks have losses of different kinds (NYUv2), the
    mean over three warm-up epochs, during which the weights rest.
    """
    options = dict(config.options)
    mixed = len({task.kind for task in benchmark.tasks}) > 1
    literal = config.method == "excess" and options.get("estimator") == "paper"
    if literal and mixed and "normalize" not in options:
        longest = max(benchmark.train.length(task.name) for task in benchmark.tasks)
        steps = max(1, longest // batch_size)
        steps = steps if config.limit_batches is None else min(steps, config.limit_batches)
        options |= {"normalize": "initial", "warmup_steps": options.get("warmup_steps", _WARMUP_EPOCHS * steps)}
    return options
