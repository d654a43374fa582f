"""A run says which code decided it, and with which options: two versions of a method can be told apart."""

import json

import pytest
import yaml

from excessmtl.lab.compare.collect import collect, read_table, write_table
from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.runs.fingerprint import code_of, fingerprint
from excessmtl.lab.training.loop import Run


def train(out, **fields):
    config = RunConfig(
        "simulated-arm", **{"method": "excess", "epochs": 1, "limit_batches": 1, "device": "cpu", **fields}
    )
    return Run(config, out, resume=True).execute()


def test_a_run_records_all_options_its_settings_and_the_code(tmp_path):
    summary = train(tmp_path / "runs" / "one", options={"every": 2}, batch_size=32)
    assert summary["options"] == {"every": 2}
    options = summary["method_options"]
    assert {"trust", "decay", "heads", "every", "scale", "protect"} <= set(options)
    assert (options["trust"], options["every"], options["scale"]) == (1.5, 2, "sum")
    assert summary["code"] == code_of()
    assert (summary["settings"]["batch_size"], summary["settings"]["limit_batches"]) == (32, 1)
    config = yaml.safe_load((tmp_path / "runs/one/config.yaml").read_text())
    assert (config["code"], config["method_options"]) == (summary["code"], options)
    assert json.loads((tmp_path / "runs/one/summary.json").read_text()) == summary
    frame = collect(tmp_path / "runs")
    write_table(frame, tmp_path / "runs.csv")
    row = read_table(tmp_path / "runs.csv").iloc[0]
    assert (row["code"], row["method_options"], row["settings"]) == (
        summary["code"],
        frame["method_options"].iloc[0],
        summary["settings"],
    )


def test_a_run_that_goes_on_with_other_code_names_both_and_older_folders_still_read(tmp_path):
    train(tmp_path / "runs" / "one")
    config = tmp_path / "runs/one/config.yaml"
    config.write_text(config.read_text().replace(code_of(), "0123456789ab"))
    assert train(tmp_path / "runs" / "one", epochs=2)["code"] == f"0123456789ab and {code_of()}"
    path = tmp_path / "runs/one/summary.json"
    summary = {
        key: own
        for key, own in json.loads(path.read_text()).items()
        if key not in ("code", "method_options", "settings")
    }
    path.write_text(json.dumps(summary))
    row = collect(tmp_path / "runs").iloc[0]
    assert (row["code"], row["method_options"], row["settings"]) == ("not recorded", {}, {})


@pytest.mark.parametrize("change", ["content", "name"])
def test_the_fingerprint_follows_the_source_alone(tmp_path, change):
    one, other = tmp_path / "one", tmp_path / "other"
    for folder, end in ((one, b"\n"), (other, b"\r\n")):
        folder.mkdir()
        (folder / "a.py").write_bytes(b"x = 1" + end + b"y = 2" + end)
        (folder / "b.py").write_bytes(b"")
    whole = fingerprint({"a.py": one / "a.py", "b.py": one / "b.py"})
    assert whole == fingerprint({"b.py": other / "b.py", "a.py": other / "a.py"}), "line ends, order and place"
    (other / "a.py").write_bytes(b"x = 1\ny = 3\n")
    changed = {"a.py": other / "a.py"} if change == "content" else {"c.py": one / "a.py"}
    assert whole != fingerprint({**changed, "b.py": one / "b.py"})


def test_a_rule_of_ones_own_is_part_of_it():
    class Mine:
        """Written in this file."""

    assert code_of(Mine) != code_of()
    assert len(code_of()) == 12
