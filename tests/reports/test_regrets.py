"""Which regrets the page shows, and in which order."""

from report_data import made_up, table

from excessmtl.analysis.settings import settings
from excessmtl.reports.regrets import regrets_of


def shown(*runs):
    return regrets_of(settings(table(*runs)))


def test_the_worst_comes_first_in_units_of_its_tolerance():
    errors = dict.fromkeys("ab", ("nmse", False))
    found = shown(
        made_up("excess", scores={"a": 0.90, "b": 0.5}),
        made_up("mgda", scores={"a": 0.91, "b": 0.5}),
        made_up("excess", benchmark="arm", kinds=errors, scores={"a": 1.2, "b": 1.0}),
        made_up("mgda", benchmark="arm", kinds=errors, scores={"a": 1.0, "b": 1.0}),
    )
    first, second = found.rows[:2]
    assert (first.benchmark, first.measure, first.mean.text, first.within) == ("arm", "clean", "+20.00 %", False)
    assert (second.benchmark, second.measure, second.mean.text) == ("digits", "clean", "+1.00")
    assert found.sentence.startswith("ExcessMTL is beyond the tolerance in 3 of 4")


def test_the_default_estimator_is_found_by_what_it_is_and_not_by_its_label():
    ours = made_up("ExcessMTL (ours)", method="excess")
    paper = made_up("excess", method="excess", options={"estimator": "paper"})
    assert {row.rival for row in shown(ours, paper).rows} == {"excess"}
    assert shown(paper, made_up("mgda")) is None


def test_a_diverged_run_is_a_word_that_sorts_as_infinite():
    found = shown(made_up("excess", scores={"a": None, "b": 0.5}), made_up("mgda"))
    assert found.rows[0].mean.text == "diverged"
    assert found.rows[0].mean.order == "Infinity"
    found = shown(made_up("excess"), made_up("mgda", scores={"a": None, "b": 0.5}))
    assert found.rows[-1].mean.text == "rival diverged"
