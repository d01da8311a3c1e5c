"""Delta Lake and Iceberg through the command line: what is charged, what the release names, and who has no influence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from commands import dp_dask
from deltalake import write_deltalake
from private.lakes import add, catalog, column, delete, head, iceberg, inline, log, remove

FILE = """
dataset: {{name: people, source: {source}, unit: record{where}}}
privacy: {{neighbours: add_remove, expected_records: 10}}
measurements:
  ill: {{model: bernoulli, column: ill, epsilon: 1000, prior: {{alpha: 1, beta: 1}}}}
ledger: sqlite:///ledger.db
output: {output}
"""
ILL, WELL = pa.table({"ill": [1, 1, 1, 1], "site": ["n", "n", "s", "s"]}), pa.table({"ill": [0] * 4, "site": ["n"] * 4})


def run(folder: Path, source: str, output: str, where: str = "") -> tuple[dict[str, Any], int, int, int]:
    """Run and return the release, its number of records and of the ill, and what is spent on the data set so far.

    At epsilon 1000 the noise is 0 but for one draw in 1e200.
    """
    (folder / "p.yaml").write_text(FILE.format(source=source, output=output, where=where))
    assert dp_dask(folder, "ledger", "init", "p.yaml", "--epsilon", "5000").returncode == 0  # a repeat changes nothing
    done = dp_dask(folder, "run", "p.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    [path] = (folder / output).rglob("release.json")
    release = json.loads(path.read_text())["measurements"]["ill"]["release"]
    n = release["noisy_count"] // release["request"]["statistic"]["count_weight"]
    shown = json.loads(dp_dask(folder, "ledger", "show", "p.yaml", "--json").stdout)["people"]
    return release, n, (release["noisy_sums"][0] + n) // 2, int(float(shown["spent"]))  # on a grid where 0 is -1 and 1 is 1


def delta_table(folder: Path) -> tuple[str, Callable[[], None], Callable[[], str]]:
    """A source, what adds a version in which the ill are deleted, and the name of the newest version."""
    root, versions = folder / "table", [0]
    added = [add(root, "a.parquet", ILL), add(root, "b.parquet", WELL)]
    fields = [column("ill", "long"), column("site", "string")]
    log(root, 0, [*head(fields, features=["deletionVectors"]), *added])

    def lose() -> None:
        log(root, 1, [remove(added[0]), add(root, "a.parquet", ILL, vector=inline(range(4)))])
        versions.append(1)

    return "{kind: delta, path: table}", lose, lambda: f"delta version {versions[-1]}"


def iceberg_table(folder: Path) -> tuple[str, Callable[[], None], Callable[[], str]]:
    table = iceberg(folder, ILL.schema)
    table.append(ILL)
    [task] = table.scan().plan_files()
    table.append(WELL)
    properties = ", ".join(f'{key}: "{value}"' for key, value in catalog(folder).items())

    def lose() -> None:
        delete(table, {task.file.file_path: [0, 1, 2, 3]})

    source = f"{{kind: iceberg, catalog: {{{properties}}}, table: ns.people}}"
    return source, lose, lambda: f"iceberg snapshot {table.current_snapshot().snapshot_id}"


@pytest.mark.parametrize("table", [delta_table, iceberg_table])
def test_a_version_is_charged_once_and_a_new_one_anew_without_those_who_were_deleted(tmp_path: Path, table: Any):
    source, lose, name = table(tmp_path)
    first, n, ill, spent = run(tmp_path, source, "one")
    assert (first["snapshot"], n, ill, spent) == (name(), 8, 4, 1000)
    again, *_, spent = run(tmp_path, source, "two")
    assert (again["id"], spent) == (first["id"], 1000)
    lose()
    later, n, ill, spent = run(tmp_path, source, "three")
    assert (later["snapshot"], n, ill, spent) == (name(), 4, 0, 2000)
    assert later["snapshot"] != first["snapshot"]
    some, n, ill, spent = run(tmp_path, source, "four", ", where: {site: n}")
    assert (some["snapshot"], n, ill, spent) == (name(), 4, 0, 3000)
    _, value = first["snapshot"].rsplit(" ", 1)
    key = "version" if table is delta_table else "snapshot"
    old, n, ill, spent = run(tmp_path, f"{source[:-1]}, {key}: {value}}}", "five")
    assert (old["id"], n, ill, spent) == (first["id"], 8, 4, 3000)  # the same data by its number


@pytest.mark.parametrize(
    ("source", "code", "told"),
    [
        ("{kind: delta, path: nowhere}", 4, "nowhere: no Delta table; give the folder that holds _delta_log"),
        ("{kind: delta, path: table, version: 7}", 4, "version 7 of this Delta table cannot be read"),
        ("{kind: delta, path: table, version: -1}", 2, "version is -1; give a version of the table, 0 or more"),
        ("{kind: delta, path: table, at: 1}", 2, "dataset.source.at: unknown key; did you mean 'path'?"),
        ("{kind: iceberg, catalog: {type: sql}, table: ns.people, snapshot: x}", 2, "dataset.source.snapshot: is 'x'"),
        ("{kind: iceberg, catalog: {type: sql, token: CANARY}, table: ns.people}", 2, "'token' looks like a secret"),
        ("{kind: iceberg, catalog: {type: sql}, table: ns.people}", 4, "ns.people: the catalog cannot be opened or read"),
    ],
)
def test_what_is_not_there_is_refused_with_its_exit_code(tmp_path: Path, source: str, code: int, told: str):
    write_deltalake(tmp_path / "table", ILL)
    (tmp_path / "p.yaml").write_text(FILE.format(source=source, output="out", where=""))
    done = dp_dask(tmp_path, "check", "p.yaml")
    assert (done.returncode, told in done.stderr, "CANARY" in done.stderr) == (code, True, False), done.stderr
