"""Formulas, their names and their numbers."""

import math

import pytest
import torch

from excessmtl.excess.adapter import Moments
from excessmtl.excess.excess_risk import pair_signal
from research.weighting.candidates import SYMBOLS, Candidate, Weighing
from research.weighting.statistics import Seen, Statistics, look
from research.weighting.tried import GROUPS, IMTL, RIVALS, SHIPPED, UNIFORM, choose

KNOWN = {symbol: torch.ones(1, 2) for symbol in SYMBOLS}


def seen(gram=None):
    gram = torch.eye(2)[None] if gram is None else gram
    return Seen(torch.ones(1, 2), torch.ones(1, 2, 3, 2), torch.ones(1, 2, 3, 2), torch.ones(1, 2), gram)


def weigh(candidate, **known):
    values = {symbol: torch.tensor([value]) for symbol, value in known.items()}
    return Weighing([candidate], 1, "cpu")({**KNOWN, **values}, seen())[0].tolist()


@pytest.mark.parametrize(
    ("candidate", "name"),
    [
        (UNIFORM, "uniform"),
        (IMTL, "imtl"),
        (SHIPPED, "exp(-2 r/r0) / sqrt(n r0)"),
        (Candidate({"E0": 0.5, "n": -1}), "sqrt(E0) / n"),
        (Candidate({"E": 0.25, "n": -0.5, "r": -0.25, "r0": -0.25}), "E^0.25 / (sqrt(n) (r r0)^0.25)"),
        (Candidate({"n": -1}, mix=0.3), "0.7 (1 / n) + 0.3 (1 / r0)"),
        (Candidate({"r0": -1}, threshold=2), "1 / (r0 (r/r0 + 0.3)^2)"),
        (Candidate({"r0": -1}, trust=1), "exp(-r/r0) / r0"),
    ],
)
def test_the_name_is_the_formula(candidate, name):
    assert candidate.name == name


@pytest.mark.parametrize(
    ("candidate", "known", "odds"),
    [
        (UNIFORM, {"n": [1.0, 9.0]}, 1),
        (Candidate({"n": -1}), {"n": [1.0, 3.0]}, 3),
        (Candidate({"E": 0.5, "n": -1}), {"E": [9.0, 1.0], "n": [1.0, 2.0]}, 6),
        (Candidate({"r0": -1}, trust=2), {"r": [0.5, 2.0], "r0": [1.0, 2.0]}, 2 * math.exp(2 * (1 - 0.5))),
        (Candidate({}, threshold=2), {"r": [0.2, 0.7]}, (1.0 / 0.5) ** 2),
        # 0.7 of (3/4, 1/4) and 0.3 of (1/5, 4/5)
        (Candidate({"n": -1}, mix=0.3), {"n": [1.0, 3.0], "r0": [4.0, 1.0]}, 0.585 / 0.415),
    ],
)
def test_weights_against_numbers_worked_by_hand(candidate, known, odds):
    first, second = weigh(candidate, **known)
    assert first + second == pytest.approx(1)
    assert first / second == pytest.approx(odds, rel=1e-5)


def test_the_candidate_that_was_shipped_is_its_formula():
    torch.manual_seed(3)
    first, norms = torch.rand(8, 5) * 4 + 0.1, torch.rand(8, 5) + 0.1
    risks = first * torch.rand(8, 5) * 1.5
    known = {**{symbol: torch.ones(8, 5) for symbol in SYMBOLS}, "r": risks, "r0": first, "n": norms}
    bench = Weighing([SHIPPED], 8, "cpu")(known, seen(torch.eye(5).repeat(8, 1, 1)))
    raw = (-2 * risks / first).exp() / (norms * first).sqrt()
    torch.testing.assert_close(bench, raw / raw.sum(1, keepdim=True))


def test_each_candidate_weighs_its_own_runs():
    many = {symbol: torch.ones(6, 2) for symbol in SYMBOLS} | {"n": torch.tensor([[1.0, 3.0]]).repeat(6, 1)}
    gram = torch.diag(torch.tensor([1.0, 16.0])).repeat(6, 1, 1)
    weights = Weighing([UNIFORM, Candidate({"n": -1}), IMTL], 2, "cpu")(many, seen(gram))
    expected = [[0.5, 0.5]] * 2 + [[0.75, 0.25]] * 2 + [[0.8, 0.2]] * 2
    torch.testing.assert_close(weights, torch.tensor(expected))


def test_imtl_has_equal_projections_on_every_gradient():
    rows = torch.randn(1, 3, 40)
    known = {symbol: torch.ones(1, 3) for symbol in SYMBOLS}
    weights = Weighing([IMTL], 1, "cpu")(known, seen(rows @ rows.mT))
    step = weights @ rows[0]
    projections = step @ (rows[0] / rows[0].norm(dim=1, keepdim=True)).T
    torch.testing.assert_close(projections, projections.mean().expand(1, 3), rtol=1e-3, atol=1e-5)


def test_what_a_step_shows_is_what_the_library_sees():
    z, pulls = torch.randn(2, 7, 4), torch.randn(2, 3, 7, 4) / 7
    found = look(torch.ones(2, 3), z, pulls, pulls)
    for run in range(2):
        with_one = torch.cat([z[run], torch.ones(7, 1)], 1)
        each = torch.einsum("bi,mbj->mbij", with_one, pulls[run] * 7)
        moments = Moments(each.mean(1), each.square().sum((1, 3)) / 49, torch.full((3,), 7.0))
        torch.testing.assert_close(found.signal[run].sum(-1), pair_signal(moments), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(found.fisher[run].sum(-1), moments.fisher)
        torch.testing.assert_close(found.norms[run], each.mean(1).flatten(1).norm(dim=1))


def test_statistics_remember_what_they_say():
    statistics = Statistics()
    for step in range(30):
        # Loss and norm fall from 30 to 1; U is twice F in the first task, negative in the second.
        value = torch.full((1, 2), float(30 - step))
        signal = torch.tensor([2.0, -2.0])[None, :, None, None].expand(1, 2, 3, 2)
        known = statistics.update(Seen(value, signal, torch.ones(1, 2, 3, 2), value, torch.eye(2)[None]))
    assert known["r0"][0, 0].item() == known["n0"][0, 0].item() == pytest.approx(sum(range(11, 31)) / 20)
    assert known["A"][0, 0].item() == pytest.approx(math.sqrt(sum(n * n for n in range(1, 31)) / 30))
    assert known["n"][0, 0] < known["r"][0, 0]
    assert known["r_fast"][0, 0] == known["n"][0, 0]
    assert known["F"][0, 0].item() == pytest.approx(math.sqrt(6))
    assert known["E0"][0].tolist() == pytest.approx([6 / 1.001, 1e-6], rel=1e-3)
    assert known["T"][0, 0].item() > 1
    # With 0.99 of memory, 30 steps count for a little less than 30 in the standard error.
    error = known["E"][0, 1].item()
    assert error == pytest.approx(6 / math.sqrt(30), rel=0.02)
    assert known["E"][0, 0].item() == pytest.approx(6 / 1.001 + error, rel=1e-3)


def test_a_small_norm_is_not_smaller_than_a_hundredth_of_the_largest():
    known = Statistics().update(
        Seen(
            torch.ones(1, 2), torch.ones(1, 2, 3, 2), torch.ones(1, 2, 3, 2), torch.tensor([[1.0, 1e-9]]), torch.eye(2)
        )
    )
    assert known["n"][0].tolist() == pytest.approx([1.0, 0.01])


def test_every_group_has_the_rivals_and_no_formula_twice():
    for group in GROUPS.values():
        names = [candidate.name for candidate in group]
        assert len(set(names)) == len(names)
        assert {rival.name for rival in RIVALS} <= set(names)


def test_choosing_by_group_and_by_formula():
    assert [candidate.name for candidate in choose(["1 / n", "imtl"])] == ["uniform", "imtl", "1 / n"]
    assert len(choose(["units", "trust"])) == len({c.name for c in (*GROUPS["units"], *GROUPS["trust"])})
    with pytest.raises(ValueError, match="'1/n' is neither a group"):
        choose(["1/n"])
