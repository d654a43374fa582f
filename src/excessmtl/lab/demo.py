"""`make demo`: two digits per picture, most labels of one of them wrong. What that costs, and who finds it.

    python -m excessmtl.lab.demo --out runs/demo

Trains the study `demo` (what is finished is not trained again), diagnoses a run, and writes report.html.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console

from excessmtl.diagnosis import Report
from excessmtl.files import write_whole
from excessmtl.lab.cli.terminal import silence_lightning
from excessmtl.lab.compare.collect import collect
from excessmtl.lab.reports.diagnoses import save
from excessmtl.lab.reports.page import render
from excessmtl.lab.studies.progress import SweepProgress
from excessmtl.lab.studies.study import read_study
from excessmtl.lab.studies.sweep import run_study
from excessmtl.lab.training.held_out import diagnose_run, trained

OURS, PLAIN = "excess, robust losses", "equal weights"
CLEAN, NOISY = "clean_score", "noisy_score"


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
    frame = collect(out)
    runs = frame.set_index(["label", "seed"]).sort_index()
    shown = out / runs.loc[OURS, "folder"].iloc[0]
    _, benchmark, _ = trained(shown)
    report = diagnose_run(shown, benchmark)
    save(report, shown, benchmark.validation, None)
    page = out / "report.html"
    command = f"excessmtl report {out} -o {page}"  # whose page has tables of regret too
    write_whole(page, render(out, frame, None, command).encode())
    accuracies = 100 * runs[[CLEAN, NOISY]]
    lines = [table(accuracies, list(dict.fromkeys(run.name for run in plan.runs))), "", *verdicts(report)]
    return "\n".join([*lines, "", closing(accuracies), "", f"The report: {page}"])


def table(accuracies: pd.DataFrame, labels: Sequence[str]) -> str:
    """A line per method: mean and range over the seeds, in percent."""
    heading = "accuracy in % (range)"
    width = max(map(len, (heading, *labels)))
    lines = [f"{heading:{width}}  {'clean digit':>20}  {'noisy digit':>20}"]
    for label in labels:
        clean, noisy = (_range(accuracies.loc[label, column]) for column in (CLEAN, NOISY))
        lines.append(f"{label:{width}}  {clean:>20}  {noisy:>20}")
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


def closing(accuracies: pd.DataFrame) -> str:
    """What was gained and lost against plain training, whichever way it came out."""
    differences = accuracies.loc[OURS] - accuracies.loc[PLAIN]
    return (
        f"Against plain training ({PLAIN}, plain losses), excess with robust losses is\n"
        f"{_change(differences[CLEAN])} on the clean digit\n"
        f"and {_change(differences[NOISY])} on the noisy one.\n"
        "A difference counts where all seeds agree about it, and three seeds are few: docs/robustness.md has all."
    )


def _change(differences: pd.Series) -> str:
    mean = differences.mean()
    if differences.min() > 0 or differences.max() < 0:
        return f"{abs(mean):.1f} points {'better' if mean > 0 else 'worse'}"
    return f"neither better nor worse for sure ({mean:+.1f} points, seeds disagree)"


def _range(values: pd.Series) -> str:
    return f"{values.mean():.1f} ({values.min():.1f} to {values.max():.1f})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs", "demo"))
    parser.add_argument("--study", default="demo")
    chosen = parser.parse_args()
    silence_lightning()
    print(tell(chosen.out, chosen.study))
