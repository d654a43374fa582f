"""What the exact mode loses with accumulators that take less memory: `accumulators="bf16"`.

One network is trained by Algorithm 1 in fp32. At every step the other forms see the same gradients, so that whatever
differs is theirs alone. bf16 with ordinary rounding is there to show why ours is not that.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from excessmtl import Balancer
from excessmtl.bench.machine import machine
from excessmtl.benchmarks.base import Targets
from excessmtl.engine.observation import Observation
from excessmtl.estimation.accumulators import Estimate, Rounded, State
from excessmtl.files import atomic_write
from excessmtl.methods.excess_mtl import PaperExcess
from excessmtl.training.batches import Inputs, prepared
from excessmtl.training.config import RunConfig
from excessmtl.training.loop import Run
from excessmtl.training.model import MultiTaskModel

PROBLEMS: Mapping[str, Mapping[str, Any]] = {"multimnist": {"bundled": True}, "simulated-arm": {}}
LAST = 100
"""Steps at the end over which the error of the excess risks is averaged."""


class Nearest(Rounded):
    """bf16 as a processor rounds: a square below 1/256 of its sum is lost."""

    def estimate(self, state: State, seen: Observation) -> Estimate:
        """As ours, with another rounding."""
        squares, matrix = state["squares"], seen.matrix
        assert matrix is not None

        def finish() -> None:
            squares.copy_(torch.addcmul(squares.float(), matrix, matrix))

        return replace(super().estimate(state, seen), finish=finish)


@dataclass(frozen=True)
class PaperNearest(PaperExcess):
    """The paper's rule with it."""

    @property
    def _squares(self) -> Rounded:
        return Nearest()


FORMS: Mapping[str, Callable[[], PaperExcess]] = {
    "fp32": PaperExcess,
    "bf16": lambda: PaperExcess(accumulators="bf16"),
    "bf16, ordinary rounding": PaperNearest,
}


class Comparison:
    """All forms on one network in training."""

    def __init__(self, run: Run) -> None:
        torch.manual_seed(run.config.seed)
        self.run, self.model = run, MultiTaskModel(run.benchmark)
        rate, decay = run.config.learning_rate, run.config.weight_decay
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=rate, weight_decay=decay)
        # On the simplex, so that errors of weights do not grow with the number of tasks.
        given = (run.learner.tasks, self.model.trunk)
        self.balancers = {name: Balancer(form(), *given, scale="mean") for name, form in FORMS.items()}
        self.risk_errors: dict[str, list[Tensor]] = {name: [] for name in FORMS}
        self.weight_errors: dict[str, list[Tensor]] = {name: [] for name in FORMS}

    def step(self, inputs: Inputs, targets: Targets) -> None:
        """Ask every form, train with fp32."""
        risks, weights = {}, {}
        for name in reversed(FORMS):  # fp32 last: its gradients are those that stay
            self.optimiser.zero_grad()
            outputs = self.model(inputs)
            losses = {task: self.run.learner.losses[task](outputs[task], target) for task, target in targets.items()}
            step = self.balancers[name].backward(losses)
            risks[name], weights[name] = step.excess_risks, step.weights
        for name in FORMS:
            self.risk_errors[name].append(((risks[name] - risks["fp32"]).abs() / risks["fp32"]).mean())
            self.weight_errors[name].append((weights[name] - weights["fp32"]).abs().max())
        self.optimiser.step()

    def row(self, name: str) -> dict[str, Any]:
        """Memory and errors of one form."""
        state = self.balancers[name].state
        return {
            "accumulators": name,
            "bytes": sum(tensor.numel() * tensor.element_size() for tensor in state.values()),
            "risk_error": float(torch.stack(self.risk_errors[name][-LAST:]).mean()),
            "weight_error": float(torch.stack(self.weight_errors[name]).max()),
        }


def measure(problem: str, steps: int) -> dict[str, Any]:
    """One benchmark."""
    config = RunConfig(problem, "excess", noise=0.6, device="cpu", batch_size=32, benchmark_options=PROBLEMS[problem])
    with tempfile.TemporaryDirectory() as folder:
        run = Run(config, Path(folder) / "run")
        comparison, taken, epoch = Comparison(run), 0, 0
        while taken < steps:
            for batch in run.data.train.shuffled(config.seed, epoch, steps - taken):
                comparison.step(prepared(batch, run.benchmark), batch.targets)
                taken += 1
            epoch += 1
    parameters = sum(parameter.numel() for parameter in comparison.model.trunk.parameters())
    rows = [comparison.row(name) for name in FORMS]
    return {"problem": problem, "tasks": len(run.learner.tasks), "parameters": parameters, "rows": rows}


def main() -> None:
    """Measure, print, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "accumulators.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = [measure(problem, options.steps) for problem in PROBLEMS]
    content = {"command": "python perf/accumulators.py", "machine": machine(), "steps": options.steps, "forms": results}
    with atomic_write(options.out) as file:
        file.write((json.dumps(content, indent=2) + "\n").encode())
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
