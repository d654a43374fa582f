"""Label noise in the page: a gauge per task of every run whose diagnosis was kept."""

import base64
import io
import re
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

import excessmtl
from excessmtl.analysis.collect import collect
from excessmtl.benchmarks.base import Split
from excessmtl.reports.diagnoses import FILE, MOST_SUSPECTS, save
from excessmtl.reports.page import render
from excessmtl.training.cost_to_others import Conflict

RUN = "digits/excess/noise-0.8/seed-0"


@pytest.fixture
def diagnosed(runs, tmp_path):
    rng = np.random.default_rng(0)
    truth = rng.integers(4, size=400)
    logits = 3 * rng.normal(size=(400, 4)) + 12 * np.eye(4)[truth]
    noisy = np.where(rng.random(400) < 0.5, rng.integers(4, size=400), truth)
    tasks = {"fine": (logits, truth), "<b>bad</b>": (logits, noisy), "empty": (None, None)}
    report = excessmtl.diagnose(*({task: pair[part] for task, pair in tasks.items()} for part in (0, 1)))
    shutil.copytree(runs / RUN, tmp_path / "study" / "one")
    save(report, tmp_path / "study" / "one")
    return tmp_path / "study"


def section(page):
    found = re.search(r'<section id="noise".*?</section>', page, flags=re.DOTALL)
    return "" if found is None else found[0]


def test_every_task_has_a_gauge(diagnosed):
    shown = section(render(diagnosed, collect(diagnosed), None, "again"))
    assert re.findall(r'<span class="badge (\w*)">([\w ]+)<', shown) == [
        ("good", "clean"),
        ("bad", "noisy"),
        ("", "too little evidence"),
    ]
    assert shown.count('class="needle"') == 2
    needle = float(re.findall(r'class="needle" style="left: ([\d.]+)%', shown)[1])
    assert needle == pytest.approx(50, abs=10)
    assert "&lt;b&gt;bad&lt;/b&gt;" in shown
    assert "<b>bad" not in shown
    assert shown.count("<tr><td>") == 2 * MOST_SUSPECTS
    assert "there is no held-out label" in shown


def test_pictures_and_conflicts_are_shown(diagnosed):
    rng = np.random.default_rng(1)
    logits, labels = rng.normal(size=(60, 3)), rng.integers(3, size=60)
    report = excessmtl.diagnose({"grey": logits, "colour": logits}, {"grey": labels, "colour": labels})
    pictures = {"grey": torch.rand(60, 12, 12), "colour": torch.randint(256, (60, 3, 64, 80), dtype=torch.uint8)}
    conflict = Conflict(("grey", "colour"), ((1.0, -0.25), (-0.25, None)))
    save(report, diagnosed / "one", Split(pictures, {}), conflict)
    shown = section(render(diagnosed, collect(diagnosed), None, "again"))
    addresses = re.findall(r'<img src="data:image/png;base64,([^"]+)"', shown)
    images = [Image.open(io.BytesIO(base64.b64decode(one))) for one in addresses]
    assert [image.size for image in images] == [(12, 12)] * 20 + [(48, 38)] * 20
    assert shown.count("<strong>-0.25</strong>") == 2


def test_without_a_diagnosis_there_is_no_section(runs):
    page = render(runs, collect(runs), None, "again")
    assert section(page) == ""
    assert "#noise" not in page


def test_a_damaged_file_is_named(diagnosed):
    (diagnosed / "one" / FILE).write_text('{"tasks": [{}]}')
    with pytest.raises(ValueError, match=r"diagnosis.json cannot be read .* --save"):
        render(diagnosed, collect(diagnosed), None, "again")
