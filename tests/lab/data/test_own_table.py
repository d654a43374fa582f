"""A CSV file as a benchmark."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from excessmtl.lab.data.find import load_benchmark
from excessmtl.lab.data.kinds import binary, classification, regression
from excessmtl.lab.data.table import infer_kind
from tiny_data import splits

ROWS = 100


def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "größe": rng.normal(50, 10, ROWS),
            "town": rng.choice(["Łódź", "Bern"], ROWS),
            "price": rng.normal(300, 40, ROWS),
            "sold": rng.choice(["no", "yes"], ROWS),
            "stars": rng.choice([1, 3, 5], ROWS),
        }
    )


def write(folder, table, suffix=".csv"):
    path = folder / f"Häuser{suffix}"
    if suffix == ".parquet":
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False, encoding="utf-8")
    return str(path)


def load(path, **options):
    return load_benchmark(path, None, 0, {"targets": ["price", "sold", "stars"], **options})


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0, 1, 1], binary),
        (["a", "b", None], binary),
        ([2.5, 7.5], binary),
        ([True, False], binary),
        (["a", "b", "c"], classification),
        ([1, 2, 3], classification),
        ([1.0, 2.0, None, 3.0], classification),
        (list(range(20)), classification),
        (list(range(21)), regression),
        ([1, 2, 2.5], regression),
    ],
)
def test_kinds_are_inferred_from_the_values(values, kind):
    assert infer_kind(pd.Series(values)) == kind


def test_columns_become_tasks_and_inputs(tmp_path):
    table = frame()
    made = load(write(tmp_path, table))
    expected = [("price", 1, regression), ("sold", 1, binary), ("stars", 3, classification)]
    assert [(task.name, task.outputs, task.kind) for task in made.tasks] == expected
    assert (made.name, made.source) == ("Häuser", "Häuser.csv, 100 rows, 2 input columns")
    assert [split.length("price") for split in splits(made)] == [70, 15, 15]
    inputs = torch.cat([split.inputs for split in splits(made)])
    assert inputs.shape == (100, 3)  # a number and two towns
    assert made.train.inputs[:, 0].mean().item() == pytest.approx(0, abs=1e-5)
    assert inputs[:, 1:].sum(1).tolist() == [1.0] * 100
    price = made.train.targets["price"]
    assert (price.mean().item(), price.std(correction=0).item()) == (pytest.approx(0, abs=1e-5), pytest.approx(1))
    # Every row is in one split, with its own targets.
    labels = torch.cat([split.targets["stars"] for split in splits(made)])
    found = sorted(zip(inputs[:, 0].tolist(), labels.tolist(), strict=True))
    stars = table["stars"].map({1: 0.0, 3: 1.0, 5: 2.0})
    assert [star for _, star in found] == stars.iloc[np.argsort(table["größe"].to_numpy())].tolist()


@pytest.mark.parametrize(("ones", "score"), [(40, "accuracy"), (10, "roc_auc"), (1, "accuracy")])
def test_binary_targets_are_ranked_where_one_is_rare_and_in_all_splits(tmp_path, ones, score):
    table = frame().assign(ill=[1] * ones + [0] * (ROWS - ones))
    made = load(write(tmp_path, table), targets=["ill", "sold", "price"])
    assert [task.kind.score for task in made.tasks] == [score, score, "nmse"]


def test_empty_cells_are_missing(tmp_path):
    table = frame()
    table.loc[::4, "price"] = np.nan
    table.loc[::5, "sold"] = None
    table.loc[::10, "größe"] = np.nan
    table.loc[::20, "town"] = None
    made = load(write(tmp_path, table))
    targets = {task.name: torch.cat([split.targets[task.name] for split in splits(made)]) for task in made.tasks}
    missing = {name: int(target.isnan().sum()) for name, target in targets.items()}
    assert missing == {"price": 25, "sold": 20, "stars": 0}
    inputs = torch.cat([split.inputs for split in splits(made)])
    assert inputs.isfinite().all()
    assert inputs.shape == (100, 5)
    assert (inputs[:, 1].sum().item(), inputs[:, 4].sum().item()) == (10, 5)
    assert (inputs[inputs[:, 1] == 1, 0] == 0).all()


def test_kinds_inputs_splits_and_the_network_can_be_chosen(tmp_path):
    path = write(tmp_path, frame())
    made = load(path, kinds={"stars": "regression"}, inputs=["größe"], split_seed=1, hidden=7, layers=1)
    assert made.tasks[2].kind == regression
    assert made.train.inputs.shape == (70, 1)
    assert [tuple(p.shape) for p in made.build_trunk().parameters()] == [(7, 1), (7,)]
    assert not torch.equal(made.train.inputs, load(path, inputs=["größe"]).train.inputs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"targets": ["cost"]}, "targets names 'cost', which is no column"),
        ({"targets": []}, "targets is empty"),
        ({"targets": "price"}, "targets of .* must be a list, found 'price'"),
        ({"kinds": {"town": "binary"}}, "kinds names 'town', which is not among the targets"),
        ({"kinds": {"price": "ranking"}}, "kinds has 'ranking'; a kind is one of"),
        ({"kinds": {"price": "binary"}}, "column 'price' of .* has 100 different values; binary needs two"),
        ({"kinds": {"sold": "regression"}}, "column 'sold' of .* holds texts"),
        ({"inputs": ["price"]}, "'price' is both input and target"),
        ({"inputs": []}, "no column is left as an input"),
        ({"id": "house"}, "id names 'house', which is no column"),
        ({"id": "sold"}, "id names 'sold', which is also a target"),
        ({"id": "town", "inputs": ["town", "größe"]}, "id names 'town', which is also an input"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, options, message):
    with pytest.raises(ValueError, match=message) as refused:
        load(write(tmp_path, frame()), **options)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("suffix", [".csv.gz", ".parquet"])
def test_packed_tables_give_what_the_plain_one_gives(tmp_path, suffix):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    table = frame()
    table.loc[::4, "price"] = np.nan
    table.loc[::5, "sold"] = None
    plain, packed = load(write(tmp_path, table)), load(write(tmp_path, table, suffix))
    assert (packed.name, packed.tasks) == (plain.name, plain.tasks)
    for one, other in ((plain.train, packed.train), (plain.test, packed.test)):
        assert torch.equal(one.inputs, other.inputs)
        for name, target in one.targets.items():
            assert torch.equal(target.nan_to_num(9), other.targets[name].nan_to_num(9))


@pytest.mark.parametrize(("suffix", "kind"), [(".csv.gz", "CSV"), (".parquet", "Parquet")])
def test_damaged_files_are_one_sentence(tmp_path, suffix, kind):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    path = Path(write(tmp_path, frame(), suffix))
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ValueError, match=f"cannot be read as a {kind} file") as refused:
        load(str(path))
    assert "\n" not in str(refused.value)


def test_a_parquet_file_without_pyarrow_is_refused(tmp_path, monkeypatch):
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr("excessmtl.lab.data.table.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"x\.parquet needs pyarrow; run pip install pyarrow, or save .* as a \.csv"):
        load(str(tmp_path / "x.parquet"))


def test_a_named_index_of_a_parquet_file_is_a_column(tmp_path):
    pytest.importorskip("pyarrow")
    made = load(write(tmp_path, frame().rename_axis("house"), ".parquet"), id="house")
    assert made.train.ids.tolist() == [str(row) for row in made.train.file_rows.tolist()]


@pytest.mark.parametrize("ids", [[f"house {row}" for row in range(ROWS)], [7 * row for row in range(ROWS)]])
def test_an_id_is_kept_out_of_the_inputs_by_its_name(tmp_path, ids):
    path = write(tmp_path, frame().assign(house=ids))
    with pytest.warns(UserWarning, match=r"column 'house' of .* has another value in every row; .* pass --id house"):
        wide = load(path)
    named, plain = load(path, id="house"), load(write(tmp_path, frame()))
    assert wide.train.inputs.shape[1] > plain.train.inputs.shape[1]
    assert torch.equal(named.train.inputs, plain.train.inputs)
    some = dict.fromkeys(named.train.targets, torch.arange(70) % 3 == 0)
    for part in (named.train, named.test, named.train.rows(some)):
        assert part.ids.tolist() == [str(ids[row]) for row in part.file_rows.tolist()]


def with_cells_behind_the_header(folder, cell):
    """The table with one field more in every row than its header has names."""
    path = Path(write(folder, frame()))
    header, *rows = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([header, *(f"{row},{cell}" for row in rows)]) + "\n", encoding="utf-8")
    return str(path)


def test_a_comma_at_the_end_of_every_row_changes_nothing(tmp_path):
    plain = load(write(tmp_path, frame()))
    made = load(with_cells_behind_the_header(tmp_path, ""))
    assert made.tasks == plain.tasks
    assert torch.equal(made.train.inputs, plain.train.inputs)
    for name, target in plain.train.targets.items():
        assert torch.equal(made.train.targets[name], target)


MANY = pd.concat([frame()] * 3, ignore_index=True).assign(name=[f"house {number}" for number in range(3 * ROWS)])
WRONG = {
    "cannot be read as a CSV file in UTF-8": b"a,b\n\xff\xfe,1\n" * 30,
    "has 1 rows; at least 20": b"price,sold,stars,a\n1,2,3,4\n",
    "cannot be read": b"",
    r"column 'name' of .* has 210 different texts, more than 100; if it names the rows, pass --id name": MANY,
    r"has two columns called 'price', spaces around it aside; rename one": frame().rename(columns={"größe": "price "}),
}


@pytest.mark.parametrize(("message", "content"), WRONG.items())
def test_what_is_no_table_is_refused(tmp_path, message, content):
    path = tmp_path / "x.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.to_csv(index=False).encode())
    with pytest.raises(ValueError, match=message):
        load(str(path))


def test_rows_with_a_field_more_a_table_without_targets_and_two_places_are_refused(tmp_path):
    path = with_cells_behind_the_header(tmp_path, "7")
    with pytest.raises(ValueError, match="has rows with more fields than its header has names"):
        load(path)
    with pytest.raises(ValueError, match="needs its option targets"):
        load_benchmark(path, None, 0, {})
    with pytest.raises(ValueError, match="is the data itself"):
        load_benchmark(path, "other.csv", 0, {"targets": ["a"]})


def test_of_many_columns_the_nearest_are_named(tmp_path):
    wide = pd.DataFrame(np.zeros((30, 2000)), columns=[f"column_{number}" for number in range(2000)])
    path = write(tmp_path, wide)
    with pytest.raises(
        ValueError, match=r"which is no column of .*; it has 2,000 columns, such as \['column_77',"
    ) as one:
        load(path, targets=["colum_77"])
    with pytest.raises(ValueError, match=r"it has 2,000 columns, such as \['column_0',") as other:
        load(path, targets=["price"])
    with pytest.raises(ValueError, match="no column is left as an input") as all_of_them:
        load(path, targets=list(wide.columns))
    assert max(len(str(refused.value)) for refused in (one, other, all_of_them)) < 500


def test_ids_are_as_the_file_has_them_and_texts_that_mean_nothing_elsewhere_are_classes(tmp_path):
    ids = [f"{row:05}" for row in range(ROWS)]
    words = np.random.default_rng(0).choice(["NA", "None", "leak"], ROWS)
    flags = ["NA", *np.random.default_rng(0).choice(["TRUE", "FALSE"], ROWS - 1)]
    table = frame().assign(house=[None, *ids[1:]], fault=[None, *words[1:]], flag=flags)
    made = load(write(tmp_path, table.rename(columns={"town": "self"})), id="house", targets=["fault", "flag"])
    assert [task.outputs for task in made.tasks] == [3, 1]
    for part in splits(made):
        assert part.ids.tolist() == ["" if row == 0 else ids[row] for row in part.file_rows.tolist()]
    assert sum(int(part.targets["fault"].isnan().sum()) for part in splits(made)) == 1


def test_two_columns_of_one_name_are_refused(tmp_path):
    path = Path(write(tmp_path, frame()))
    path.write_text(path.read_text(encoding="utf-8").replace("town", "price", 1), encoding="utf-8")
    with pytest.raises(ValueError, match="has two columns called 'price'"):
        load(str(path))


def test_a_cell_that_is_no_number_among_numbers_is_named(tmp_path):
    path = write(tmp_path, frame().assign(price=["?", *map(str, range(1, ROWS))]))
    with pytest.raises(ValueError, match=r"column 'price' of .* holds 99 numbers, and '\?' in row 0 .the first is 0."):
        load(path, kinds={"price": "regression"})
    with pytest.warns(UserWarning, match="so that all are taken for texts; empty the cell, or repair it"):
        load(path)
