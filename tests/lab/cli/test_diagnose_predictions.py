"""`excessmtl diagnose --predictions FILE`: labels and predictions of a model that we have never seen."""

import json

import numpy as np
import pandas as pd
import pytest

from commands import done, excessmtl, refused

RNG = np.random.default_rng(1)
ROWS = 800


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Two classes with 20 % of the labels flipped, clean classes with names, a clean number, ids, empty cells."""
    truth, pet = RNG.integers(0, 2, ROWS), RNG.integers(0, 3, ROWS)
    flipped = RNG.random(ROWS) < 0.2
    scores = 6 * np.eye(3)[pet] + RNG.normal(size=(ROWS, 3))
    price = RNG.normal(size=ROWS)
    names = np.array(["cat", "dog", "eel"])
    frame = pd.DataFrame(
        {
            "customer": [f"c{i}" for i in range(ROWS)],
            "churn": np.where(flipped, 1 - truth, truth),
            "churn_predicted": 1 / (1 + np.exp(-(2 * truth - 1) * 4 - RNG.normal(size=ROWS))),
            "pet": names[pet],
            **{f"pet_predicted_{name}": scores[:, place] for place, name in enumerate(names)},
            "price": price,
            "price_predicted": price + 0.1 * RNG.normal(size=ROWS),
        }
    ).astype({"churn": object})
    frame.loc[::10, "churn"] = None
    path = tmp_path_factory.mktemp("predictions") / "predictions.csv"
    frame.to_csv(path, index=False)
    return path, flipped


def test_verdicts_and_the_rows_to_relabel(table, tmp_path):
    path, flipped = table
    words = ["--predictions", path, "--json", "--id", "customer", "--suspects", tmp_path / "suspects.csv"]
    tasks = {task["task"]: task for task in json.loads(done("diagnose", *words))}
    assert tasks["churn"]["verdict"] == "noisy"
    low, high = tasks["churn"]["noise_rate_interval"]
    assert low - 0.03 <= 0.4 <= high + 0.03  # 20 % flipped: of random labels half agree by chance
    assert tasks["churn"]["samples"] == ROWS * 9 // 10
    assert (tasks["pet"]["verdict"], tasks["price"]["verdict"]) == ("clean", "clean")
    suspects = pd.read_csv(tmp_path / "suspects.csv")
    pets = suspects.query("task == 'pet'")
    assert list(pets["label"]) == pd.read_csv(path)["pet"].iloc[pets["row"]].tolist()  # by name, not by number
    worst = suspects.query("task == 'churn'").head(50)
    assert flipped[worst["row"]].mean() > 0.95
    assert list(worst["id"]) == [f"c{row}" for row in worst["row"]]


@pytest.mark.parametrize(
    ("change", "words", "sentence"),
    [
        (lambda f: f.drop(columns="churn"), (), "has predictions of 'churn' and no column 'churn' of labels"),
        (lambda f: f[["customer", "churn"]], (), "has no column of predictions, such as churn_predicted"),
        (lambda f: f, ("--id", "name"), "has no column 'name' for --id"),
        (lambda f: f, ("--kind", "age=binary"), "--kind names 'age', which"),
        (lambda f: f.drop(columns="pet_predicted_eel"), (), "has the label 'eel' of 'pet' and no column"),
        (lambda f: f.drop(columns=[*f.filter(regex="eel|dog")]), (), "has scores of one class of 'pet', pet"),
        (lambda f: f.assign(price="dear"), (), "has 'dear' in the column 'price', where numbers are needed"),
        (lambda f: f, ("--save",), "--predictions takes the place of a run"),
        (None, (), "name the folder of a run, or --predictions FILE"),
    ],
)
def test_a_mistake_is_one_sentence(table, tmp_path, change, words, sentence):
    path = tmp_path / "changed.csv"
    if change is not None:
        change(pd.read_csv(table[0])).to_csv(path, index=False)
        words = ("--predictions", path, *words)
    refused(excessmtl("diagnose", *words), sentence)


def test_how_a_column_was_read_is_one_plain_sentence(table):
    result = excessmtl("diagnose", "--predictions", table[0])
    assert result.exit_code == 0, result.output
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("the predictions of 'churn' lie from 0 to 1 and are taken for probabilities; if they are")


def test_ids_and_labels_are_as_the_file_has_them(tmp_path):
    labels = np.arange(200) % 2
    scores = np.where(np.arange(200) < 10, -3, 3) * (2 * labels - 1) + RNG.normal(size=200)  # the first are wrong
    columns = {"code_predicted_01": -scores, "code_predicted_02": scores, "sign_predicted": scores}
    columns |= {
        "code": np.where(labels, "02", "01"),
        "sign": 2 * labels - 1,
        "flag": labels == 1,
        "flag_predicted_False": -scores,
        "flag_predicted_True": scores,
        "id": ["", *map("{:04}".format, range(1, 200))],
    }
    pd.DataFrame(columns).to_csv(tmp_path / "table.csv", index=False)
    done("diagnose", "--predictions", tmp_path / "table.csv", "--id", "id", "--suspects", tmp_path / "suspects.csv")
    suspects = pd.read_csv(tmp_path / "suspects.csv", dtype=str, keep_default_na=False)
    assert {"", "0001", "0009"} <= set(suspects["id"])
    assert set(suspects.query("task == 'code'")["label"]) == {"01", "02"}
    assert set(suspects.query("task == 'sign'")["label"]) == {"-1", "1"}
    assert set(suspects.query("task == 'flag'")["label"]) == {"True", "False"}
