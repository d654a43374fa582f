"""TensorBoard events of a run, every epoch once."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from excessmtl.lab.runs.summary import Row


@contextmanager
def event_log(folder: Path, rows: Sequence[Row]) -> Iterator[Callable[[Row], None]]:
    """A function that logs the row of an epoch; `rows` are those of a resumed run.

    Events are written anew from the rows: a killed process leaves a file that may lack its last epochs, or have
    epochs that are trained again.
    """
    for old in folder.glob("events.out.tfevents.*"):
        old.unlink()
    writer = SummaryWriter(str(folder))

    def log(row: Row) -> None:
        for name, value in row.items():
            if name != "epoch":
                writer.add_scalar(name, value, int(row["epoch"]))
        writer.flush()

    try:
        for row in rows:
            log(row)
        yield log
    finally:
        writer.close()
