"""The Python in the documents runs, and what they say exists does."""

import csv
import re
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from torch import nn

import excessmtl

ROOT = Path(__file__).parent.parent


def blocks(name):
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), flags=re.DOTALL)


def test_the_readme_example_runs(capsys):
    (example,) = blocks("README.md")
    exec(compile(example, "README.md", "exec"), {})
    assert "weights/clean" in capsys.readouterr().out


def test_the_method_of_the_contributing_guide_works(monkeypatch):
    import torch
    from torch import nn

    from excessmtl.methods import base

    monkeypatch.setattr(base, "_REGISTRY", dict(base._REGISTRY))
    (example,) = blocks("CONTRIBUTING.md")
    module = type(sys)("inverse_loss")
    monkeypatch.setitem(sys.modules, "inverse_loss", module)
    exec(compile(example, "CONTRIBUTING.md", "exec"), module.__dict__)
    trunk, heads = nn.Linear(2, 2), [nn.Linear(2, 1), nn.Linear(2, 1)]
    balancer = excessmtl.create("inverse_loss", tasks=["a", "b"], shared=trunk, power=2.0)
    z = trunk(torch.ones(3, 2))
    step = balancer.backward({"a": heads[0](z).square().mean() + 1, "b": heads[1](z).square().mean() + 3})
    assert step.weights[0] > step.weights[1]


def test_every_method_is_in_the_readme_table():
    table = (ROOT / "README.md").read_text().split("## Methods")[1].split("##")[0]
    assert all(f"`{name}`" in table for name in excessmtl.list_methods())


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "docs/theory.md",
        "docs/results.md",
        "docs/studies.md",
        "docs/reproducing.md",
        "docs/performance.md",
        "perf/README.md",
        "docs/estimators.md",
    ],
)
def test_links_between_files_hold(name):
    prose = re.sub(r"```.*?```", "", (ROOT / name).read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", prose):
        assert ((ROOT / name).parent / target).exists(), target


def test_the_theory_page_runs_and_its_rates_are_those_of_the_study():
    (example,) = blocks("docs/theory.md")
    exec(compile(example, "docs/theory.md", "exec"), {})
    page = (ROOT / "docs/theory.md").read_text()
    with (ROOT / "docs/data/theory/theory_rates.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 18
    for row in rows:
        short = "" if row["long_enough"] == "True" else " (too short)"
        start = f"| {row['problem']} | {row['tasks']} | {row['sampled'].split()[0]} | {row['horizons']} "
        assert f"{start}| {float(row['rate']):.2f}{short} |" in page


def test_the_numbers_in_the_readme_are_those_of_the_results():
    results = (ROOT / "docs/results.md").read_text().splitlines()
    bought = (ROOT / "README.md").read_text().split("## What it buys")[1].split("## Install")[0]
    shown = [line for line in bought.splitlines() if line.startswith("|")]
    assert len(shown) == 22
    assert all(line in results for line in shown)


def test_the_guide_runs_from_top_to_bottom(capsys):
    source = "\n".join(blocks("docs/guide.md"))
    exec(compile(source, "docs/guide.md", "exec"), {})
    assert "weights/class" in capsys.readouterr().out


def test_the_studies_page_shows_a_study_that_works(capsys):
    import yaml

    from excessmtl.sweeps.study import expand

    (study,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/studies.md").read_text(), flags=re.DOTALL)
    # Two benchmarks; two methods, one with a label and a grid of two; three levels; five seeds.
    assert len(expand(yaml.safe_load(study), "page").runs) == 2 * (2 + 1 + 2) * 3 * 5
    (example,) = blocks("docs/studies.md")
    exec(compile(example, "docs/studies.md", "exec"), {})
    assert "simulated-arm/uniform/noise-0/seed-1" in capsys.readouterr().out


def test_the_readme_counts_regrets_as_the_study_does():
    with (ROOT / "docs/data/study/regret.csv").open() as file:
        rows = list(csv.DictReader(file))
    clear = sum(row["within"] == "False" for row in rows)
    by_the_mean = sum(float(row["regret"]) > float(row["tolerance"]) for row in rows)
    readme = (ROOT / "README.md").read_text()
    assert f"in {clear} of {len(rows)} comparisons the default is clearly worse" in readme
    assert f"By the mean alone it is beyond them in {by_the_mean}," in readme


def test_the_page_on_the_default_names_its_options_and_their_defaults():
    options = (ROOT / "docs/estimators.md").read_text().split("**Options**")[1].split("State: 71")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in options.splitlines() if "`" in line]
    shown = {
        name.strip("` "): default.strip()
        for names, defaults, *_ in lines[1:]
        for name, default in zip(names.split(","), defaults.split(","), strict=True)
    }
    rule = excessmtl.create("excess", tasks=["a"], shared=nn.Linear(2, 2)).rule
    assert {field.name: field.default for field in fields(rule)} == {
        name: None if default == "None" else float(default) for name, default in shown.items()
    }
