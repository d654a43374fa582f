"""The data of one problem in all of its cases, as tensors."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from research.kit.problems import Arrays, Case, Problem, disturbed


@dataclass(frozen=True)
class Cases:
    """Every tensor has a first dimension that counts cases, and lists have one for each task."""

    inputs: Tensor
    """[cases, samples, features]: training rows, validation rows, test rows."""
    training: list[Tensor]
    validation: list[Tensor]
    """Disturbed like the training labels."""
    test: list[Tensor]
    """Labels that are right."""
    classes: list[int]

    @property
    def training_rows(self) -> int:
        """How many."""
        return self.training[0].shape[1]


def load(problem: Problem, arrays: Arrays, cases: Sequence[Case]) -> Cases:
    """The data of all cases; what has the same seed has the same samples."""
    data = {seed: problem.make(arrays, seed) for seed in dict.fromkeys(case.seed for case in cases)}
    first = data[cases[0].seed]
    count, tasks = first.training, range(len(first.classes))
    end = count + first.validation

    def labels(case: Case, task: int) -> Tensor:
        known, classes = data[case.seed].targets[task][:end], first.classes[task]
        if task not in problem.noisy:
            return torch.as_tensor(known)
        draw = np.random.RandomState(7 * case.seed + 31 * task + 5)
        return torch.as_tensor(disturbed(known, classes, case, draw))

    every = [torch.stack([labels(case, task) for case in cases]) for task in tasks]
    right = [np.stack([data[case.seed].targets[task][end:] for case in cases]) for task in tasks]
    return Cases(
        torch.as_tensor(np.stack([data[case.seed].inputs for case in cases])).float(),
        [values[:, :count] for values in every],
        [values[:, count:] for values in every],
        [torch.as_tensor(values) for values in right],
        first.classes,
    )
