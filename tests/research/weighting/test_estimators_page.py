"""research/weighting/README.md shows what its files say, and its files hold what the bench can train."""

import re
from pathlib import Path

import pandas as pd
import pytest

from research.weighting.page import filled, main
from research.weighting.records import COLUMNS, table
from research.weighting.stacked import StackedTraining
from research.weighting.tried import GROUPS, IMTL, RIVALS, SHIPPED, UNIFORM
from research.weighting.worlds import WORLDS, load

FOLDER = Path(__file__).parents[3] / "research/weighting"
PAGE = FOLDER / "README.md"


@pytest.mark.slow
def test_every_table_is_what_its_file_says():
    page = PAGE.read_text()
    assert page.count("<!-- end -->") >= 10
    assert filled(page, FOLDER) == page


def test_its_links_hold():
    for target in re.findall(r"\]\((?!http)([^)#]+)", PAGE.read_text()):
        assert (FOLDER / target).exists(), target


@pytest.mark.slow
def test_a_wrong_number_does_not_stand(tmp_path):
    page = PAGE.read_text()
    row = next(line for line in page.splitlines() if line.startswith("| exp(-2 r/r0) / sqrt(n r0) | teacher-narrow"))
    wrong = page.replace(row, row.replace("1", "2"))
    assert wrong != page
    assert filled(wrong, FOLDER) == page
    (tmp_path / "data").symlink_to(FOLDER / "data")
    (tmp_path / "page.md").write_text(wrong)
    main(tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text() == page


CHOOSING = ("ablation", "units", "trust")
LATER = ("teacher-hard", "teacher-offset", "teacher-majority", "teacher-plenty")
"""Worlds made when the rule had been chosen."""


@pytest.mark.parametrize(
    ("group", "seeds"), [("ablation", 8), ("units", 6), ("trust", 6), ("contrast", 6), ("irreducible", 6)]
)
def test_the_files_are_whole(group, seeds):
    worlds = [world for world in WORLDS if group not in CHOOSING or world not in LATER]
    frame = pd.read_csv(FOLDER / f"data/{group}.csv")
    assert list(frame) == list(COLUMNS)
    assert list(dict.fromkeys(frame["candidate"])) == [candidate.name for candidate in GROUPS[group]]
    assert list(dict.fromkeys(frame["world"])) == worlds
    assert len(frame) == len(GROUPS[group]) * len(worlds) * 3 * seeds
    assert frame["seed"].min() == 100


def test_the_page_counts_the_rules_that_were_tried():
    rivals = {rival.name for rival in RIVALS}
    names = {candidate.name for group in GROUPS.values() for candidate in group} - rivals
    chosen_among = {candidate.name for group in CHOOSING for candidate in GROUPS[group]} - rivals
    page = PAGE.read_text()
    assert f"among {len(chosen_among)} rules" in page
    assert f"against {len(names - chosen_among)} more" in page


def test_a_row_that_its_file_does_not_have_is_named():
    page = "<!-- by_noise data/trust.csv\nmagic\n-->\n<!-- end -->\n"
    with pytest.raises(ValueError, match="has no row 'magic'"):
        filled(page, FOLDER)


@pytest.mark.slow
def test_a_world_trained_again_gives_the_numbers_of_the_file():
    candidates = [UNIFORM, IMTL, SHIPPED]
    cases = load("teacher-narrow", [0.0, 0.5, 1.0], range(100, 106))
    again = table(cases, candidates, StackedTraining(cases, candidates, "cpu").run())
    key = ["world", "noise", "candidate", "seed"]
    both = again.merge(pd.read_csv(FOLDER / "data/trust.csv"), on=key, suffixes=("", "_then"))
    assert len(both) == len(again) == 3 * 3 * 6
    # The file was computed on another device: the same numbers but for what rounding grows to in 1,800 steps.
    for column in ("clean", "overall", "clean_weight", "smallest_weight"):
        assert (both[column] - both[f"{column}_then"]).abs().max() < 0.005, column
