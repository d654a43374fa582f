"""Runs of a method that takes the last layers and the labels: `bayes_agg`."""

import numpy as np
import pandas as pd
import pytest
import yaml

from commands import excessmtl, refused
from report_data import steps_of

SMALL = ["--limit-batches", "3", "--batch-size", "32", "--device", "cpu"]


def train(folder, *words):
    return excessmtl("train", *words, "--method", "bayes_agg", *SMALL, "--out", folder)


def table(path):
    """A table of three kinds of tasks, with holes."""
    draws = np.random.default_rng(0)
    x = draws.normal(size=(400, 3))
    columns = {
        "price": x[:, 0] + 0.1 * draws.normal(size=400),
        "churn": (x[:, 1] > 0).astype(float),
        "colour": np.digitize(x[:, 2], [-0.5, 0.5]).astype(float),
    }
    for target in columns.values():
        target[draws.random(400) < 0.2] = np.nan
    pd.DataFrame({**{f"x{place}": x[:, place] for place in range(3)}, **columns}).to_csv(path, index=False)
    kinds = [word for task in ("churn=binary", "colour=classification") for word in ("--kind", task)]
    return [str(path), "--targets", ",".join(columns), *kinds]


def test_a_table_of_all_kinds_with_holes_trains_and_resumes_bit_for_bit(tmp_path):
    data = table(tmp_path / "data.csv")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert train(whole, *data, "--epochs", "3").exit_code == 0
    for epochs in ("2", "3"):
        assert train(parts, *data, "--epochs", epochs, "--resume").exit_code == 0
    weights, resumed = steps_of(whole)["weights"], steps_of(parts)["weights"]
    assert np.array_equal(weights, resumed)
    np.testing.assert_allclose(weights[:3], 1 / 3, rtol=1e-6)  # the first epoch
    assert (weights[3:].max(1) > 0.334).all()
    options = yaml.safe_load((whole / "config.yaml").read_text())["method_options"]
    assert options["layers"]["price"].startswith("Linear(")
    assert options["kinds"] == ["regression", "binary", "classification"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["digit-domains"], "have inputs of their own"),
        (["synthetic-rooms"], "are not linear"),
        (["simulated-arm", "--loss", "robust"], "loss is 'robust'"),
    ],
)
def test_a_network_without_such_layers_is_refused(tmp_path, words, reason):
    refused(train(tmp_path / "run", *words, "--epochs", "1"), "needs linear heads on one representation", reason)
    assert not (tmp_path / "run").exists()
