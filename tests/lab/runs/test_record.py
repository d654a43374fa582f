"""The record of a run: which code decided it, with which options, on which data; and which runs are of one kind."""

import json

import pytest
import yaml

from excessmtl import lab
from excessmtl.lab.compare.collect import read_table, write_table
from excessmtl.lab.runs.record import RunRecord, code_of, fingerprint, kind_of

TINY = {"epochs": 1, "limit_batches": 1, "device": "cpu"}


def train(out, benchmark="simulated-arm", **fields):
    return lab.train(benchmark, out=out, **{**TINY, "resume": True, **fields}).summary


def config_of(run):
    return yaml.safe_load((run / "config.yaml").read_text())


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("a,b,c\n" + "".join(f"{i % 7},{i % 2},{i * i % 11}.5\n" for i in range(80)))
    return path


def test_a_run_records_all_options_its_settings_its_data_and_the_code(tmp_path):
    summary = train(tmp_path / "runs" / "one", options={"every": 2}, batch_size=32)
    assert summary["options"] == {"every": 2}
    options = summary["method_options"]
    assert {"trust", "decay", "heads", "every", "scale", "protect"} <= set(options)
    assert (options["trust"], options["every"], options["scale"]) == (1.5, 2, "sum")
    assert summary["code"] == code_of()
    assert (summary["settings"]["batch_size"], summary["settings"]["limit_batches"]) == (32, 1)
    config = config_of(tmp_path / "runs/one")
    assert (config["record"], summary["record"]) == (1, 1)
    assert (config["code"], config["method_options"]) == (summary["code"], options)
    split = {"train": 6000, "validation": 1000, "test": 1500}
    assert (config["data_name"], config["data_split"]) == ("simulated-arm", split)
    assert json.loads((tmp_path / "runs/one/summary.json").read_text()) == summary
    frame = lab.collect(tmp_path / "runs")
    write_table(frame, tmp_path / "runs.csv")
    row = read_table(tmp_path / "runs.csv").iloc[0]
    assert (row["code"], row["settings"]) == (summary["code"], summary["settings"])
    assert row["method_options"] == frame["method_options"].iloc[0]
    assert kind_of(row) == kind_of(RunRecord.read(tmp_path / "runs/one/config.yaml").columns)


def test_runs_of_one_kind_differ_in_their_seed_and_noise_alone(tmp_path):
    same = [{}, {"seed": 1}, {"noise": 0.4}, {"device": "cpu"}, {"label": "mine"}]
    other = [{"learning_rate": 0.1}, {"options": {"every": 2}}, {"batch_size": 16}, {"loss": "robust"}]
    other += [{"noise_kind": "outliers"}, {"noise_seed": 5}, {"limit_batches": 2}]
    made = [train(tmp_path / str(place), **{"noise": 0.1, **own}) for place, own in enumerate([*same, *other])]
    kinds = [kind_of(summary) for summary in made]
    assert [kind == kinds[0] for kind in kinds] == [True] * len(same) + [False] * len(other)


def test_a_table_that_has_changed_is_other_data(tmp_path, table):
    own = {"method": "uniform", "benchmark_options": {"targets": ["b", "c"]}}
    first = train(tmp_path / "runs/a", str(table), **own)
    table.write_text(table.read_text().replace("6,", "5,"))
    second = train(tmp_path / "runs/b", str(table), **own)
    assert first["settings"]["data_checksum"] != second["settings"]["data_checksum"]
    assert kind_of(first) != kind_of(second)
    with pytest.raises(ValueError, match=r"data_checksum is .*, but the run in .*a was started with"):
        train(tmp_path / "runs/a", str(table), **{**own, "epochs": 2})


def test_a_run_that_goes_on_with_other_code_names_both(tmp_path):
    train(tmp_path / "one")
    config = tmp_path / "one/config.yaml"
    config.write_text(config.read_text().replace(code_of(), "0123456789ab"))
    assert train(tmp_path / "one", epochs=2)["code"] == f"0123456789ab and {code_of()}"


def test_folders_of_older_versions_are_read_and_gone_on_with(tmp_path):
    train(tmp_path / "one")
    new = ("record", "code", "method_options", "data_name", "data_checksum", "data_split")
    old = {key: own for key, own in config_of(tmp_path / "one").items() if key not in (*new, "loss")}
    (tmp_path / "one/config.yaml").write_text(yaml.safe_dump(old))
    path = tmp_path / "one/summary.json"
    summary = json.loads(path.read_text())
    without = {key: own for key, own in summary.items() if key not in (*new, "settings", "units", "loss")}
    path.write_text(json.dumps(without))
    row = lab.collect(tmp_path).iloc[0]
    assert (row["code"], row["method_options"], row["settings"]) == ("not recorded", {}, {})
    assert (row["loss"], row["units"]) == ("plain", summary["units"])
    assert train(tmp_path / "one", epochs=2)["code"] == f"not recorded and {code_of()}"
    with pytest.raises(ValueError, match="loss is 'robust', but the run in"):
        train(tmp_path / "one", epochs=3, loss="robust")


@pytest.mark.parametrize("change", ["content", "name"])
def test_the_fingerprint_follows_the_source_alone(tmp_path, change):
    one, other = tmp_path / "one", tmp_path / "other"
    for folder, end in ((one, b"\n"), (other, b"\r\n")):
        folder.mkdir()
        words = b'"""What it is."""' + end + b"# Why" + end if folder == other else b""
        (folder / "a.py").write_bytes(words + b"x = 1" + end + b"y = 2" + end)
        (folder / "b.py").write_bytes(b"")
    whole = fingerprint({"a.py": one / "a.py", "b.py": one / "b.py"})
    assert whole == fingerprint({"b.py": other / "b.py", "a.py": other / "a.py"}), "line ends, words, order and place"
    (other / "a.py").write_bytes(b"x = 1\ny = 3\n")
    changed = {"a.py": other / "a.py"} if change == "content" else {"c.py": one / "a.py"}
    assert whole != fingerprint({**changed, "b.py": one / "b.py"})
    (one / "b.py").write_bytes(b"class A: ...\n")
    assert whole != fingerprint({"a.py": one / "a.py", "b.py": one / "b.py"})


def test_a_rule_of_ones_own_is_part_of_it():
    class Mine:
        """Written in this file."""

    assert code_of(Mine) != code_of()
    assert len(code_of()) == 12
