"""Every example runs, and prints its table. All in this process, so that frameworks are imported once."""

import logging
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[1] / "examples"
HELPERS = ("digits.py",)
EXAMPLES = sorted(path.name for path in FOLDER.glob("*.py") if path.name not in HELPERS)
TESTED_BELOW = ("annotators.py", "groups.py", "plot_weights.py")
"""They print other tables, or write a file."""
BETTER_THAN_CHANCE = 0.6
UNTAUGHT = ("hf_trainer.py", "transformer.py")
"""Transformers from scratch, which learn nothing in the few steps of `--quick`."""
NOISY = {"multi_task_loss.py": "digit", "noisy_task.py": "loop"}
"""Those that print a report -> the task that has bad labels."""
LAUNCHER = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def assert_learned(printed, least=BETTER_THAN_CHANCE):
    table = printed[printed.rindex("task ") :]
    # Task -> the last number of its line: an accuracy in every table.
    found = {name: float(number) for name, number in re.findall(r"^(\w+) .* ([\d.]+)$", table, flags=re.MULTILINE)}
    assert len(found) >= 2
    assert all(0 < share <= 1 for share in found.values())
    assert max(found.values()) > least


@pytest.fixture
def example(monkeypatch, capsys):
    """Run a file as `python FILE --quick` does, and return what it printed."""
    levels = {name: logging.getLogger(name).level for name in ("lightning.pytorch", "transformers")}
    monkeypatch.syspath_prepend(str(FOLDER))
    threads = torch.get_num_threads()

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, "--quick", *map(str, arguments)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of frameworks; ours are tested elsewhere
            runpy.run_path(str(FOLDER / name), run_name="__main__")
        return capsys.readouterr().out

    yield run
    torch.set_num_threads(threads)
    torch._dynamo.reset()
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name not in TESTED_BELOW])
def test_it_runs(example, name):
    printed = example(name)
    assert_learned(printed, 0 if name in UNTAUGHT else BETTER_THAN_CHANCE)
    if name in NOISY:
        verdicts = dict(re.findall(rf"^(odd|{NOISY[name]}) +(\w+)", printed.split("\n\n")[0], flags=re.MULTILINE))
        assert verdicts == {"odd": "clean", NOISY[name]: "noisy" if name == "multi_task_loss.py" else "suspect"}


def test_groups_without_heads(example, tmp_path):
    printed = example("groups.py", "--out", tmp_path / "errors.csv")
    uniform, excess = map(float, re.findall(r"^Asia +([\d.]+) +([\d.]+)$", printed, flags=re.MULTILINE)[0])
    assert 2 < excess < uniform < 12, "years"
    assert len((tmp_path / "errors.csv").read_text().splitlines()) == 1 + 2 * 2 * 2


def test_weights_are_drawn(example, tmp_path):
    assert_learned(example("plot_weights.py", "--out", tmp_path / "weights.png"))
    assert (tmp_path / "weights.png").read_bytes().startswith(b"\x89PNG")


def test_raters_are_told_apart(example):
    printed = example("annotators.py")
    found = re.findall(r"^(\w+) +([\d.]+) +([\d.]+)$", printed[printed.rindex("task ") :], flags=re.MULTILINE)
    assert len(found) == 5
    assert all(float(estimate) == pytest.approx(float(share), abs=0.06) for _, share, estimate in found)
    assert re.search(r"^eve +suspect", printed, flags=re.MULTILINE)  # the spammer


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("plain_loop.py",),
        ("lightning_module.py", "--devices", "2"),
        (*LAUNCHER, "accelerate_loop.py"),
        (*LAUNCHER, "hf_trainer.py"),
        ("fabric_loop.py", "--devices", "2"),
    ],
    ids=["alone", "lightning", "accelerate", "hugging face", "fabric"],
)
def test_it_runs_as_a_user_starts_it(command):
    """One in a process of its own, and those that go with two processes in two."""
    run = subprocess.run([sys.executable, *command, "--quick"], capture_output=True, text=True, timeout=240, cwd=FOLDER)
    assert run.returncode == 0, run.stdout[-1000:] + run.stderr[-3000:]
    assert_learned(run.stdout, 0 if "hf_trainer.py" in command else BETTER_THAN_CHANCE)


def test_every_example_has_a_line_in_the_list():
    listed = re.findall(r"^\| \[(\w+\.py)\]", (FOLDER / "README.md").read_text(), flags=re.MULTILINE)
    assert sorted(listed) == sorted(EXAMPLES)
