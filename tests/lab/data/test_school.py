import pytest
import torch

from excessmtl.lab.data.school import load
from tiny_data import SCHOOLS, splits, write_school


def test_every_school_is_a_task_and_every_pupil_in_one_part(tmp_path):
    bench = load(write_school(tmp_path))
    assert [task.name for task in bench.tasks] == [f"school_00{i}" for i in range(1, 9)]
    assert len(bench.noisy_tasks) == 2, "a fifth"
    scores = []
    # One point of the score on the standardised scale: the scores are whole numbers.
    one_point = float(torch.cat(list(bench.train.targets.values())).flatten().sort().values.diff().min())
    for task, size in zip(bench.tasks, SCHOOLS.values(), strict=True):
        parts = [split.targets[task.name] for split in splits(bench)]
        assert sum(map(len, parts)) == size
        assert [len(part) for part in parts[1:]] == [max(1, round(0.1 * size)), max(1, round(0.15 * size))]
        assert all(part.shape == (len(part), 1) for part in parts)
        own = torch.cat(parts)
        # Scores were numbered school by school: a mixture of schools would have a wider spread.
        assert (own.max() - own.min()) / (size - 1) == pytest.approx(one_point, rel=1e-3)
        scores.append(own)
    assert len(torch.cat(scores).unique()) == sum(SCHOOLS.values())
