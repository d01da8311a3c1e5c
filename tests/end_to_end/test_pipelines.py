"""Every file under pipelines/ end to end on a local cluster, by the command line, as a user would."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
FILES = sorted((ROOT / "pipelines").glob("*.yaml"))
BUDGETS = {"covid_days.yaml": "13"}  # of the others 2


def dp_dask(folder, *words, code=0):
    paths = os.pathsep.join([str(folder / "pipelines"), os.environ.get("PYTHONPATH", "")])  # where families of one's own lie
    done = subprocess.run(
        [sys.executable, "-m", "dp_dask", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(ROOT / "pipelines", tmp_path / "pipelines")
    return tmp_path


@pytest.mark.parametrize("name", [file.name for file in FILES])
def test_a_pipeline_runs_is_charged_once_and_can_be_inferred_again(copy, name):
    file = f"pipelines/{name}"
    if "tuberculosis" in name:
        pytest.importorskip("numba")
    unit = "--rho" if "rho: " in (copy / file).read_text() else "--epsilon"
    dp_dask(copy, "ledger", "init", file, unit, BUDGETS.get(name, "2"))
    plan = json.loads(dp_dask(copy, "check", file, "--json").stdout)
    assert plan["refusal"] is None
    first = json.loads(dp_dask(copy, "run", file, "--json").stdout)
    assert first["charged"] == plan["cost"] == first["spent"]
    folder = Path(first["folder"])
    files = {"release.json", "report.html", "run.json"} | {f"{key}.accepted.csv" for key in first["selections"]}
    files |= {"posterior.nc"} if first["measurements"] else set()
    files |= {"simulations"} if any("simulations" in one for one in first["measurements"].values()) else set()
    assert {path.name for path in folder.iterdir()} == files
    second = json.loads(dp_dask(copy, "run", file, "--resume", "--json").stdout)
    assert second["charged"] == "0"
    assert second["spent"] == first["spent"]
    assert second["folder"] == first["folder"]
    for key, one in first["measurements"].items():
        assert second["measurements"][key]["parameters"] == one["parameters"]
        for told in one["parameters"].values():
            assert told["lower"] < told["mean"] < told["upper"]
            assert told["r_hat"] < 1.02
            assert told["ess"] > (400 if one["engine"] == "clt_chain" else 1000)  # that one promises 400, in chains
    for key, one in first["selections"].items():
        assert one | {"charged": False} == second["selections"][key]
        lines = (folder / f"{key}.accepted.csv").read_text().splitlines()
        assert len(lines) == 1 + one["accepted"] > 1
        assert lines[0] == ",".join(["simulation", *one["parameters"]])
    again = [str(folder / "release.json"), "--simulations", str(first["simulations"])]
    inferred = json.loads(dp_dask(copy, "infer", *again, "--json").stdout)["measurements"]
    assert inferred.keys() == first["measurements"].keys()
    for key, one in first["measurements"].items():
        assert inferred[key]["parameters"] == one["parameters"]
    before = (folder / "report.html").read_bytes()
    (folder / "report.html").unlink()
    dp_dask(copy, "report", str(folder))
    assert len((folder / "report.html").read_bytes()) == pytest.approx(len(before), rel=0.01)
    assert json.loads(dp_dask(copy, "ledger", "verify", file, "--json").stdout)["sound"]


def test_the_quickstart_finds_what_the_public_data_say(copy):
    """The data are public: the noisy posterior must hold the exact maximum-likelihood estimates, six posterior sds wide."""
    import pyarrow.dataset as ds

    table = ds.dataset(ROOT / "pipelines" / "data" / "rand_hie", partitioning="hive").to_table().to_pandas()
    dp_dask(copy, "ledger", "init", "pipelines/rand_hie.yaml", "--epsilon", "2")
    found = json.loads(dp_dask(copy, "run", "pipelines/rand_hie.yaml", "--json").stdout)["measurements"]
    assert len(table) == 20190
    ill, visits = found["ill"]["parameters"]["p"], found["visits"]["parameters"]["p"]
    assert ill["mean"] == pytest.approx(table.hlthp.mean(), abs=6 * ill["sd"])
    clamped = table.mdvis.clip(0, 30).mean()  # E[min(x, 30)] = (1 - (1 - p)^30) (1 - p) / p for a geometric x
    p = visits["mean"]
    assert (1 - (1 - p) ** 30) * (1 - p) / p == pytest.approx(clamped, rel=0.03)


def test_posterior_nc_is_read_by_arviz(copy):
    import xarray

    dp_dask(copy, "ledger", "init", "pipelines/rand_hie.yaml", "--epsilon", "2")
    folder = Path(json.loads(dp_dask(copy, "run", "pipelines/rand_hie.yaml", "--json").stdout)["folder"])
    tree = xarray.open_datatree(folder / "posterior.nc", engine="h5netcdf")
    assert set(tree["posterior"].data_vars) == {"visits.p", "ill.p"}
    assert tree["posterior"].sizes == {"chain": 4, "draw": 1000}
    assert float(tree["posterior"]["ill.p"].mean()) == pytest.approx(0.015, abs=0.006)


def test_csv_and_parquet_give_the_same_total_on_threads_and_processes(copy):
    """The exact sums are equal; the releases differ by their noise alone."""
    import pyarrow.csv as pcsv
    import pyarrow.parquet as pq

    from dp_dask.clusters.local import plugin as local
    from dp_dask.config import load
    from dp_dask.core.sensitive import reveal
    from dp_dask.private.reduce import reduce
    from dp_dask.private.sources.csv import plugin as csv
    from dp_dask.progress import silent

    pipeline = load(copy / "pipelines" / "rand_hie.yaml")
    (copy / "csv").mkdir()
    for i, path in enumerate(sorted(pipeline.source.path.rglob("*.parquet"))):
        pcsv.write_csv(pq.read_table(path, partitioning=None), copy / "csv" / f"{i}.csv")
    text = csv(path=copy / "csv", columns={"mdvis": "number", "hlthp": "number"})
    statistics = [m.request.statistic for m in pipeline.measurements]
    totals = []
    for source, cluster in ((pipeline.source, local()), (text, local()), (pipeline.source, local(processes=True, workers=2))):
        with cluster.client() as client:
            totals.append(reveal(reduce(client, source, statistics, progress=lambda *_: silent("", 0, 0), stall_timeout=60)))
    assert totals[0] == totals[1] == totals[2]
    assert totals[0].n_records == 20190


def test_calibrate_says_in_words_whether_to_believe(copy):
    done = dp_dask(copy, "calibrate", "pipelines/rand_hie.yaml", "--replicates", "60")
    assert done.stdout.count("can be believed") == 2
    told = json.loads(dp_dask(copy, "calibrate", "pipelines/rand_hie.yaml", "--replicates", "60", "--json").stdout)
    processes = "cluster: {kind: local, processes: true, workers: 2}\n"
    file = copy / "pipelines" / "rand_hie.yaml"
    file.write_text(file.read_text() + processes)
    assert json.loads(dp_dask(copy, "calibrate", "pipelines/rand_hie.yaml", "--replicates", "60", "--json").stdout) == told


@pytest.mark.parametrize("processes", [False, True])
def test_a_local_cluster_listens_on_the_loopback_interface_alone(processes):
    """From the kernel's own table: no socket of this process or its children on another address."""
    from dp_dask.clusters.local import plugin as local

    before = listening()
    with local(processes=processes, workers=1).client():
        opened = listening() - before
    assert opened
    assert {socket.inet_ntoa(bytes.fromhex(address)[::-1]) for address, _ in opened} == {"127.0.0.1"}


def listening():
    rows = Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = [row.split() for row in rows]
    return {tuple(field[1].split(":")) for field in fields if field[3] == "0A"}
