"""The choosing experiment runs, and its rule is the library's."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import excessmtl
from research.kit.__main__ import FILE, main
from research.kit.rules import Excess
from research.kit.tables import at_best_rate, leads, summary

LIBRARY = "default"
"""The configuration that the library has."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Pictures whose brightness tells their class, and numbers that are linear in the inputs."""
    draw = np.random.RandomState(0)
    labels = np.arange(300) % 10
    pictures = (labels[:, None] * 20 + draw.randint(0, 20, (300, 196))).astype(np.uint8)
    inputs = draw.randn(400, 15).astype(np.float32)
    path = tmp_path_factory.mktemp("kit") / "choose.npz"
    jura = {"jura_x": inputs, "jura_y": inputs @ draw.randn(15, 3).astype(np.float32)}
    np.savez(path, fx=pictures, fy=labels.astype(np.uint8), **jura)
    return path


def test_a_row_for_every_network_with_scores_that_learning_explains(data, tmp_path):
    main(data, tmp_path / "out", f"uw,famo+R,imtl+R,{LIBRARY}", "pairs-short,jura", seeds=1, epochs=0.2)
    frame = pd.read_csv(tmp_path / "out" / FILE)
    assert len(frame) == 2 * 4 * 4 * frame.groupby("problem")["lr"].nunique().iloc[0]
    assert np.isfinite(frame.select_dtypes("number")).all(axis=None)
    best = at_best_rate(frame)
    assert (best.loc[best["problem"] == "pairs-short", "clean"] > 15).all(), "ten classes: chance is 10 %"
    own = best[(best["problem"] == "jura") & (best["config"] == LIBRARY)].set_index(["level", "kind"])
    assert own["clean"].between(-60, 0).all(), "less than the variance is left"
    assert own.loc[(0.0, "none"), "noisy"] > own.loc[(0.8, "swap"), "noisy"], "noise costs something"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"problems": "pairs,narnia"}, "--problems: 'narnia' is unknown"),
        ({"configs": "magic"}, "--configs: 'magic' is unknown"),
        ({"data": "nowhere.npz"}, "nowhere.npz"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(data, tmp_path, arguments, words):
    with pytest.raises((ValueError, OSError), match=words):
        main(**{"data": data, "out": tmp_path / "out"} | arguments)
    assert not (tmp_path / "out").exists()


def test_leads_are_in_tolerances_at_the_rate_that_noisy_labels_choose():
    columns = ["problem", "level", "kind", "config", "lr", "seed", "val", "clean", "noisy", "overall"]
    rows = [
        *(["pairs", 0.8, "uniform", "uniform", 1, seed, -0.5, 80.0, 50.0, 65.0] for seed in (0, 1, 2)),
        *(["pairs", 0.8, "uniform", "x", 1, seed, -0.4, 99.0, 99.0, 99.0] for seed in (0, 1, 2)),
        *(["pairs", 0.8, "uniform", "x", 2, seed, -0.6, 80.3, 49.0, 64.0] for seed in (0, 1, 2)),
        *(["bias", 0.0, "none", "uniform", 1, seed, 0.5, -10.0, -20.0, -15.0] for seed in (0, 1, 2)),
        *(["bias", 0.0, "none", "x", 1, seed, 0.5, -9.7 - 0.3 * seed, -40.0, -15.0] for seed in (0, 1, 2)),
    ]
    frame = pd.DataFrame(rows, columns=columns)
    found = leads(at_best_rate(frame), ["uniform"]).set_index("problem")
    assert found.loc["pairs", ["clean", "noisy", "overall"]].tolist() == pytest.approx([1, -2, -2])
    assert found.loc["bias", ["clean", "noisy", "overall"]].tolist() == pytest.approx([0, -10, 0])
    assert found.loc["bias", "clean_upper"] == pytest.approx(2.92 / 3**0.5, abs=0.01)
    own = summary(frame).set_index("config").loc["x"]
    assert own[["regret", "dominated", "of"]].tolist() == [1, 0, 2]


def test_the_rule_is_the_librarys():
    """The same weights on one sequence of steps, for tasks of two kinds, at every step."""
    torch.manual_seed(0)
    trunk, heads = nn.Sequential(nn.Linear(6, 12), nn.Tanh()), {"a": nn.Linear(12, 1), "b": nn.Linear(12, 3)}
    parameters = [*trunk.parameters(), *(p for head in heads.values() for p in head.parameters())]
    optimizer = torch.optim.SGD(parameters, 0.1)
    balancer = excessmtl.create("excess", tasks=["a", "b"], shared=trunk, likelihoods={"a": "own", "b": True})
    rule = Excess(1, [0, 3])
    for step in range(1, 31):
        x = torch.randn(16, 6)
        z = trunk(x)
        losses = {
            "a": (heads["a"](z)[:, 0] - x[:, 0]).square().mean(),
            "b": nn.functional.cross_entropy(heads["b"](z), x[:, :3].argmax(1)),
        }
        pulls = torch.stack([torch.autograd.grad(loss, z, retain_graph=True)[0] for loss in losses.values()])
        values = torch.stack(list(losses.values())).detach()
        expected = rule(values[None], z.detach()[None], pulls[None], step)[0]
        optimizer.zero_grad()
        torch.testing.assert_close(balancer.backward(losses).weights, expected, rtol=1e-3, atol=1e-4)
        optimizer.step()
