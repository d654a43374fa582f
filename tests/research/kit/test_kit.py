"""The choosing experiment runs."""

import json

import numpy as np
import pandas as pd
import pytest

from research.kit.__main__ import COLUMNS, FILE, main
from research.kit.tables import FOLDER, at_best_rate, in_tolerances, summary, table

CONFIGS = FOLDER / "configs.json"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Pictures whose brightness tells their class, and numbers that are linear in the inputs."""
    draw = np.random.RandomState(0)
    labels = np.arange(300) % 10
    pictures = (labels[:, None] * 20 + draw.randint(0, 20, (300, 4))).astype(np.uint8)
    inputs = draw.randn(5700, 5).astype(np.float32)
    path = tmp_path_factory.mktemp("kit") / "choose.npz"
    np.savez(path, fx=pictures, fy=labels.astype(np.uint8), dx=inputs, dy=inputs @ draw.randn(5, 5).astype(np.float32))
    return path


def test_a_row_for_every_network_with_scores_that_learning_explains(data, tmp_path):
    chosen = [entry for entry in json.loads(CONFIGS.read_text()) if entry["name"] in ("uw", "new1.5+R")]
    (tmp_path / "configs.json").write_text(json.dumps(chosen))
    options = ("--levels", "0,.6", "--lrs", "3e-3", "--seeds", 1, "--epochs", 0.02)
    files = ("--data", data, "--configs", tmp_path / "configs.json", "--out", tmp_path / "out")
    main(list(map(str, ("--problems", "pairs-small,diamonds", *files, *options))))
    frame = pd.read_csv(tmp_path / "out" / FILE)
    assert list(frame) == list(COLUMNS)
    assert len(frame) == 2 * 2 * 2
    assert np.isfinite(frame.select_dtypes("number")).all(axis=None)
    assert (frame.loc[frame["problem"] == "pairs-small", "clean"] > 15).all(), "ten classes: chance is 10 %"
    assert frame.loc[frame["problem"] == "diamonds", "clean"].between(-60, 0).all(), "less than the variance is left"
    # Noise shows in the estimated noise of the noisy tasks and, for the chosen rule, in less weight for them.
    new = frame[frame["config"] == "new1.5+R"].set_index(["problem", "level"]).sort_index()
    assert (new["eps_noisy"].xs(0.6, level="level") > new["eps_noisy"].xs(0.0, level="level")).all()
    assert (new["cw"].xs(0.6, level="level") > new["cw"].xs(0.0, level="level")).all()


@pytest.mark.parametrize(
    ("arguments", "configs", "words"),
    [
        (("--problems", "narnia"), "", "argument --problems: 'narnia' is unknown"),
        (("--problems", "pairs"), "", "--data is missing"),
        (("--problems", "t-hard", "--kinds", "loud"), "", "argument --kinds: 'loud' is unknown"),
        (("--problems", "t-hard", "--levels", "2"), "", "--levels [2.0]: give 1 or more, and shares from 0 to 1"),
        (("--problems", "t-hard", "--lrs", "fast"), "", "argument --lrs: invalid _numbers value: 'fast'"),
        (("--problems", "t-hard"), '[{"name": "x", "magic": 1}]', "unexpected keyword argument 'magic'"),
        (("--problems", "t-hard"), '[{"name": "x"}, {"name": "x"}]', "has a name twice"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(tmp_path, capsys, arguments, configs, words):
    path = tmp_path / "configs.json"
    path.write_text(configs or CONFIGS.read_text())
    with pytest.raises(SystemExit, match="2"):
        main([*arguments, "--configs", str(path), "--out", str(tmp_path / "out")])
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_differences_are_in_tolerances_at_the_rate_that_noisy_labels_choose():
    columns = ["problem", "level", "kind", "config", "lr", "seed", "val", "clean", "noisy", "overall"]
    rows = [
        ["a", 0.0, "uniform", "uniform", 1, 0, -0.5, 80.0, 50.0, 65.0],
        ["a", 0.0, "uniform", "x", 1, 0, -0.4, 99.0, 99.0, 99.0],
        ["a", 0.0, "uniform", "x", 2, 0, -0.6, 80.3, 49.4, 65.0],
        ["b", 0.0, "uniform", "uniform", 1, 0, 0.5, -10.0, -20.0, -15.0],
        ["b", 0.0, "uniform", "x", 1, 0, 0.5, -9.7, -40.0, -15.0],
        ["b", 0.0, "uniform", "x", 2, 0, 0.5, -9.1, -40.0, -15.0],
    ]
    frame = pd.DataFrame(rows, columns=columns)
    found = in_tolerances(at_best_rate(frame)).query("config == 'x'")
    assert found["clean"].tolist() == pytest.approx([1, 2])
    assert found["noisy"].tolist() == pytest.approx([-2, -10])
    assert found["overall"].tolist() == pytest.approx([0, 0])
    assert found["classes"].tolist() == [True, False]
    assert table(summary(frame)).texts == [
        ["uniform", *["0.0 / 0.0 / 0.0"] * 3, "", "0 / 0"],
        ["x", "1.0 / -2.0 / 0.0", "2.0 / -10.0 / 0.0", "1.5 / -6.0 / 0.0", "", "0 / 0"],
    ]
