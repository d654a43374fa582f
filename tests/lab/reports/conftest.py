from pathlib import Path

import pytest

from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.training.loop import train
from report_data import copied

TINY = {"epochs": 2, "limit_batches": 3, "device": "cpu"}


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """A folder with real runs, as short as they can be, and copies of them for a second seed."""
    trained, folder = tmp_path_factory.mktemp("trained"), tmp_path_factory.mktemp("report") / "small study"
    time = {"seconds_per_step": 0.012}  # measured ones are rounded one way here and the other way there
    for method in ("excess", "uniform", "single"):
        for noise in (0.0, 0.8):
            place = Path("digits", method, f"noise-{noise:g}")
            train(RunConfig("multimnist", method, noise=noise, batch_size=32, **TINY), trained / place)
            for seed in (0, 1):
                copied(trained / place, folder / place / f"seed-{seed}", seed=seed, **time)
    train(RunConfig("synthetic-rooms", "excess", noise=0.8, batch_size=2, **TINY), trained / "rooms")
    for method in ("excess", "uniform", "single"):
        copied(trained / "rooms", folder / "rooms" / method, method=method, label=method, **time)
    return folder
