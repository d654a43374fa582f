"""A benchmark that holds nothing out for validation."""

import csv

from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.training.loop import train
from tiny_data import write_nyuv2


def test_nyuv2_on_all_of_its_scenes(tmp_path):
    data = write_nyuv2(tmp_path, train=4, test=2)
    options = {"validation": 0, "levels": 2}
    config = RunConfig("nyuv2", "excess", epochs=1, data=str(data), benchmark_options=options, device="cpu")
    summary = train(config, tmp_path / "run")
    assert set(summary["scores"]) == {"segmentation", "depth", "normals"}
    assert summary["overall_score"] is None
    (row,) = csv.DictReader((tmp_path / "run" / "metrics.csv").read_text().splitlines())
    assert not [name for name in row if name.startswith("validation/")]
    assert float(row["test/depth/rel_error"]) > 0
