"""Benchmarks whose labels are of human origin: who labels what, and what is left out."""

import sqlite3
from contextlib import closing

import numpy as np
import pytest
import torch

from excessmtl.lab.data import lidc, tox21, vader
from excessmtl.lab.data.hashing import hashed_counts, substrings, words
from excessmtl.lab.data.lidc import SHAPE_FEATURES, shape_of
from excessmtl.lab.data.tasks import labelled
from tiny_data import splits, write_lidc, write_tox21, write_vader


def test_texts_are_trained_on_one_rater_and_tested_on_all(tmp_path):
    path = write_vader(tmp_path)
    bench = vader.load(path, 0)
    assert [task.name for task in bench.tasks] == ["films", "products", "tweets", "news"]
    lengths = [sum(split.length(task) for split in splits(bench)) for task in vader.FILES]
    assert lengths == [40, 40, 39, 40], "the tweet whose mean is wrong is left out"
    for task in vader.FILES:
        assert bench.train.targets[task].equal(bench.train.targets[task].round()), "a single score"
        assert not bench.test.targets[task].equal(bench.test.targets[task].round()), "a mean of three"
    other = vader.load(path, 1)
    assert torch.equal(bench.train.inputs["news"], other.train.inputs["news"])
    assert not torch.equal(bench.train.targets["news"], other.train.targets["news"]), "another rater for another seed"


def test_nodules_are_tested_on_the_other_readers(tmp_path):
    path = write_lidc(tmp_path)
    bench = lidc.load(path, 0)
    assert bench.source == "LIDC-IDRI, 160 readings of 80 nodules, one reader each"
    # 24, 6 and 10 scans; only one of the two nodules of a scan has other readers.
    assert [len(split.inputs) for split in splits(bench)] == [48, 12, 10]
    assert not torch.equal(bench.train.targets["margin"], lidc.load(path, 1).train.targets["margin"])


def test_no_nodule_is_tested_on_the_reader_whose_outline_it_is(tmp_path):
    path = write_lidc(tmp_path)
    with closing(sqlite3.connect(path)) as base:
        # Of the three readers of a nodule, one rates 1 and outlines one slice, one 10 and two, one 100 and three.
        base.execute("UPDATE annotations SET malignancy = CASE (id - 1) % 4 WHEN 0 THEN 1 WHEN 1 THEN 10 ELSE 100 END")
        base.execute("DELETE FROM contours WHERE image_z_position > 2 * ((annotation_id - 1) % 4)")
        base.commit()
    bench = lidc.load(path, 0)
    slices = bench.test.inputs[:, SHAPE_FEATURES.index("slices")]
    labels = bench.test.targets["malignancy"].double().flatten()
    by_slices = [labels[slices == count].unique() for count in slices.unique()]
    assert [len(own) for own in by_slices] == [1, 1, 1], "the outline says who is left out"
    one, two, three = (own.item() for own in by_slices)
    # The others' means are 55, 50.5 and 5.5, whatever their scale; with all readers each would be 37.
    assert (one - two) / (two - three) == pytest.approx(4.5 / 45, rel=1e-4)


def test_the_shape_of_a_cylinder():
    circle = "\n".join(f"{100 + 40 * np.cos(a)},{50 + 40 * np.sin(a)}" for a in np.linspace(0, 2 * np.pi, 400))
    centre, radius, values = shape_of([(float(z), True, circle) for z in (0, 2, 4)], 0.5, 2.0, True)
    features = dict(zip(SHAPE_FEATURES, values, strict=True))
    assert centre == pytest.approx([50, 25, 2], abs=0.2)
    assert radius == pytest.approx(20, abs=0.1)
    assert np.exp(features["volume"]) == pytest.approx(np.pi * 20**2 * 6, rel=0.01)
    assert features["compactness"] == pytest.approx(1, abs=0.01)
    assert features["radius_spread"] < 0.01
    assert features["exclusions"] == 0


def test_assays_keep_their_gaps(tmp_path):
    bench = tox21.load(write_tox21(tmp_path))
    assert [task.name for task in bench.tasks] == ["NR-AR", "NR-ER", "SR-p53"]
    assert bench.noisy_tasks == ("NR-AR", "NR-ER")
    assert all(labelled(target) is not None for target in bench.train.targets.values())
    assert bench.tasks[0].kind.score == "roc_auc"
    with pytest.raises(ValueError, match="features must be substrings or rdkit, found 'x'"):
        tox21.load(tmp_path, features="x")


def test_words_and_substrings_are_counted_in_columns():
    assert words("Don't GO, go! :)") == ["don't", "go", "go", "!", ":)", "don't go", "go go", "go !", "! :)"]
    assert substrings("abc", 2) == ["a", "b", "c", "ab", "bc"]
    counts = hashed_counts([["a", "a", "b"], []], 64)
    assert counts.sum(1).tolist() == [3, 0]
    assert counts.max() == 2
