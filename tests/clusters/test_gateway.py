"""A Dask Gateway server from PyPI, on this machine: a cluster for one run over TLS, and what it is refused for."""

from __future__ import annotations

import contextlib
import importlib.util
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from dask_processes import SETTINGS

from dp_dask.clusters.gateway import _close
from dp_dask.clusters.gateway import plugin as Gateway  # noqa: N812
from dp_dask.errors import ClusterError

ROOT = Path(__file__).parent.parent.parent
MISSING = [name for name in ("dask_gateway", "dask_gateway_server") if importlib.util.find_spec(name) is None]
WHY_NOT = f"not installed: {', '.join(MISSING)} (pip install 'dask-gateway-server[local]')"
pytestmark = pytest.mark.skipif(bool(MISSING), reason=WHY_NOT)
CONFIG = """
c.DaskGateway.backend_class = "dask_gateway_server.backends.local.UnsafeLocalBackend"
c.DaskGateway.authenticator_class = "dask_gateway_server.auth.SimpleAuthenticator"
c.DaskGateway.address = "127.0.0.1:{inner}"
c.Proxy.address = "127.0.0.1:{outer}"
c.Proxy.tcp_address = "127.0.0.1:{outer}"
c.ClusterConfig.scheduler_cmd = [{python!r}, "-m", "dask", "scheduler"]
c.ClusterConfig.worker_cmd = [{python!r}, "-m", "dask", "worker"]
c.ClusterConfig.environment = {environment!r}
c.UnsafeLocalBackend.clusters_directory = {folder!r}
"""


def free_port():
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


@contextlib.contextmanager
def serving(folder, **environment):
    outer = free_port()
    known = {"DASK_CONFIG": str(SETTINGS), "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", **environment}
    clusters = folder / "clusters"
    clusters.mkdir()
    config = folder / "config.py"
    config.write_text(
        CONFIG.format(inner=free_port(), outer=outer, python=sys.executable, environment=known, folder=str(clusters))
    )
    command = Path(sys.executable).parent / "dask-gateway-server"
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([command, "--config", config], stdout=log, stderr=log, cwd=folder)
        try:
            until = time.monotonic() + 60
            while True:
                with contextlib.suppress(urllib.error.URLError, OSError):
                    if urllib.request.urlopen(f"http://127.0.0.1:{outer}/api/health").status == 200:
                        break
                assert time.monotonic() < until, (folder / "log").read_text()
                time.sleep(0.2)
            yield f"http://127.0.0.1:{outer}"
        finally:
            server.terminate()
            server.wait(30)


def refused(made):
    with pytest.raises(ClusterError) as caught, made.client():
        pass
    assert caught.value.__cause__ is caught.value.__context__ is None
    return str(caught.value)


def test_a_cluster_is_started_joined_and_given_back(tmp_path):
    from dask_gateway import Gateway as Server

    with serving(tmp_path) as address:
        with Gateway(address=address, workers=2).client() as client:
            assert client.scheduler.address.startswith("gateway://")
            assert client.gather(client.map(abs, range(-5, 0), pure=False)) == [5, 4, 3, 2, 1]
            assert len(client.scheduler_info(n_workers=-1)["workers"]) == 2
        server = Server(address)
        until = time.monotonic() + 30
        while server.list_clusters():
            assert time.monotonic() < until
            time.sleep(0.2)
        _close(server)
        told = refused(Gateway(address=address, options={"cores": 3}))
        assert "no cluster was started (" in told
        assert "look at the address, your rights and the options" in told


def test_a_gateway_whose_workers_spill_is_refused(tmp_path):
    with serving(tmp_path, DASK_DISTRIBUTED__WORKER__MEMORY__SPILL="0.7") as address:
        assert "workers: distributed.worker.memory.spill is 0.7 and must be false" in refused(Gateway(address=address))


def test_what_is_no_gateway_is_told_by_name():
    assert "http://127.0.0.1:9: no cluster was started" in refused(Gateway(address="http://127.0.0.1:9"))
    with pytest.raises(ValueError, match="give https://HOST, as what is sent there says who you are"):
        Gateway(address="http://gateway.example.org")
