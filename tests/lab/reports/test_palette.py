"""Every method can be told from every other, and looks the same in every report."""

from excessmtl.create import list_methods
from excessmtl.lab.compare.palette import COLOURS, looks_of
from report_data import made_up, table


def test_all_methods_look_different():
    rows = [made_up(name, options={}) for name in [*list_methods(), "single"]]
    estimators = ({"estimator": "paper"}, {"estimator": "paper", "normalize": "initial"})
    rows += [made_up(f"excess {options}", options=options) for options in estimators]
    rows += [made_up(f"excess step_size={value}", options={"step_size": value}) for value in range(12)]
    looks = looks_of(table(*rows))
    assert len(looks) == len(rows)
    assert len(set(looks.values())) == len(rows)
    assert all(0 <= look.colour < len(COLOURS) for look in looks.values())


def test_a_known_method_keeps_its_look_whoever_is_beside_it():
    alone = looks_of(table(made_up("mgda")))["mgda"]
    assert alone == looks_of(table(*(made_up(name) for name in list_methods())))["mgda"]
