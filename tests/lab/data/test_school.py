from pathlib import Path

import numpy as np
import pytest
import torch

from excessmtl.lab.data.base import Split, registry

SIZES = {3: 20, 7: 40, 11: 23, 20: 60, 21: 8}


def write(path: Path) -> Path:
    rng = np.random.default_rng(0)
    schools = np.repeat(list(SIZES), list(SIZES.values()))
    features = rng.normal(5, 3, (len(schools), 28))
    features[:, 4] = 1.0
    # The score is the number of the row, so that every pupil can be told from every other.
    table = np.column_stack([features, np.arange(len(schools)), schools])
    np.savetxt(path, table[rng.permutation(len(table))], delimiter=",")
    return path


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    return write(tmp_path / "school.csv")


def inputs(split: Split, name: str) -> torch.Tensor:
    assert isinstance(split.inputs, dict)
    return split.inputs[name]


def test_every_school_is_a_task_and_every_pupil_in_one_part(csv: Path) -> None:
    bench = registry()["school"].load(csv)
    assert [task.name for task in bench.tasks] == [f"school_00{i}" for i in range(1, 6)]
    assert len(bench.noisy_tasks) == 1, "a fifth"
    scores = []
    for task, size in zip(bench.tasks, SIZES.values(), strict=True):
        parts = [split.targets[task.name] for split in (bench.train, bench.validation, bench.test)]
        assert sum(map(len, parts)) == size
        assert [len(part) for part in parts[1:]] == [max(1, round(0.1 * size)), max(1, round(0.15 * size))]
        assert all(part.shape == (len(part), 1) for part in parts)
        own = torch.cat(parts)
        # Scores were numbered school by school: a mixture of schools would have a wider spread.
        assert (own.max() - own.min()) / (size - 1) == pytest.approx(one_point(bench.train), rel=1e-3)
        scores.append(own)
    assert len(torch.cat(scores).unique()) == sum(SIZES.values())


def one_point(train: Split) -> float:
    """One point of the score on the standardised scale: the scores are whole numbers."""
    values = torch.cat(list(train.targets.values())).flatten().sort().values
    return float(values.diff().min())
