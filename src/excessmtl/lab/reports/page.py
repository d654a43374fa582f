"""The report: one HTML page from a folder of runs that needs no other file and no network."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from excessmtl.extras import missing
from excessmtl.files import atomic_write, check_replaceable
from excessmtl.lab.compare.collect import collect
from excessmtl.lab.compare.measures import Measure, measures_of
from excessmtl.lab.compare.palette import Look, style_sheet
from excessmtl.lab.compare.regret import Regrets, regrets_of
from excessmtl.lab.compare.regret_tables import every_regret, verdict
from excessmtl.lab.compare.settings import Setting, all_runs, settings
from excessmtl.lab.compare.summary import rows_of, summary_table
from excessmtl.lab.compare.table import Table
from excessmtl.lab.paper.claims.verdicts import Verdict, verdicts
from excessmtl.lab.paper.subjects import has_the_papers_scale
from excessmtl.lab.reports.curves import figures_of
from excessmtl.lab.reports.diagnoses import diagnoses_in
from excessmtl.lab.reports.explorer import explorable
from excessmtl.lab.reports.packing import packed, packed_json
from excessmtl.lab.reports.palette import looks_of
from excessmtl.lab.reports.pictures import pictures_in
from excessmtl.lab.reports.versions import page_versions, run_versions

SCRIPTS = ("unpack.js", "theme.js", "tables.js", "figures.js", "explorer.js", "main.js")
MANY_ROWS = 30


@dataclass(frozen=True)
class Section:
    """What the page says about one setting."""

    setting: Setting
    measures: list[Measure]
    table: Table
    figures: list[dict[str, Any]]

    @property
    def first_levels(self) -> list[float]:
        """The noise levels that the table shows at the start: of many rows, the two ends."""
        levels = self.setting.noise_levels
        return levels if len(self.table.rows) <= MANY_ROWS else [levels[0], levels[-1]]

    @property
    def keys(self) -> set[str]:
        """Of the measures."""
        return {measure.key for measure in self.measures}


def write_report(folder: Path, out: Path, method: str | None = None) -> Regrets | None:
    """Write the page on the runs below `folder` to the file `out`; returns the regrets that it shows.

    `method`: the label of the method whose regret is shown; None: `excess` with its default options.
    """
    if out.is_dir():
        raise ValueError(f"-o {out} is a folder; name a file, such as {out / 'report.html'}")
    check_replaceable(out)
    command = ["excessmtl", "report", str(folder), "-o", str(out), *([] if method is None else ["--method", method])]
    frame = collect(folder)
    regrets = regrets_of(frame, method)
    page = render(folder, frame, regrets, shlex.join(command))
    with atomic_write(out) as file:
        file.write(page.encode())
    return regrets


def render(folder: Path, frame: pd.DataFrame, regrets: Regrets | None, command: str) -> str:
    """The page as text.

    Args:
        folder: where the runs lie.
        frame: what `collect(folder)` gave.
        regrets: what the page says about regret; None: nothing.
        command: what makes the page again.
    """
    found, frame = settings(frame), all_runs(frame)
    sections = [_section(setting) for setting in found]
    runs = explorable(folder, found)
    looks = looks_of(frame)
    environment = Environment(
        loader=PackageLoader("excessmtl.lab.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2").render(
        name=folder.resolve().name,
        frame=frame,
        unfinished=_unfinished(folder),
        sections=sections,
        looks=looks,
        seeds=listed(sorted(frame["seed"].unique())),
        noise_levels=[f"{level:g}" for level in sorted(frame["noise"].unique())],
        explorer=runs,
        pictures=pictures_in(folder),
        diagnoses=diagnoses_in(folder),
        regrets=regrets,
        regret_table=None if regrets is None else every_regret(regrets.table),
        regret_sentence="" if regrets is None or regrets.table.empty else verdict(regrets.table, regrets.method),
        verdicts=_verdicts(folder, frame),
        page_versions=page_versions(),
        run_versions=run_versions(folder, frame),
        command=command,
        style=Markup(style_sheet() + _template("style.css")),
        script=Markup("\n".join(_template(name) for name in SCRIPTS)),
        plotly=packed(_plotly()),
        figure_data=packed_json(_figure_data(sections, looks)),
        run_data=packed_json(runs.runs),
    )


def listed(values: Sequence[Any]) -> str:
    """Short lists in full, runs of whole numbers as ranges: "0 to 4", "0, 2, 5"."""
    texts = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    numbers = [value for value in values if not isinstance(value, str)]
    if len(numbers) == len(texts) > 2 and list(numbers) == list(range(int(numbers[0]), int(numbers[0]) + len(numbers))):
        return f"{texts[0]} to {texts[-1]}"
    return ", ".join(texts)


def _unfinished(folder: Path) -> int:
    """How many runs have begun and not ended: the page must not look complete where they are missing."""
    return sum(not path.with_name("summary.json").exists() for path in folder.rglob("config.yaml"))


def _section(setting: Setting) -> Section:
    return Section(setting, measures_of(setting), summary_table(setting), figures_of(setting, rows_of(setting)))


def _verdicts(folder: Path, frame: pd.DataFrame) -> list[Verdict]:
    """On the paper's claims; none where no claim was tried: they are about the paper's data, at its scale."""
    found = verdicts(frame, folder) if has_the_papers_scale(frame) else []
    return found if any(one.verdict != "not tried" for one in found) else []


def _figure_data(sections: Sequence[Section], looks: Mapping[str, Look]) -> dict[str, Any]:
    return {
        "labels": list(looks),
        "looks": [asdict(look) for look in looks.values()],
        "settings": [
            {
                "benchmark": section.setting.name,
                "source": section.setting.source,
                "tasks": section.setting.tasks,
                "noisyTasks": section.setting.noisy_tasks,
                "metrics": [metric.heading for metric in section.setting.metrics.values()],
                "figures": section.figures,
            }
            for section in sections
        ],
    }


def _template(name: str) -> str:
    return files("excessmtl.lab.reports").joinpath("templates", name).read_text(encoding="utf-8")


def _plotly() -> str:
    # Here, not above: nothing but this page needs plotly, and other commands run without it.
    try:
        from plotly.offline import get_plotlyjs
    except ModuleNotFoundError as error:
        raise ValueError(missing("the report", error, "lab")) from error
    script: str = get_plotlyjs()
    return script
