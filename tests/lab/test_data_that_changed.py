"""Data that is not what it was, or not what another run saw: never pooled, never taken for held out."""

import numpy as np
import pandas as pd
import pytest

from commands import done, excessmtl, refused
from excessmtl.lab.compare.settings import settings
from excessmtl.lab.runs.record import code_of
from report_data import run, table

CSV = ("--targets", "price", "--kind", "price=regression", "--epochs", "1")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(0)
    return tmp_path


def write(seed):
    draw = np.random.default_rng(seed)
    pd.DataFrame({"size": np.arange(90) % 7, "price": draw.normal(size=90)}).to_csv("homes.csv", index=False)


def test_runs_on_other_data_are_no_rivals():
    files = {"excess": "0123", "uniform": "4567"}
    rows = [run(name, 0.4, n, {"a": 0.5}, settings={"data_checksum": files[name]}) for name in files for n in (0, 1)]
    found = settings(table(*rows))
    assert [own.labels for own in found] == [["excess"], ["uniform"]]
    assert found[0].source.endswith("; data_checksum=0123")
    orders = ({"a": 1, "b": 2}, {"b": 2, "a": 1})
    equal = [row | {"settings": {"benchmark_options": orders[n % 2]}} for n, row in enumerate(rows)]
    assert len(settings(table(*equal))) == 1
    older = [row | {"settings": {}} for row in rows[:2]]
    assert [own.labels for own in settings(table(*older, *rows[2:]))] == [["excess", "uniform"]]


def test_a_file_that_changed_is_not_diagnosed_or_taken_for_trained_on(folder):
    done("train", "homes.csv", *CSV, "--out", "run")
    (folder / "study.yaml").write_text(
        "benchmarks: [{benchmark: homes.csv, benchmark_options: {targets: [price]}, epochs: 1}]\nmethods: [uniform]"
    )
    done("sweep", "study.yaml", "--out", "sweep", "--jobs", "1")
    done("diagnose", "run")
    write(1)
    for command in (("diagnose", "run"), ("sweep", "study.yaml", "--out", "sweep", "--jobs", "1")):
        refused(excessmtl(*command), "homes.csv has changed since")


@pytest.mark.parametrize("change", [(), ("--benchmark-option", "split_seed=3")], ids=["labels", "split"])
def test_folds_of_other_data_are_not_gone_on_with(folder, change):
    command = ("crossval", "homes.csv", *CSV, "--folds", "2", "--out", "folds")
    assert done(*command) == done(*command)
    write(0 if change else 1)
    refused(excessmtl(*command, *change), "source")


def test_the_file_of_a_benchmark_of_ones_own_is_part_of_the_code(folder, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    before = []
    for number in (1, 2):
        (folder / f"my_data_{number}.py").write_text(f"ROWS = {number}", encoding="utf-8-sig")
        __import__(f"my_data_{number}")
        before.append(code_of(None, f"my_data_{number}:load"))
    assert len({*before, code_of(), code_of(None, "sarcos")}) == 3
