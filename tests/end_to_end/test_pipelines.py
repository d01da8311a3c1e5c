"""Every file under pipelines/ end to end on a local cluster, by the command line, as a user would."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import commands
import pytest

ROOT = Path(__file__).parent.parent.parent
FILES = sorted((ROOT / "pipelines").glob("*.yaml"))
BUDGETS = {"covid_days.yaml": "13"}  # of the others 2
FEWER = {
    "tuberculosis_patients.yaml": ("simulations: 20000", "simulations: 5000")
}  # as rough a posterior does, in a third of the time


class Copy:
    """The pipelines in a folder of their own, and commands there: as a user gives them, or forked to save the imports."""

    def __init__(self, folder, *, is_forked):
        self.folder, self.is_forked = folder, is_forked
        shutil.copytree(ROOT / "pipelines", folder / "pipelines")
        for name, (shipped, fewer) in FEWER.items():
            file = folder / "pipelines" / name
            text = file.read_text()
            assert shipped in text
            file.write_text(text.replace(shipped, fewer))

    def dp_dask(self, *words):
        paths = (self.folder / "pipelines",)  # where families of one's own lie
        done = commands.dp_dask(self.folder, *words, paths=paths) if self.is_forked else self._started(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _started(self, *words):
        words = [sys.executable, "-m", "dp_dask", *words]
        env = {key: value for key, value in os.environ.items() if key != "OPENBLAS_NUM_THREADS"}  # a user's BLAS has its threads
        return subprocess.run(words, cwd=self.folder, env=env, capture_output=True, text=True, check=False)

    def told(self, *words):
        return json.loads(self.dp_dask(*words, "--json"))

    def first_run(self, name):
        """Open the ledger, check and run; return what the two tell."""
        file = f"pipelines/{name}"
        unit = "--rho" if "rho: " in (self.folder / file).read_text() else "--epsilon"
        self.dp_dask("ledger", "init", file, unit, BUDGETS.get(name, "2"))
        return self.told("check", file), self.told("run", file)


@pytest.fixture
def copy(tmp_path):
    return Copy(tmp_path, is_forked=True)


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory):
    """The first pipeline's first run, every command in an interpreter started for it."""
    copy = Copy(tmp_path_factory.mktemp("quickstart"), is_forked=False)
    return copy, *copy.first_run("rand_hie.yaml")


@pytest.mark.parametrize("name", [file.name for file in FILES if file.name != "rand_hie.yaml"])
def test_a_pipeline_runs_is_charged_once_and_can_be_inferred_again(copy, name):
    if "tuberculosis" in name:
        pytest.importorskip("numba")
    assert_is_charged_once_and_can_be_inferred_again(copy, name, *copy.first_run(name))


def test_the_quickstart_is_charged_once_and_can_be_inferred_again(quickstart):
    copy, plan, first = quickstart
    assert_is_charged_once_and_can_be_inferred_again(copy, "rand_hie.yaml", plan, first)


def assert_is_charged_once_and_can_be_inferred_again(copy, name, plan, first):
    file = f"pipelines/{name}"
    assert plan["refusal"] is None
    assert first["charged"] == plan["cost"] == first["spent"]
    folder = Path(first["folder"])
    files = {"release.json", "report.html", "run.json"} | {f"{key}.accepted.csv" for key in first["selections"]}
    files |= {"posterior.nc"} if first["measurements"] else set()
    files |= {"simulations"} if any("simulations" in one for one in first["measurements"].values()) else set()
    assert {path.name for path in folder.iterdir()} == files
    second = copy.told("run", file, "--resume")
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
    inferred = copy.told("infer", str(folder / "release.json"), "--simulations", str(first["simulations"]))["measurements"]
    assert inferred.keys() == first["measurements"].keys()
    for key, one in first["measurements"].items():
        assert inferred[key]["parameters"] == one["parameters"]
    before = (folder / "report.html").read_bytes()
    (folder / "report.html").unlink()
    copy.dp_dask("report", str(folder))
    assert len((folder / "report.html").read_bytes()) == pytest.approx(len(before), rel=0.01)
    assert copy.told("ledger", "verify", file)["sound"]


def test_the_quickstart_finds_what_the_public_data_say(quickstart):
    """The data are public: the noisy posterior must hold the exact maximum-likelihood estimates, six posterior sds wide."""
    import pyarrow.dataset as ds

    table = ds.dataset(ROOT / "pipelines" / "data" / "rand_hie", partitioning="hive").to_table().to_pandas()
    found = quickstart[2]["measurements"]
    assert len(table) == 20190
    ill, visits = found["ill"]["parameters"]["p"], found["visits"]["parameters"]["p"]
    assert ill["mean"] == pytest.approx(table.hlthp.mean(), abs=6 * ill["sd"])
    clamped = table.mdvis.clip(0, 30).mean()  # E[min(x, 30)] = (1 - (1 - p)^30) (1 - p) / p for a geometric x
    p = visits["mean"]
    assert (1 - (1 - p) ** 30) * (1 - p) / p == pytest.approx(clamped, rel=0.03)


def test_posterior_nc_is_read_by_arviz(quickstart):
    import xarray

    tree = xarray.open_datatree(Path(quickstart[2]["folder"]) / "posterior.nc", engine="h5netcdf")
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

    pipeline = load(copy.folder / "pipelines" / "rand_hie.yaml")
    (copy.folder / "csv").mkdir()
    for i, path in enumerate(sorted(pipeline.source.path.rglob("*.parquet"))):
        pcsv.write_csv(pq.read_table(path, partitioning=None), copy.folder / "csv" / f"{i}.csv")
    text = csv(path=copy.folder / "csv", columns={"mdvis": "number", "hlthp": "number"})
    statistics = [m.request.statistic for m in pipeline.measurements]
    totals = []
    for source, cluster in ((pipeline.source, local()), (text, local()), (pipeline.source, local(processes=True, workers=2))):
        with cluster.client() as client:
            totals.append(reveal(reduce(client, source, statistics, progress=lambda *_: silent("", 0, 0), stall_timeout=60)))
    assert totals[0] == totals[1] == totals[2]
    assert totals[0].n_records == 20190


def test_calibrate_says_in_words_whether_to_believe(tmp_path):
    copy = Copy(tmp_path, is_forked=False)
    words = ("calibrate", "pipelines/rand_hie.yaml", "--replicates", "60")
    assert copy.dp_dask(*words).count("can be believed") == 2
    told = copy.told(*words)
    processes = "cluster: {kind: local, processes: true, workers: 2}\n"
    file = copy.folder / "pipelines" / "rand_hie.yaml"
    file.write_text(file.read_text() + processes)
    assert copy.told(*words) == told


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


def test_one_visit_of_each_person_tells_what_the_visits_were_made_of(copy):
    """persons.yaml: six posterior sds wide; the places of one person are alike, so that all visits would tell too much."""
    found = copy.first_run("persons.yaml")[1]["measurements"]
    truths = {"minutes": {"rate": 1 / 12}, "place": {"p[practice]": 0.6, "p[phone]": 0.3, "p[home]": 0.1}}
    for name, parameters in truths.items():
        for parameter, truth in parameters.items():
            told = found[name]["parameters"][parameter]
            assert told["mean"] == pytest.approx(truth, abs=6 * told["sd"])
            assert told["sd"] < 0.01
