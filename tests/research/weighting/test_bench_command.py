"""`python -m research.weighting` as a user meets it."""

import pandas as pd
import pytest
from typer.testing import CliRunner

from research.weighting.__main__ import app
from research.weighting.records import COLUMNS
from research.weighting.regrets import beyond, by_noise, by_world, in_tolerances


def invoke(*arguments):
    return CliRunner().invoke(app(), list(map(str, arguments)))


@pytest.fixture(scope="module")
def frame(tmp_path_factory):
    out = tmp_path_factory.mktemp("bench")
    worlds = ("--worlds", "teacher-memorise", "--worlds", "teacher-mixed")
    result = invoke(*worlds, "--candidates", "1 / n", "--seeds", 2, "--epochs-factor", 0.02, "--out", out)
    assert result.exit_code == 0, result.output
    assert "1 / n" in result.output
    assert "weighting.csv" in result.output
    return pd.read_csv(out / "weighting.csv")


def test_a_row_for_every_world_noise_candidate_and_seed(frame):
    assert list(frame) == list(COLUMNS)
    assert len(frame) == 2 * 3 * 3 * 2
    assert set(frame["candidate"]) == {"uniform", "imtl", "1 / n"}
    assert sorted(frame["seed"].unique()) == [100, 101]
    assert not frame.duplicated(["world", "noise", "candidate", "seed"]).any()


def test_regrets_are_paired_differences_in_points(frame):
    world = frame[frame["world"] == "teacher-memorise"].set_index(["noise", "seed", "candidate"])
    assert (world["unit"] == "points").all()
    ours, theirs = world.xs("1 / n", level="candidate"), world.xs("imtl", level="candidate")
    for measure in ("clean", "overall"):
        expected = 100 * (theirs[measure] - ours[measure])
        pd.testing.assert_series_equal(
            ours[f"{measure}_against_imtl"], expected, check_names=False, check_exact=False, atol=5e-3
        )
        assert (theirs[f"{measure}_against_imtl"] == 0).all()


def test_scores_of_different_kinds_are_not_averaged(frame):
    mixed = frame[frame["world"] == "teacher-mixed"]
    assert mixed[["clean", "overall"]].isna().all(axis=None)
    assert (mixed["unit"] == "percent").all()
    assert mixed["clean_against_uniform"].notna().all()


def test_regret_counts_the_better_rival_in_units_of_the_tolerance():
    columns = ["candidate", "world", "noise", "seed", "unit", "smallest_weight"]
    rows = [["x", "a", 0.0, seed, "points", 0.1] for seed in (1, 2)] + [["x", "b", 0.0, 1, "percent", 0.1]]
    made = pd.DataFrame(rows, columns=columns).assign(
        clean_against_uniform=[0.9, 0.3, -3.0],
        clean_against_imtl=[0.2, 0.2, 9.0],
        overall_against_uniform=[0.0, 0.0, 10.0],
        overall_against_imtl=[-1.0, -1.0, 5.0],
    )
    regrets = in_tolerances(made)
    assert regrets["clean"].tolist() == pytest.approx([2.0, 3.0])
    assert regrets["overall"].tolist() == pytest.approx([0.0, 2.0])
    assert beyond(regrets)["x"] == pytest.approx(1 + 2 + 1)
    assert by_noise(made).texts == [["x", "3.0", "2.0", "4.0"]]
    assert by_world(made, ["x"]).texts == [["x", "a", "2.0 ± 1.0", "0.0 ± 0.0"], ["x", "b", "3.0", "2.0"]]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--worlds", "narnia"), "--worlds 'narnia' is unknown"),
        (("--candidates", "magic"), "--candidates 'magic' is neither"),
        (("--seeds", 0), "--seeds is 0"),
        (("--first-seed", -1), "--first-seed is -1"),
        (("--noise", 1.5), "--noise is 1.5"),
        (("--epochs-factor", 0), "--epochs-factor is 0"),
        (("--worlds", "sarcos", "--data-sarcos", "/no/such.mat"), "--data-sarcos is /no/such.mat"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(tmp_path, arguments, said):
    result = invoke("--quick", *arguments, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert said in result.output
    assert len(result.output.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_sarcos_without_its_file_names_the_option(tmp_path, monkeypatch):
    monkeypatch.setenv("EXCESSMTL_DATA", str(tmp_path / "cache"))
    result = invoke("--worlds", "sarcos", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "--data-sarcos is missing" in result.output


def test_a_folder_is_needed_and_a_file_is_not_overwritten(tmp_path):
    assert "--out is missing" in invoke("--quick").output
    (tmp_path / "file").write_text("mine")
    assert invoke("--quick", "--out", tmp_path / "file").exit_code == 2
    assert (tmp_path / "file").read_text() == "mine"


def test_the_candidates_can_be_listed():
    result = invoke("--list")
    assert result.exit_code == 0
    assert "trust:" in result.output
    assert "  exp(-2 r/r0) / sqrt(n r0)" in result.output.splitlines()
