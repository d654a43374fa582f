"""Label noise in the page: a gauge per task of every run whose diagnosis was kept."""

import base64
import io
import json
import math
import re
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

import excessmtl
from commands import excessmtl as command
from commands import refused
from excessmtl import lab
from excessmtl.lab.compare.collect import collect
from excessmtl.lab.data.base import Split
from excessmtl.lab.reports.diagnoses import FILE, MOST_SUSPECTS, save
from excessmtl.lab.reports.page import render
from excessmtl.lab.training.cost_to_others import Conflict

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
    badges = [("good", "clean"), ("bad", "noisy"), ("", "too little evidence")]
    assert re.findall(r'<span class="badge (\w*)">([\w ]+)<', shown) == badges
    assert shown.count('class="needle"') == 2
    needle = float(re.findall(r'class="needle" style="left: ([\d.]+)%', shown)[1])
    assert needle == pytest.approx(50, abs=10)
    assert "&lt;b&gt;bad&lt;/b&gt;" in shown
    assert "<b>bad" not in shown
    assert shown.count("<tr><td>") == 2 * MOST_SUSPECTS
    assert re.search(r"<td>\d</td><td>\d</td><td>100 %</td></tr>", shown)  # label, predicted, probability
    assert "there is no held-out label" in shown
    assert shown.count("Wrong labels by class") == 1  # of the noisy task
    assert shown.count('<tr><th scope="row">') == 4


def test_pictures_and_conflicts_are_shown(diagnosed):
    rng = np.random.default_rng(1)
    logits, labels = rng.normal(size=(60, 3)), rng.integers(3, size=60)
    report = excessmtl.diagnose({"grey": logits, "colour": logits}, {"grey": labels, "colour": labels})
    pictures = {"grey": torch.rand(60, 12, 12), "colour": torch.randint(256, (60, 3, 64, 80), dtype=torch.uint8)}
    save(report, diagnosed / "one", Split(pictures, {}), Conflict(("grey", "colour"), ((1.0, -0.25), (-0.25, None))))
    shown = section(render(diagnosed, collect(diagnosed), None, "again"))
    addresses = re.findall(r'<img src="data:image/png;base64,([^"]+)"', shown)
    images = [Image.open(io.BytesIO(base64.b64decode(one))) for one in addresses]
    assert [image.size for image in images] == [(12, 12)] * 20 + [(48, 38)] * 20
    assert shown.count("<strong>-0.25</strong>") == 2


def test_without_a_diagnosis_there_is_no_section(runs):
    page = render(runs, collect(runs), None, "again")
    assert section(page) == ""
    assert "#noise" not in page


def damaged(place, change):
    """The folder of runs with another diagnosis in it; `change` gets and returns plain values, or returns a text."""
    path = place / "one" / FILE
    content = change(json.loads(path.read_text()))
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return place


def with_task(**changes):
    return lambda found: {**found, "tasks": [{**found["tasks"][0], **changes}, *found["tasks"][1:]]}


def with_suspect(**changes):
    def change(found):
        task = found["tasks"][0]
        return with_task(suspects=[{**task["suspects"][0], **changes}, *task["suspects"][1:]])(found)

    return change


CONFLICT = {"tasks": ["a", "b"], "cosines": [[1.0, 0.5], [0.5, None]]}
TEXTS = ("", "{", "null", "[" * 100_000, '{"tasks": [{}]}')
DAMAGES = {
    **{f"text {text[:9]!r}": lambda found, text=text: text for text in TEXTS},
    **{f"rate {value!r:.9}": with_task(noise_rate=value) for value in ("x", True, math.nan, 10**400)},
    **{f"interval {value!r}": with_task(noise_rate_interval=value) for value in ([0.1], [0.1, math.nan])},
    "sample": with_suspect(sample="x"),
    "conflict": lambda found: {**found, "conflict": {**CONFLICT, "cosines": [[1.0]]}},
}


@pytest.mark.parametrize("change", DAMAGES.values(), ids=DAMAGES)
def test_a_diagnosis_of_any_content_is_one_sentence(diagnosed, change, tmp_path):
    damaged(diagnosed, change)
    refused(command("report", diagnosed, "-o", tmp_path / "report.html"), "diagnosis.json cannot be read", "--save")
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    "address",
    [
        "https://example.com/spy.png",
        "data:image/svg+xml;base64,PHN2Zz4=",
        'data:image/png;base64,AAAA" onerror="alert(1)',
    ],
)
def test_only_pictures_that_the_address_holds_are_shown(diagnosed, address):
    damaged(diagnosed, with_suspect(picture=address))
    with pytest.raises(ValueError, match=r"diagnosis\.json cannot be read \(picture of a suspect must be a picture"):
        lab.report(diagnosed, diagnosed / "report.html")
    assert not (diagnosed / "report.html").exists()
