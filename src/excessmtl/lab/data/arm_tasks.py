"""What SARCOS and its stand-in share: the torque of every joint as a task, one perceptron, one recipe."""

from collections.abc import Sequence

from torch import Tensor, nn

from excessmtl.lab.data.base import Benchmark, Recipe, Split, columns
from excessmtl.lab.data.kinds import regression
from excessmtl.lab.data.networks.mlp import MLP
from excessmtl.lab.data.scaling import standardise
from excessmtl.lab.data.tasks import Task

JOINTS = 7
INPUTS = 3 * JOINTS
"""Positions, velocities and accelerations."""


def arm_benchmark(name: str, source: str, inputs: Sequence[Tensor], torques: Sequence[Tensor]) -> Benchmark:
    """From the inputs and the torques of the training, validation and test rows, which are standardised here."""
    tasks = tuple(Task(f"joint_{joint}", 1, regression) for joint in range(1, JOINTS + 1))
    targets = [columns([task.name for task in tasks], own) for own in standardise(*torques)]
    return Benchmark(
        name,
        source,
        tasks,
        *map(Split, standardise(*inputs), targets),
        recipe=Recipe(learning_rate=1e-3, weight_decay=1e-2, batch_size=128, epochs=100),
        noisy_tasks=("joint_1", "joint_2"),
        build_trunk=lambda: MLP(INPUTS),
        build_head=lambda task: nn.Linear(128, task.outputs),
    )
