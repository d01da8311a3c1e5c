"""Databases: what holds for every kind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from private.asked import fails_quietly
from private.test_sql import keys

from dp_dask.core import plugins
from dp_dask.private.databases import OfDatabase

SOURCES = "dp_dask.private.sources"
GIVEN: dict[str, dict[str, Any]] = {
    "postgresql": {},
    "sqlite": {"path": Path("a.db")},
    "duckdb": {"path": Path("a.duckdb")},
    "adbc": {"driver": "adbc_driver_sqlite"},
    "odbc": {"connection": "Driver=x", "columns": {"x": "float64"}},
}
LIBRARIES = {
    "postgresql": ("adbc_driver_postgresql.dbapi", "sql"),
    "sqlite": ("adbc_driver_sqlite.dbapi", "sql"),
    "duckdb": ("duckdb", "duckdb"),
    "adbc": ("adbc_driver_manager.dbapi", "sql"),
    "odbc": ("arrow_odbc", "odbc"),
}


def make(kind: str, **given: Any) -> OfDatabase:
    source: OfDatabase = plugins.load(SOURCES, kind)(**GIVEN[kind], **given)
    return source


@pytest.mark.parametrize("kind", GIVEN)
def test_a_library_that_is_missing_is_refused_with_the_extra_to_install(kind: str, monkeypatch: pytest.MonkeyPatch):
    module, extra = LIBRARIES[kind]
    monkeypatch.setitem(sys.modules, module, None)
    said = fails_quietly(lambda: make(kind, table="t").check(["x"]))
    assert said.endswith(f"is not installed; pip install 'dp-dask[{extra}]', here and on the workers")


def test_no_library_is_imported_before_it_is_used():
    names = [module.partition(".")[0] for module, _ in LIBRARIES.values()]
    code = f"import sys, dp_dask.schema; dp_dask.schema.schema(); print([name for name in {names} if name in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("kind", GIVEN)
@pytest.mark.parametrize("given", [{}, {"table": "t", "query": "SELECT 1 AS x"}, {"query": "DROP TABLE t"}, {"table": "a\0b"}])
def test_what_is_asked_must_be_a_table_or_a_single_select(kind: str, given: dict[str, str]):
    with pytest.raises(ValueError, match=r"table|query"):
        make(kind, **given)


@pytest.mark.parametrize("kind", ["postgresql", "adbc", "odbc"])
def test_a_query_that_may_give_other_rows_each_time_is_not_cut_by_a_key(kind: str):
    make(kind, query="SELECT k FROM t LIMIT 10")
    with pytest.raises(ValueError, match="leave key out"):
        make(kind, query="SELECT k FROM t LIMIT 10", key=keys(0, 9, 2))


@pytest.mark.parametrize("kind", GIVEN)
def test_rows_have_no_place_and_only_files_tell_their_state(kind: str):
    source = make(kind, table="t")
    assert source.keeps_places is False
    assert source.snapshot == ""
    assert source.has_state is (kind in {"sqlite", "duckdb"})
    assert source.has_state or source.version() == ""
