"""`excessmtl.diagnose` on predictions with known noise: rates, verdicts, hard tasks, thin evidence, bad input."""

import json

import numpy as np
import pytest
import torch
from made_up import classes, numbers

import excessmtl
from excessmtl.diagnosis import WarnOnce
from excessmtl.diagnosis.levels import Level
from excessmtl.diagnosis.skill import Skill
from excessmtl.diagnosis.verdicts import LEAST_SAMPLES, Evidence, verdict_of


def of(pairs, kinds=None):
    return excessmtl.diagnose(*({task: pair[part] for task, pair in pairs.items()} for part in (0, 1)), kinds)


def binary(rate, **options):
    logits, labels = classes(rate, number=2, **options)
    return logits[:, 1] - logits[:, 0], labels


@pytest.mark.parametrize(
    ("make", "rates", "tolerance"),
    [
        (classes, (0.0, 0.2, 0.4, 0.6), 0.05),
        (lambda rate: classes(rate, sharpness=30.0), (0.0, 0.2, 0.4, 0.6), 0.05),  # over-confident
        (lambda rate: classes(rate, sharpness=0.3), (0.0, 0.2, 0.4, 0.6), 0.05),  # timid
        (binary, (0.0, 0.3, 0.6), 0.08),
        (lambda rate: numbers(rate, samples=2000), (0.0, 0.2, 0.4), 0.07),
        (lambda rate: numbers(rate, outputs=3), (0.0, 0.4, 0.6), 0.05),
        (lambda rate: numbers(rate, kind="outliers"), (0.0, 0.2), 0.05),
    ],
    ids=["classes", "over-confident", "timid", "binary", "numbers", "several numbers", "outliers"],
)
def test_rates_are_found(make, rates, tolerance):
    report = of({f"at {rate}": make(rate) for rate in rates})
    for rate, task in zip(rates, report.tasks, strict=True):
        low, high = task.noise_rate_interval
        assert task.noise_rate == pytest.approx(rate, abs=tolerance)
        assert low - 0.02 <= rate <= high + 0.02
        assert task.verdict == ("noisy" if rate else "clean"), task.reason


@pytest.mark.parametrize("outputs", [1, 3])
def test_added_noise_is_seen_at_every_rate(outputs):
    """Heavy tails explain a part of it, so that many bad labels look like fewer."""
    rates = (0.2, 0.4, 0.6, 0.8)
    report = of({f"at {rate}": numbers(rate, outputs=outputs) for rate in rates})
    for rate, task in zip(rates, report.tasks, strict=True):
        assert task.verdict in ("noisy", "suspect")
        assert rate - 0.2 < task.noise_rate < rate + 0.02
    assert [task.noise_rate for task in report.tasks] == sorted(task.noise_rate for task in report.tasks)


def test_pair_flips_are_seen():
    report = of({"flipped": classes(0.3, kind="pair", samples=2000), "clean": classes(0.0, kind="pair")})
    assert report["flipped"].verdict == "noisy"
    assert report["flipped"].wrong_labels == pytest.approx(0.3, abs=0.06)
    assert report["clean"].verdict == "clean"


@pytest.mark.parametrize("samples", [200, 2000])
@pytest.mark.parametrize("number", [2, 10, 100])
@pytest.mark.parametrize("ease", [0.25, 0.5, 1.0, 1.5, 2.5])
def test_hard_is_not_noisy(number, ease, samples):
    hard = classes(0.0, number=number, ease=ease, samples=samples, seed=number)
    assert of({"hard": hard, "easy": classes(0.0)})["hard"].verdict != "noisy"


@pytest.mark.parametrize(
    ("learned", "agreed", "verdict", "why"),
    [(0.44, True, "suspect", "too little"), (0.58, True, "noisy", "are sure"), (0.58, False, "suspect", "another")],
)
def test_noisy_takes_half_of_what_can_be_learned_and_no_model_that_disagrees(learned, agreed, verdict, why):
    """At a noise rate of 0.48 a skill of 0.52 is the most; PACS, with clean labels, gave 0.23."""
    level = Level(0.48, low=0.35, high=0.61, least=0.3, most=0.65, high_from_0=0.58)
    seen = Evidence(786, level, Skill(0.4, 0.4, 0.02), learned, agreed=agreed)
    assert verdict_of(seen)[0] == verdict
    assert why in verdict_of(seen)[1]
    assert seen.interval == ((0, 0.58) if verdict == "suspect" else (0.35, 0.61))


@pytest.mark.parametrize(
    ("rate", "samples", "width", "seed"), [(0.3, 100, 0.3, 3), (0.05, 60, 0.5, 47), (0.1, 60, 0.5, 18)]
)
def test_few_samples_do_not_make_a_task_noisy(rate, samples, width, seed):
    """Few samples, in which nearly all targets seem to have an error; a mixture of two widths alone says 0.9."""
    found = of({"a": numbers(rate, samples, width, seed=seed)})["a"]
    low, high = found.noise_rate_interval
    assert found.verdict in ("suspect", "too little evidence")
    assert low == 0 <= rate <= high


def test_the_interval_of_a_task_that_is_hard_or_noisy_starts_at_0():
    rng = np.random.default_rng(3)
    truth, sure = rng.integers(7, size=800), rng.random(800)
    said = np.where(rng.random(800) < 0.1 + 0.45 * sure**3, truth, rng.integers(7, size=800))
    logits = rng.normal(size=(800, 7))
    logits[np.arange(800), said] += 4 + 4 * sure  # often wrong even where it is sure
    found = excessmtl.diagnose({"a": logits}, {"a": truth})["a"]
    assert (found.verdict, found.noise_rate_interval[0]) == ("suspect", 0)
    assert "this task is hard, or" in found.reason


@pytest.mark.parametrize("explained", [0.0, 0.2, 0.5, 0.8])
def test_a_hard_regression_is_not_noisy(explained):
    signal, rest = np.random.default_rng(1).normal(size=(2, 1500))
    target = np.sqrt(explained) * signal + np.sqrt(1 - explained) * rest
    report = of({"hard": (np.sqrt(explained) * signal, target), "easy": numbers(0.0)})
    assert report["hard"].verdict != "noisy", report["hard"].reason
    assert explained == 0.8 or report["hard"].noise_rate is None


def test_random_labels_are_suspect_where_other_tasks_are_learned_and_else_not_learned():
    random = classes(0.0)[0], np.random.default_rng(5).integers(10, size=1000)
    found = of({"random": random, "easy": classes(0.0)})["random"]
    assert (found.verdict, found.noise_rate, found.noise_rate_interval[1]) == ("suspect", None, 1)
    assert "the labels are random, or the inputs do not hold the answer" in found.reason
    assert of({"random": random})["random"].verdict == "not learned yet"


def test_hard_or_noisy_without_a_guess():
    """Every label has an error: no rate fits better than any other, and none is named. Another task is learned."""
    found = of({"all bad": numbers(1.0, width=0.1), "easy": numbers(0.0)})["all bad"]
    low, high = found.noise_rate_interval
    assert (found.verdict, found.noise_rate, found.floor) == ("suspect", None, None)
    assert low < 0.1 < 0.9 < high
    assert "second_labels" in found.advice


@pytest.mark.parametrize(("rate", "verdict"), [(0.0, "clean"), (0.5, "noisy"), (1.0, "noisy")])
def test_second_labels_tell_hard_from_noisy(rate, verdict):
    (logits, labels), (_, clean) = classes(rate, ease=0.5), classes(0.0, ease=0.5)
    (values, targets), (_, truth) = numbers(rate, width=1.0), numbers(0.0, width=1.0)
    rng = np.random.default_rng(7)
    hit = rng.random(1000) < rate
    again = {
        "classes": np.where(np.arange(1000) % 2, np.nan, np.where(hit, rng.integers(10, size=1000), clean)),
        "numbers": truth + (5 * hit * rng.normal(size=1000))[:, None],
    }
    report = excessmtl.diagnose(
        {"classes": logits, "numbers": values}, {"classes": labels, "numbers": targets}, second_labels=again
    )
    for task, pairs in (("classes", 500), ("numbers", 1000)):
        found = report[task]
        assert (found.verdict, found.noise_rate) == (verdict, pytest.approx(rate, abs=0.15)), task
        assert f"{pairs} samples labelled twice" in found.reason


def test_second_labels_that_are_too_few_change_nothing():
    logits, labels = classes(0.3)
    few = np.where(np.arange(1000) < 20, labels, -1)
    with_few = excessmtl.diagnose({"a": logits}, {"a": labels}, second_labels={"a": few})
    assert with_few.to_dict() == of({"a": (logits, labels)}).to_dict()
    with pytest.raises(ValueError, match="second_labels has task 'b', which predictions has not"):
        excessmtl.diagnose({"a": logits}, {"a": labels}, second_labels={"b": few})


def test_floor_and_excess_add_up_to_the_loss():
    report = of({"classes": classes(0.4), "numbers": numbers(0.4)})
    for task in report.tasks:
        assert task.floor + task.excess_risk == pytest.approx(task.loss)
        assert task.floor_interval[0] < task.floor < task.floor_interval[1]
    wrong = 0.4 * 0.9
    entropy = -wrong * np.log(wrong / 9) - (1 - wrong) * np.log(1 - wrong)
    assert report["classes"].floor == pytest.approx(entropy, abs=0.15)
    assert report["numbers"].floor == pytest.approx(0.4 * 25, rel=0.2)


def test_thin_evidence_is_said():
    logits, labels = classes(0.3)
    nothing, one = np.full(1000, -100), np.full(1000, 4)
    few = np.where(np.arange(1000) < LEAST_SAMPLES - 1, labels, -1)
    broken = np.where(np.arange(1000)[:, None] < 990, np.nan, logits)
    tasks = {"no label": (logits, nothing), "no targets": (logits, None), "nothing at all": (None, None)}
    tasks |= {"one class": (logits, one), "few": (logits, few), "one value": (np.zeros(100), np.full(100, 3.5))}
    found = of({**tasks, "diverged": (broken, labels)})
    verdicts = {task.task: task.verdict for task in found.tasks}
    assert verdicts.pop("diverged") == "not learned yet"
    assert set(verdicts.values()) == {"too little evidence"}
    assert {task.noise_rate for task in found.tasks} == {None}
    assert "990 of its predictions are not finite" in found["diverged"].reason
    assert found["few"].reason == "only 49 held-out labels; at least 50 are needed"
    assert found["one class"].reason == "all 1000 held-out labels are of class 4"
    json.dumps(found.to_dict(), allow_nan=False)
    assert str(found).count("\n") == 14
    assert [own.noise_probability for own in found.suspects("one value", 2)] == [0, 0]


def test_labels_and_probabilities_for_other_tools():
    logits, labels = classes(0.3)
    report = of({"a": (logits, np.where(labels == 3, -1, labels)), "b": numbers(0.0)})
    found, probabilities = report.out_of_sample("a")
    assert found.tolist() == labels[labels != 3].tolist()
    assert probabilities == pytest.approx(torch.tensor(logits[labels != 3]).softmax(1).numpy())
    with pytest.raises(ValueError, match="is a regression"):
        report.out_of_sample("b")


def test_tensors_probabilities_and_missing_labels_change_nothing():
    logits, labels = classes(0.3)
    missing = np.arange(1000) % 4 == 0
    kept = of({"a": (logits[~missing], labels[~missing])})["a"]
    holes = torch.tensor(labels).where(torch.tensor(~missing), -100)
    forms = {
        "tensors": (torch.tensor(logits).requires_grad_(), holes),
        "probabilities": (torch.tensor(logits).softmax(1), holes),
        "NaN": (logits, np.where(missing, np.nan, labels)),
        "a column": (logits, np.where(missing, np.nan, labels)[:, None]),
    }
    for task in of(forms).tasks:
        assert task.noise_rate == pytest.approx(kept.noise_rate, abs=1e-6)
        assert task.samples == 750


def test_many_tasks_take_little_time():
    report = of({f"school {i}": numbers(0.3 * (i % 2), samples=120, seed=i) for i in range(139)})
    assert len(report.tasks) == 139
    assert not [task.task for task in report.tasks[::2] if task.verdict == "noisy"]
    assert np.mean([task.verdict in ("noisy", "suspect") for task in report.tasks[1::2]]) > 0.9


def test_suspects_are_the_flipped_labels():
    (logits, labels), clean = classes(0.2), classes(0.0)[1]
    values, targets = numbers(0.1)
    report = of({"classes": (logits, labels), "numbers": (values, targets)})
    found = report.suspects("classes", 100)
    assert np.mean([labels[one.sample] != clean[one.sample] for one in found]) > 0.97
    assert all(one.label == labels[one.sample] != one.predicted == logits[one.sample].argmax() for one in found)
    assert [one.noise_probability for one in found] == sorted((one.noise_probability for one in found), reverse=True)
    worst = report.suspects("numbers", 1)[0]
    assert worst.sample == np.abs(targets - values).argmax()
    assert worst.noise_probability > 0.9
    with pytest.raises(ValueError, match="most must be a number of labels from 0, or None for all, found -1"):
        report.suspects("numbers", -1)


def test_pair_flips_are_ranked_above_rare_mistakes():
    """A network has learned the flips as a second likely class: its probabilities alone do not show them."""
    (logits, labels), (_, clean) = (classes(rate, kind="pair", samples=2000, ease=2.0) for rate in (0.3, 0.0))
    ranked = [one.sample for one in of({"a": (logits, labels)}).suspects("a", None)]
    wrong = labels != clean
    shares = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
    by_probability = np.argsort(shares[np.arange(2000), labels])
    found, baseline = (wrong[order[: wrong.sum()]].mean() for order in (ranked, by_probability))
    assert found > baseline + 0.05


ZEROS, HUGE = {"a": np.zeros(3)}, {"a": np.array([0, 1e300])}


@pytest.mark.parametrize(
    ("predictions", "targets", "kinds", "sentence"),
    [
        ([1], {}, None, "predictions must be a dict from task"),
        ({}, {}, None, "predictions is empty"),
        (ZEROS, {"b": np.zeros(3)}, None, "targets has task 'b', which predictions has not"),
        (ZEROS, ZEROS, {"b": "binary"}, "kinds has task 'b'"),
        (ZEROS, ZEROS, "ordinal", r"kinds\['a'\] must be one of"),
        ({"a": np.zeros((3, 2))}, {"a": np.zeros(4)}, None, "has 3 samples and targets"),
        ({"a": np.zeros((3, 2))}, {"a": np.array([0, 1, 5])}, None, "class numbers from 0 to 1, found 5"),
        ({"a": np.zeros((3, 2))}, {"a": np.array([0, 1, 0.5])}, None, "class numbers from 0 to 1, found 0.5"),
        ({"a": np.zeros((3, 3))}, ZEROS, "binary", "one logit per sample"),
        (ZEROS, ZEROS, "classification", r"must be \[samples, classes\]"),
        ({"a": np.zeros((3, 2))}, {"a": np.zeros((3, 3))}, "regression", "they must be alike"),
        ({"a": np.zeros((3, 2, 4, 4))}, ZEROS, None, "found shape"),
        ({"a": ["x"]}, {"a": np.zeros(1)}, None, "must be a tensor or an array of numbers"),
        ({"a": np.zeros((2, 2))}, {"a": ["cat", "dog"]}, None, r"found \['cat', 'dog'\]; number classes from 0"),
        (ZEROS, {"a": [0, 1, 1e200]}, "regression", r"targets\['a'\] .* up to 1e\+100, found 1e\+200; take"),
        (HUGE, {"a": [0, 1]}, "binary", r"predictions\['a'\] .* up to 1e\+100, found 1e\+300; ta"),
    ],
)
def test_bad_input_is_one_sentence(predictions, targets, kinds, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        excessmtl.diagnose(predictions, targets, kinds)


def test_a_task_that_turns_noisy_is_warned_of_once(recwarn):
    warn = WarnOnce()
    clean, noisy = of({"a": classes(0.0), "b": classes(0.0)}), of({"a": classes(0.0), "b": classes(0.5)})
    for report in (clean, noisy, noisy):
        warn(report)
    assert [str(one.message).split(":")[0] for one in recwarn] == ["task 'b' has bad labels"]
    assert recwarn[0].filename == __file__


def test_unknown_tasks_are_named():
    report = of({"a": classes(0.0)})
    with pytest.raises(KeyError, match="the tasks are"):
        report["b"]
    with pytest.raises(KeyError, match="the tasks are"):
        report.suspects("b")


@pytest.mark.parametrize("kind", [None, "classification", "binary", "regression"])
@pytest.mark.parametrize("shape", [(0,), (0, 0), (0, 1), (0, 3)])
def test_a_task_without_samples_has_no_evidence(shape, kind):
    labels = torch.empty(0)
    report = excessmtl.diagnose({"a": torch.empty(shape)}, {"a": labels}, kind, second_labels={"a": labels})
    assert (report["a"].verdict, report["a"].samples) == ("too little evidence", 0)
    assert report.suspects("a") == []
    assert "there is no held-out label" in str(report)


@pytest.mark.parametrize("kind", [None, "classification", "binary", "regression"])
def test_predictions_and_labels_without_outputs_are_refused(kind):
    full, empty = torch.rand(5), torch.empty(5, 0)
    with pytest.raises(ValueError, match=r"^predictions\['a'\] must be .*found shape \(5, 0\)"):
        excessmtl.diagnose({"a": empty}, {"a": full}, kind)
    with pytest.raises(ValueError, match=r"^targets\['a'\] must be .*found shape \(5, 0\)"):
        excessmtl.diagnose({"a": full}, {"a": empty}, kind)


@pytest.mark.parametrize(
    ("kind", "second", "message"),
    [
        ("classification", 7 * torch.ones(40), r"second_labels\['a'\] must hold class numbers from 0 to 2, found 7"),
        ("classification", torch.zeros(40, 2), r"second_labels\['a'\] must be one class number"),
        ("classification", torch.zeros(39), r"predictions\['a'\] has 40 samples and second_labels\['a'\] has 39"),
        ("classification", "none", r"second_labels\['a'\] must be a tensor or an array"),
        ("classification", torch.zeros(40, 2, 2), r"second_labels\['a'\] must be \[samples\]"),
        ("regression", torch.zeros(40, 2), r"and second_labels\['a'\] has \(40, 2\)"),
    ],
)
def test_mistakes_in_second_labels_name_them(kind, second, message):
    outputs, labels = torch.rand(40, 3), torch.zeros(40, 3) if kind == "regression" else torch.zeros(40)
    with pytest.raises((ValueError, TypeError), match=message) as refused:
        excessmtl.diagnose({"a": outputs}, {"a": labels}, kind, second_labels={"a": second})
    assert "targets" not in str(refused.value)
