from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as student
from torch.utils.data import TensorDataset

from excessmtl.lab.data import kinds
from excessmtl.lab.data.base import Split
from excessmtl.lab.data.kinds import binary, classification, depth, normals, regression, segmentation
from excessmtl.lab.data.noise import Noise, apply
from excessmtl.lab.data.tasks import Task

N = 400
SIZE = (10, 12)


def kind_name(task):
    return next(name for name, kind in vars(kinds).items() if kind is task.kind)


def example(kind, outputs, n=N):
    g = torch.Generator().manual_seed(1)
    maps = torch.randn(n, outputs, *SIZE, generator=g)
    border = torch.ones(SIZE, dtype=torch.bool)
    border[1:-1, 1:-1] = False
    if kind == "classification":
        return torch.randint(outputs, (n,), generator=g)
    if kind == "regression":
        return torch.randn(n, outputs, generator=g) * torch.arange(1, outputs + 1) + 5
    if kind == "segmentation":
        return torch.randint(outputs, (n, *SIZE), generator=g).masked_fill(border, -1).to(torch.int8)
    if kind == "depth":
        return (1 + maps.abs()).masked_fill(border, 0)
    return torch.nn.functional.normalize(maps + torch.tensor([0, 0, 2.0])[:, None, None], dim=1).masked_fill(border, 0)


TASKS = (
    Task("digit", 10, classification),
    Task("torque", 2, regression),
    Task("segmentation", 13, segmentation),
    Task("depth", 1, depth),
    Task("normals", 3, normals),
)
SPLIT = Split(torch.zeros(N), {task.name: example(kind_name(task), task.outputs) for task in TASKS})


def noisy(name, level, seed=0, epoch=0, **options):
    return apply(SPLIT, TASKS, Noise(level, (name,), seed, **options), epoch).targets[name]


@settings(deadline=None, max_examples=25)
@given(level=st.floats(0, 1), n=st.integers(1, 60), seed=st.integers(0, 2**40))
def test_exactly_the_rounded_share_of_samples_gets_another_class(level, n, seed):
    task = Task("t", 5, classification)
    split = Split(torch.zeros(n), {"t": example("classification", 5, n)})
    after = apply(split, [task], Noise(level, ("t",), seed, exclude_true=True), 0).targets["t"]
    assert (after != split.targets["t"]).sum() == round(level * n)
    assert ((after >= 0) & (after < 5)).all()


def test_classes_are_uniform_and_may_be_the_true_one():
    truth = torch.full((20_000,), 3)
    split = Split(truth, {"t": truth})
    task = Task("t", 4, classification)
    drawn = apply(split, [task], Noise(1.0, ("t",), 0), 0).targets["t"]
    torch.testing.assert_close(drawn.bincount() / len(truth), torch.full((4,), 0.25), atol=0.02, rtol=0)
    others = apply(split, [task], Noise(1.0, ("t",), 0, exclude_true=True), 0).targets["t"]
    torch.testing.assert_close(others.bincount() / len(truth), torch.tensor([1 / 3, 1 / 3, 1 / 3]), atol=0.02, rtol=0)


def test_every_sample_of_a_regression_is_disturbed_by_the_targets_own_variance():
    clean = SPLIT.targets["torque"]
    error = noisy("torque", 1.0) - clean
    assert (error != 0).all()
    torch.testing.assert_close(error.std(dim=0), clean.std(dim=0), rtol=0.1, atol=0)
    torch.testing.assert_close(error.mean(dim=0), torch.zeros(2), rtol=0, atol=0.2)


def test_pixels_are_hit_one_by_one_and_unknown_ones_stay_unknown():
    clean, after = SPLIT.targets["segmentation"], noisy("segmentation", 0.4, exclude_true=True)
    known = clean != -1
    assert torch.equal(known, after != -1)
    share = ((after != clean) & known).sum((1, 2)) / known.sum((1, 2))
    assert share.mean().item() == pytest.approx(0.4, abs=0.01)
    assert share.min() > 0
    assert share.max() < 1
    assert after.max() == 12


def test_depths_stay_positive_where_they_are_known_and_zero_elsewhere():
    clean, after = SPLIT.targets["depth"], noisy("depth", 1.0)
    assert torch.equal(clean == 0, after == 0)
    assert after[clean != 0].min() == clean[clean != 0].min()
    raised = (after - clean)[(clean != 0) & (after > clean)]
    torch.testing.assert_close((raised**2).mean().sqrt(), clean[clean != 0].std(), rtol=0.05, atol=0)


def test_noisy_normals_are_unit_vectors_and_unknown_ones_stay_zero():
    clean, after = SPLIT.targets["normals"], noisy("normals", 0.5)
    known = clean.norm(dim=1) > 0
    torch.testing.assert_close(after.norm(dim=1), known.float())
    changed = (after != clean).any(dim=1)
    assert (changed & known).sum() / known.sum() == pytest.approx(0.5, abs=0.02)
    # The third component varies less than the others, so it must be disturbed less.
    spread = clean.transpose(0, 1)[:, known].std(dim=1)
    assert spread[2] < 0.9 * spread[0]
    moved = (after - clean).transpose(0, 1)[:, changed].abs().mean(dim=1)
    assert moved[2] < moved[0]


@pytest.mark.parametrize("exclude_true", [False, True])
def test_bits_are_drawn_or_flipped(exclude_true):
    clean = torch.arange(4_000).remainder(2).float()
    task, split = Task("t", 1, binary), Split(torch.zeros(4_000), {"t": clean})
    after = apply(split, [task], Noise(0.5, ("t",), 0, exclude_true), 0).targets["t"]
    assert set(after.tolist()) == {0.0, 1.0}
    expected = 2_000 if exclude_true else pytest.approx(1_000, abs=100)
    assert (after != clean).sum().item() == expected


@pytest.mark.parametrize(("kind", "outputs"), [("classification", 5), ("binary", 1), ("regression", 1)])
def test_missing_labels_stay_missing_and_the_share_is_of_those_that_are_there(kind, outputs):
    clean = torch.arange(200).remainder(2).float()
    clean[::4] = torch.nan
    split = Split(torch.zeros(200), {"t": clean})
    noise = Noise(0.4, ("t",), 1, exclude_true=True)
    after = apply(split, [Task("t", outputs, getattr(kinds, kind))], noise, 0).targets["t"]
    assert torch.equal(after.isnan(), clean.isnan())
    assert (after != clean)[~clean.isnan()].sum() == 60


def test_outliers_have_the_quantiles_of_students_t():
    clean = torch.randn(40_000, 1, generator=torch.Generator().manual_seed(0))
    task = Task("t", 1, regression)
    after = apply(Split(clean, {"t": clean}), [task], Noise(1.0, ("t",), 0, kind="outliers")).targets["t"]
    error = (after - clean) / clean.std(correction=0)
    quantiles = torch.tensor([0.5, 0.75, 0.9, 0.99])
    expected = torch.from_numpy(student.ppf(quantiles.numpy(), 1.5)).float()
    torch.testing.assert_close(error.quantile(quantiles), expected, rtol=0.15, atol=0.03)


@pytest.mark.parametrize("kind", ["classification", "binary", "regression"])
def test_noise_that_depends_on_the_inputs(kind):
    inputs = torch.randn(2_000, 3, generator=torch.Generator().manual_seed(2))
    outputs = 5 if kind == "classification" else 1
    target = (inputs[:, 0] > 0).float() if kind == "binary" else example(kind, outputs, 2_000)
    task, split = Task("t", outputs, getattr(kinds, kind)), Split(inputs, {"t": target})
    low, high = (apply(split, [task], Noise(p, ("t",), 1, kind="instance")).targets["t"] != target for p in (0.2, 0.4))
    assert (low.sum(), high.sum()) == (400, 800)
    assert (high | ~low).all()
    # The samples hit are told by the inputs: a linear regression explains far more than chance, which is 3 / 2,000.
    hit = low.reshape(-1).double()
    design = torch.cat([inputs, torch.ones(2_000, 1)], 1).double()
    rest = hit - design @ torch.linalg.lstsq(design, hit[:, None]).solution[:, 0]
    assert rest.var() < 0.8 * hit.var()


def test_another_part_has_other_draws_along_the_same_directions():
    inputs = torch.randn(1_000, 3, generator=torch.Generator().manual_seed(2))
    split = Split(inputs, {"t": torch.zeros(1_000)})
    noise = Noise(0.3, ("t",), 1, kind="instance")
    parts = [apply(split, [Task("t", 1, binary)], noise, part=part).targets["t"] for part in ("training", "validation")]
    assert not torch.equal(*parts)
    ends = [(inputs * part[:, None]).mean(0) for part in parts]
    assert torch.cosine_similarity(*ends, dim=0) > 0.98


def test_one_annotator_spoils_the_same_samples_in_all_tasks():
    after = apply(SPLIT, TASKS, Noise(0.3, ("digit", "torque"), 0, exclude_true=True, kind="annotator")).targets
    hit = after["digit"] != SPLIT.targets["digit"]
    assert hit.sum() == round(0.3 * N)
    assert torch.equal(hit, (after["torque"] != SPLIT.targets["torque"]).any(1))


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_noise_changes_the_named_task_alone_by_its_seed_alone(task):
    before = {name: target.clone() for name, target in SPLIT.targets.items()}
    after = apply(SPLIT, TASKS, Noise(0.5, (task.name,), 0))
    assert after.inputs is SPLIT.inputs
    for name, target in before.items():
        assert torch.equal(SPLIT.targets[name], target)
        assert torch.equal(after.targets[name], target) == (name != task.name)
    alone, clean = after.targets[task.name], before[task.name]
    assert alone.dtype == clean.dtype
    assert torch.equal(alone, noisy(task.name, 0.5, epoch=7))
    assert not torch.equal(alone, noisy(task.name, 0.5, seed=1))
    names = tuple(reversed([other.name for other in TASKS]))
    assert torch.equal(alone, apply(SPLIT, TASKS[::-1], Noise(0.5, names + names, 0)).targets[task.name])
    renamed = replace(task, name="other")
    other = apply(Split(SPLIT.inputs, {"other": clean}), [renamed], Noise(1.0, ("other",), 0)).targets["other"]
    assert not torch.equal(noisy(task.name, 1.0), other), "equal targets of two tasks have noise of their own"
    first, second = (noisy(task.name, 0.5, epoch=epoch, redraw_each_epoch=True) for epoch in (0, 1))
    assert not torch.equal(first, second)
    if kind_name(task) not in ("segmentation", "classification"):
        hit, low = alone != clean, noisy(task.name, 0.2) != clean
        assert torch.equal(hit, first != clean), "the same samples are hit in every epoch"
        assert torch.equal(hit, second != clean)
        assert (hit | ~low).all(), "higher levels hit the same samples and more"
    if task.name in ("depth", "normals"):
        nothing = Split(torch.zeros(2), {task.name: torch.zeros(2, task.outputs, 4, 4)})
        assert not apply(nothing, [task], Noise(1.0, (task.name,), 0)).targets[task.name].any()


def test_pairs_and_biases():
    assert torch.equal(noisy("digit", 1.0, kind="pair"), (SPLIT.targets["digit"] + 1) % 10)
    assert not noisy("digit", 1.0, kind="bias").any()
    bits = torch.arange(10).remainder(2).float()
    split, task = Split(torch.zeros(10), {"t": bits}), Task("t", 1, binary)
    assert torch.equal(apply(split, [task], Noise(1.0, ("t",), 0, kind="pair")).targets["t"], 1 - bits)
    error = noisy("torque", 0.5, kind="bias") - SPLIT.targets["torque"]
    hit = error[:, 0] != 0
    assert hit.sum() == N // 2
    torch.testing.assert_close(error[hit], SPLIT.targets["torque"].std(0, correction=0).expand(N // 2, 2))


ZEROS = torch.zeros(4)
SILENT = (Task("digit", 1, replace(regression, disturb=None)),)
ONE_CLASS = (Task("digit", 1, classification),)


@pytest.mark.parametrize(
    ("given", "noise", "message"),
    [
        ((SPLIT, SILENT), {}, "noise in task 'digit' is not possible"),
        ((SPLIT, ONE_CLASS), {"exclude_true": True}, "task 'digit': exclude_true leaves no class to draw"),
        (
            (SPLIT, TASKS),
            {"level": 0.0, "kind": "pair", "tasks": ("torque",)},
            "no meaning for task 'torque'; choose from uniform, annotator, instance, outliers, bias",
        ),
        (
            (SPLIT, TASKS),
            {"level": 0.0, "kind": "outliers"},
            "no meaning for task 'digit'; choose from uniform, annotator, pair, instance, bias",
        ),
        ((SPLIT, TASKS), {"kind": "bias", "tasks": ("depth",)}, "'depth'; choose from uniform, annotator"),
        ((Split({"digit": ZEROS}, {"digit": ZEROS}), TASKS), {"kind": "annotator"}, "has samples of its own"),
        ((Split(TensorDataset(ZEROS), {"digit": ZEROS}), TASKS), {"kind": "instance"}, "are read while training"),
    ],
)
def test_noise_without_meaning_is_refused(given, noise, message):
    with pytest.raises(ValueError, match=message):
        apply(*given, Noise(**{"level": 0.5, "tasks": ("digit",), "seed": 0, **noise}))
