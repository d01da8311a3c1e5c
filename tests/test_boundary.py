"""The boundary: what code may open a sealed value, and a canary record that must appear nowhere."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import dp_dask

PACKAGE = Path(__file__).parent.parent / "dp_dask"
OPENS_SEALED_VALUES = {
    "private/reduce.py",
    "private/looking.py",
    "gate/additive.py",
    "gate/sparse_vector.py",
    "gate/select.py",
    "gate/selecting.py",
    "gate/records.py",
}
CANARY = 7731.40625  # a record, exact in float64


def python_files():
    return {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}


def test_reveal_is_called_in_the_listed_files_only():
    callers = {name for name, text in python_files().items() if re.search(r"\breveal\(", text) and name != "core/sensitive.py"}
    assert callers == OPENS_SEALED_VALUES


def test_nobody_reaches_into_a_sealed_value():
    users = {name for name, text in python_files().items() if re.search(r"\._value\b", text)}
    assert users == {"core/sensitive.py"}


def test_privacy_noise_is_opendps_alone_and_in_one_file():
    assert {name for name, text in python_files().items() if "opendp.prelude" in text} == {"gate/noise.py"}
    for name, text in python_files().items():
        if name.startswith(("gate/", "private/", "core/statistic", "core/grid")):
            assert "random" not in text.replace("randomness", ""), name


def test_nothing_beside_the_data_logs_prints_or_writes():
    for name, text in python_files().items():
        if name.startswith("private/"):
            assert not re.search(r"\b(logging|print\(|warnings|\.write|open\([^)]*[\"']w)", text), name


FILE = """
dataset: {{name: canary, source: {{kind: {kind}, path: data{options}}}, unit: record}}
privacy: {{neighbours: {neighbours}}}
measurements:
  m: {{model: exponential, column: x, bounds: [0, 9000], epsilon: 0.5, prior: {{alpha: 1, beta: 1}}}}
ledger: sqlite:///ledger.db
output: out
{cluster}
"""


def planted(
    folder: Path, kind: str = "parquet", neighbours: str = "replace, n: 4", cluster: str = "", *, good: bool = True
) -> Path:
    data = folder / "data"
    data.mkdir()
    values = [20.0, CANARY, 15.0, 25.0]
    if kind == "parquet":
        pq.write_table(pa.table({"x": values if good else [f"{v}" for v in values]}), data / "part.parquet")
    else:
        (data / "part.csv").write_text("x\n" + "\n".join(map(str, values)) + ('\n"open' if not good else "\n"))
    options = ", columns: {x: number}" if kind == "csv" else ""
    file = folder / "p.yaml"
    file.write_text(FILE.format(kind=kind, options=options, neighbours=neighbours, cluster=cluster))
    return file


def everything_shown(folder, *results):
    texts = [result.stdout + result.stderr for result in results]
    for path in folder.rglob("*"):
        if path.is_file() and "data" not in path.relative_to(folder).parts:
            texts.append(path.name)
            texts.append(path.read_bytes().decode("latin-1"))
    return "\n".join(texts)


# The canary and its total as they may be written. Digits before or beside them make another number: a picture is full of digits.
FORMS = re.compile(
    r"(?<![\d.])(7,?731[.,]4|7[.,]7314\d*e\+?0*3|773140|7791[.,]4|7[.,]7914\d*e\+?0*3)|" + re.escape(CANARY.hex()[:8]),
    re.IGNORECASE,
)


def assert_no_canary(text):
    found = FORMS.search(text)
    assert not found, text[max(found.start() - 60, 0) : found.end() + 60]


def test_the_canary_is_seen_however_it_is_written():
    for form in (
        "x=7731.4",
        "7,731.40625",
        "7.731406e+03",
        "7.7314E3",
        "7731406250",
        CANARY.hex(),
        "(7791.41,",
        str(CANARY),
        f"{CANARY:e}",
    ):
        with pytest.raises(AssertionError):
            assert_no_canary(f"an error: {form} was given")
    assert_no_canary("L 357.731462 153.19976, 17731.4, 7.7314, 3.7731.4")


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("cluster", ["", "cluster: {kind: local, processes: true, workers: 1}"])
def test_a_record_appears_nowhere_after_a_run(tmp_path, kind, cluster):
    planted(tmp_path, kind, cluster=cluster)
    results = [
        dp_dask(tmp_path, "ledger", "init", "p.yaml", "--epsilon", "1"),
        dp_dask(tmp_path, "check", "p.yaml"),
        dp_dask(tmp_path, "run", "p.yaml", "--json"),
    ]
    assert [result.returncode for result in results] == [0, 0, 0], [result.stderr for result in results]
    assert_no_canary(everything_shown(tmp_path, *results))


@pytest.mark.parametrize(
    ("kind", "neighbours", "code"),
    [("parquet", "replace, n: 4", 4), ("csv", "replace, n: 4", 4), ("parquet", "replace, n: 5", 4)],
)
def test_a_record_appears_nowhere_after_a_failure(tmp_path, kind, neighbours, code):
    """A text column, an open quote, a wrong n."""
    planted(tmp_path, kind, neighbours, good=neighbours.endswith("5"))
    results = [dp_dask(tmp_path, "ledger", "init", "p.yaml", "--epsilon", "1"), dp_dask(tmp_path, "run", "p.yaml")]
    assert results[1].returncode == code, results[1].stderr
    shown = everything_shown(tmp_path, *results)
    assert_no_canary(shown)
    assert "Traceback" not in shown
    spent = dp_dask(tmp_path, "ledger", "show", "p.yaml", "--json").stdout
    assert '"spent": "0"' in spent
