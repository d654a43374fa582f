"""`make demo`: two digits per picture, most labels of one of them wrong. What that costs, and who finds it.

    python -m excessmtl.lab.demo --out runs/demo

Trains the study `demo` (what is finished is not trained again), diagnoses a run, and writes report.html.
"""

import argparse
from pathlib import Path

import pandas as pd
from rich.console import Console

from excessmtl.diagnosis import Report
from excessmtl.lab.cli.terminal import silence_lightning
from excessmtl.lab.compare.collect import collect
from excessmtl.lab.reports.diagnoses import save
from excessmtl.lab.reports.page import write_report
from excessmtl.lab.studies.bundled import study_file
from excessmtl.lab.studies.phases import run_study
from excessmtl.lab.studies.progress import SweepProgress
from excessmtl.lab.studies.study import read_study
from excessmtl.lab.training.held_out import diagnose_run, trained

OURS, PLAIN = "excess, robust losses", "equal weights"


def tell(out: Path, study: str = "demo") -> str:
    """Train what is not trained yet, write the report, and tell the story."""
    console, plan = Console(), read_study(study_file(Path(study)))
    noise, task = plan.runs[0].noise, "bottom_right"
    console.print(
        f"Pictures of two digits. {noise:.0%} of the training labels of the digit at the bottom right are drawn at "
        f"random; those at the top left are right. {len(plan.runs)} short trainings:"
    )
    with SweepProgress(console) as watcher:
        _, outcome = run_study(plan, out, watcher=watcher)
    if outcome.failed:
        raise ValueError(f"{len(outcome.failed)} trainings failed; {out / 'failed.txt'} says why")
    scores = accuracies(collect(out), task)
    shown = out / str(scores[OURS]["folder"])
    _, benchmark, _ = trained(shown)
    report = diagnose_run(shown, benchmark)
    save(report, shown, benchmark.validation, None)
    page = out / "report.html"
    write_report(out, page)
    return "\n".join([table(scores), "", *verdicts(report), "", closing(scores), "", f"The report: {page}"])


def accuracies(frame: pd.DataFrame, noisy: str) -> dict[str, dict[str, object]]:
    """Method -> the test accuracies of the clean and the noisy digit, in percent by seed, and the folder of a run."""
    clean = frame["scores"].map(lambda scores: 100 * next(own for task, own in scores.items() if task != noisy))
    both = frame.assign(clean=clean, noisy=frame["scores"].map(lambda scores: 100 * scores[noisy]))
    return {
        str(label): {"clean": list(own["clean"]), "noisy": list(own["noisy"]), "folder": own["folder"].iloc[0]}
        for label, own in both.groupby("label", sort=False)
    }


def table(scores: dict[str, dict[str, object]]) -> str:
    """A line per method: mean and range over the seeds."""
    width = max(map(len, scores))
    lines = [f"{'accuracy in % (range of seeds)':{width}}  {'clean digit':>20}  {'noisy digit':>20}"]
    for label, own in scores.items():
        lines.append(f"{label:{width}}  {_range(own['clean']):>20}  {_range(own['noisy']):>20}")
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


def closing(scores: dict[str, dict[str, object]]) -> str:
    """What was gained and lost against plain training, whichever way it came out."""
    changes = {part: _change(scores[OURS][part], scores[PLAIN][part]) for part in ("clean", "noisy")}
    return (
        f"Against plain training ({PLAIN}, plain losses), excess with robust losses is {changes['clean']} on the clean "
        f"digit\nand {changes['noisy']} on the noisy one. A difference counts where all seeds agree about it; three "
        "seeds are few.\ndocs/robustness.md has the whole comparison, and where it is worse."
    )


def _change(ours: object, plain: object) -> str:
    assert isinstance(ours, list) and isinstance(plain, list)
    differences = [own - other for own, other in zip(ours, plain, strict=True)]
    mean = sum(differences) / len(differences)
    if min(differences) > 0 or max(differences) < 0:
        return f"{abs(mean):.1f} points {'better' if mean > 0 else 'worse'}"
    return f"about as good ({mean:+.1f} points, seeds disagree)"


def _range(values: object) -> str:
    assert isinstance(values, list)
    return f"{sum(values) / len(values):.1f} ({min(values):.1f} to {max(values):.1f})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs", "demo"))
    parser.add_argument("--study", default="demo")
    chosen = parser.parse_args()
    silence_lightning()
    print(tell(chosen.out, chosen.study))
