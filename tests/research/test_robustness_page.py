"""The page on robustness, from made-up runs."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from excessmtl.lab.compare.robustness import standings
from report_data import run
from research.robustness import main

SCORES = {"excess": (0.9, 0.6), "uniform": (0.85, 0.7), "mgda": (0.7, 0.5)}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    root = tmp_path_factory.mktemp("robust")
    for benchmark in ("digits", "arms"):
        for label, (clean, noisy) in SCORES.items():
            for noise in (0.0, 0.4):
                for seed in range(3):
                    scores = {"clean": clean - noise / 10 + seed / 1000, "noisy": noisy - noise / 2}
                    summary = run(label, noise, seed, scores, benchmark=benchmark, chosen_scores=scores)
                    folder = root / "runs" / benchmark / label / str(noise) / str(seed)
                    folder.mkdir(parents=True)
                    (folder / "summary.json").write_text(json.dumps(summary))
    (root / "runs" / "chosen.csv").write_text("benchmark,learning_rate\ndigits,0.001\n")
    main([str(root / "runs"), "-o", str(root / "docs" / "robustness.md")])
    return root / "docs"


def test_one_picture_first_then_the_verdict(written):
    text = (written / "robustness.md").read_text()
    parts = text.split("\n\n")
    assert parts[1].startswith("![Mean ranks")
    assert (written / "figures" / "robustness.png").read_bytes().startswith(b"\x89PNG")
    assert "4 comparisons: 2 settings on 2 data sets" in text
    assert "better on clean tasks *and* overall in 0 of 4 comparisons" in text
    # Overall uniform is ahead at every level, by 2.5 points.
    assert "equivalent to or better than every rival in 4 of 8, worse than at least one in 4, undecided in 0" in text
    assert "| together | 8 | 0 | 0 | 0 | 4 | 0 | 0 | 4 |" in text
    assert "| digits | 0.4 | all tasks | uniform (2.5 points) |" in text
    assert "| excess | 1.00 |" in text
    assert "chosen.csv" in text


def test_the_numbers_lie_beside_the_page(written):
    data = written / "data" / "robustness"
    assert len(pd.read_csv(data / "runs.csv.gz")) == 36
    every = pd.read_csv(data / "regret.csv")
    assert len(every) == 2 * 4 * 2 * 2, "epochs, settings and levels, rivals, groups of tasks"
    lost = every[every["verdict"] == "worse"]
    assert set(lost["rival"]) == {"uniform"}
    assert set(lost["measure"]) == {"overall"}
    assert (data / "chosen.csv").exists()


def test_oracles_stand_beside_the_method_and_are_no_rivals(written, tmp_path):
    for label, scores in (("noisy tasks left out", (0.95, 0.1)), ("a network per task", (0.8, 0.7))):
        summary = run(label, 0.4, 0, dict(zip(("clean", "noisy"), scores, strict=True)), benchmark="digits")
        (tmp_path / "runs" / label).mkdir(parents=True)
        (tmp_path / "runs" / label / "summary.json").write_text(json.dumps(summary))
    page = tmp_path / "docs" / "robustness.md"
    main([str(written / "data" / "robustness"), "-o", str(page), "--oracles", str(tmp_path / "runs")])
    rows = [line.split(" | ")[1:] for line in page.read_text().splitlines() if line.startswith("| digits | 0.4 | ")]
    oracles = [row for row in rows if row[1] in ("clean tasks", "noisy tasks")]
    # uniform, excess, a network per task, noisy tasks left out, excess with clean labels
    assert oracles[0] == ["0.4", "clean tasks", "81.1", "86.1", "80", "95", "90.1 |"]
    assert oracles[1] == ["0.4", "noisy tasks", "50", "40", "70", "", "60 |"]
    assert "in 0 of 4 comparisons" in page.read_text()


@pytest.mark.slow
def test_the_page_in_the_documents_is_what_the_published_runs_give_byte_for_byte(tmp_path):
    docs = Path(__file__).parents[2] / "docs"
    data = docs / "data" / "robustness"
    for folder, runs in (("runs", "runs.csv.gz"), ("oracles", "oracles.csv.gz")):
        (tmp_path / folder).mkdir()
        shutil.copy(data / runs, tmp_path / folder / "runs.csv.gz")
    shutil.copy(data / "chosen.csv", tmp_path / "runs" / "chosen.csv")
    (tmp_path / "docs/data/robustness").mkdir(parents=True)
    shutil.copy(data / "note.md", tmp_path / "docs/data/robustness/note.md")
    page, method = tmp_path / "docs" / "robustness.md", "excess + robust loss"
    main([str(tmp_path / "runs"), "-o", str(page), "--method", method, "--oracles", str(tmp_path / "oracles")])
    assert page.read_bytes() == (docs / "robustness.md").read_bytes()
    for name in ("runs.csv.gz", "regret.csv", "oracles.csv.gz", "chosen.csv"):
        assert (tmp_path / "docs/data/robustness" / name).read_bytes() == (data / name).read_bytes()


def test_what_the_readme_counts_is_what_the_published_comparisons_say():
    root = Path(__file__).parents[2]
    every = pd.read_csv(root / "docs/data/robustness/regret.csv")
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
    text = (root / "README.md").read_text(encoding="utf-8")
    for sentence in sentences:
        assert sentence in text
    assert "thirteen settings on five data sets" in text
    assert (last["setting"].nunique(), last["benchmark"].nunique()) == (13, 5)


def test_a_folder_without_runs_is_one_sentence(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main([str(tmp_path), "-o", str(tmp_path / "page.md")])
    assert "holds no finished run" in capsys.readouterr().err
    assert not (tmp_path / "page.md").exists()
