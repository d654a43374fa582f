"""The results page: every number from the runs."""

import json
import subprocess
import sys
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest

from commands import ENVIRONMENT
from excessmtl.lab.compare.collect import read_epochs, read_steps, write_table
from excessmtl.lab.paper.claims.verdicts import verdicts
from excessmtl.lab.paper.subjects import COMPARED, Runs
from made_up_runs import write_course
from research import results
from worlds import RIGHT, WRONG, multimnist, world


@pytest.fixture(scope="module")
def settings():
    return results.settings_of(Runs.of(world(RIGHT)))


def rows(table):
    return {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.texts}


def test_scores_are_means_without_noise_and_with_it(settings):
    clean = rows(results.scores_table(settings, "clean"))
    assert clean["MGDA"]["MultiMNIST, % ↑"] == "98.0 → 74.0"
    assert clean["ExcessMTL (paper)"]["MultiMNIST, % ↑"] == "98.0 → **98.0**"


def test_tasks_of_different_kinds_have_a_column_each_and_no_mean(settings):
    clean, every = (results.scores_table(settings, group).columns for group in ("clean", "overall"))
    assert {"nyuv2, depth ↓", "nyuv2, normals, % ↑"} <= set(clean)
    assert not any(column.startswith("nyuv2") for column in every)
    assert not any("segmentation" in column for column in clean), "it is the noisy task"


def test_data_that_is_not_the_papers_is_shown_too_and_the_papers_first():
    frame = world(RIGHT)
    other = frame[frame.benchmark == "sarcos"].assign(benchmark="aardvark", source="139 schools")
    found = results.settings_of(Runs.of(pd.concat([frame, other], ignore_index=True)))
    assert [own.benchmark for own in found][-1] == "aardvark"


def test_every_claim_is_in_the_file_and_those_that_fail_on_the_page(tmp_path):
    write_table(world(WRONG), tmp_path / "runs.csv.gz")
    results.write_claims(Runs.read(tmp_path), tmp_path / "claims.csv")
    written = pd.read_csv(tmp_path / "claims.csv")
    judged = verdicts(Runs.read(tmp_path))
    pd.testing.assert_frame_equal(written, pd.DataFrame([asdict(one) for one in judged]))
    written.loc[:1, "verdict"] = "holds"
    page = results.claims_part(written)
    assert "These hold: 1, 2. These do not hold:" in page
    for row in written.to_dict("records"):
        shown = f"| {row['number']} | {row['where']} | {row['claim']} |" in page
        assert shown == (row["verdict"] == "does not hold")


def test_a_mistake_exits_with_2(tmp_path):
    command = [sys.executable, "-m", "research.results", str(tmp_path / "nothing")]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    assert (done.returncode, "is not a folder" in done.stderr) == (2, True)


@pytest.mark.slow
def test_the_published_numbers_are_what_the_published_runs_give_byte_for_byte(tmp_path):
    results.write_numbers(Runs.read(results.STUDY), tmp_path / "study", tmp_path / "figures")
    written = {path.name: path.read_bytes() for path in (tmp_path / "study").glob("*.csv")}
    assert written == {path.name: path.read_bytes() for path in results.STUDY.glob("*.csv")}
    drawn = {path.name for path in (tmp_path / "figures").iterdir()}
    assert drawn <= {path.name for path in (results.DOCS / "figures").iterdir()}


def test_published_courses_are_means_over_stretches_of_steps(tmp_path):
    made = [row for row in multimnist(RIGHT) if row["noise"] == 0.8 and row["seed"] == 0]
    for row in made:
        curve = dict.fromkeys(("weights", "losses", "risks"), lambda t, noisy: 1 + noisy - t)
        write_course(tmp_path / "runs" / row["folder"], list(row["scores"]), row["noisy_tasks"], **curve, epochs=1)
        (tmp_path / "runs" / row["folder"] / "summary.json").write_text(json.dumps(row | {"epochs": 1}))
    results.publish(Runs.read(tmp_path / "runs"), tmp_path / "study")
    back = Runs.read(tmp_path / "study")
    assert len(back.frame) == len(made)
    shown = [run for _, run in back.frame.dropna(subset="steps_path").iterrows()]
    assert {run.shown for run in shown} == set(COMPARED)
    whole = read_steps(tmp_path / "runs" / shown[0].folder / "steps.npz").losses.to_numpy()
    thin = read_steps(shown[0].steps_path).losses.to_numpy()
    np.testing.assert_allclose(thin, whole.reshape(20, -1, 2).mean(1), rtol=1e-5)
    original = read_epochs(tmp_path / "runs" / shown[0].folder / "metrics.csv")
    pd.testing.assert_frame_equal(read_epochs(shown[0].metrics_path).round(5), original.round(5))


def test_runs_of_a_later_folder_stand_in_for_those_of_an_earlier_one_and_only_planned_ones_are_kept():
    frame = multimnist(RIGHT)
    before = pd.DataFrame([row | {"label": row["method"]} for row in frame if row["method"] != "excess"])
    again = before[(before["label"] == "gradnorm") & (before["noise"] == 0.8)].assign(clean_score=0.5)
    kept = results.planned_and_newest([Runs.of(before), Runs.of(again)]).frame
    own = kept[kept["label"] == "gradnorm"]
    assert (set(own["noise"]), set(own["clean_score"]), set(own["seed"])) == ({0.8}, {0.5}, {0, 1, 2})
    assert set(kept["label"]) == {"gradnorm", "uniform", "mgda", "groupdro", "imtl", "single"}, "no study plans moml"
