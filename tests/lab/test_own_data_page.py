"""docs/own-data.md, from top to bottom: its Python is executed, its commands are run, its study is swept."""

import contextlib
import io
import json
import re
import shlex
import sys
from pathlib import Path

import pytest
import yaml

from commands import in_a_process

PAGE = (Path(__file__).parents[2] / "docs" / "own-data.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, flags=re.DOTALL)


def run(line):
    program, *arguments = shlex.split(line)
    assert program == "excessmtl"
    done = in_a_process(*arguments)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_everything_on_the_page_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    printed = io.StringIO()
    for language, text in BLOCKS:
        if language == "":
            for line in text.strip().splitlines():
                run(line)
        elif language == "yaml":
            (tmp_path / "study.yaml").write_text(text, encoding="utf-8")
            run("excessmtl sweep study.yaml --jobs 2 --out runs/study")
        elif text.startswith("# my_data.py"):
            (tmp_path / "my_data.py").write_text(text, encoding="utf-8")
        else:
            with contextlib.redirect_stdout(printed):
                exec(compile(text, "own-data.md", "exec"), {"__name__": "__page__"})
    sys.modules.pop("my_data", None)

    summaries = {path.parent.name: json.loads(path.read_text()) for path in (tmp_path / "runs").glob("*/summary.json")}
    assert set(summaries) == {"houses", "mgda", "noisy", "mine", "python", "signals", "two"}
    assert summaries["houses"]["primary_metric"] == {"price": "nmse", "sold": "accuracy", "rooms": "accuracy"}
    assert summaries["mgda"]["primary_metric"]["rooms"] == "nmse"
    assert summaries["noisy"]["noisy_tasks"] == ["price"]
    assert summaries["houses"]["scores"]["price"] < 0.5, "a linear price is easy to learn"
    study = yaml.safe_load((tmp_path / "study.yaml").read_text())
    assert len(list((tmp_path / "runs" / "study").rglob("summary.json"))) == len(study["methods"]) * study["seeds"]
    assert "houses.csv, 400 rows" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "kg" in printed.getvalue()
