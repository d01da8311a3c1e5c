"""A cluster by its kind or its name: where names come from, which of them wins, and every fault by its place."""

from __future__ import annotations

import dask
import pytest
from commands import dp_dask

from dp_dask.clusters.address import plugin as Address  # noqa: N812
from dp_dask.clusters.local import plugin as Local  # noqa: N812
from dp_dask.clusters.scheduler_file import plugin as SchedulerFile  # noqa: N812
from dp_dask.config import load
from dp_dask.entries.build import Faults
from dp_dask.entries.cluster import make_cluster
from dp_dask.errors import ConfigError

FILE = """
dataset: {name: people, source: {kind: parquet, path: data}, unit: record}
privacy: {neighbours: replace, n: 4}
measurements:
  m: {model: bernoulli, column: x, epsilon: 1, prior: {alpha: 1, beta: 1}}
ledger: sqlite:///ledger.db
cluster: night
"""


def make(folder, given):
    faults = Faults(folder)
    made = make_cluster(given, faults)
    return made, "\n".join(map(str, faults.problems))


def test_a_kind_and_a_mapping_make_a_cluster(tmp_path):
    assert make(tmp_path, "local") == (Local(), "")
    assert make(tmp_path, {"kind": "local", "workers": 2}) == (Local(workers=2), "")
    for kind in ("scheduler-file", "scheduler_file"):
        assert make(tmp_path, {"kind": kind, "path": "s.json"}) == (SchedulerFile(path=tmp_path / "s.json"), "")


def test_names_come_from_beside_the_file_and_from_dask_s_configuration(tmp_path):
    with dask.config.set({"dp-dask.clusters": {"night": {"kind": "local", "workers": 3}, "day": {"kind": "local"}}}):
        assert make(tmp_path, "night") == (Local(workers=3), "")
        (tmp_path / "clusters.yaml").write_text('night: {kind: address, address: "tls://a:1", tls: {ca: a, cert: b, key: c}}\n')
        made, told = make(tmp_path, "night")
        assert told == ""
        assert isinstance(made, Address)
        assert made.tls.key == tmp_path / "c"
        assert make(tmp_path, "day") == (Local(), "")
        assert "is 'nigth'; give a kind, " in make(tmp_path, "nigth")[1]
        assert "; named here: night, day" in make(tmp_path, "nigth")[1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("night: {kind: address}", "cluster night.address: is missing"),
        ("night: {kind: adress}", "cluster night.kind: unknown cluster 'adress'; did you mean 'address'?"),
        ("night: 3", "cluster night: is 3; give a mapping with kind: address, gateway, kubernetes, local"),
        ("- night", "clusters.yaml: is no mapping; give each cluster as NAME: {kind: .., ..}"),
        ("night: {kind: local}\nnight: {kind: local}", "clusters.yaml: line 2, column 1: the key 'night' is given twice"),
        ("night: {kind: local, wrokers: 2}", "cluster night.wrokers: unknown key; did you mean 'workers'?"),
    ],
)
def test_what_is_wrong_with_a_named_cluster_is_told_with_its_name(tmp_path, text, told):
    (tmp_path / "clusters.yaml").write_text(text)
    made, found = make(tmp_path, "night")
    assert made is None
    assert told in found


def test_the_environment_and_the_command_line_stand_in_for_the_file_s_cluster(tmp_path, monkeypatch):
    (tmp_path / "clusters.yaml").write_text("night: {kind: local, workers: 1}\nday: {kind: local, workers: 2}\n")
    file = tmp_path / "p.yaml"
    file.write_text(FILE)
    assert load(file).cluster == Local(workers=1)
    monkeypatch.setenv("DP_DASK_CLUSTER", "day")
    assert load(file).cluster == Local(workers=2)
    assert load(file, cluster="local").cluster == Local()
    monkeypatch.delenv("DP_DASK_CLUSTER")  # which processes that are started here would keep
    done = dp_dask(tmp_path, "run", "p.yaml", "--cluster", "evening")
    assert done.returncode == 2
    assert "cluster: is 'evening'; give a kind" in done.stderr


def test_a_ledger_in_the_file_of_the_records_is_refused(tmp_path):
    file = tmp_path / "p.yaml"
    text = FILE.replace("cluster: night", "").replace("{kind: parquet, path: data}", "{kind: sqlite, path: ledger.db, table: t}")
    file.write_text(text)
    with pytest.raises(ConfigError, match="ledger: is the file that the records are in; keep the ledger in a file of its own"):
        load(file)
