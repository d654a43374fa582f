"""Predictions and labels as people have them: probabilities, -1 and +1, missing labels, class numbers."""

import time
import warnings

import numpy as np
import pytest
import torch

import excessmtl
from excessmtl.diagnosis import temperature
from excessmtl.diagnosis.inputs import held_out

RNG = np.random.default_rng(0)
TRUTH = RNG.integers(0, 2, 1500)
LOGITS = (2 * TRUTH - 1) * 3 + RNG.normal(size=1500)
FLIPPED = RNG.random(1500) < 0.3
LABELS = np.where(FLIPPED, 1 - TRUTH, TRUTH).astype(float)


def rate(predictions, labels, kinds="binary"):
    return excessmtl.diagnose({"churn": predictions}, {"churn": labels}, kinds).tasks[0].noise_rate


def test_probabilities_of_a_binary_task_are_read_as_such_and_it_is_mentioned():
    expected = rate(LOGITS, LABELS)
    assert expected == pytest.approx(0.6, abs=0.05)  # 30 % flipped: of random labels, half agree by chance
    with pytest.warns(UserWarning, match=r"the predictions of 'churn' lie from 0 to 1 and are taken") as said:
        assert rate(1 / (1 + np.exp(-LOGITS)), LABELS) == pytest.approx(expected, abs=1e-6)
    assert len(said) == 1


def test_two_columns_of_probabilities_need_no_word():
    shares = 1 / (1 + np.exp(-LOGITS))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = rate(np.stack([1 - shares, shares], 1), LABELS, "classification")
    assert found == pytest.approx(rate(LOGITS, LABELS), abs=0.02)


def test_a_network_that_has_learned_nothing_yet_returns_logits():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert excessmtl.diagnose({"churn": np.zeros(200)}, {"churn": LABELS[:200]}, "binary").tasks[0].samples == 200


def test_missing_predictions_of_two_classes_are_left_out():
    """Without a warning of numpy's."""
    missing = np.arange(1500) % 5 == 0
    for predictions in (LOGITS, 1 / (1 + np.exp(-LOGITS))):
        both = np.stack([1 - predictions, predictions], 1) if predictions.min() >= 0 else predictions
        holes = np.where(missing if both.ndim == 1 else missing[:, None], np.nan, both)
        assert rate(holes, LABELS) == pytest.approx(rate(both[~missing], LABELS[~missing]), abs=1e-6)
    assert excessmtl.diagnose({"a": np.full(100, np.nan)}, {"a": LABELS[:100]})["a"].verdict == "not learned yet"


@pytest.mark.parametrize("kinds", ["binary", None])
def test_labels_of_minus_and_plus_one_are_two_classes(kinds):
    assert rate(LOGITS, 2 * LABELS - 1, kinds) == pytest.approx(rate(LOGITS, LABELS), abs=1e-6)


@pytest.mark.parametrize("missing", [-1, -100, np.nan])
def test_the_kind_is_seen_from_the_labels_that_are_there(missing):
    labels = LABELS.copy()
    labels[::7] = missing
    report = excessmtl.diagnose({"churn": LOGITS}, {"churn": labels})
    kept = np.arange(1500) % 7 != 0
    assert report.tasks[0].samples == kept.sum()
    assert report.tasks[0].noise_rate == pytest.approx(rate(LOGITS[kept], LABELS[kept]), abs=1e-6)


@pytest.mark.parametrize(
    ("predictions", "labels", "kinds"),
    [
        (TRUTH, LABELS, "binary"),
        (TRUTH, LABELS, None),
        (2 * TRUTH - 1, 2 * LABELS - 1, None),
        (RNG.integers(0, 5, 300), RNG.integers(0, 5, 300), None),
        (RNG.integers(0, 5, 300), RNG.integers(0, 5, 300), "classification"),
    ],
)
def test_class_numbers_in_place_of_scores_are_refused(predictions, labels, kinds):
    with pytest.raises(ValueError, match=r"predictions\['churn'\] holds the class numbers .* pass logits or"):
        rate(predictions, labels, kinds)


def test_whole_numbers_may_be_regressed():
    counts = RNG.poisson(4, 300).astype(float)
    assert excessmtl.diagnose({"visits": counts}, {"visits": counts + 1}, "regression").tasks[0].samples == 300


def test_bins_of_many_samples_say_what_the_samples_say(monkeypatch):
    truth = RNG.integers(0, 4, 25_000)
    logits = 4 * np.eye(4)[truth] + RNG.normal(size=(25_000, 4))
    labels = np.where(RNG.random(25_000) < 0.2, RNG.integers(0, 4, 25_000), truth).astype(float)
    task = held_out({"a": logits}, {"a": labels}, "classification", -100)[0]
    binned = temperature.calibrated(task)
    monkeypatch.setattr(temperature, "_EXACT", 10**9)
    assert (binned == temperature.calibrated(task)).all()


@pytest.mark.slow
def test_a_million_samples_take_three_seconds_at_most():
    """Of processor time, so that a busy machine does not matter."""
    truth = RNG.random(1_000_000) < 0.5
    logits = np.where(truth, 3, -3) + 2 * RNG.normal(size=len(truth))
    labels = truth ^ (RNG.random(len(truth)) < 0.2)
    start = time.process_time()
    found = excessmtl.diagnose({"a": logits}, {"a": labels.astype(float)}, "binary")["a"]
    assert time.process_time() - start < 3
    assert (found.verdict, found.noise_rate) == ("noisy", pytest.approx(0.4, abs=0.02))


def test_outputs_of_a_criterion_are_logits_whatever_their_values():
    """A network that has hardly learned: logits from 0 to 1, all on one side of the truth."""
    criterion = excessmtl.MultiTaskLoss({"churn": "binary"}, shared=torch.nn.Linear(2, 2))
    logits = torch.from_numpy(0.5 + LOGITS / 20).clamp(0.01, 0.99)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own = criterion.diagnose({"churn": logits}, {"churn": torch.from_numpy(LABELS)})
    both = np.stack([-logits.numpy() / 2, logits.numpy() / 2], 1)
    assert own["churn"].loss == pytest.approx(excessmtl.diagnose({"a": both}, {"a": LABELS}, "binary")["a"].loss)
    assert own["churn"].loss == pytest.approx(float(np.logaddexp(0, -(2 * LABELS - 1) * logits.numpy()).mean()))


@pytest.mark.parametrize("change", ["a row is missing", "bfloat16", "two decimals"])
def test_probabilities_stay_probabilities(change):
    truth = np.arange(1000) % 3
    shares = np.full((1000, 3), 0.013) + 0.961 * np.eye(3)[truth]
    for kind, columns in (("classification", 3), ("binary", 2)):
        labels = truth[truth < columns]
        exact = shares[truth < columns][:, :columns]
        exact = exact / exact.sum(1, keepdims=True)
        shown = {"bfloat16": torch.tensor(exact).bfloat16(), "two decimals": exact.round(2)}.get(change, exact.copy())
        if change == "a row is missing":
            shown[0] = np.nan
        read = held_out({"a": shown}, {"a": labels}, kind, -100)[0]
        assert np.exp(read.predictions) == pytest.approx(exact[read.rows], abs=0.02)


def test_of_many_classes_rounded_probabilities_are_probabilities_too():
    exact = np.random.default_rng(0).dirichlet(np.full(60, 0.2), 500)
    read = held_out({"a": exact.round(2)}, {"a": exact.argmax(1)}, "classification", -100)[0]
    assert np.exp(read.predictions) == pytest.approx(exact, abs=0.15)
    assert read.predictions.min() > np.log(0.003), "what was rounded to 0 was less than 0.005, and not nothing"
