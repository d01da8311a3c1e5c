"""Every file under pipelines/papers end to end, with few and small simulations."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import yaml
from commands import dp_dask

ROOT = Path(__file__).parent.parent.parent
FILES = sorted((ROOT / "pipelines" / "papers").glob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_a_paper_s_comparison_runs(tmp_path, file):
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    content |= {"n": content["n"][:1], "epsilon": content["epsilon"][-1:], "draws": 15, "output": "out"}
    (tmp_path / file.name).write_text(yaml.safe_dump(content))
    done = dp_dask(tmp_path, "experiment", file.name, "--replicates", "20")
    assert done.returncode == 0, done.stderr
    with (tmp_path / "out" / "calibration.csv").open() as lines:
        tested = list(csv.DictReader(lines))
    assert {row["model"] for row in tested} == set(content["models"])
    assert all(float(row["p_value"]) > 1e-6 for row in tested if row["method"] in ("exact", "non_private"))


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_a_paper_s_file_is_valid_as_it_ships(file):
    from dp_dask.experiment import load

    plan = load(file)
    assert {model for model, _, _ in plan.trials} == set(yaml.safe_load(file.read_text(encoding="utf-8"))["models"])
