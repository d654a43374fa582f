import numpy as np
import pytest
import torch

from excessmtl.lab.data import kinds
from excessmtl.lab.data.kinds import regression
from excessmtl.lab.data.metrics import Meters, average
from excessmtl.lab.data.tasks import Kind, Metric, Task

CPU = torch.device("cpu")
KINDS = [("classification", 5), ("binary", 1), ("regression", 2), ("segmentation", 6), ("depth", 1), ("normals", 3)]


def sample(kind, outputs, n=12):
    g = torch.Generator().manual_seed(3)
    size = () if kind in ("classification", "binary", "regression") else (7, 9)
    output = torch.randn(n, outputs, *size, generator=g)
    known = torch.rand(n, *size, generator=g) < 0.8
    if kind == "classification":
        return output, torch.randint(outputs, (n,), generator=g)
    if kind == "binary":
        return output, torch.randint(2, (n,), generator=g).float()
    if kind == "regression":
        return output, torch.randn(n, outputs, generator=g)
    if kind == "segmentation":
        return output, torch.randint(outputs - 1, (n, *size), generator=g).where(known, -1).to(torch.int8)
    if kind == "depth":
        return output, torch.rand(n, 1, *size, generator=g).add(0.5) * known[:, None]
    target = torch.nn.functional.normalize(output + torch.randn(n, 3, *size, generator=g), dim=1)
    return output, target * known[:, None]


def compute(kind, output, target, batch=100):
    train = torch.tensor([[0.0], [2.0]]).expand(-1, output.shape[1])  # of variance 1
    metrics = Meters(Task("t", output.shape[1], getattr(kinds, kind)), train, CPU)
    for i in range(0, len(output), batch):
        metrics.update(output[i : i + batch], target[i : i + batch])
    return metrics.compute()


@pytest.mark.parametrize(("kind", "outputs"), KINDS)
def test_metrics_do_not_depend_on_the_batches(kind, outputs):
    output, target = sample(kind, outputs)
    whole, parts = compute(kind, output, target), compute(kind, output, target, batch=5)
    assert whole == pytest.approx(parts, rel=1e-5)
    assert list(whole) == [metric.name for metric in getattr(kinds, kind).metrics]


@pytest.mark.parametrize("flat", [True, False])
def test_nmse_is_the_squared_error_over_the_variance_of_the_training_target(flat):
    output, target = sample("regression", 1)
    train = torch.tensor([3.0, 5.0, 13.0, 7.0])
    meters = Meters(Task("t", 1, regression), train if flat else train[:, None], CPU)
    meters.update(output, target[:, 0] if flat else target)
    expected = np.mean((output - target).numpy() ** 2) / np.var([3.0, 5.0, 13.0, 7.0])
    assert meters.compute() == {"nmse": pytest.approx(expected)}


def test_nmse_normalises_every_output_and_leaves_missing_and_constant_targets_aside():
    train = torch.tensor([[1.0, 10.0, 2.0], [3.0, 50.0, 2.0], [torch.nan, 0.0, 2.0]])
    meters = Meters(Task("t", 3, regression), train, CPU)
    meters.update(torch.zeros(2, 3), torch.tensor([[1.0, 20.0, 1.0], [1.0, 20.0, 3.0]]))
    assert meters.compute() == {"nmse": pytest.approx((1 / 1 + 400 / 400 + 5 / 1) / 3)}


@pytest.mark.parametrize("largest", [8, 2000])  # beyond 17, the sigmoid of a float32 is 1
def test_binary_scores_count_right_signs_and_pairs_in_the_right_order(largest):
    rng = np.random.default_rng(0)
    outputs = torch.from_numpy(rng.integers(-4, largest, 200)).float()
    targets = torch.from_numpy(rng.integers(0, 2, 200)).float()
    pairs = [(a > b) + 0.5 * (a == b) for a in outputs[targets == 1] for b in outputs[targets == 0]]
    right = ((outputs > 0) == (targets == 1)).float().mean().item()
    scores = compute("binary", outputs[:, None], targets, batch=25)
    assert scores == {"accuracy": pytest.approx(right), "roc_auc": pytest.approx(float(np.mean(pairs)))}


@pytest.mark.parametrize(("output", "target"), [(1.0, [1.0, 1.0]), (1.0, [0.0, 0.0]), (torch.nan, [0.0, 1.0])])
def test_without_two_classes_or_an_order_there_is_no_roc_curve(output, target):
    scores = compute("binary", torch.tensor([[0.5], [output]]), torch.tensor(target))
    assert np.isnan(scores["roc_auc"])
    assert np.isfinite(scores["accuracy"])


def test_a_metric_of_your_own_has_a_unit_and_a_direction():
    error = Metric("mae", average(lambda output, target: (output - target).abs()), "kg", False)
    kind = Kind(regression.loss, (error, *regression.metrics), "mae")
    assert (kind.primary.unit, kind.primary.higher_is_better) == ("kg", False)
    meters = Meters(Task("weight", 1, kind), torch.tensor([[0.0], [2.0]]), CPU)
    meters.update(torch.tensor([[1.0], [2.0]]), torch.tensor([[2.0], [5.0]]))
    assert meters.compute() == {"mae": 2.0, "nmse": 5.0}
    with pytest.raises(ValueError, match="score must name one of the metrics"):
        Kind(regression.loss, (error,), "psnr")


def test_segmentation_against_a_count_by_hand():
    output, target = sample("segmentation", 6)
    guess, truth = output.argmax(1).numpy(), target.numpy()
    known = truth >= 0
    union = {c: ((guess == c) | (truth == c)) & known for c in range(6)}
    overlap = {c: (guess == c) & (truth == c) for c in range(6)}
    scores = compute("segmentation", output, target)
    assert scores["pixel_accuracy"] == pytest.approx((guess == truth)[known].mean())
    assert scores["miou"] == pytest.approx(np.mean([overlap[c].sum() / union[c].sum() for c in range(6)]))


def test_classes_neither_true_nor_predicted_are_skipped():
    output = torch.zeros(1, 9, 1, 4)
    output[0, [2, 2, 4, 4], 0, [0, 1, 2, 3]] = 1
    scores = compute("segmentation", output, torch.tensor([[[2, 2, 2, -1]]]))
    # The guess of class 4 on an unlabelled pixel does not count; that on a labelled one does.
    assert scores["miou"] == pytest.approx((2 / 3 + 0) / 2)
    assert scores["pixel_accuracy"] == pytest.approx(2 / 3)


def test_depth_errors_count_each_known_pixel_once():
    output, target = sample("depth", 1)
    known = target != 0
    error = (output - target)[known].abs()
    scores = compute("depth", output, target, batch=5)
    assert scores["abs_error"] == pytest.approx(error.mean().item(), rel=1e-5)
    assert scores["rel_error"] == pytest.approx((error / target[known]).mean().item(), rel=1e-5)


def test_angles_against_the_arc_cosine():
    output, target = sample("normals", 3)
    cosine = (torch.nn.functional.normalize(output, dim=1) * target).sum(1)[target.norm(dim=1) > 0]
    angle = torch.rad2deg(cosine.clamp(-1, 1).acos())
    scores = compute("normals", output, target, batch=5)
    assert scores["angle_mean"] == pytest.approx(angle.mean().item(), rel=1e-4)
    assert scores["angle_median"] == pytest.approx(angle.median().item(), abs=0.006)
    for bound in ("11.25", "22.5", "30"):
        expected = (angle < float(bound)).float().mean().item()
        assert 0 < expected < 1
        assert scores[f"within_{bound}"] == pytest.approx(expected)


def test_a_perfect_guess_of_the_normals_has_angle_zero():
    target = sample("normals", 3)[1]
    scores = compute("normals", 5 * target, target)
    assert scores["angle_mean"] == pytest.approx(0, abs=1e-3)
    assert scores["angle_median"] == pytest.approx(0, abs=0.006)
    assert scores["within_11.25"] == 1
    assert compute("normals", -target, target)["angle_median"] == pytest.approx(180, abs=0.02)


@pytest.mark.parametrize(("kind", "outputs"), KINDS)
def test_half_precision_outputs_are_taken(kind, outputs):
    output, target = sample(kind, outputs)
    scores = compute(kind, output.bfloat16().requires_grad_(), target)
    assert scores == pytest.approx(compute(kind, output.bfloat16().float(), target))


@pytest.mark.parametrize(("kind", "outputs"), KINDS)
def test_update_never_reads_from_the_device(kind, outputs):
    output, target = sample(kind, outputs)
    metrics = Meters(Task("t", outputs, getattr(kinds, kind)), torch.zeros(3, outputs), torch.device("meta"))
    # A meta tensor has no values, so anything that needs one on the host fails.
    metrics.update(output.to("meta"), target.to("meta"))
