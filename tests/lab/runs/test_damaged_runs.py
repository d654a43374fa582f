"""Run folders that were cut short, edited or made up: one sentence and exit code 2, never a traceback or a hang."""

import hashlib
import io
import json
import os
import shutil

import pytest
import torch
import yaml

from commands import done, excessmtl, refused
from excessmtl import lab

PARTS = ["model", "optimiser", "balancer", "losses", "random", "rows", "seconds", "history", "scaler", "cuda_random"]
TRAIN = ["--targets", "b,c", "--kind", "b=classification", "--device", "cpu", "--batch-size", 20]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A table and a run of one epoch on it."""
    place = tmp_path_factory.mktemp("damaged")
    (place / "table.csv").write_text("a,b,c\n" + "".join(f"{i % 7},{i % 5},{i * i % 11}.5\n" for i in range(80)))
    done("train", place / "table.csv", *TRAIN, "--epochs", 1, "--out", place / "run")
    return place


@pytest.fixture
def run(finished, tmp_path):
    """A copy to damage."""
    return shutil.copytree(finished / "run", tmp_path / "run")


def resumed(finished, run, epochs=2):
    return excessmtl("train", finished / "table.csv", *TRAIN, "--epochs", epochs, "--out", run, "--resume")


def with_state(run, change):
    """The run with another state in its checkpoint, and the sha256 that belongs to it."""
    (path,) = (run / "checkpoint").glob("*.pt")
    state = change(torch.load(path, weights_only=True))
    if not isinstance(state, bytes):
        buffer = io.BytesIO()
        torch.save(state, buffer)
        state = buffer.getvalue()
    path.write_bytes(state)
    note = json.loads((run / "checkpoint" / "latest.json").read_text())
    note["sha256"] = hashlib.sha256(state).hexdigest()
    (run / "checkpoint" / "latest.json").write_text(json.dumps(note))


def without(name):
    return lambda state: {key: value for key, value in state.items() if key != name}


def with_value(name, value):
    return lambda state: {**state, name: value}


class Foreign:
    """Something that a checkpoint must not hold: loading it would import this module."""


STATES = {
    "empty": lambda state: b"",
    "pickle": lambda state: b"\x80\x04.",
    "list": lambda state: [state],
    "object": lambda state: {**state, "rows": Foreign()},
    **{f"no {name}": without(name) for name in PARTS},
    "model of another shape": lambda state: {**state, "model": {k: v[..., :1] for k, v in state["model"].items()}},
    "empty balancer": with_value("balancer", {}),
    "unknown losses": with_value("losses", {"b.x": torch.zeros(1)}),
    "random numbers of another size": with_value("random", torch.zeros(3, dtype=torch.uint8)),
    "rows of texts": lambda state: {**state, "rows": [dict.fromkeys(row, "x") for row in state["rows"]]},
    "empty history": with_value("history", {}),
}


@pytest.mark.parametrize("change", STATES.values(), ids=STATES)
def test_a_checkpoint_of_any_content_is_one_sentence(finished, run, change):
    with_state(run, change)
    refused(resumed(finished, run), "the checkpoint", run / "checkpoint", "delete the run's folder")


@pytest.mark.parametrize("change", [STATES[name] for name in ("empty", "list", "no model", "model of another shape")])
def test_a_network_is_not_read_from_it_either(run, change):
    with_state(run, change)
    refused(excessmtl("diagnose", run), "the checkpoint", "delete the run's folder")


DAMAGES = {
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:1000]),
    "not there": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_checkpoint_that_is_not_what_was_written_is_noticed(finished, run, damage):
    (path,) = (run / "checkpoint").glob("*.pt")
    damage(path)
    before = [(run / name).read_bytes() for name in ("summary.json", "config.yaml")]
    refused(resumed(finished, run), "the checkpoint", "delete the run's folder")
    assert [(run / name).read_bytes() for name in ("summary.json", "config.yaml")] == before


FILES = ["3", '"."', '"../checkpoint/epoch-00000.pt"', '"epoch-00000.pt", "sha256": 3']


@pytest.mark.parametrize("note", ["", "[]", "{}", "[" * 100_000, *(f'{{"file": {file}}}' for file in FILES)])
def test_a_note_of_any_content_is_one_sentence(finished, run, note):
    (run / "checkpoint" / "latest.json").write_text(note)
    refused(resumed(finished, run), "the checkpoint", "delete the run's folder")


TEXTS = {"empty": "", "binary": "\0\1\2", "list": "[]", "empty mapping": "{}", "deep": "[" * 100_000}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("file", ["summary.json", "config.yaml"])
def test_a_file_that_is_no_mapping(finished, run, file, text):
    (run / file).write_text(text)
    refused(resumed(finished, run, epochs=1), run / file)


WRONG = {"seed": ["", True, -1], "epochs": ["", {"a": 1}], "method": ["", 3], "options": ["", ["x"], 3], "label": [3]}
WRONG |= {"benchmark": ["", 3, {"a": 1}, "no\0such", "no\0such.csv"], "benchmark_options": [3], "noise": [["x"]]}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in WRONG.items() for value in values])
def test_settings_of_another_kind(run, key, value):
    settings = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(json.dumps({**settings, key: value}))
    refused(excessmtl("diagnose", run))


def test_aliases_that_stand_for_a_million_values_are_not_written_out(finished, run):
    settings = yaml.safe_load((run / "config.yaml").read_text())
    nested = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    nested += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 6)]
    del settings["options"]
    (run / "config.yaml").write_text("\n".join([*nested, yaml.safe_dump(settings), "options: {k: *a5}"]))
    result = resumed(finished, run)
    refused(result, "was started with {'k': [[...]")
    assert len(result.stderr) < 2000


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names on this system")
@pytest.mark.parametrize(("file", "epochs"), [("summary.json", 1), ("config.yaml", 1), ("checkpoint/latest.json", 2)])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(finished, run, file, epochs, tmp_path):
    (run / file).unlink()
    os.mkfifo(tmp_path / "pipe")
    (run / file).symlink_to(tmp_path / "pipe")
    refused(resumed(finished, run, epochs), run / file, "is a pipe")


def test_a_link_to_a_summary_is_followed(run, tmp_path):
    (run / "summary.json").rename(tmp_path / "elsewhere.json")
    (run / "summary.json").symlink_to(tmp_path / "elsewhere.json")
    assert len(lab.collect(run)) == 1


def test_a_file_of_no_sane_size_is_not_read(run):
    with (run / "summary.json").open("wb") as file:
        file.truncate(2**40)  # nothing of it is stored
    with pytest.raises(ValueError, match=r"summary\.json has more than 268,435,456 bytes"):
        lab.collect(run)
