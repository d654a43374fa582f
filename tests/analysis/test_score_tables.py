"""Tables of scores: mean and spread over seeds, percent for accuracies, a column per task where metrics differ."""

from collected import ACCURACY, ERROR, frame, run

from excessmtl.analysis.score_tables import score_tables


def test_accuracies_are_in_percent_with_their_spread():
    rows = [run("excess", 0.4, seed, {"clean": 0.9 + seed / 50, "noisy": 0.5}) for seed in (0, 1)]
    (table,) = score_tables(frame(*rows))
    assert table.rows == [["0.4", "excess", "91.0 ± 1.4", "50.0 ± 0.0", "70.5 ± 0.7", "0.50 ± 0.00"]]
    assert "accuracy in percent" in table.title


def test_rows_are_in_the_order_of_the_study_and_a_table_is_for_each_benchmark():
    rows = [
        run(label, noise, 0, {"clean": 0.5}, benchmark=name) for label in "ba" for noise in (0.8, 0) for name in "yx"
    ]
    first, second = score_tables(frame(*rows), ["b", "a"])
    assert first.title.startswith("x ")
    assert second.title.startswith("y ")
    assert [row[:2] for row in first.rows] == [["0", "b"], ["0", "a"], ["0.8", "b"], ["0.8", "a"]]


def test_errors_are_shown_as_they_are():
    (table,) = score_tables(frame(run("excess", 0, 0, {"clean": 0.01234, "noisy": 2.0}, ERROR)))
    assert table.rows[0][2:5] == ["0.0123", "2.0000", "1.0062"]


def test_metrics_of_different_kinds_have_a_column_each():
    metrics = {"noisy": ACCURACY, "depth": ("rel_error", False)}
    (table,) = score_tables(frame(run("excess", 0, 0, {"noisy": 0.5, "depth": 0.25}, metrics)))
    assert table.columns[2:] == ["noisy: accuracy ↑", "depth: rel_error ↓", "clean weight"]
    assert table.rows[0][2:4] == ["0.5000", "0.2500"]


def test_what_diverged_is_said_and_what_is_not_there_is_empty():
    rows = [run("excess", 0, seed, {"clean": score}, noisy=()) for seed, score in enumerate([0.5, 0.7, None])]
    rows += [{**run("single", 0, 0, {"clean": None}, noisy=()), "clean_weight": None}]
    (table,) = score_tables(frame(*rows))
    assert table.rows[0][2:4] == ["60.0 ± 14.1 (1 diverged)", ""]
    assert table.rows[1][2:] == ["diverged", "", "diverged", ""]


def test_markdown_has_a_row_for_every_row():
    (table,) = score_tables(frame(run("a | b", 0, 0, {"clean": 0.5})))
    head, ruler, row = table.as_markdown().splitlines()
    assert head.startswith("| noise | method |")
    assert ruler.startswith("| ---: | --- |")
    assert row.startswith("| 0 | a \\| b | 50.0 |")
