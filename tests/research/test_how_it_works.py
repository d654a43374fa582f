"""The picture of the page on how it works shows what the page says."""

import pytest

pytest.importorskip("matplotlib")
from research.how_it_works import NOISY, TASKS, courses, draw


@pytest.mark.slow
def test_the_noisy_task_has_nothing_left_to_learn_and_little_weight(tmp_path):
    found = courses(epochs=2)
    others = [task for task in TASKS if task != NOISY]
    assert found["losses"][NOISY][-20:].mean() > 0.6
    assert found["weights"][NOISY][40:].max() < found["weights"][others][40:].min().min()
    assert found["excess_risks"][NOISY][40:].mean() < 0.5 * found["excess_risks"][others][40:].mean().mean()
    draw(found, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
