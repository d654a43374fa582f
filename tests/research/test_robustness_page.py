"""The page on robustness, from made-up runs."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from excessmtl.lab.compare.collect import collect, read_table, write_table
from excessmtl.lab.compare.regret_tables import write_regrets
from excessmtl.lab.compare.robustness import judgements, scores_by_run, standings
from report_data import run, table
from research import robustness

SCORES = {"excess": (0.9, 0.6), "uniform": (0.85, 0.7), "mgda": (0.7, 0.5)}
ROOT = Path(__file__).parents[2]


def scored(label, noise, seed, clean, noisy, benchmark="digits"):
    scores = {"clean": clean, "noisy": noisy}
    return run(label, noise, seed, scores, benchmark=benchmark, chosen_scores=scores)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("robust")
    rows = [
        scored(label, noise, seed, clean - noise / 10 + seed / 1000, noisy - noise / 2, benchmark)
        for benchmark in ("digits", "arms")
        for label, (clean, noisy) in SCORES.items()
        for noise in (0.0, 0.4)
        for seed in range(3)
    ]
    write_table(table(*rows), root / "runs.csv")
    (root / "chosen.csv").write_text("benchmark,learning_rate\ndigits,0.001\n")
    return root


@pytest.fixture(scope="module")
def regrets(runs):
    return judgements(collect(runs), "excess")


def test_verdicts_against_all_rivals_and_each(regrets):
    text = robustness.against_all(regrets)
    # Overall uniform is ahead at every level, by 2.5 points.
    assert "every rival in 4 of 8, worse than at least one in 4, undecided in 0." in text
    assert "better on clean tasks *and* over all in 0 of 4 comparisons" in text
    assert robustness.against_each(regrets).texts[-1] == ["together", *"80004004"]


def test_ranks_at_both_epochs(runs):
    ranks = {row[0]: row[1:] for row in robustness.ranks_table(scores_by_run(collect(runs))).texts}
    assert ranks["excess"] == ["1.00 (1.00)", "2.00 (2.00)", "2.00 (2.00)"]


def test_oracles_stand_beside_the_method(runs):
    oracles = [scored("noisy tasks left out", 0.4, 0, 0.95, 0.1), scored("a network per task", 0.4, 0, 0.8, 0.7)]
    clean, noisy = robustness.oracle_table(collect(runs), table(*oracles), "excess").texts
    # uniform, excess, a network per task, noisy tasks left out, excess with clean labels
    assert clean == ["digits", "0.4", "clean tasks: accuracy, % ↑", "81.1", "86.1", "80", "95", "90.1"]
    assert noisy == ["digits", "0.4", "noisy tasks: accuracy, % ↑", "50", "40", "70", "", "60"]


def test_the_command_writes_the_files_that_the_page_is_filled_from(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(robustness, "DOCS", tmp_path)
    monkeypatch.setattr(robustness, "DATA", tmp_path / "data")
    (tmp_path / "page.md").write_text("by hand\n")
    monkeypatch.setattr(robustness, "PAGE", replace(robustness.PAGE, path=tmp_path / "page.md", parts={}))
    robustness.main([str(runs), "--method", "excess"])
    assert len(read_table(tmp_path / "data/runs.csv.gz")) == 36
    every = pd.read_csv(tmp_path / "data/regret.csv")
    assert len(every) == 2 * 4 * 2 * 2, "epochs, settings and levels, rivals, groups of tasks"
    worse = every[every["verdict"] == "worse"]
    assert (set(worse["rival"]), set(worse["measure"])) == ({"uniform"}, {"overall"})
    assert (tmp_path / "data/chosen.csv").read_bytes() == (runs / "chosen.csv").read_bytes()
    assert (tmp_path / "figures/robustness.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_published_comparisons_are_what_the_published_runs_give_byte_for_byte(tmp_path):
    write_regrets(judgements(read_table(robustness.DATA / "runs.csv.gz"), robustness.METHOD), tmp_path / "regret.csv")
    assert (tmp_path / "regret.csv").read_bytes() == (robustness.DATA / "regret.csv").read_bytes()


def test_what_the_readme_counts_is_what_the_published_comparisons_say():
    every = pd.read_csv(robustness.DATA / "regret.csv")
    last = every[every["epoch"] == "last"]
    counts = {measure: own["verdict"].value_counts() for measure, own in last.groupby("measure")}
    plain = last[last["rival"] == "uniform"].groupby(["measure", "verdict"]).size()
    places = standings(last)["verdict"].value_counts()
    sentences = [
        "better on the clean tasks in {better} of 18 comparisons, equivalent in {equivalent}, undecided in {undecided} "
        "and worse in {worse}".format(**plain["clean"]),
        "over all tasks better in {better}, equivalent in {equivalent}, undecided in {undecided}, "
        "worse in {worse}".format(**plain["overall"]),
        "on the clean tasks better in {better} of 198, equivalent in {equivalent}, undecided in {undecided}, "
        "worse in {worse}".format(**counts["clean"]),
        f"than *every* rival in {places['better'] + places['equivalent']} of 36 (clean tasks and all tasks are two), "
        f"worse than at least one in {places['worse']}, undecided in {places['undecided']}",
    ]
    text = (ROOT / "docs/how-sure.md").read_text(encoding="utf-8")
    for sentence in sentences:
        assert sentence in text
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert sentences[0] in readme
    assert "thirteen settings on five data sets" in readme
    assert (last["setting"].nunique(), last["benchmark"].nunique()) == (13, 5)


def test_a_folder_without_runs_is_one_sentence(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        robustness.main([str(tmp_path)])
    assert "holds no finished run" in capsys.readouterr().err
