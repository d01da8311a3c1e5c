"""Joined: clusters that were started by Dask's own command lines, over mutual TLS, and what they are refused for."""

from __future__ import annotations

import gc
import json
import time

import dask
import pytest
import yaml
from commands import dp_dask
from dask_processes import SETTINGS, running
from distributed import Client

from dp_dask.clusters.address import plugin as Address  # noqa: N812
from dp_dask.clusters.scheduler_file import plugin as SchedulerFile  # noqa: N812
from dp_dask.errors import ClusterError, ConfigError
from dp_dask.hardened import joining
from dp_dask.hardened.certs import make_certs
from dp_dask.hardened.profile import ENCRYPTION, HARDENED
from dp_dask.hardened.tls import Tls, check_encrypted, is_local


def certificates(folder):
    ca, cert, key = make_certs(folder, 1)
    return Tls(ca, cert, key)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def tls(folder):
    return certificates(folder / "certs")


@pytest.fixture(scope="module")
def cluster(folder, tls):
    assert tls.ca.parent == folder / "certs"
    with running(folder / "dask", folder / "certs", workers=2) as file:
        yield file


def refused(made):
    with pytest.raises(ClusterError) as caught, made.client():
        pass
    assert caught.value.__cause__ is caught.value.__context__ is None
    return str(caught.value)


def test_a_cluster_over_tls_is_joined_by_its_file_and_by_its_address(cluster, tls):
    address = json.loads(cluster.read_text())["address"]
    assert address.startswith("tls://127.0.0.1:")
    for made in (SchedulerFile(path=cluster, tls=tls, workers=2), Address(address=address, tls=tls, workers=2)):
        with made.client() as client:
            assert client.submit(sum, [1, 2], pure=False).result() == 3
            assert len(client.scheduler_info(n_workers=-1)["workers"]) == 2


def test_a_client_without_a_certificate_or_with_another_authority_s_is_refused(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(joining, "CONNECT", 3)
    address = json.loads(cluster.read_text())["address"]
    told = refused(Address(address=address, tls=certificates(tmp_path / "other")))
    assert told.startswith(f"{address}: no scheduler let us in within 3 s (")
    assert "look at the address, network and certificates" in told
    assert "no scheduler let us in" in refused(Address(address=address))
    plain = address.replace("tls://", "tcp://")
    assert "no scheduler let us in" in refused(Address(address=plain))


def test_a_scheduler_with_another_authority_s_certificate_is_refused(tls, tmp_path, monkeypatch):
    certificates(tmp_path / "other")
    with running(tmp_path / "dask", tmp_path / "other", workers=1) as file:
        own = json.loads(file.read_text())
        monkeypatch.setattr(joining, "CONNECT", 3)
        assert "no scheduler let us in" in refused(Address(address=own["address"], tls=tls))
    # One that stayed half made could hang the next client, while that starts its loop.
    assert not [each.status for each in gc.get_objects() if type(each) is Client and each.status not in {"closed", "running"}]


def test_too_few_workers_are_told_after_the_time_given(cluster, tls):
    with SchedulerFile(path=cluster, tls=tls, workers=2).client():
        pass  # both are there
    began = time.monotonic()
    told = refused(SchedulerFile(path=cluster, tls=tls, workers=3, wait=1.0))
    assert "2 of 3 workers came within 1 s (WorkerStartTimeoutError); start more, or raise wait" in told
    assert time.monotonic() - began < 20


def test_each_setting_that_keeps_records_out_of_files_is_looked_at_and_can_be_overridden(folder, tls, tmp_path):
    spill, erred = "distributed.worker.memory.spill", "distributed.diagnostics.erred-tasks.max-history"
    changes = {"DASK_DISTRIBUTED__WORKER__MEMORY__SPILL": "0.7", "DASK_DISTRIBUTED__DIAGNOSTICS__ERRED_TASKS__MAX_HISTORY": "100"}
    with running(tmp_path / "dask", folder / "certs", **changes) as file:
        told = refused(SchedulerFile(path=file, tls=tls))
        assert f"scheduler: {erred} is 100 and must be 0" in told
        assert f"workers: {spill} is 0.7 and must be false" in told
        assert "deploy/dask.yaml" in told
        told = refused(SchedulerFile(path=file, tls=tls, overrides=[spill]))
        assert erred in told
        assert spill not in told
        with SchedulerFile(path=file, tls=tls, overrides=[spill, erred]).client() as client:
            assert client.submit(sum, [1], pure=False).result() == 1


def test_other_versions_are_refused_and_can_be_overridden(cluster, tls, monkeypatch):
    real = joining.differences
    monkeypatch.setattr(joining, "differences", lambda client: [*real(client), "workers: numpy 1.0, here 2.0"])
    assert "workers: numpy 1.0, here 2.0. Start it with" in refused(SchedulerFile(path=cluster, tls=tls))
    with SchedulerFile(path=cluster, tls=tls, overrides=["versions"]).client():
        pass


def test_a_plain_cluster_on_this_machine_is_joined_and_one_elsewhere_is_not(tmp_path):
    with running(tmp_path / "dask") as file, SchedulerFile(path=file).client() as client:
        assert client.submit(sum, [1], pure=False).result() == 1
    for address in ("tcp://10.0.0.1:8786", "tcp://scheduler:8786", "ws://example.org:8786"):
        with pytest.raises(ClusterError, match="would cross the network in the clear; start the scheduler with TLS"):
            check_encrypted(address)
        assert not is_local(address)
    for address in ("tls://10.0.0.1:8786", "tcp://127.0.0.1:1", "tcp://localhost:1", "tcp://[::1]:1", "inproc://10.0.0.1/1/2"):
        check_encrypted(address)


def test_what_is_no_cluster_is_told_by_name(tmp_path, tls, monkeypatch):
    monkeypatch.setattr(joining, "CONNECT", 1)
    assert "cannot be read (No such file or directory); start the scheduler" in refused(SchedulerFile(path=tmp_path / "no.json"))
    (tmp_path / "bad.json").write_text("[]")
    assert "bad.json: is not what a scheduler writes" in refused(SchedulerFile(path=tmp_path / "bad.json"))
    assert "no scheduler let us in within 1 s" in refused(Address(address="tls://127.0.0.1:9", tls=tls))
    missing = Tls(tls.ca, tls.cert, tmp_path / "key.pem")
    assert "tls.key: there is no file" in refused(Address(address="tls://127.0.0.1:9", tls=missing))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"address": "127.0.0.1:8786"}, "give it with its scheme"),
        ({"workers": 0}, "workers is 0; give how many"),
        ({"wait": 0}, "wait is 0; give a number of seconds"),
        ({"stall_timeout": -1}, "stall_timeout is -1"),
        ({"overrides": ["spill"]}, "overrides: 'spill' is none; known: distributed.comm.require-encryption, versions, "),
    ],
)
def test_options_that_no_cluster_has_are_refused(options, told):
    with pytest.raises(ValueError, match=told):
        Address(**{"address": "tls://a:1", **options})
    assert Address(address="tcp://10.0.0.1:1", overrides=[ENCRYPTION]).stall_timeout == 1800


def test_the_settings_that_ship_are_those_that_are_asked_for():
    shipped = dict(_flat(yaml.safe_load(SETTINGS.read_text())))
    assert {key: shipped.get(key) for key in HARDENED} == HARDENED
    known = dict(_flat(dask.config.defaults[-1] if isinstance(dask.config.defaults[-1], dict) else {}))
    assert all(dask.config.get(key, None) is not None or key in known or shipped[key] is not None for key in shipped)


def _flat(tree, prefix=""):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def test_certificates_are_made_once_and_for_their_owner_alone(tmp_path):
    done = dp_dask(tmp_path, "certs", "tls", "--days", "7")
    assert done.returncode == 0, done.stderr
    for name in ("ca.pem", "cert.pem", "key.pem"):
        assert (tmp_path / "tls" / name).stat().st_mode & 0o777 == 0o600
        assert name in done.stdout
    again = dp_dask(tmp_path, "certs", "tls")
    assert again.returncode == 2
    assert "there are certificates already" in again.stderr
    with pytest.raises(ConfigError, match="cannot be written to"):
        make_certs(tmp_path / "tls" / "ca.pem" / "more", 1)
