"""The report: one HTML page from a folder of runs that needs no other file and no network."""

import base64
import gzip
import json
import platform
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

import excessmtl
from excessmtl.files import check_replaceable, write_whole
from excessmtl.lab.compare.collect import collect
from excessmtl.lab.compare.measures import measures_of, rows_of, summary_table, task_score
from excessmtl.lab.compare.palette import Look, looks_of, style_sheet
from excessmtl.lab.compare.regret import Regrets, every_regret, regrets_of, verdict
from excessmtl.lab.compare.settings import settings
from excessmtl.lab.reports.curves import explorable, figures_of
from excessmtl.lab.reports.diagnoses import diagnoses_in
from excessmtl.lab.reports.pictures import pictures_in
from excessmtl.lab.reports.sections import Collected, Section, fill, recorded, sections_named

_PACKAGE = "excessmtl.lab.reports"
_SCRIPTS = ("unpack.js", "theme.js", "tables.js", "figures.js", "explorer.js", "main.js")


def write_report(folder: Path, out: Path, method: str | None = None, sections: Sequence[str] = ()) -> Regrets | None:
    """Write the page on the runs below `folder` to the file `out`; returns the regrets that it shows.

    `method`: the label of the method whose regret is shown; None: `excess` with its default options.
    `sections`: packages whose sections are added to those that the folder asks for.
    """
    if out.is_dir():
        raise ValueError(f"-o {out} is a folder; name a file, such as {out / 'report.html'}")
    check_replaceable(out)
    options = [*([] if method is None else ["--method", method]), *(f"--sections={name}" for name in sections)]
    command = shlex.join(["excessmtl", "report", str(folder), "-o", str(out), *options])
    frame = collect(folder)
    regrets = regrets_of(frame, method)
    page = render(folder, frame, regrets, command, sections_named([*recorded(folder), *sections]))
    write_whole(out, page.encode())
    return regrets


def render(
    folder: Path, frame: pd.DataFrame, regrets: Regrets | None, command: str, added: Sequence[Section] = ()
) -> str:
    """The page as text. `frame`: what `collect(folder)` gave; `command`: what makes the page again."""
    from plotly.offline import get_plotlyjs  # here, not above: only this page needs it, and it takes its time

    runs = Collected(folder, settings(frame))
    looks = looks_of(runs.frame)
    results = [
        {
            "setting": setting,
            "table": summary_table(setting),
            "figures": figures_of(setting, rows_of(setting)),
            "notes": [measure.note for measure in measures_of(setting) if measure.note],
        }
        for setting in runs.settings
    ]
    explored = explorable(folder, runs.settings)
    part = partial(fill, _PACKAGE, looks=looks)
    sections = [
        Section("Results", "results", lambda runs: part("results.html.j2", results=results)),
        Section("Pictures", "pictures", _pictures),
        Section("Run explorer", "explorer", lambda runs: part("explorer.html.j2", explored=explored, runs=runs)),
        Section("Label noise", "noise", _diagnoses),
        *added,
        Section("Regret", "regret", lambda runs: None if regrets is None else _regrets(part, regrets)),
    ]
    by_anchor = {section.anchor: section for section in sections}
    versions = {"excessmtl": excessmtl.__version__, "Python": platform.python_version()}
    contents = [(section, section.html(runs)) for section in by_anchor.values()]
    return part(
        "page.html.j2",
        name=folder.resolve().name,
        frame=runs.frame,
        # The page must not look complete where runs have begun and not ended.
        unfinished=sum(not path.with_name("summary.json").exists() for path in folder.rglob("config.yaml")),
        settings=runs.settings,
        noise_levels=[f"{level:g}" for level in sorted(runs.frame["noise"].unique())],
        sections=[(section, html) for section, html in contents if html is not None],
        page_versions=versions | {name: version(name) for name in ("plotly", "pandas", "jinja2")},
        command=command,
        style=Markup(style_sheet() + _template("style.css")),
        script=Markup("\n".join(_template(name) for name in _SCRIPTS)),
        plotly=_packed(get_plotlyjs()),
        figure_data=_packed_json(_figure_data(results, looks)),
        run_data=_packed_json(explored),
    )


def _pictures(runs: Collected) -> Markup | None:
    found = pictures_in(runs.folder)
    about = "Found in the folder of the runs, as they were drawn."
    return fill(_PACKAGE, "pictures.html.j2", about=about, pictures=found) if found else None


def _diagnoses(runs: Collected) -> Markup | None:
    found = diagnoses_in(runs.folder)
    return fill(_PACKAGE, "diagnoses.html.j2", diagnoses=found) if found else None


def _regrets(part: Callable[..., Markup], regrets: Regrets) -> Markup:
    sentence = "" if regrets.table.empty else verdict(regrets.table, regrets.method)
    return part("regrets.html.j2", regrets=regrets, table=every_regret(regrets.table), sentence=sentence)


def _figure_data(results: Sequence[Mapping[str, Any]], looks: Mapping[str, Look]) -> dict[str, Any]:
    return {
        "labels": list(looks),
        "looks": [asdict(look) for look in looks.values()],
        "settings": [
            {
                "benchmark": setting.name,
                "source": setting.source,
                "tasks": setting.tasks,
                "noisyTasks": setting.noisy_tasks,
                "metrics": [f"{one.name}{task_score(setting, task).suffix}" for task, one in setting.metrics.items()],
                "figures": own["figures"],
            }
            for own in results
            for setting in [own["setting"]]
        ],
    }


def _template(name: str) -> str:
    return files(_PACKAGE).joinpath("templates", name).read_text(encoding="utf-8")


def _packed(text: str) -> str:
    """Gzip in base64: nothing in it can end a script element, and equal text gives equal output."""
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=9, mtime=0)).decode()


def _packed_json(value: Any) -> str:
    """`_packed` JSON; refuses NaN, which browsers cannot read."""
    return _packed(json.dumps(value, separators=(",", ":"), allow_nan=False))
