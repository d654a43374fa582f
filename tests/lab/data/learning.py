"""A bare training loop, to ask whether there is something to learn in a benchmark."""

import torch
from torch import Tensor, nn

from excessmtl.lab.data.base import Benchmark


def learned_outputs(bench: Benchmark, epochs: int, learning_rate: float) -> dict[str, Tensor]:
    """Outputs of every task on the test split, after so many epochs with all tasks weighted alike."""
    threads = torch.get_num_threads()
    # Small networks on a busy machine: threads that wait for each other take ten times as long as one.
    torch.set_num_threads(1)
    try:
        torch.manual_seed(0)
        trunk, heads = bench.build_trunk(), nn.ModuleDict({t.name: bench.build_head(t) for t in bench.tasks})
        optimiser = torch.optim.Adam([*trunk.parameters(), *heads.parameters()], learning_rate)
        x = bench.prepare(torch.as_tensor(bench.train.inputs))
        for _ in range(epochs):
            for batch in torch.split(torch.randperm(len(x)), bench.recipe.batch_size):
                z = trunk(x[batch])
                losses = [t.kind.loss(heads[t.name](z), bench.train.targets[t.name][batch]) for t in bench.tasks]
                optimiser.zero_grad()
                torch.autograd.backward(losses)
                optimiser.step()
        trunk.eval()
        with torch.no_grad():
            z = trunk(bench.prepare(torch.as_tensor(bench.test.inputs)))
            return {t.name: heads[t.name](z) for t in bench.tasks}
    finally:
        torch.set_num_threads(threads)
