"""Wrong labels by class: how many of the labels of each class are wrong."""

import json
from dataclasses import replace

import numpy as np
import pytest
from made_up import classes, numbers

import excessmtl

N = 3000


def rare_class(wrong, seed=0):
    """Probabilities and labels: 5 % of the samples are of class 2, and a share of the labels "2" is wrong."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(3, p=[0.5, 0.45, 0.05], size=N)
    logits = 2 * rng.normal(size=(N, 3)) + 9 * np.eye(3)[truth]
    labels = truth.copy()
    others = np.flatnonzero(truth != 2)
    more = round(wrong / (1 - wrong) * (truth == 2).sum())
    labels[rng.choice(others, more, replace=False)] = 2
    return logits, labels


@pytest.mark.parametrize("seed", range(3))
def test_a_rare_class_with_bad_labels_is_named(seed):
    logits, labels = rare_class(0.3, seed)
    task = excessmtl.diagnose({"tissue": logits}, {"tissue": labels})["tissue"]
    rates = {own.label: own for own in task.class_rates}
    assert rates[2].labels == (labels == 2).sum()
    assert rates[2].wrong == pytest.approx(0.3, abs=0.12)
    assert max(rates[0].wrong, rates[1].wrong) < 0.04
    assert sum(own.wrong * own.labels for own in task.class_rates) / N == pytest.approx(task.wrong_labels, rel=0.02)


def test_the_printed_report_names_classes_that_differ_and_no_others():
    rng = np.random.default_rng(1)
    truth = (rng.random(N) < 0.1).astype(int)
    scores = 9 * (2 * truth - 1) + 3 * rng.normal(size=N)
    noisy = np.where(rng.random(N) < 0.15, 1 - truth, truth)  # most labels "1" are wrong, few labels "0" are
    report = excessmtl.diagnose({"rare": scores}, {"rare": noisy}, "binary")
    wrong = (noisy != truth)[noisy == 1].mean()
    (worst,) = report["rare"].worst_classes
    assert (worst.label, worst.wrong) == (1, pytest.approx(wrong, abs=0.12))
    assert f"rare: of {(noisy == 1).sum()} labels of class 1, about" in str(report)
    assert "labels of class 1, about" in str(replace(report, originals={"rare": float}))  # 1.0 in a table
    named = replace(report, originals={"rare": lambda number: ("healthy", "ill")[int(number)]})
    assert "labels of class ill, about" in str(named)
    assert [own["label"] for own in named.to_dict()["tasks"][0]["class_rates"]] == ["healthy", "ill"]
    assert json.loads(json.dumps(report.to_dict())) == report.to_dict()

    alike = excessmtl.diagnose(*({"a": part} for part in classes(0.4)))
    assert alike["a"].verdict == "noisy"
    assert len(alike["a"].class_rates) == 10
    assert "labels of class" not in str(alike)


def test_nothing_is_said_by_class_where_it_cannot_be():
    tasks = {"number": numbers(0.3), "few": classes(0.3, samples=30), "easy": classes(0.0)}
    report = excessmtl.diagnose(*({task: pair[part] for task, pair in tasks.items()} for part in (0, 1)))
    assert report["number"].class_rates is None
    assert report["few"].class_rates is None
    assert all(own.wrong < 0.03 for own in report["easy"].class_rates)
    assert report["easy"].worst_classes == []
