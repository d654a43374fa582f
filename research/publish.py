"""What the documents need of finished runs, small enough for the repository: `python -m research.publish RUNS...`.

Writes `docs/data/study/runs.csv.gz` with every run, and for the runs whose course a figure or a claim asks for a folder
with `metrics.csv` and a `steps.npz` thinned to 20 rows per epoch, each the mean over its stretch of steps.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from excessmtl.files import atomic_write
from excessmtl.lab.compare.collect import write_table
from excessmtl.lab.compare.courses import QUANTITIES, read_epochs, read_steps, stretches
from excessmtl.lab.paper.collected import Runs
from excessmtl.lab.paper.figures import dynamics, excess_risk
from excessmtl.lab.paper.methods import COMPARED, SINGLE_TASK
from research.results import PUBLISHED

_PER_EPOCH = 20
_SHOWN = {
    dynamics.NOISE: COMPARED,
    excess_risk.NOISE: (*excess_risk.ESTIMATORS, SINGLE_TASK),
}
"""Noise level -> the methods whose course on MultiMNIST is drawn or judged."""


def thin(values: pd.DataFrame, rows: int) -> np.ndarray:
    """At most `rows` rows, each the mean over its stretch of the table."""
    means: np.ndarray = values.groupby(stretches(len(values), rows)).mean().to_numpy(np.float32)
    return means


def publish(runs: Runs, out: Path) -> int:
    """Write the table and the courses; how many courses there are."""
    write_table(runs.frame, out / "runs.csv.gz")
    wanted = [
        run
        for subject in runs.subjects("multimnist")
        for noise, methods in _SHOWN.items()
        for _, run in subject.of(methods, noise).dropna(subset=["steps_path", "metrics_path"]).iterrows()
    ]
    for run in wanted:
        steps, folder = read_steps(run.steps_path), out / run.folder
        tables = {name: thin(getattr(steps, name), _PER_EPOCH * int(run.epochs)) for name in QUANTITIES}
        with atomic_write(folder / "steps.npz") as file:
            np.savez_compressed(file, tasks=np.array(list(steps.losses)), **tables)  # type: ignore[arg-type]
        with atomic_write(folder / "metrics.csv") as file:
            file.write(read_epochs(run.metrics_path).to_csv(index=False, float_format="%.6g").encode())
    return len(wanted)


def main(arguments: Sequence[str] | None = None) -> None:
    """Publish the runs of several folders together, each run once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="folders of runs")
    parser.add_argument("-o", "--out", type=Path, default=PUBLISHED)
    chosen = parser.parse_args(arguments)
    runs = Runs.read(chosen.folders)
    print(f"{chosen.out}: {len(runs.frame)} runs, the course of {publish(runs, chosen.out)}")


if __name__ == "__main__":
    main()
