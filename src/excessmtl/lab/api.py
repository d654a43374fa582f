"""The functions of `excessmtl.lab`: benchmarks of your own, training runs, sweeps, tables and reports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from excessmtl.extras import needed_by

with needed_by("excessmtl.lab", "lab"):
    from torch import nn

    from excessmtl.diagnosis import Report
    from excessmtl.lab.compare.collect import collect
    from excessmtl.lab.data.base import Benchmark, DataNotFoundError, Recipe, Split, split_of
    from excessmtl.lab.data.find import check_benchmark
    from excessmtl.lab.data.kinds import binary, classification, depth, normals, regression, segmentation
    from excessmtl.lab.data.metrics import average
    from excessmtl.lab.data.tasks import SHARE, Draw, Kind, Metric, Task
    from excessmtl.lab.runs.config import RunConfig
    from excessmtl.lab.runs.recorder import Recorder
    from excessmtl.lab.studies.study import expand
    from excessmtl.lab.studies.sweep import Failure, Outcome, SweepWatcher, run_study
    from excessmtl.lab.training.crossval import cross_validate
    from excessmtl.lab.training.held_out import diagnose_run, trained
    from excessmtl.lab.training.loop import Run
    from excessmtl.lab.training.progress import Watcher

__all__ = [
    "SHARE",
    "Benchmark",
    "DataNotFoundError",
    "Draw",
    "Failure",
    "Kind",
    "Metric",
    "Outcome",
    "Recipe",
    "Recorder",
    "Result",
    "Split",
    "SweepWatcher",
    "Task",
    "Watcher",
    "average",
    "binary",
    "classification",
    "collect",
    "crossval",
    "depth",
    "diagnose",
    "load",
    "normals",
    "regression",
    "report",
    "segmentation",
    "split_of",
    "sweep",
    "train",
]


@dataclass(frozen=True)
class Result:
    """A finished run."""

    folder: Path
    summary: dict[str, Any]
    """What summary.json says."""
    network: nn.Module
    """The trained network, in evaluation mode."""

    @property
    def scores(self) -> dict[str, float | None]:
        """Task -> its score on the test split; None where training has diverged."""
        return dict(self.summary["scores"])


def train(
    benchmark: Benchmark | str,
    method: str = "excess",
    *,
    out: Path | str,
    resume: bool = False,
    watcher: Watcher | None = None,
    **settings: Any,
) -> Result:
    """Train a network on a benchmark with one method.

    Args:
        benchmark: an object, or what `excessmtl train` takes: a name, `package.module:function`, a CSV file.
        method: a name, `package.module:Rule`, or "single" for a network per task.
        out: folder of the run.
        resume: go on with the run in `out`, if there is one.
        watcher: told about every step and epoch.
        settings: further fields of `excessmtl.lab.runs.config.RunConfig`: noise, seed, epochs, ...
    """
    config, made = _asked_for(benchmark, method, settings)
    run = Run(config, Path(out), resume, watcher, made)
    return Result(Path(out), run.execute(), load(out, run.benchmark))


def _asked_for(
    benchmark: Benchmark | str, method: str, settings: Mapping[str, Any]
) -> tuple[RunConfig, Benchmark | None]:
    """The run, and the benchmark where it is an object."""
    if isinstance(benchmark, str):
        return RunConfig(benchmark, method, **settings), None
    check_benchmark(benchmark)
    return RunConfig(benchmark.name, method, **settings), benchmark


def sweep(
    benchmarks: Sequence[str | Mapping[str, Any]],
    methods: Sequence[str | Mapping[str, Any]],
    *,
    out: Path | str,
    noise: Sequence[float] = (0.0,),
    seeds: int | Sequence[int] = 1,
    tune: Mapping[str, Sequence[Any]] | None = None,
    tune_seeds: int | Sequence[int] = 1,
    jobs: int | None = None,
    backend: str = "loky",
    watcher: SweepWatcher | None = None,
    **settings: Any,
) -> Outcome:
    """Run every combination that is not finished in `out`; what a study in YAML says, as arguments.

    `tune` names values to try first for each method, such as {"learning_rate": [0.001, 0.003]}.
    Every worker loads its benchmark itself, so benchmarks are names, import paths or CSV files, not objects.
    """
    if any(isinstance(entry, Benchmark) for entry in benchmarks):
        raise ValueError(
            "benchmarks must be names or import paths (package.module:function): every worker loads its own"
        )
    plain = {"benchmarks": list(benchmarks), "methods": list(methods), "noise": list(noise), "settings": settings}
    plain["seeds"] = seeds if isinstance(seeds, int) else list(seeds)
    if tune is not None:
        plain["tune"] = {name: list(values) for name, values in tune.items()}
        plain["tune_seeds"] = tune_seeds if isinstance(tune_seeds, int) else list(tune_seeds)
    _, outcome = run_study(expand(plain, Path(out).name), Path(out), jobs=jobs, backend=backend, watcher=watcher)
    return outcome


def report(folder: Path | str, file: Path | str) -> Path:
    """Write the HTML report on the runs under a folder; its path."""
    from excessmtl.lab.reports.page import write_report

    write_report(Path(folder), Path(file))
    return Path(file)


def load(run: Path | str, benchmark: Benchmark | None = None, *, trust: bool = False) -> nn.Module:
    """The network of a run after its last finished epoch, on the CPU, in evaluation mode.

    It takes what `benchmark.prepare` gives and returns task -> output. A run that was trained on an object, not by a
    name, needs the object again. A run whose benchmark is an import path (`package.module:function`) is refused unless
    you pass `trust=True` or the benchmark itself: loading it would run that code, and the folder may be anybody's.
    """
    return trained(Path(run), benchmark, trust)[0]


def crossval(
    benchmark: Benchmark | str,
    method: str = "excess",
    *,
    out: Path | str,
    folds: int = 5,
    watcher: Watcher | None = None,
    **settings: Any,
) -> Report:
    """Which labels of the *training* data are bad: every sample is predicted by a network that has not seen it.

    Trains `folds` networks, each on all tasks, and keeps their runs and `predictions.npz` in `out`; what is finished is
    not trained again. Samples in the report are numbered as in `benchmark.train`; labels of a CSV file also
    have the `row` of the file. `settings` are those of `train`.
    """
    config, made = _asked_for(benchmark, method, settings)
    return cross_validate(config, Path(out), folds, made, watcher)


def diagnose(run: Path | str, benchmark: Benchmark | None = None, *, trust: bool = False) -> Report:
    """Which tasks of a run have bad labels, and how bad: from its predictions for the validation split.

    The validation labels are disturbed like the training labels, with draws of their own. A run that was trained on an
    object, not by a name, needs the object again. `trust`: as in `load`.
    """
    return diagnose_run(Path(run), benchmark, trust)
