"""The picture of the page on how it works shows what the page says."""

import pytest

pytest.importorskip("matplotlib")
from research.how_it_works import NOISY, TASKS, courses, draw


@pytest.mark.slow
def test_the_noisy_task_has_nothing_left_to_learn_and_little_weight(tmp_path):
    found = courses(epochs=2)
    noisy = TASKS.index(NOISY)
    others = [position for position in range(len(TASKS)) if position != noisy]
    assert found["losses"][-20:, noisy].mean() > 0.6
    assert found["weights"][40:, noisy].max() < found["weights"][40:, others].min()
    assert found["excess_risks"][40:, noisy].mean() < 0.5 * found["excess_risks"][40:, others].mean()
    draw(found, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
