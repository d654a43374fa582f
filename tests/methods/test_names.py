"""Methods by the names that people know from papers, LibMTL and TorchJD."""

import json

import pytest
from torch import nn

import excessmtl
from commands import done, refused
from commands import excessmtl as command
from excessmtl.methods.names import LIBMTL, TORCHJD, our_name

METHODS = excessmtl.list_methods()
NO_METHODS = {"Aggregator", "GramianWeightedAggregator", "WeightedAggregator", "Weighting", "Scalarizer"}
"""Base classes of TorchJD."""
NOT_OURS = {"CRMOGM"}
"""Methods of TorchJD that we do not have."""


def made(name, **options):
    return excessmtl.create(name, tasks=["a", "b"], shared=nn.Linear(2, 2), **options).rule.name


@pytest.mark.parametrize(
    ("name", "ours"),
    [("grad-norm", "gradnorm"), ("IMTL-G", "imtl"), ("AlignedMTLWeighting", "aligned_mtl"), ("ExcessMTL", "excess")],
)
def test_a_known_name_makes_our_method(name, ours):
    assert made(name) == ours


def test_every_name_of_ours_means_itself_however_it_is_written():
    for name in METHODS:
        for written in (name, name.upper(), name.replace("_", "-"), name.replace("_", "")):
            assert our_name(written, METHODS) == name


def test_every_name_of_libmtl_and_torchjd_means_the_method_in_the_table_but_imtl():
    for theirs, ours in [*LIBMTL.items(), *TORCHJD.items()]:
        assert ours in METHODS
        assert our_name(theirs, METHODS) == ("imtl" if theirs == "IMTL" else ours)


@pytest.mark.parametrize(("name", "nearest"), [("pcgard", "pcgrad"), ("exces", "excess"), ("Nash_MLT", "nash")])
def test_a_misspelled_name_is_answered_with_the_nearest(name, nearest):
    with pytest.raises(ValueError, match=f"unknown method '{name}', the nearest is '{nearest}'; the methods are"):
        made(name)


def test_the_command_line_and_studies_record_our_name(tmp_path):
    settings = ["--epochs", "1", "--limit-batches", "1", "--batch-size", "8", "--device", "cpu"]
    words = ["train", "simulated-arm", "--method", "EW", *settings, "--out", str(tmp_path / "run")]
    done(*words)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["method"], summary["label"]) == ("uniform", "uniform")
    study = tmp_path / "study.yaml"
    study.write_text("benchmarks: [simulated-arm]\nmethods: [EW, Grad-Norm, Single]\n")
    shown = done("sweep", study, "--dry-run", "--out", tmp_path / "out")
    assert all(name in shown for name in ("uniform", "gradnorm", "single"))
    study.write_text("benchmarks: [simulated-arm]\nmethods: [EW, uniform]\n")
    refused(command("sweep", study, "--dry-run"), "uniform")
    refused(command(*words[:3], "pcgard", *settings, "--out", tmp_path / "wrong"), "the nearest is 'pcgrad'")
    assert not (tmp_path / "wrong").exists()


def test_the_list_of_methods_says_what_libmtl_calls_by_the_same_name():
    shown = done("methods", "IMTL")
    assert shown.startswith("imtl: ")
    assert "LibMTL's IMTL is imtl_hybrid here" in shown
    assert done("methods", "EW").startswith("uniform: ")


def test_every_method_of_the_installed_torchjd_is_known():
    aggregation, scalarization = (pytest.importorskip(f"torchjd.{part}") for part in ("aggregation", "scalarization"))
    theirs = {name.removesuffix("Weighting") or name for part in (aggregation, scalarization) for name in part.__all__}
    assert theirs - NO_METHODS - NOT_OURS == set(TORCHJD)
