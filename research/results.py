"""The results page, computed from the published runs alone: `python -m research.results`.

It reads `docs/data/study` (or other folders of runs) and writes `docs/results.md`, next to it `figures/*.png`, and
under `data/study/` the numbers of each figure and of the regret. `research.publish` writes what it reads.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from excessmtl.files import atomic_write
from excessmtl.lab.compare.measures import CLEAN_WEIGHT, score_measures
from excessmtl.lab.compare.regret import Regrets, regrets_of
from excessmtl.lab.compare.regret_tables import verdict as regret_verdict
from excessmtl.lab.compare.regret_tables import worst_regrets, write_regrets
from excessmtl.lab.compare.summary import noise_table
from excessmtl.lab.paper.claims.verdicts import Verdict, judge_all
from excessmtl.lab.paper.collected import Runs
from excessmtl.lab.paper.methods import METHODS
from excessmtl.lab.paper.registry import RunsFigure, registry
from excessmtl.lab.paper.subjects import TITLES, Subject

Commands = Mapping[str, str]
"""Benchmark (or `page`) -> the command that made its runs."""
Figures = Mapping[tuple[str, str], Sequence[str]]
"""(data set of the paper, which data it really is, as file names say it) -> its pictures."""
PUBLISHED = Path("docs", "data", "study")
_NUMBERS = Path("data", "study")
_FEW = 10
"""As many noisy tasks are named."""


def read_commands(path: Path) -> Commands:
    """A YAML mapping from benchmarks to commands; none where there is no file."""
    if not path.exists():
        return {}
    try:
        plain = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        plain = None
    if not isinstance(plain, dict) or not all(isinstance(text, str) for pair in plain.items() for text in pair):
        raise ValueError(f"{path} must map benchmarks to commands, both as text")
    return plain


def page(runs: Runs, regrets: Regrets | None, found: Sequence[Verdict], figures: Figures, commands: Commands) -> str:
    """The page as Markdown.

    Args:
        runs: all of them.
        regrets: of the default.
        found: the verdicts on the claims.
        figures: names of the pictures, without their ending.
        commands: shown with what they made.
    """
    parts = [
        "# Results",
        "**These runs were trained with the previous default of `excess`**, exp(-2 r / r0) / sqrt(n r0), and have not "
        "been repeated with the present one (docs/estimators.md). Rows of the paper's estimate and of the "
        "other methods are not affected by that. docs/robustness.md has runs of the present default.",
        "**Results of GradNorm on this page are outdated**: they were computed before the method was corrected, and "
        "have not been run again yet. Of the other methods that were corrected (MoDo, SDMGrad, STCH, MOML, FairGrad) "
        "there is no run here.",
        "Every number and picture on this page was computed from finished runs; nothing is edited by hand. Scores are "
        "of the last epoch on clean test labels, mean ± standard deviation over the seeds. Bold: the best mean of a "
        "column among the weighting methods. [data/study/runs.csv.gz](data/study/runs.csv.gz) has every run, the "
        "folders next to it the course of training, as means over stretches of steps, where figures or claims need it.",
    ]
    if "page" in commands:
        parts.append(_code(commands["page"]))
    shown: set[str] = set()
    for wanted in [*TITLES, *sorted(set(runs.frame.benchmark))]:
        for subject in runs.subjects(wanted) if wanted not in shown else ():
            benchmark = subject.setting.benchmark
            shown.add(benchmark)
            parts += _section(subject, figures.get((wanted, subject.suffix), ()), commands.get(benchmark))
    return "\n\n".join([*parts, *_regrets(regrets), *_claims(found)]) + "\n"


def _section(subject: Subject, figures: Sequence[str], command: str | None) -> list[str]:
    setting = replace(subject.setting, runs=subject.runs.assign(label=subject.runs.shown))
    noisy = ", ".join(setting.noisy_tasks)
    if len(setting.noisy_tasks) > _FEW:
        noisy = f"{len(setting.noisy_tasks)} of {len(setting.tasks)} tasks"
    seeds = setting.runs.seed.nunique()
    parts = [
        f"## {subject.title}",
        f"{len(setting.runs)} runs of {subject.epochs} epochs, seeds: {seeds}. Label noise in: {noisy}.",
    ]
    parts += [] if command is None else [_code(command)]
    parts += [f"![{name}](figures/{name}.png)" for name in figures]
    order = [*(name for name in METHODS if name in setting.labels), *sorted(set(setting.labels).difference(METHODS))]
    for measure in (*score_measures(setting), CLEAN_WEIGHT):
        table = noise_table(setting, measure, order)
        parts += [f"**{table.title[0].upper()}{table.title[1:]}**", table.as_markdown().strip()] if table.rows else []
    return parts


def _regrets(regrets: Regrets | None) -> list[str]:
    """Against whom the default does worst; nothing where it or all its rivals are missing."""
    if regrets is None:
        return []
    return [
        "## Regret of the default",
        f"How much worse ExcessMTL (ours, robust) is than each other method at the same noise and seed, and than "
        f"itself at noise 0; positive is worse. {regret_verdict(regrets.table, 'it')} "
        "[data/study/regret.csv](data/study/regret.csv) has every comparison.",
        *(
            f"**{table.title}**\n\n{table.as_markdown().strip()}"
            for table in worst_regrets(regrets.table, regrets.method)
        ),
    ]


def _claims(found: Sequence[Verdict]) -> list[str]:
    counts = {
        word: sum(one.verdict == word for one in found) for word in ("holds", "does not hold", "undecided", "not tried")
    }
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
        "own estimate, in the better of its two forms; ours is given with it. Only runs on the paper's data at its "
        "scale, with three seeds or more, are a verdict; *undecided*: the intervals over the seeds leave it open.",
        "\n".join(lines),
        "### The numbers behind each verdict",
        *details,
    ]


def _code(command: str) -> str:
    return f"```\n{command.strip()}\n```"


def _draw(runs: Runs, out: Path) -> Figures:
    """All figures the runs can show, as PNG and CSV files; the names of the pictures."""
    named: dict[tuple[str, str], list[str]] = {}
    for entry in (entry for entry in registry().values() if isinstance(entry, RunsFigure)):
        for subject in runs.subjects(entry.about):
            drawing, name = entry.draw_one(subject), entry.stem(subject)
            if drawing is not None:
                replace(drawing, pictures={}).save(out / _NUMBERS, name)
                replace(drawing, tables={}).save(out / "figures", name, kinds=("png",))
                named.setdefault((entry.about, subject.suffix), []).append(name)
    return named


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page and all it links to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, default=[PUBLISHED], help="folders of runs, or of a runs.csv")
    parser.add_argument("-o", "--out", type=Path, default=Path("docs/results.md"))
    parser.add_argument(
        "--commands", type=Path, default=PUBLISHED / "commands.yaml", help="benchmark: the command that made its runs"
    )
    chosen = parser.parse_args(arguments)
    try:
        commands, runs = read_commands(chosen.commands), Runs.read(chosen.folders)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    out = chosen.out.parent
    figures = _draw(runs, out)
    regrets = regrets_of(runs.frame)
    if regrets is not None:
        write_regrets(regrets.table, out / _NUMBERS / "regret.csv")
    text = page(runs, regrets, judge_all(runs), figures, commands)
    with atomic_write(chosen.out) as file:
        file.write(text.encode())
    print(f"{chosen.out}: {len(runs.frame)} runs, {sum(map(len, figures.values()))} figures")


if __name__ == "__main__":
    main()
