"""Mistakes planted one by one in the source (mistakes.yaml): for each, the one test that is named must find it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
BY_HAND = "tests/lab/training/test_loop_by_hand.py"
RUNS = f"{BY_HAND}::test_a_run_is_what_a_plain_loop_computes"
TESTS = {
    name: f"{RUNS}[{method}-config{at}-arguments{at}-world{at}]"
    for name, method, at in (("run", "excess", 0), ("augmented", "excess", 1), ("moml", "moml", 2), ("dwa", "dwa", 8))
} | {"validation": f"{BY_HAND}::test_noisy_validation_labels_choose_an_epoch"}


def read_mistakes():
    """Name -> the file, what stands there, what is planted, and the test that must fail then."""
    plain = yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text(encoding="utf-8"))
    return {name: (f"lab/{file}.py", right, wrong, _test(test)) for name, (file, right, wrong, test) in plain.items()}


def _test(words):
    if words.startswith("field "):
        return f"{BY_HAND}::test_a_field_does_what_the_plain_loop_does_with_it[{words.removeprefix('field ')}]"
    return TESTS.get(words, f"tests/lab/{words}")


MISTAKES = read_mistakes()


def test_mistakes_are_planted_where_the_source_still_says_so():
    for name, right, *_ in MISTAKES.values():
        count = (ROOT / "src" / "excessmtl" / name).read_text(encoding="utf-8").count(right)
        assert count == 1, f"{name} has changed: {right!r} stands there {count} times"


@pytest.mark.timeout(900)  # a minute of one core; other tests may share it
@pytest.mark.skipif(not hasattr(os, "fork"), reason="planted.py forks")
def test_every_planted_mistake_is_found():
    """One process imports torch; a fork of it for each mistake runs one test, and one without a mistake runs all."""
    listed = [
        {"name": name, "file": file, "right": right, "wrong": wrong, "tests": [test]}
        for name, (file, right, wrong, test) in MISTAKES.items()
    ]
    tests = sorted({test for *_, test in MISTAKES.values()})
    listed.append({"name": "nothing", "file": "lab/training/loop.py", "right": "", "wrong": "", "tests": tests})
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).with_name("planted.py"))]
    done = subprocess.run(command, input=json.dumps(listed), env=env, capture_output=True, text=True, timeout=840)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert set(found) == {*MISTAKES, "nothing"}
    status, words = found.pop("nothing")
    assert status == 0, f"the tests fail without a mistake: {words}"
    # 1: the test failed. Anything else, such as a source that cannot be imported, proves nothing.
    assert {name: words for name, (status, words) in found.items() if status != 1 or not _failed(words)} == {}


def _failed(words):
    last = words.strip().splitlines()[-1]
    return " failed" in last and " error" not in last
