"""Every method can be told from every other, and looks the same in every report."""

from excessmtl.create import list_methods
from excessmtl.lab.compare.palette import COLOURS, looks_of
from report_data import made_up, table


def test_all_methods_look_different():
    rows = [made_up(name, options={}) for name in [*list_methods(), "single"]]
    rows += [made_up(f"excess step_size={value}", options={"step_size": value}) for value in range(12)]
    looks = looks_of(table(*rows))
    assert len(looks) == len(rows)
    assert len(set(looks.values())) == len(rows)
    assert all(0 <= look.colour < len(COLOURS) for look in looks.values())


def test_a_known_method_keeps_its_look_whoever_is_beside_it():
    alone = looks_of(table(made_up("mgda")))["mgda"]
    beside = looks_of(table(*(made_up(name) for name in list_methods())))["mgda"]
    assert alone == beside


def test_the_two_estimators_differ():
    paper = made_up("excess paper", options={"estimator": "paper"})
    normalised = made_up("excess n", options={"estimator": "paper", "normalize": "initial"})
    assert len(set(looks_of(table(made_up(), paper, normalised)).values())) == 3


def test_two_labels_of_one_method_differ():
    looks = looks_of(table(made_up("mgda"), made_up("mgda again", options={"normalize": "l2"})))
    assert looks["mgda"] != looks["mgda again"]
