"""Started: the commands, settings and environment of the manifests make a cluster here, which a run joins as it would in a pod.

Only addresses, ports and folders are this machine's.
"""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import subprocess
import sys

import dask
import distributed  # noqa: F401  (its defaults are merged with)
import pytest
import yaml
from dask_processes import end
from deploy_tools import ROOT
from kubernetes_api import serving

from dp_dask.clusters import kubernetes
from dp_dask.entries.build import Faults
from dp_dask.entries.cluster import make_cluster
from dp_dask.hardened.certs import make_certs

BASE, DEPLOY = ROOT / "k8s" / "base", ROOT / "deploy"
POD = f"/api/v1/namespaces/dp-dask/pods/{platform.node()}"


def environment(folder):
    """What all pods have, with this machine's folders."""
    lines = [line for line in (BASE / "environment.env").read_text().splitlines() if not line.startswith("#")]
    places = {"/run/secrets/tls": f"{folder}/tls", "/etc/dask": f"{folder}/settings", "/tmp": str(folder)}  # noqa: S108
    env = {key: value for key, value in os.environ.items() if not key.startswith("DASK_")}
    for name, _, value in (line.partition("=") for line in lines):
        for place, here in places.items():
            if value == place or value.startswith(place + "/"):
                env[name] = value.replace(place, here)
                break
        else:
            env[name] = value
    return env


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextlib.contextmanager
def started(commands, env, folder):
    processes = []
    try:
        with (folder / "log").open("wb") as log:
            processes += [
                subprocess.Popen([sys.executable, "-m", *command], env=env, stdout=log, stderr=log, cwd=folder)
                for command in commands
            ]
        yield
    finally:
        end(processes)


def in_pods(port):
    """The commands of the template that the operator would start."""
    spec = yaml.safe_load((BASE / "cluster.yaml").read_text())["spec"]
    changes = {
        "8786": str(port),
        ":8787": "127.0.0.1:0",
        "--worker-port=8788": "--worker-port=0",
        "--nanny-port=8789": "--nanny-port=0",
    }
    commands = []
    for part in ("scheduler", "worker"):
        (container,) = spec[part]["spec"]["containers"]
        words = [word.replace("$(DASK_WORKER_NAME)", "w-1") for word in container["args"]]
        assert set(words) & set(changes), part
        commands.append([*(changes.get(word, word) for word in words), "--host", "tls://127.0.0.1"])
    return commands


def in_services(port):
    """The commands of the services of one machine."""
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    changes = {"8786": str(port), "tls://scheduler:8786": f"tls://127.0.0.1:{port}", "127.0.0.1:8787": "127.0.0.1:0"}
    return [
        [*(changes.get(w, w) for w in services[name]["command"]), "--host", "tls://127.0.0.1"] for name in ("scheduler", "worker")
    ]


@pytest.mark.parametrize("commands", [in_pods, in_services])
def test_a_run_joins_what_the_manifests_start(tmp_path, monkeypatch, commands):
    make_certs(tmp_path / "tls", 1)
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings" / "dask.yaml").write_text((DEPLOY / "dask.yaml").read_text())
    port, env = free_port(), environment(tmp_path)
    address = f"tls://127.0.0.1:{port}"
    monkeypatch.setattr(kubernetes, "_address", lambda *_: address)
    held = {POD: {"metadata": {"name": "driver", "uid": "u"}, "spec": {"containers": [{"image": "dp-dask:1"}]}}}
    faults = Faults(BASE)
    made = make_cluster({"kind": "kubernetes", "template": "cluster.yaml", "wait": 60}, faults)
    assert faults.problems == []
    with serving(tmp_path / "account", held) as api:
        monkeypatch.setattr(kubernetes, "ACCOUNT", tmp_path / "account")
        monkeypatch.setattr(kubernetes, "API", api.url)
        settings = dask.config.merge(dask.config.config, dask.config.collect_env(env))
        with (
            started(commands(port), env | {"DASK_SCHEDULER_ADDRESS": address}, tmp_path),
            dask.config.set(settings),
            made.client() as client,
        ):
            assert client.submit(sum, [1, 2], pure=False).result() == 3
            assert list(api.held) != [POD]
        assert list(api.held) == [POD]
