"""The page on speed shows what the measurements wrote."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def page():
    spec = importlib.util.spec_from_file_location("page", ROOT / "perf" / "page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_those_of_the_results(page):
    text = page.PAGE.read_text()
    assert page.render(text) == text, "run python perf/page.py"


def test_a_goal_is_met_or_missed(page):
    row = {"method": "excess", "ratio": [1.0, 1.49, 1.6], "ms": [1.0, 1.0, 1.0]}
    assert page.goal("cpu", "mlp512-40", row) == "x1.5, met"
    assert page.goal("cpu", "conv-5", row) == "x1.15, missed"
    assert page.goal("cpu", "lenet-2", row) == ""


def test_growth_becomes_a_table_per_quantity(page):
    rows = [
        {"method": "plain", "ms": [1, 2, 3], "ratio": [1, 1, 1], "peak_mb": None},
        {"method": "excess", "ms": [2, 3, 4], "ratio": [1, 1.5, 2], "peak_mb": None},
    ]
    machine = {"cpu": "some", "threads": 1, "python": "3", "torch": "2"}
    curve = {"axis": "tasks", "values": [4096], "fixed": {"batch": 256}, "results": [{"rows": rows}]}
    text = page.growth({"command": "excessmtl bench", "device": "cpu", "machine": machine, "growth": [curve]})
    assert "| tasks (batch 256) | plain, ms | excess |" in text
    assert "| 4,096 | 2.00 | x1.50 |" in text
