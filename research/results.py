"""The results page: tables, figures and verdicts from finished runs, every number computed from them.

`python -m research.results DIR... -o docs/results.md` reads folders of runs (or of a `runs.csv`) and writes
the page, beside it `figures/*.png`, and under `data/study/` the numbers of each figure and `runs.csv` with every run.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd
import yaml

from excessmtl.analysis.collect import write_table
from excessmtl.analysis.regret import regret_table
from excessmtl.analysis.regret_summary import verdict as regret_verdict
from excessmtl.analysis.regret_summary import worst_regrets, write_regrets
from excessmtl.benchmarks.metrics import higher_is_better
from excessmtl.files import atomic_write
from excessmtl.paper.claims.verdicts import Verdict, judge_all
from excessmtl.paper.collected import Runs
from excessmtl.paper.registry import RunsFigure, registry
from excessmtl.paper.style import ORDER
from excessmtl.paper.subjects import TITLES, Subject

Commands = Mapping[str, str]
"""Benchmark (or `page`) -> the command that made its runs."""
Figures = Mapping[tuple[str, str], Sequence[str]]
"""(data set of the paper, which data it really is, as file names say it) -> its pictures."""
Value = Callable[[pd.Series], float | None]
_NUMBERS = Path("data", "study")
_FEW = 10
"""As many noisy tasks are named."""


def read_commands(path: Path | None) -> Commands:
    """A YAML mapping from benchmarks to commands; none where there is no file."""
    if path is None:
        return {}
    try:
        plain = yaml.safe_load(path.read_text())
    except yaml.YAMLError:
        plain = None
    if not isinstance(plain, dict) or not all(isinstance(text, str) for pair in plain.items() for text in pair):
        raise ValueError(f"{path} must map benchmarks to commands, both as text")
    return plain


def page(runs: Runs, found: Sequence[Verdict], figures: Figures, commands: Commands) -> str:
    """The page as Markdown.

    Args:
        runs: all of them.
        found: the verdicts on the claims.
        figures: names of the pictures, without their ending.
        commands: shown beside what they made.
    """
    parts = [
        "# Results",
        "Every number and picture on this page was computed from finished runs; nothing is edited by hand. Scores are "
        "of the last epoch on clean test labels, mean ± standard deviation over the seeds. The best mean of a "
        "column is bold. [data/study/runs.csv](data/study/runs.csv) has every run.",
    ]
    if "page" in commands:
        parts.append(_code(commands["page"]))
    shown: set[str] = set()
    for wanted in [*TITLES, *sorted(set(runs.frame.benchmark))]:
        for subject in runs.subjects(wanted) if wanted not in shown else ():
            shown.add(subject.benchmark)
            parts += _section(subject, figures.get(_key(subject), ()), commands.get(subject.benchmark))
    return "\n\n".join([*parts, *_regrets(runs.frame), *_claims(found)]) + "\n"


def _section(subject: Subject, figures: Sequence[str], command: str | None) -> list[str]:
    first = subject.runs.iloc[0]
    seeds = subject.runs.seed.nunique()
    noisy = ", ".join(first.noisy_tasks)
    if len(first.noisy_tasks) > _FEW:
        noisy = f"{len(first.noisy_tasks)} of {len(first.scores)} tasks"
    told = f"{len(subject.runs)} runs of {subject.epochs} epochs, seeds: {seeds}. Label noise in: {noisy}."
    parts = [f"## {subject.title}", told]
    parts += [] if command is None else [_code(command)]
    parts += [f"![{name}](figures/{name}.png)" for name in figures]
    for title, value, higher, factor, digits in _measures(first):
        parts += [f"**{title}**", _table(subject, value, higher, factor, digits)]
    return parts


def _measures(run: pd.Series) -> list[tuple[str, Value, bool | None, float, int]]:
    """(title, value of a run, whether higher is better or None, factor, decimals)."""
    metrics = set(run.primary_metric.values())
    weight: tuple[str, Value, bool | None, float, int] = (
        "Weight of the clean tasks",
        _column("clean_weight"),
        None,
        1,
        2,
    )
    if len(metrics) > 1:
        return [*(_task_measure(task, metric) for task, metric in run.primary_metric.items()), weight]
    (metric,) = metrics
    higher, factor, digits = _scale(metric)
    named = {"clean_score": "Clean tasks", "overall_score": "All tasks", "noisy_score": "Noisy tasks"}
    told = [(f"{name}: {_named(metric)}", _column(column), higher, factor, digits) for column, name in named.items()]
    return [*told, weight]


def _task_measure(task: str, metric: str) -> tuple[str, Value, bool | None, float, int]:
    return (f"{task}: {_named(metric)}", lambda run: run.scores[task], *_scale(metric))


def _column(name: str) -> Value:
    return lambda run: None if pd.isna(run[name]) else run[name]


def _scale(metric: str) -> tuple[bool, float, int]:
    higher = higher_is_better(metric)
    return higher, 100 if higher else 1, 1 if higher else 4


def _named(metric: str) -> str:
    return f"{metric.replace('_', ' ')}, {'percent, higher' if higher_is_better(metric) else 'lower'} is better"


def _table(subject: Subject, value: Value, higher: bool | None, factor: float, digits: int) -> str:
    """Methods by noise levels."""
    numbers = subject.runs.assign(value=[value(run) for _, run in subject.runs.iterrows()])
    numbers["value"] = factor * pd.to_numeric(numbers.value)
    cells = numbers.dropna(subset=["value"]).groupby(["shown", "noise"]).value.agg(["mean", "std"])
    levels = sorted(cells.index.unique("noise"))
    known = set(cells.index.unique("shown"))
    order = [*(name for name in ORDER if name in known), *sorted(known.difference(ORDER))]
    best = {} if higher is None else cells["mean"].groupby("noise").agg("max" if higher else "min").to_dict()
    lines = [["method", *(f"noise {level:g}" for level in levels)], ["---", *["---:"] * len(levels)]]
    for name in order:
        row = []
        for level in levels:
            if (name, level) not in cells.index:
                row.append("")
                continue
            mean, deviation = cells.loc[(name, level)]
            text = f"{mean:.{digits}f}" if pd.isna(deviation) else f"{mean:.{digits}f} ± {deviation:.{digits}f}"
            row.append(f"**{text}**" if best.get(level) == mean else text)
        lines.append([name, *row])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _regrets(frame: pd.DataFrame) -> list[str]:
    """Against whom the default does worst; nothing where it or all its rivals are missing."""
    if not _judges(frame):
        return []
    regrets = regret_table(frame)
    return [
        "## Regret of the default",
        f"How much worse ExcessMTL (ours, robust) is than each other method at the same noise and seed, and than "
        f"itself at noise 0; positive is worse. {regret_verdict(regrets, 'It')} "
        "[data/study/regret.csv](data/study/regret.csv) has every comparison.",
        *(f"**{table.title}**\n\n{table.as_markdown().strip()}" for table in worst_regrets(regrets, "excess")),
    ]


def _judges(frame: pd.DataFrame) -> bool:
    return "excess" in set(frame.label) and frame.label.nunique() > 1


def _claims(found: Sequence[Verdict]) -> list[str]:
    counts = {word: sum(one.verdict == word for one in found) for word in ("holds", "does not hold", "not tried")}
    told = ", ".join(f"{count} {word}" for word, count in counts.items())
    lines = ["| no. | where | claim | verdict |", "| ---: | --- | --- | --- |"]
    lines += [f"| {one.number} | {one.where} | {one.claim} | **{one.verdict}** |" for one in found]
    details = [
        f"**{one.number}. {one.claim}** {one.verdict.capitalize()}.\n\n*Rule:* {one.rule}\n\n*Evidence:* {one.evidence}"
        for one in found
    ]
    return [
        "## The paper's claims",
        f"Every empirical claim of the paper in our words: {told}. A claim about ExcessMTL is judged for the paper's "
        "own estimate, in the better of its two forms; the robust one stands beside it. Rules were fixed before "
        "the runs.",
        "\n".join(lines),
        "### The numbers behind each verdict",
        *details,
    ]


def _code(command: str) -> str:
    return f"```\n{command.strip()}\n```"


def _key(subject: Subject) -> tuple[str, str]:
    return subject.wanted, subject.suffix


def _draw(runs: Runs, out: Path) -> Figures:
    """All figures the runs can show, as PNG and CSV files; the names of the pictures."""
    named: dict[tuple[str, str], list[str]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for entry in registry().values():
            if not isinstance(entry, RunsFigure):
                continue
            drawn = {path.name: path for path in entry.draw(runs, Path(scratch)) if path.suffix != ".svg"}
            for name, path in drawn.items():
                with atomic_write(out / ("figures" if path.suffix == ".png" else _NUMBERS) / name) as file:
                    file.write(path.read_bytes())
            for subject in runs.subjects(entry.about):
                if f"{entry.stem(subject)}.png" in drawn:
                    named.setdefault(_key(subject), []).append(entry.stem(subject))
    return named


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page and all it links to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="folders of runs, or of a runs.csv")
    parser.add_argument("-o", "--out", type=Path, default=Path("docs/results.md"))
    parser.add_argument("--commands", type=Path, help="YAML file: benchmark -> the command that made its runs")
    chosen = parser.parse_args(arguments)
    try:
        commands, runs = read_commands(chosen.commands), Runs.read(chosen.folders)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    out = chosen.out.parent
    figures = _draw(runs, out)
    write_table(runs.frame.drop(columns=["path", "shown"]), out / _NUMBERS / "runs.csv")
    if _judges(runs.frame):
        write_regrets(regret_table(runs.frame), out / _NUMBERS / "regret.csv")
    text = page(runs, judge_all(runs), figures, commands)
    with atomic_write(chosen.out) as file:
        file.write(text.encode())
    print(f"{chosen.out}: {len(runs.frame)} runs, {sum(map(len, figures.values()))} figures")


if __name__ == "__main__":
    main()
