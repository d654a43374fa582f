"""A run folder from a training loop of your own, so that `excessmtl report` works on it."""

import csv
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
import torch.distributed as dist
import yaml

from excessmtl.balancer import Balancer
from excessmtl.files import read_text, write_whole
from excessmtl.integrations.scalar import balancer_of
from excessmtl.lab.runs.folder import RunFolder, refuse_another
from excessmtl.lab.runs.record import RECORDED, RunRecord, code_of, complete_options
from excessmtl.lab.runs.summary import QUANTITIES, Row, Scored, summarise
from excessmtl.lab.schema import explained, mapping
from excessmtl.step.result import Step


class Recorder:
    """Writes config.yaml, metrics.csv, steps.npz and summary.json of a run, whole, after every epoch.

    Call `step()` after every step and `epoch(scores)` after every epoch. A process that is killed has lost the epoch it
    was in and no other; with `resume=True` the next one goes on in the same folder. Of several processes, the first
    writes. `step()` reads nothing from the device.

    Args:
        out: the folder of the run.
        balancer: whose steps are recorded.
        metric: what the scores are, e.g. "accuracy"; by task where they differ. "loss": of the training batches, where
            `epoch` is called without scores.
        higher_is_better: the direction of the metric; by task where they differ.
        unit: of the metric: "share" (0 to 1, shown in percent), "dB", "kg", ...; by task where they differ.
        name: what tables call the data. Default: the folder above, so that runs beside each other are compared.
        label: what tables call the method. Default: its name.
        noise, noisy_tasks, seed: what you know of the run; tables group by them.
        settings: anything else worth keeping in config.yaml, plain values.
        resume: go on with the run in `out`, if there is one.
    """

    def __init__(
        self,
        out: Path | str,
        balancer: Balancer,
        *,
        metric: str | Mapping[str, str] = "loss",
        higher_is_better: bool | Mapping[str, bool] = False,
        unit: str | Mapping[str, str] = "",
        name: str | None = None,
        label: str | None = None,
        noise: float = 0.0,
        noisy_tasks: Sequence[str] = (),
        seed: int = 0,
        settings: Mapping[str, Any] | None = None,
        resume: bool = False,
    ) -> None:
        balancer = balancer_of(balancer)
        self.balancer, self.tasks = balancer, balancer.tasks
        given = {"metric": metric, "higher_is_better": higher_is_better, "unit": unit}
        by_task = [self._by_task(argument, value) for argument, value in given.items()]
        self.scored = {task: Scored(*(values[task] for values in by_task)) for task in self.tasks}
        unknown = [task for task in noisy_tasks if task not in self.tasks]
        if unknown:
            raise ValueError(f"noisy_tasks names unknown task {unknown[0]!r}; the tasks are {list(self.tasks)}")
        path = Path(out)
        options, data = complete_options(balancer), name or path.absolute().parent.name or "runs"
        config: dict[str, Any] = {
            "benchmark": data,
            "method": balancer.rule.name,
            "label": label or balancer.rule.name,
            "options": options,
            "settings": dict(settings or {}),
            "noise": noise,
            "noisy_tasks": list(noisy_tasks),
            "seed": seed,
            "tasks": list(self.tasks),
        }
        self.record = RunRecord(config, options, data, RECORDED, code=code_of(type(balancer.rule)))
        self.writes = not (dist.is_available() and dist.is_initialized() and dist.get_rank())
        self.rows: list[Row] = []
        self.history: dict[str, list[np.ndarray]] = {quantity: [] for quantity in QUANTITIES}
        self._steps: list[torch.Tensor] = []
        self._start, self._seconds = time.perf_counter(), 0.0
        self.folder = RunFolder(path)
        if self.writes:
            self._open(resume)

    def step(self, step: Step | None = None) -> None:
        """Note a step; the balancer's last one by default."""
        step = self.balancer.last_step if step is None else step
        if step is None:
            raise ValueError("the balancer has taken no step yet; call recorder.step() after balancer.backward(losses)")
        if step.tasks != self.tasks:
            raise ValueError(
                f"the tasks are {list(step.tasks)} now, this run was begun with {list(self.tasks)}; make a Recorder "
                "with another folder"
            )
        self._steps.append(step.numbers[: len(QUANTITIES)])

    def epoch(self, scores: Mapping[str, float] | None = None) -> None:
        """Write everything. `scores`: task -> its metric on data that was not trained on."""
        if not self._steps:
            raise ValueError("no step was noted in this epoch; call recorder.step() after every step")
        metrics = {task: scored.name for task, scored in self.scored.items()}
        if scores is None and set(metrics.values()) != {"loss"}:
            raise ValueError(f"epoch needs the scores of all tasks ({metrics}); pass a dict from task to number")
        if scores is not None and set(scores) != set(self.tasks):
            raise ValueError(f"scores must name the tasks {list(self.tasks)}, found {list(scores)}")
        log = torch.stack(self._steps).cpu().numpy().astype(np.float32)
        self._steps.clear()
        log[:, 0] /= self.balancer.factor  # tables and plots show weights before it
        for place, quantity in enumerate(QUANTITIES):
            self.history[quantity].append(log[:, place])
        self._seconds += time.perf_counter() - self._start
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a task without any label in the epoch has no mean
            weights, losses, _ = np.nanmean(log, axis=0).tolist()
        row: Row = {"epoch": len(self.rows)}
        for task, weight, loss in zip(self.tasks, weights, losses, strict=True):
            row |= {f"train/{task}/loss": loss, f"train/{task}/weight": weight}
        for task, loss in zip(self.tasks, losses, strict=True):
            row[f"test/{task}/{metrics[task]}"] = loss if scores is None else float(scores[task])
        self.rows.append(row)
        if self.writes:
            self._write(completed=False)
        self._start = time.perf_counter()

    def close(self) -> None:
        """The run is complete. Steps of an epoch that was not finished are left out."""
        if self.writes and self.rows:
            self._write(completed=True)
        self.folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.folder.close()

    def _by_task(self, argument: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            return dict.fromkeys(self.tasks, value)
        if set(value) != set(self.tasks):
            raise ValueError(f"{argument} must name the tasks {list(self.tasks)}, found {list(value)}")
        return {task: value[task] for task in self.tasks}

    def _open(self, resume: bool) -> None:
        path = self.folder.path
        existing, content = path / "config.yaml", self.record.to_yaml()
        if existing.exists() and not resume:
            raise ValueError(f"out={path} already holds a run; pass resume=True to go on with it, or another folder")
        self.folder.claim(f"another process is recording in {path}; choose another folder")
        if not existing.exists():
            write_whole(existing, content)
            return
        try:
            with explained(f"the run in {path} is damaged", "choose another folder, or delete it", Exception):
                old = mapping(yaml.safe_load(read_text(existing)), "it")
                self._restore()
            refuse_another(old, yaml.safe_load(content), path, but=("settings", "code", "method_options"))
        except ValueError:
            self.folder.close()
            raise

    def _restore(self) -> None:
        path = self.folder.path
        if (path / "metrics.csv").exists() and (path / "steps.npz").exists():
            with (path / "metrics.csv").open(newline="", encoding="utf-8") as file:
                self.rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
            if not self.rows or "epoch" not in self.rows[0]:
                raise ValueError("metrics.csv has no epochs")
            self.rows = [{**row, "epoch": number} for number, row in enumerate(self.rows)]
            with np.load(path / "steps.npz") as steps:
                self.history = {quantity: [steps[quantity]] for quantity in QUANTITIES}
            known = self.folder.summary or {}
            self._seconds = known.get("seconds_per_step", 0.0) * len(self.history["losses"][0])

    def _write(self, completed: bool) -> None:
        self.folder.write_metrics(self.rows)
        steps = {quantity: np.concatenate(parts) for quantity, parts in self.history.items()}
        self.folder.write_steps(steps, self.tasks)
        seconds, weights = self._seconds / len(steps["losses"]), self.history["weights"][-1]
        self.folder.write_summary(summarise(self.record, self.scored, self.rows, weights, seconds, completed=completed))
