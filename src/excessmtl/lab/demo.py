"""`make demo`: two digits per picture, most labels of one of them wrong. What that costs, and who finds it.

    python -m excessmtl.lab.demo --out runs/demo

Trains the study `demo` (what is finished is not trained again), diagnoses a run, and writes report.html.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import Console

from excessmtl.diagnosis import Report
from excessmtl.lab.cli.terminal import silence_lightning
from excessmtl.lab.compare.collect import collect
from excessmtl.lab.reports.diagnoses import save
from excessmtl.lab.reports.page import write_report
from excessmtl.lab.studies.progress import SweepProgress
from excessmtl.lab.studies.study import read_study
from excessmtl.lab.studies.sweep import run_study
from excessmtl.lab.training.held_out import diagnose_run, trained

OURS, PLAIN = "excess, robust losses", "equal weights"


def tell(out: Path, study: str = "demo") -> str:
    """Train what is not trained yet, write the report, and tell the story."""
    console, plan = Console(), read_study(Path(study))
    console.print(
        f"Pictures of two digits. {plan.runs[0].noise:.0%} of the labels of the digit at the bottom right are wrong, "
        f"those of the other are right. {len(plan.runs)} short trainings:"
    )
    with SweepProgress(console) as watcher:
        _, outcome = run_study(plan, out, watcher=watcher)
    if outcome.failed:
        raise ValueError(f"{len(outcome.failed)} trainings failed; {out / 'failed.txt'} says why")
    scores = accuracies(collect(out), [run.label or run.method for run in plan.runs])
    shown = out / scores[OURS].folder
    _, benchmark, _ = trained(shown)
    report = diagnose_run(shown, benchmark)
    save(report, shown, benchmark.validation, None)
    page = out / "report.html"
    write_report(out, page)
    return "\n".join([table(scores), "", *verdicts(report), "", closing(scores), "", f"The report: {page}"])


@dataclass(frozen=True)
class Accuracies:
    """Of one method on the test pictures, in percent, by seed."""

    clean: list[float]
    noisy: list[float]
    folder: str
    """Of its first run."""


def accuracies(frame: pd.DataFrame, labels: Sequence[str]) -> dict[str, Accuracies]:
    """Method -> its accuracies, in this order of methods."""
    scores = {}
    for label in dict.fromkeys(labels):
        own = frame[frame["label"] == label].sort_values("seed")
        clean, noisy = ([100 * value for value in own[column]] for column in ("clean_score", "noisy_score"))
        scores[label] = Accuracies(clean, noisy, own["folder"].iloc[0])
    return scores


def table(scores: Mapping[str, Accuracies]) -> str:
    """A line per method: mean and range over the seeds."""
    heading = "accuracy in % (range)"
    width = max(map(len, (heading, *scores)))
    lines = [f"{heading:{width}}  {'clean digit':>20}  {'noisy digit':>20}"]
    lines += [f"{name:{width}}  {_range(own.clean):>20}  {_range(own.noisy):>20}" for name, own in scores.items()]
    return "\n".join(lines)


def verdicts(report: Report) -> list[str]:
    """What the diagnosis says of each task, in words."""
    lines = ["What the diagnosis says of the run with our losses, from predictions for pictures held out:"]
    for task in report.tasks:
        words = f"  {task.task}: {task.verdict}"
        if task.verdict == "noisy" and task.noise_rate and task.wrong_labels is not None and task.noise_rate_interval:
            low, high = (end * task.wrong_labels / task.noise_rate for end in task.noise_rate_interval)
            words += f", about {task.wrong_labels:.0%} of its labels are wrong ({low:.0%} to {high:.0%})"
        lines.append(words)
    return lines


def closing(scores: Mapping[str, Accuracies]) -> str:
    """What was gained and lost against plain training, whichever way it came out."""
    ours, plain = scores[OURS], scores[PLAIN]
    return (
        f"Against plain training ({PLAIN}, plain losses), excess with robust losses is\n"
        f"{_change(ours.clean, plain.clean)} on the clean digit\n"
        f"and {_change(ours.noisy, plain.noisy)} on the noisy one.\n"
        "A difference counts where all seeds agree about it, and three seeds are few: docs/robustness.md has all."
    )


def _change(ours: Sequence[float], plain: Sequence[float]) -> str:
    differences = [own - other for own, other in zip(ours, plain, strict=True)]
    mean = sum(differences) / len(differences)
    if min(differences) > 0 or max(differences) < 0:
        return f"{abs(mean):.1f} points {'better' if mean > 0 else 'worse'}"
    return f"neither better nor worse for sure ({mean:+.1f} points, seeds disagree)"


def _range(values: Sequence[float]) -> str:
    return f"{sum(values) / len(values):.1f} ({min(values):.1f} to {max(values):.1f})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs", "demo"))
    parser.add_argument("--study", default="demo")
    chosen = parser.parse_args()
    silence_lightning()
    print(tell(chosen.out, chosen.study))
