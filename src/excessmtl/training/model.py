"""A benchmark's network: one trunk and a head per task, or a trunk per task for the single-task baseline."""

from collections.abc import Mapping

from torch import Tensor, nn

from excessmtl.benchmarks.base import Benchmark


class MultiTaskModel(nn.Module):
    """trunk -> heads. Takes one input for all tasks, or a mapping from task to input."""

    def __init__(self, benchmark: Benchmark) -> None:
        super().__init__()
        self.trunk = benchmark.build_trunk()
        self.heads = nn.ModuleDict({task.name: benchmark.build_head(task) for task in benchmark.tasks})

    def forward(self, inputs: Tensor | Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The outputs by task."""
        if isinstance(inputs, Tensor):
            z = self.trunk(inputs)
            return {name: head(z) for name, head in self.heads.items()}
        return {name: self.heads[name](self.trunk(own)) for name, own in inputs.items()}


class SingleTaskModels(nn.Module):
    """A network of its own for every task: what each task can do alone."""

    def __init__(self, benchmark: Benchmark) -> None:
        super().__init__()
        self.models = nn.ModuleDict(
            {task.name: nn.Sequential(benchmark.build_trunk(), benchmark.build_head(task)) for task in benchmark.tasks}
        )

    def forward(self, inputs: Tensor | Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The outputs by task."""
        if isinstance(inputs, Tensor):
            return {name: model(inputs) for name, model in self.models.items()}
        return {name: self.models[name](own) for name, own in inputs.items()}
