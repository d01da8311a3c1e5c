"""Where, from the pipeline file to the release: what is read, what is refused, and that only those records are in it."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import dp_dask

from dp_dask.config import load
from dp_dask.core.where import Between, Known, OneOf
from dp_dask.errors import ConfigError

FILE = """
dataset:
  name: people
  source: {{kind: parquet, path: data}}
  unit: record
  where: {where}
  version: "1"
privacy: {{neighbours: {neighbours}}}
measurements:
  ill: {{model: bernoulli, column: ill, epsilon: 1000, prior: {{alpha: 1, beta: 1}}}}
  who: {{model: categorical, column: site, categories: [n, s], epsilon: 1000, prior: {{alpha: [1, 1]}}}}
ledger: sqlite:///ledger.db
output: out
"""


def write(folder, where, neighbours="add_remove, expected_records: 10"):
    file = folder / "p.yaml"
    file.write_text(FILE.format(where=where, neighbours=neighbours))
    return file


def test_conditions_are_read_as_they_are_written(tmp_path):
    text = "{a: x, b: [1, 2.5], c: {from: 1}, d: {from: 2026-01-01, to: 2026-01-31}, e: {is: known}, f: true, g: [x, '1']}"
    where = load(write(tmp_path, text)).source.where
    assert where.conditions == (
        OneOf("a", ("x",)),
        OneOf("b", (1.0, 2.5)),
        Between("c", 1.0, None),
        Between("d", 20454.0, 20484.0, is_date=True),
        Known("e"),
        OneOf("f", (1.0,)),
        OneOf("g", ("x", "1")),
    )
    assert (where.texts, where.dates) == ({"a", "g"}, {"d"})
    assert str(where) == (
        "a is x, b is 1 or 2.5, c is from 1, d is from 2026-01-01 to 2026-01-31, e is known, f is 1, g is x or 1"
    )


@pytest.mark.parametrize(
    ("where", "told"),
    [
        (
            "{}",
            "dataset.where: is {}; give a mapping from columns to conditions, each a value, a list of values, {from: .., to: ..}",
        ),
        ("north", "dataset.where: is 'north'; give a mapping"),
        ("{a: [x, 1]}", "dataset.where.a: is ['x', Decimal('1')]; give a value, a list"),
        ("{a: []}", "dataset.where.a: is []; give a value"),
        ("{a: ~}", "dataset.where.a: is empty; give a value"),
        ("{a: [x, x]}", "dataset.where.a: lists an entry twice"),
        ("{a: {from: 2, to: 1}}", "from must not be beyond to"),
        ("{a: {from: 2026-01-01, to: 3}}", "give from, to, or both, as two numbers or two dates"),
        ("{a: {}}", "dataset.where.a: is {}; give from, to, or both"),
        ("{a: {from: 2026-13-01}}", "dataset.where.a.from: is '2026-13-01'; give a number, or a date as 2026-01-31"),
        ("{a: {form: 1}}", "dataset.where.a.form: unknown key; did you mean 'from'?"),
        ("{a: {is: there}}", "dataset.where.a.is: is 'there'; write known, for records that hold a value"),
        ("{ill: yes}", "dataset.where: ill would be read as numbers and as texts; a column is one of them"),
        ("{site: 1}", "dataset.where: site would be read as numbers and as texts"),
        ("{ill: {from: 2026-01-01}}", "dataset.where: ill would be read as numbers and as dates"),
    ],
)
def test_what_is_no_condition_is_refused_by_name(tmp_path, where, told):
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, where))
    assert told in str(caught.value)


def test_a_public_number_of_records_does_not_go_with_a_condition(tmp_path):
    with pytest.raises(
        ConfigError, match=r"dataset\.where: does not go with neighbours: replace; which records meet a condition"
    ):
        load(write(tmp_path, "{site: n}", "replace, n: 10"))


def test_only_the_records_that_meet_it_are_in_the_release(tmp_path):
    """At epsilon 1000 the noise is 0 but for one draw in 1e200."""
    (tmp_path / "data").mkdir()
    columns = {
        "ill": [0, 1, 1, None, 0, 0],
        "site": ["n", "n", "s", "n", None, "n"],
        "year": [2020, 2021, 2021, 2021, 2021, None],
    }
    pq.write_table(pa.table(columns), tmp_path / "data" / "a.parquet")
    write(tmp_path, "{year: {from: 2021}, site: [n, s], ill: {is: known}}")
    dp_dask(tmp_path, "ledger", "init", "p.yaml", "--epsilon", "4000")
    done = dp_dask(tmp_path, "run", "p.yaml")
    assert done.returncode == 0, done.stderr
    made = json.loads(next((tmp_path / "out").rglob("release.json")).read_text())["measurements"]
    assert made["who"]["release"]["noisy_sums"] == [1, 1]
    ill = made["ill"]["release"]
    assert ill["noisy_count"] == 2 * ill["request"]["statistic"]["count_weight"]  # the null is not counted
    assert ill["noisy_sums"] == [2]  # on a grid where 0 is -1 and 1 is 1
    page = next((tmp_path / "out").rglob("report.html")).read_text()
    assert "where year is from 2021, site is n or s, ill is known; no others are counted" in page
    other = write(tmp_path, "{year: {from: 2020}, site: [n, s], ill: {is: known}}")
    assert dp_dask(tmp_path, "run", other.name).returncode == 0
    spent = json.loads(dp_dask(tmp_path, "ledger", "show", "p.yaml", "--json").stdout)
    assert "4000" in json.dumps(spent)
    refused = write(tmp_path, "{year: {from: 2019}, site: [n, s], ill: {is: known}}")
    assert dp_dask(tmp_path, "run", refused.name).returncode == 3  # another condition is another question


def test_a_condition_on_a_column_that_is_not_there_is_told_before_a_charge(tmp_path):
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"ill": [1], "site": ["n"]}), tmp_path / "data" / "a.parquet")
    write(tmp_path, "{years: {from: 2021}}")
    dp_dask(tmp_path, "ledger", "init", "p.yaml", "--epsilon", "4000")
    for command in ("check", "run"):
        done = dp_dask(tmp_path, command, "p.yaml")
        assert done.returncode == 4
        assert "no column 'years'" in done.stderr
