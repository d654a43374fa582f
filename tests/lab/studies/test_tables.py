"""Tables of a study beside its runs: of its own runs alone, and a regret only where there is one."""

from excessmtl.lab.studies.study import expand
from excessmtl.lab.studies.tables import write_tables
from report_data import finish


def finished(study, out, score=0.5):
    finish(study.runs, out, lambda config: {"scores": {"clean": score}})


def study(**change):
    return expand({"benchmarks": ["school"], "methods": ["excess", "uniform"], "seeds": 2, **change}, "s")


def test_runs_of_another_study_in_the_same_folder_do_not_count(tmp_path):
    mine, other = study(), study(settings={"epochs": 3})
    finished(mine, tmp_path, 0.5)
    finished(other, tmp_path, 0.9)
    (scores, *_) = write_tables(mine, tmp_path).tables
    assert [row[2] for row in scores.texts] == ["50.0 ± 0.0", "50.0 ± 0.0"]
    assert scores.columns == ["method", "noise", "overall, % ↑"]  # no noise was added
    assert "| rank ↓ | ms/step ↓ | seeds |" in (tmp_path / "scores.md").read_text()
    assert (tmp_path / "regret.csv").exists()


def test_no_regret_without_a_rival_or_without_pairs(tmp_path):
    alone, apart = study(methods=["excess", "single"]), study(seeds=[0])
    finished(alone, tmp_path / "alone")
    finished(study(methods=["excess"], seeds=[0]), tmp_path / "apart")
    finished(study(methods=["uniform"], seeds=[1]), tmp_path / "apart")
    unpaired = expand({"benchmarks": ["school"], "methods": ["excess", "uniform"], "seeds": [0, 1]}, "s")
    for chosen, out in ((alone, "alone"), (apart, "apart"), (unpaired, "apart")):
        write_tables(chosen, tmp_path / out)
        assert not (tmp_path / out / "regret.csv").exists()
        assert (tmp_path / out / "scores.md").exists()
