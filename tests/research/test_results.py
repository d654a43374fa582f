"""The results page: every number from the runs, the command beside it."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from excessmtl.lab.compare.collect import read_table, write_table
from excessmtl.lab.compare.courses import read_epochs, read_steps
from excessmtl.lab.paper.claims.verdicts import verdicts
from excessmtl.lab.paper.collected import Runs
from excessmtl.lab.paper.methods import COMPARED
from excessmtl.lab.studies.study import read_study
from made_up_runs import as_frame, write_course
from research import publish
from research.results import PUBLISHED, main, read_commands
from worlds import RIGHT, WRONG, multimnist, sarcos, world


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    root = tmp_path_factory.mktemp("results")
    study = root / "docs" / "data" / "study"
    write_table(world(RIGHT), study / "runs.csv.gz")
    (study / "commands.yaml").write_text("multimnist: excessmtl sweep studies/paper.yaml\npage: make results\n")
    main([str(study), "-o", str(root / "docs/results.md"), "--commands", str(study / "commands.yaml")])
    return root / "docs"


def test_the_page_links_to_files_that_are_there(written):
    page = (written / "results.md").read_text()
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert "figures/sarcos.png" in links
    assert "data/study/runs.csv.gz" in links
    for link in links:
        assert (written / link).is_file()
    assert (written / "data/study/multimnist.csv").is_file()
    assert list(written.rglob("*.svg")) == []


def test_tables_show_mean_and_deviation(written):
    page = (written / "results.md").read_text()
    section = page.split("## MultiMNIST")[1].split("\n## ")[0]
    clean = section.split("**Clean tasks: accuracy, % ↑**")[1].split("**Noisy tasks")[0]
    assert "| method | noise 0 | noise 0.4 | noise 0.8 | noise 1 |" in clean
    assert "| MGDA | **98.0 ± 0.0** | 86.0 ± 0.0 | 74.0 ± 0.0 | 68.0 ± 0.0 |" in clean
    assert "| ExcessMTL (paper) | **98.0 ± 0.0** | **98.0 ± 0.0** |" in clean
    weights = section.split("**Share of the weight on clean tasks**")[1]
    assert "| MGDA | 0.50 ± 0.00 | 0.30 ± 0.00 | 0.10 ± 0.00 | 0.00 ± 0.00 |" in weights
    assert "Single-task" not in weights


def test_tasks_of_different_kinds_have_a_table_each(written):
    section = (written / "results.md").read_text().split("## NYUv2")[1]
    for title in ("Segmentation: pixel_accuracy, % ↑", "Depth: rel_error ↓", "Normals: within_11.25, % ↑"):
        assert f"**{title}" in section


def test_the_command_stands_beside_its_numbers(written):
    page = (written / "results.md").read_text()
    assert "```\nexcessmtl sweep studies/paper.yaml\n```" in page.split("## MultiMNIST")[1].split("\n## ")[0]
    assert "```\nmake results\n```" in page.split("## MultiMNIST")[0]


def test_every_claim_is_on_the_page_with_rule_and_evidence(written):
    page = (written / "results.md").read_text()
    for one in verdicts(read_table(written / "data/study/runs.csv.gz")):
        assert f"| {one.number} | {one.where} | {one.claim} | **{one.verdict}** |" in page
        assert one.rule in page
        assert one.evidence in page


def test_several_folders_make_one_page_and_runs_in_two_count_once(tmp_path):
    write_table(as_frame(multimnist(WRONG)), tmp_path / "a" / "runs.csv")
    write_table(as_frame(multimnist(WRONG) + sarcos(WRONG, "simulated-arm")), tmp_path / "b" / "runs.csv")
    main([str(tmp_path / "a"), str(tmp_path / "b"), "-o", str(tmp_path / "page/results.md")])
    page = (tmp_path / "page/results.md").read_text()
    assert f"{len(multimnist(WRONG))} runs of 15 epochs" in page
    assert f"{len(sarcos(WRONG))} runs of 15 epochs" in page
    assert "## Simulated 7-joint arm, 6,000 rows (stand-in for SARCOS)" in page
    assert "## SARCOS" not in page


def test_each_section_has_its_own_pictures(tmp_path):
    shorter = [row | {"epochs": 3} for row in sarcos(RIGHT)[:-1]]
    write_table(as_frame(sarcos(RIGHT) + shorter), tmp_path / "runs.csv")
    main([str(tmp_path), "-o", str(tmp_path / "page/results.md")])
    long, short = (tmp_path / "page/results.md").read_text().split("## SARCOS")[1:]
    assert "runs of 100 epochs" in long
    assert "(figures/sarcos.png)" in long
    assert "sarcos_2" not in long
    assert "runs of 3 epochs" in short
    assert "(figures/sarcos_2.png)" in short


@pytest.mark.parametrize("text", ["- a list", "multimnist: {a: b}", "{unclosed"])
def test_bad_commands_are_one_sentence(tmp_path, text):
    (tmp_path / "commands.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"commands\.yaml must map benchmarks to commands"):
        read_commands(tmp_path / "commands.yaml")


def test_mistakes_exit_with_2_and_write_nothing(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path / "nothing"), "-o", str(tmp_path / "docs/results.md")])
    assert ended.value.code == 2
    assert "is not a folder" in capsys.readouterr().err
    assert not (tmp_path / "docs").exists()


def test_data_that_is_not_the_papers_has_a_section_too(tmp_path):
    frame = world(RIGHT)
    other = frame[frame.benchmark == "sarcos"].assign(benchmark="school", source="139 schools")
    write_table(other, tmp_path / "study" / "runs.csv")
    main([str(tmp_path / "study"), "-o", str(tmp_path / "docs/results.md")])
    page = (tmp_path / "docs/results.md").read_text()
    assert page.count("## School: 139 schools") == 1
    assert "**Clean tasks: nmse ↓**" in page.split("## School")[1]


@pytest.mark.slow
def test_the_page_in_the_documents_is_what_the_published_runs_give_byte_for_byte(tmp_path):
    root = Path(__file__).parents[2]
    published = root / PUBLISHED
    main([str(published), "-o", str(tmp_path / "results.md"), "--commands", str(published / "commands.yaml")])
    assert (tmp_path / "results.md").read_bytes() == (root / "docs/results.md").read_bytes()
    written = {path.name: path.read_bytes() for path in (tmp_path / "data/study").glob("*.csv")}
    assert written == {path.name: path.read_bytes() for path in published.glob("*.csv")}
    assert {path.name for path in (tmp_path / "figures").iterdir()} <= {
        path.name for path in (root / "docs/figures").iterdir()
    }


def test_published_courses_are_means_over_stretches_of_steps(tmp_path):
    rows = [row for row in multimnist(RIGHT) if row["noise"] == 0.8 and row["seed"] == 0]
    for row in rows:
        curve = dict.fromkeys(("weights", "losses", "risks"), lambda t, noisy: 1 + noisy - t)
        write_course(tmp_path / "runs" / row["folder"], list(row["scores"]), row["noisy_tasks"], **curve, epochs=15)
        (tmp_path / "runs" / row["folder"] / "summary.json").write_text(json.dumps(row))
    publish.main([str(tmp_path / "runs"), "-o", str(tmp_path / "study")])
    back = Runs.read([tmp_path / "study"])
    assert len(back.frame) == len(rows)
    shown = [run for _, run in back.frame.dropna(subset="steps_path").iterrows()]
    assert {run.shown for run in shown} == set(COMPARED)
    whole = read_steps(tmp_path / "runs" / shown[0].folder / "steps.npz").losses
    thin = read_steps(shown[0].steps_path).losses
    assert (len(whole), len(thin)) == (300, 300)
    np.testing.assert_allclose(publish.thin(whole, 30), whole.to_numpy().reshape(30, 10, 2).mean(1), rtol=1e-6)
    original = read_epochs(tmp_path / "runs" / shown[0].folder / "metrics.csv")
    pd.testing.assert_frame_equal(read_epochs(shown[0].metrics_path).round(5), original.round(5))


def test_the_published_runs_are_those_of_the_studies_in_the_repository():
    root = Path(__file__).parents[2]
    planned = {
        (run.benchmark, run.name, run.noise, run.seed)
        for path in (root / "studies/results").glob("*.yaml")
        for run in read_study(path).runs
    }
    frame = read_table(root / PUBLISHED / "runs.csv.gz")
    made = set(zip(frame.benchmark, frame.label, frame.noise, frame.seed, strict=True))
    assert made <= planned
    missing = planned - made
    assert {benchmark for benchmark, *_ in missing} == {"synthetic-rooms"}
    assert f"{len(missing)} of its 105 runs of rooms are missing" in (root / PUBLISHED / "commands.yaml").read_text()
