"""The robust estimator against pairs of samples, one by one, through an adapter that really exists."""

import itertools

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad

import excessmtl
from excessmtl.excess import excess_risk as module
from excessmtl.excess.excess_risk import Adapter, Moments, in_parts, outer_products, pair_signal, reducible_share
from excessmtl.gradients.task_gradients import Sample
from excessmtl.methods.observation import Observation
from models import DEVICE

FEATURES, WIDTH, BATCH = 6, 8, 5


class VectorAdapter(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(features, features))
        self.b = nn.Parameter(torch.zeros(features))

    def forward(self, z):
        return z + z @ self.w + self.b


class MapAdapter(VectorAdapter):
    def forward(self, z):
        return super().forward(z.movedim(1, -1)).movedim(-1, 1)


CASES = {
    "vector": ((FEATURES,), VectorAdapter, lambda: nn.Linear(FEATURES, 3)),
    "map": ((FEATURES, 3, 4), MapAdapter, lambda: nn.Sequential(nn.Conv2d(FEATURES, 2, 3), nn.Flatten())),
    "sequence": ((7, FEATURES), VectorAdapter, lambda: nn.Sequential(nn.Linear(FEATURES, 2), nn.Flatten())),
}


@pytest.mark.parametrize("case", CASES)
def test_signal_is_the_mean_product_over_all_pairs_of_samples(case):
    shape, adapter_class, make_head = CASES[case]
    torch.manual_seed(0)
    z = torch.randn(BATCH, *shape, requires_grad=True)
    head, adapter = make_head(), adapter_class(FEATURES)
    targets = torch.randn_like(head(z))

    def sample_loss(parameters, one, target):
        return (head(functional_call(adapter, parameters, (one[None],))) - target).square().mean()

    parameters = {name: p.detach() for name, p in adapter.named_parameters()}
    per_sample = []
    for b in range(BATCH):
        g = grad(sample_loss)(parameters, z[b].detach(), targets[b : b + 1])
        per_sample.append(torch.cat([g["w"], g["b"][None]]))
    pairs = [per_sample[a] * per_sample[b] for a, b in itertools.permutations(range(BATCH), 2)]
    expected_signal = torch.stack(pairs).mean(0)
    expected_fisher = torch.stack(per_sample).square().mean(0)

    (dz,) = torch.autograd.grad((head(z) - targets).square().mean(), z)
    seen = Observation(torch.zeros(1), torch.ones(1, dtype=torch.bool), samples=lambda i: [Sample(z.detach(), dz)])
    moments = Adapter(width=WIDTH).moments(seen)
    # Features below the width are padded: the weight rows, then the bias row at the end.
    rows = [*range(FEATURES), WIDTH]
    signal, noise = pair_signal(moments)[0], moments.fisher[0]
    torch.testing.assert_close(signal[rows], expected_signal.sum(1), atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(noise[rows], expected_fisher.sum(1), atol=1e-6, rtol=1e-4)
    assert signal[FEATURES:WIDTH].abs().max() == 0
    assert moments.first[0, :, FEATURES:].abs().max() == 0


def observation(samples):
    return Observation(torch.zeros(1), torch.ones(1, dtype=torch.bool), samples=lambda i: samples)


def test_unlabelled_samples_do_not_count():
    z, dz = torch.randn(8, 4), torch.randn(8, 4)
    mask = torch.tensor([True] * 5 + [False] * 3)
    partly = Adapter(width=4).moments(observation([Sample(z, torch.where(mask[:, None], dz, 0), mask)]))
    alone = Adapter(width=4).moments(observation([Sample(z[:5], dz[:5])]))
    for field in ("first", "second", "count"):
        torch.testing.assert_close(getattr(partly, field), getattr(alone, field))


@pytest.mark.parametrize("features", [3, 8, 13])
def test_large_maps_are_multiplied_before_they_are_projected_with_the_same_result(features, monkeypatch):
    z, dz = torch.randn(6, features, 5, 7), torch.randn(6, features, 5, 7)
    mask = torch.tensor([True] * 4 + [False] * 2)
    z[5, 0, 0, 0], z[4, 1, 2, 3] = torch.nan, torch.inf  # samples without a label
    samples = [Sample(z, torch.where(mask[:, None, None, None], dz, 0), mask)]
    called = []
    multiply = Adapter._multiplied_first
    monkeypatch.setattr(Adapter, "_multiplied_first", lambda *given: called.append(1) or multiply(*given))
    first = Adapter(width=8).moments(observation(samples))
    assert called
    monkeypatch.setattr("excessmtl.excess.excess_risk._FEW", 0)
    projected = Adapter(width=8).moments(observation(samples))
    assert len(called) == 1
    for field in ("first", "second", "count"):
        torch.testing.assert_close(getattr(first, field), getattr(projected, field), rtol=1e-4, atol=1e-4)


def test_a_wide_representation_is_sketched_without_bias():
    """Mean over many projections of the squared norm of U's sketch follows the full one closely."""
    torch.manual_seed(1)
    z = torch.randn(64, 100)
    dz = z @ torch.randn(100, 100) * 0.01 + torch.randn(64, 100)
    seen = observation([Sample(z, dz)])
    exact = Adapter(width=100).moments(seen).first[0, :-1].square().sum()
    sketches = [Adapter(width=32, seed=s).moments(seen).first[0, :-1].square().sum() for s in range(40)]
    assert torch.stack(sketches).mean() / exact == pytest.approx(1, abs=0.15)


def test_share_ignores_the_scale_of_the_loss_and_pure_noise():
    torch.manual_seed(0)
    gradients = torch.randn(2000, 5, 4) + torch.tensor(0.3)
    noise_only = torch.randn(2000, 5, 4)

    def share(g):
        n = len(g)
        moments = Moments(g.mean(0)[None], g.square().sum((0, 2))[None] / n**2, torch.tensor([float(n)]))
        return reducible_share(pair_signal(moments), moments.fisher, 1e-3).item()

    assert share(gradients) == pytest.approx(share(1000 * gradients), rel=1e-4)
    assert share(gradients) == pytest.approx(5 * 0.09 / 1.09, rel=0.1)
    assert share(noise_only) < 0.05 * share(gradients)


def test_batch_in_another_dimension_can_be_said():
    torch.manual_seed(0)
    trunk = nn.GRU(3, 4)
    head = nn.Linear(4, 1)
    x = torch.randn(7, 9, 3)  # time, batch, features
    out = []
    for batch_dim, data in ((1, x), (0, x.transpose(0, 1))):
        trunk.batch_first = batch_dim == 0
        balancer = excessmtl.create("excess", tasks=["a"], shared=trunk, batch_dim=batch_dim)
        z, _ = trunk(data)
        out.append(balancer.backward({"a": head(z).square().mean()}).excess_risks)
    torch.testing.assert_close(out[0], out[1])


# ------------------------------------------------------------------ products over the positions of maps are z' dz


def draw(samples, positions, features, channels_last, dtype=torch.float32):
    """[samples, positions, features], as views of maps are."""
    if channels_last:
        return torch.randn(samples, positions, features, device=DEVICE).to(dtype)
    return torch.randn(samples, features, positions, device=DEVICE).to(dtype).mT


def exactly(z, dz):
    return (z.double().mT @ dz.double()).float()


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("positions", [3, 16, 19, 64])
def test_in_parts(positions, channels_last, monkeypatch):
    monkeypatch.setattr(module, "_PART", 8)
    z, dz = (draw(2, positions, 5, channels_last) for _ in range(2))
    torch.testing.assert_close(in_parts(z, dz), exactly(z, dz), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(outer_products(z, dz), exactly(z, dz), rtol=1e-5, atol=1e-5)


def test_many_samples_and_other_types():
    z, dz = (draw(700, 100, 8, False, torch.bfloat16) for _ in range(2))
    torch.testing.assert_close(outer_products(z, dz), exactly(z, dz), rtol=1e-5, atol=1e-4)
    z, dz = (draw(70_000, 7, 3, False) for _ in range(2))
    torch.testing.assert_close(outer_products(z, dz), exactly(z, dz), rtol=1e-5, atol=1e-5)
    z, dz = (draw(0, 7, 3, False) for _ in range(2))
    assert outer_products(z, dz).shape == (0, 3, 3)
    z, dz = (draw(2, 40_000, 100, True) for _ in range(2))
    torch.testing.assert_close(outer_products(z, dz), exactly(z, dz), rtol=1e-4, atol=1e-3)
