"""Predictions of anybody's model: uneven and skewed regressions, trees, neighbours, rare classes, several models."""

import numpy as np
import pytest
from made_up import classes

import excessmtl
from excessmtl.diagnosis.inputs import held_out
from excessmtl.diagnosis.residuals import Fit

N = 1500


def one(predictions, labels, kind, **options):
    return excessmtl.diagnose({"a": predictions}, {"a": labels}, kind, **options)["a"]


def regression(name, rng):
    """Predictions of a decent model, and clean labels."""
    level, noise = rng.normal(size=(2, N))
    close = level + 0.15 * rng.normal(size=N)
    if name == "step":  # a smooth model of a discontinuous target
        labels = np.where(level > 0.3, 1.0, 0.0) + 0.03 * noise
        return 1 / (1 + np.exp(-12 * (close - 0.3))), labels
    if name == "prices":
        return np.exp(close), np.exp(level + 0.3 * noise)
    if name == "rare large events":
        return close, level + 0.1 * noise + 10 * (rng.random(N) < 0.03)
    if name == "wide for some":
        return close, level + np.where(rng.random(N) < 0.5, 0.5, 0.05) * noise
    return 3 * close, 3 * level * (1 + 0.3 * noise)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["step", "prices", "rare large events", "proportional", "wide for some"])
def test_clean_regressions_are_not_noisy(name, seed):
    found = one(*regression(name, np.random.default_rng(seed)), "regression")
    assert found.verdict != "noisy", found.reason
    assert found.noise_rate_interval[0] < 0.05


def repeated(name, rng):
    """Labels of which many are the same number, in the order of the input."""
    x = np.sort(rng.uniform(-2, 2, size=N))
    return {
        "marks": np.clip(np.round(3 + x + 0.3 * rng.normal(size=N)), 1, 5),
        "counts": rng.poisson(2 * np.exp(x)).astype(float),
        "zeros": np.maximum(x - 1 + 0.2 * rng.normal(size=N), 0),
        "two levels": np.where(x > 0.3, 5.0, 2.0),
    }[name]


def of_neighbours(labels):
    """Predictions: the means of the labels of six neighbours."""
    return np.mean([np.roll(labels, shift) for shift in (-3, -2, -1, 1, 2, 3)], axis=0)


@pytest.mark.parametrize("name", ["marks", "counts", "zeros", "two levels"])
def test_numbers_that_repeat_are_not_noisy_and_their_noise_is_found(name):
    """A label that is exchanged for the same number is as sharp as the best prediction."""
    rng = np.random.default_rng(9)
    labels = repeated(name, rng)
    clean = one(of_neighbours(labels), labels, "regression")
    assert clean.verdict != "noisy", clean.reason
    assert clean.noise_rate_interval[0] == 0
    hit = np.flatnonzero(rng.random(N) < 0.4)
    noisy = labels.copy()
    noisy[hit] = labels[rng.permutation(hit)]
    found = one(of_neighbours(noisy), noisy, "regression")
    assert found.verdict in ("noisy", "suspect"), found.reason
    assert found.noise_rate == pytest.approx(0.4, abs=0.2)


@pytest.mark.parametrize("offset", [0.0, 1e-9, 0.1])
def test_predictions_without_an_error_of_their_own_are_clean(offset):
    labels = np.random.default_rng(10).normal(size=400)
    found = one(labels + offset, labels, "regression")
    assert (found.verdict, found.noise_rate_interval[0]) == ("clean", 0), found.reason


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4, 0.8])
@pytest.mark.parametrize("name", ["step", "prices", "proportional"])
def test_no_floor_is_above_the_loss(name, rate):
    rng = np.random.default_rng(1)
    predictions, labels = regression(name, rng)
    hit = np.flatnonzero(rng.random(N) < rate)
    labels[hit] = labels[rng.permutation(hit)]
    for found in (one(predictions, labels, "regression"), one(*classes(rate, ease=1.0), "classification")):
        assert max(found.floor or 0.0, *found.floor_interval) <= found.loss


@pytest.mark.parametrize("rate", [0.2, 0.4])
@pytest.mark.parametrize("shrinks", [False, True])
def test_exchanged_targets_are_found(rate, shrinks):
    """A model that was trained on them shrinks toward the mean."""
    rng = np.random.default_rng(2)
    level = rng.normal(size=N)
    predictions = (1 - rate * shrinks) * (level + 0.2 * rng.normal(size=N))
    hit = np.flatnonzero(rng.random(N) < rate)
    labels = level.copy()
    labels[hit] = level[rng.permutation(hit)]
    found = one(predictions, labels, "regression")
    low, high = found.noise_rate_interval
    assert found.verdict == "noisy", found.reason
    assert found.noise_rate == pytest.approx(rate, abs=0.05)
    assert low <= rate <= high


def test_with_75_labels_clean_is_not_noisy_and_noise_is_not_clean():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        level = rng.normal(size=75)
        predictions, labels = level + 0.3 * rng.normal(size=75), level.copy()
        assert one(predictions, labels, "regression").verdict != "noisy"
        hit = np.flatnonzero(rng.random(75) < 0.4)
        labels[hit] = level[rng.permutation(hit)]
        assert one(predictions, labels, "regression").verdict != "clean"


@pytest.mark.parametrize("neighbours", [1, 5])
def test_without_graded_confidence_a_clean_task_is_at_most_suspect(neighbours):
    """A single tree says 0 or 1, and five neighbours say fifths: wrong predictions look as sure as right ones."""
    rng = np.random.default_rng(3)
    truth = rng.integers(10, size=N)
    votes = np.where(rng.random((neighbours, N)) < 0.78, truth, rng.integers(10, size=(neighbours, N)))
    if neighbours == 5:
        votes = np.where(rng.random(N) < 0.7, votes[0], votes)  # neighbours err together
    shares = np.stack([(votes == number).mean(0) for number in range(10)], axis=1)
    found = one(shares, truth, "classification")
    assert found.verdict in ("clean", "suspect")
    assert found.noise_rate_interval[0] == 0
    assert found.verdict == "clean" or "a single tree or a few neighbours" in found.reason
    noisy = one(shares, np.where(rng.random(N) < 0.4, rng.integers(10, size=N), truth), "classification")
    assert noisy.verdict == "suspect"
    assert "a single tree or a few neighbours" in noisy.reason
    assert (noisy.noise_rate is None) == (neighbours == 1)  # nothing tells whose mistakes the differences are
    assert noisy.noise_rate_interval[1] > 0.4


def test_predictions_that_copy_labels_are_at_most_suspect():
    """A tree in full: each prediction is the label of another sample, and as noisy as that."""
    rng = np.random.default_rng(4)
    order = np.sort(rng.normal(size=N))
    labels = np.where(rng.random(N) < 0.3, rng.permutation(order), order)
    found = one(np.roll(labels, 1), labels, "regression")
    assert (found.verdict, found.noise_rate) == ("suspect", pytest.approx(0.3, abs=0.05))
    assert "a single tree" in found.reason


@pytest.mark.parametrize("rate", [0.0, 0.2])
def test_errors_at_some_levels_of_the_prediction_only_are_no_noise(rate):
    """High predictions are wrong now and then; exchanged labels would be found at all levels, and are."""
    rng = np.random.default_rng(8)
    level = rng.uniform(size=N)
    hard = (level > 0.5) & (rng.random(N) < 0.3)
    labels = level + 0.02 * rng.normal(size=N) + hard * rng.uniform(-0.5, 0.5, size=N)
    hit = np.flatnonzero(rng.random(N) < rate)
    labels[hit] = labels[rng.permutation(hit)]
    found = one(level, labels, "regression")
    assert (found.verdict == "noisy") == bool(rate), found.reason
    assert found.noise_rate_interval[0] <= 0.2
    assert not rate or found.noise_rate == pytest.approx(rate, abs=0.06)


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_rare_classes_have_a_skill_and_are_judged_by_it(rate):
    """4 % positives, few of which are predicted with more than one half."""
    rng = np.random.default_rng(5)
    truth = rng.random(3000) < 0.04
    shares = 1 / (1 + np.exp(-2.2 * (rng.normal(size=3000) + 2.2 * truth - 3)))
    shares = rate / 2 + (1 - rate) * shares  # the model was trained on labels as noisy as these
    labels = np.where(rng.random(3000) < rate, rng.integers(2, size=3000), truth)
    found = one(np.stack([1 - shares, shares], 1), labels.astype(float), "binary")
    low, high = found.noise_rate_interval
    assert (found.verdict == "clean") == (rate == 0), found.reason
    assert low <= rate <= high + 0.05
    assert "whether anything has been learned" not in found.reason
    if not rate:
        assert found.skill == pytest.approx(0.88, abs=0.05)  # 2 AUROC - 1


@pytest.mark.parametrize("level", [0.2, 0.4])
def test_flips_of_one_class_are_found_where_the_flipped_class_is_predicted(level):
    """Labels of the commoner class turn into the other one, and the model often predicts what they turn into."""
    rng = np.random.default_rng(6)
    truth = (rng.random(N) < 0.6).astype(int)
    sure = 1 / (1 + np.exp(-(2 * truth - 1) * 4 + rng.normal(size=N)))
    labels = np.where((truth == 1) & (rng.random(N) < level), 0, truth)
    shares = np.clip((1 - level) * sure + 0.05 * rng.normal(size=N), 0.01, 0.99)
    found = one(np.stack([1 - shares, shares], 1), labels, "classification")
    assert (found.verdict, found.noise_rate) == ("noisy", pytest.approx(2 * (labels != truth).mean(), abs=0.03))


def test_of_skewed_numbers_more_is_known_than_the_largest_ones_show():
    level, error = np.random.default_rng(0).normal(size=(2, N))
    task = held_out({"a": np.exp(level)}, {"a": np.exp(level + 0.8 * error)}, "regression", -100)[0]
    assert Fit(task).learned(0.0) > 0.55 > np.corrcoef(task.predictions[:, 0], task.targets[:, 0])[0, 1] ** 2


def test_an_output_that_is_always_the_same_says_nothing():
    rng = np.random.default_rng(11)
    labels = rng.normal(size=N)
    both = np.stack([labels + 0.1 * rng.normal(size=N), rng.normal(size=N)], 1)
    report = excessmtl.diagnose({"a": both}, {"a": np.stack([labels, np.full(N, 3.0)], 1)})
    assert report["a"].verdict == "clean", report["a"].reason
    assert all(abs(own.margin) < 10 for own in report.suspects("a", None))


@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_a_model_without_predictions_changes_nothing(kind):
    rng = np.random.default_rng(12)
    pair = (rng.normal(size=N), rng.normal(size=N)) if kind == "regression" else classes(0.2)
    nothing = np.full(np.shape(pair[0]), np.nan)
    alone, beside, before = (one(own, pair[1], kind) for own in (pair[0], (pair[0], nothing), (nothing, pair[0])))
    assert alone == beside == before


def test_another_model_tells_hard_from_noisy():
    rng = np.random.default_rng(7)
    known, hidden = rng.normal(size=(2, N))
    labels = known + hidden * (rng.random(N) < 0.3)  # a part of the target that the first model does not know
    weak, strong = known + 0.1 * rng.normal(size=N), labels + 0.15 * rng.normal(size=N)
    assert one(weak, labels, "regression").verdict == "noisy"
    assert one((weak, strong), labels, "regression").verdict == "clean"
    assert one((weak, weak + 0.05 * rng.normal(size=N)), labels, "regression").verdict == "noisy"
