import pytest

from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.training.loop import train
from report_data import copied

TINY = {"epochs": 2, "limit_batches": 3, "device": "cpu"}


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """A folder with real runs, as short as they can be, and copies of them for a second seed."""
    folder = tmp_path_factory.mktemp("report") / "small study"
    for method in ("excess", "uniform", "single"):
        for noise in (0.0, 0.8):
            first = folder / "digits" / method / f"noise-{noise:g}" / "seed-0"
            train(RunConfig("multimnist", method, noise=noise, batch_size=32, **TINY), first)
            copied(first, first.with_name("seed-1"), seed=1)
    rooms = folder / "rooms" / "excess"
    train(RunConfig("synthetic-rooms", "excess", noise=0.8, batch_size=2, **TINY), rooms)
    for method in ("uniform", "single"):
        copied(rooms, rooms.with_name(method), method=method, label=method)
    return folder
