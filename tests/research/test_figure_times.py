"""The file of times is completed, and what was measured stays."""

from excessmtl.lab.paper import plans
from research import figure_times


def test_only_what_is_missing_is_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("EXCESSMTL_DATA", str(tmp_path))
    lines = plans.TIMES.read_text(encoding="utf-8").splitlines()
    missing = ["quick,multimnist,MGDA", "quick,conceptual,"]
    kept = [line for line in lines if not line.startswith(tuple(missing))]
    (tmp_path / "times.csv").write_text("\n".join(kept) + "\n")
    monkeypatch.setattr(plans, "TIMES", tmp_path / "times.csv")
    for name in ("seconds_of", "seconds_of_run"):
        monkeypatch.setattr(figure_times, name, lambda subject: len(subject.name))
    figure_times.main()
    written = (tmp_path / "times.csv").read_text().splitlines()
    assert written == [*kept, "quick,multimnist,MGDA,4", "quick,conceptual,,10"]
