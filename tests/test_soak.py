from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

SOAK = Path(__file__).parent.parent / "benchmarks" / "soak.py"
LINES = {"memory": "memory, kB a run", "handles": "file handles", "threads": "threads", "ledger": "ledger, last fifth to first"}
FEW = 25  # runs that show a leak; what caches still take by then is less than half of a bound, but for memory


def soaked(folder: Path, *options: str) -> tuple[int, dict[str, tuple[float, float]], str]:
    """Soak; give the exit status, what grew with its bound, and all that was printed."""
    ran = subprocess.run(
        [sys.executable, str(SOAK), *options], cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )
    return ran.returncode, grown(ran.stdout), ran.stdout + ran.stderr


def grown(printed: str) -> dict[str, tuple[float, float]]:
    found = {line: re.search(rf"^{line}: (\S+) \(at most (\S+)\)$", printed, re.MULTILINE) for line in LINES.values()}
    return {line: (float(match[1]), float(match[2])) for line, match in found.items() if match}


def test_five_hundred_scheduled_runs_leave_nothing_behind(tmp_path: Path):
    status, found, printed = soaked(tmp_path)
    assert re.search(r"^ *500 ", printed, re.MULTILINE), printed
    assert len(found) == len(LINES), printed
    assert status == 0, printed


@pytest.mark.parametrize("leak", ["handles", "threads"])
def test_what_each_run_keeps_is_seen(tmp_path: Path, leak: str):
    status, found, printed = soaked(tmp_path, "--runs", str(FEW), "--leak", leak)
    assert status == 1, printed
    value, bound = found[LINES[leak]]
    assert value > 2 * bound, printed
    others = {"handles", "threads"} - {leak}
    assert all(found[LINES[each]][0] < bound for each in others), printed


@pytest.mark.parametrize("column", [None, 0, 1, 2, 3])
def test_growth_of_each_figure_fails(column: int | None, capsys: pytest.CaptureFixture[str]):
    spec = spec_from_file_location("soak", SOAK)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["soak"] = module  # its dataclasses look there
    spec.loader.exec_module(module)
    rows = np.array([[270_000.0, 13, 6, 0.002, 0.03]] * 500) * np.random.default_rng(1).uniform(0.9999, 1.0001, (500, 5))
    if column is not None:
        rows[:, column] += np.linspace(0, (30_000, 8, 8, 0.01)[column], 500)
    with pytest.raises(SystemExit) as ended:
        module.told(rows)
    assert ended.value.code == (column is not None)
    above = [line for line, (value, bound) in grown(capsys.readouterr().out).items() if value > bound]
    assert above == ([] if column is None else [list(LINES.values())[column]])
