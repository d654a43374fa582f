"""A benchmark's network: one trunk and a head per task, or a trunk per task for the single-task baseline."""

from torch import Tensor, nn

from excessmtl.architectures import MultiTask
from excessmtl.lab.data.base import Benchmark
from excessmtl.lab.runs.config import HARD, SINGLE, RunConfig
from excessmtl.lab.training import architectures
from excessmtl.lab.training.batches import ByTask, Inputs


class MultiTaskModel(nn.Module):
    """trunk -> heads. Takes the inputs of all tasks, or `ByTask`."""

    def __init__(self, benchmark: Benchmark) -> None:
        super().__init__()
        self.trunk = benchmark.build_trunk()
        self.heads = nn.ModuleDict({task.name: benchmark.build_head(task) for task in benchmark.tasks})

    @property
    def shared(self) -> nn.Module:
        """The trunk."""
        return self.trunk

    def forward(self, inputs: Inputs) -> dict[str, Tensor]:
        """The outputs by task."""
        if isinstance(inputs, ByTask):
            return {name: self.heads[name](self.trunk(own)) for name, own in inputs.items()}
        z = self.trunk(inputs)
        return {name: head(z) for name, head in self.heads.items()}


class SingleTaskModels(nn.Module):
    """A network of its own for every task: what each task can do alone."""

    def __init__(self, benchmark: Benchmark) -> None:
        super().__init__()
        self.models = nn.ModuleDict(
            {task.name: nn.Sequential(benchmark.build_trunk(), benchmark.build_head(task)) for task in benchmark.tasks}
        )

    def forward(self, inputs: Inputs) -> dict[str, Tensor]:
        """The outputs by task."""
        if isinstance(inputs, ByTask):
            return {name: self.models[name](own) for name, own in inputs.items()}
        return {name: model(inputs) for name, model in self.models.items()}


Network = MultiTaskModel | SingleTaskModels | MultiTask


def make_network(config: RunConfig, benchmark: Benchmark) -> Network:
    """The network that a run trains."""
    if config.method == SINGLE:
        return SingleTaskModels(benchmark)
    if config.architecture == HARD:
        return MultiTaskModel(benchmark)
    return architectures.build(benchmark, config.architecture)
