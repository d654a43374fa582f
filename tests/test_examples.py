"""Every example runs, and prints its table. One runs always, the others in the slow tests."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
QUICK = ("plain_loop.py",)
HELPERS = ("digits.py",)
ELSEWHERE = ("annotators.py", "transformer.py")
"""Run by a test of its own, and by `test_documents.py`."""
EXAMPLES = sorted(path.name for path in FOLDER.glob("*.py") if path.name not in (*HELPERS, *ELSEWHERE))


def run(*command):
    found = subprocess.run([sys.executable, *map(str, command), "--quick"], capture_output=True, text=True, timeout=240)
    assert found.returncode == 0, found.stdout[-1000:] + found.stderr[-3000:]
    return found.stdout


def shares_in(printed):
    """Task -> the last number of its line: an accuracy in every table."""
    table = printed[printed.rindex("task ") :]
    return {name: float(number) for name, number in re.findall(r"^(\w+) .* ([\d.]+)$", table, flags=re.MULTILINE)}


def assert_learned(printed):
    found = shares_in(printed)
    assert {"odd", "loop"} <= set(found)
    assert all(0 < share <= 1 for share in found.values())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in EXAMPLES]
)
def test_it_runs(name):
    printed = run(FOLDER / name)
    assert_learned(printed)
    if name in QUICK:
        assert shares_in(printed)["odd"] > 0.75
    if name == "noisy_task.py":
        report = printed.split("\n\n")[0]
        verdicts = dict(re.findall(r"^(odd|loop) +(\w+)", report, flags=re.MULTILINE))
        assert verdicts == {"odd": "clean", "loop": "suspect"}


@pytest.mark.slow
def test_raters_are_told_apart():
    printed = run(FOLDER / "annotators.py")
    found = re.findall(r"^(\w+) +([\d.]+) +([\d.]+)$", printed[printed.rindex("task ") :], flags=re.MULTILINE)
    assert len(found) == 5
    assert all(float(estimate) == pytest.approx(float(share), abs=0.06) for _, share, estimate in found)
    assert re.search(r"^eve +suspect", printed, flags=re.MULTILINE)  # the spammer


@pytest.mark.slow
def test_lightning_with_two_processes():
    assert_learned(run(FOLDER / "lightning_module.py", "--devices", "2"))


@pytest.mark.slow
def test_accelerate_with_two_processes():
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    assert_learned(run(*launcher, FOLDER / "accelerate_loop.py"))


def test_every_example_has_a_line_in_the_list():
    listed = re.findall(r"^\| \[(\w+\.py)\]", (FOLDER / "README.md").read_text(), flags=re.MULTILINE)
    assert sorted(listed) == sorted([*EXAMPLES, *ELSEWHERE])
