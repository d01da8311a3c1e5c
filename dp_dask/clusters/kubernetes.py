"""kubernetes: a DaskCluster of the Dask operator, made for this run from a template and deleted after it; the run is in a pod."""

from __future__ import annotations

import json
import platform
import socket
import ssl
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

import yaml

from dp_dask.errors import ClusterError
from dp_dask.hardened.joining import Joined
from dp_dask.hardened.tls import Tls, security_of

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["plugin"]

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
API = "https://kubernetes.default.svc"
ANSWER = 30  # seconds for the API server, and between two looks at a scheduler that does not answer
HINTS = {
    403: "give the service account the role of k8s/base: pods get, daskclusters create and delete",
    404: "install the Dask operator",
    422: "make the template what the operator's DaskCluster has",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubernetes(Joined):
    """``workers`` workers of a cluster like the one in the file ``template``, a manifest of kind DaskCluster.

    It is made in this pod's namespace, its name with a suffix of its own; its containers without an image get this pod's. It
    belongs to this pod, so that it goes when the pod goes, whatever ends that. This pod need not see the records.
    """

    template: Path
    tls: Tls | None = None
    driver_sees_records: bool = False

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Have the cluster made, wait for its scheduler, join it over TLS, and delete it at the end.

        Raises ClusterError outside a pod, for a template that is none, for what the API server refuses, and as ``joined`` does.
        """
        until, security, namespace = time.monotonic() + self.wait, security_of(self.tls), _read(ACCOUNT / "namespace")
        body = self._body(_ask("GET", f"/api/v1/namespaces/{namespace}/pods/{platform.node()}"), namespace)
        clusters, name = f"/apis/kubernetes.dask.org/v1/namespaces/{namespace}/daskclusters", body["metadata"]["name"]
        address = _address(name, namespace)
        try:
            _ask("POST", clusters, body)
            _await(address, until, self.wait)
            left = max(1.0, until - time.monotonic())
            with self.join(address, security, wait=left) as client:
                yield client
        finally:
            with suppress(ClusterError):  # what is left of it goes with the pod
                _ask("DELETE", f"{clusters}/{name}")

    def _body(self, pod: Mapping[str, Any], namespace: str) -> dict[str, Any]:
        try:
            return _cluster(yaml.safe_load(self.template.read_text(encoding="utf-8")), pod, namespace, self.workers)
        except OSError as error:
            problem = f"cannot be read ({error.strerror})"
        except (yaml.YAMLError, UnicodeDecodeError):
            problem = "is not YAML"
        except (KeyError, TypeError, AttributeError, ValueError):
            problem = "is no DaskCluster with a name, a scheduler with its service, and a worker"
        msg = f"cluster.template {self.template}: {problem}; k8s/base/cluster.yaml is one"
        raise ClusterError(msg)


def _cluster(made: Any, pod: Mapping[str, Any], namespace: str, workers: int) -> dict[str, Any]:
    """Make the template a cluster that the pod owns, with its image, and with the scheduler's address over TLS."""
    if made["kind"] != "DaskCluster":
        raise ValueError
    name = f"{made['metadata']['name']}-{uuid.uuid4().hex[:8]}"
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    made["metadata"] |= {"name": name, "namespace": namespace, "ownerReferences": [owner]}
    scheduler, worker = made["spec"]["scheduler"], made["spec"]["worker"]
    scheduler["service"]["selector"] = {"dask.org/cluster-name": name, "dask.org/component": "scheduler"}
    worker["replicas"] = workers
    for each in (*scheduler["spec"]["containers"], *worker["spec"]["containers"]):
        each.setdefault("image", pod["spec"]["containers"][0]["image"])
    for each in worker["spec"]["containers"]:  # without it the operator gives them tcp://
        others = [entry for entry in each.get("env", []) if entry["name"] != "DASK_SCHEDULER_ADDRESS"]
        each["env"] = [*others, {"name": "DASK_SCHEDULER_ADDRESS", "value": _address(name, namespace)}]
    return dict(made)


def _address(name: str, namespace: str) -> str:
    return f"tls://{name}-scheduler.{namespace}.svc:8786"


def _await(address: str, until: float, wait: float) -> None:
    """Wait until a scheduler listens: its pod must be placed, its image fetched; the cluster's own status may lag for ever."""
    host = urlsplit(address)
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection((host.hostname, host.port), timeout=ANSWER):
            return
        time.sleep(0.5)
    msg = f"{address}: no scheduler listened within {wait:g} s; look at the operator, the pods' events and quotas, or raise wait"
    raise ClusterError(msg)


def _read(file: Path) -> str:
    with suppress(OSError):
        return file.read_text(encoding="utf-8").strip()
    msg = f"{file}: no service account is here; run in a pod with automountServiceAccountToken: true (k8s/base/driver.yaml)"
    raise ClusterError(msg)


def _ask(method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Ask the API server as the pod's service account, whose token is read anew: it changes every hour."""
    headers = {"Authorization": f"Bearer {_read(ACCOUNT / 'token')}", "Content-Type": "application/json"}
    context = ssl.create_default_context(cadata=_read(ACCOUNT / "ca.crt"))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # authorities of older Kubernetes lack an extension that it asks for
    request = Request(API + path, None if body is None else json.dumps(body).encode(), headers, method=method)  # noqa: S310
    hint = "look at the API server and the network policy"
    try:
        with build_opener(ProxyHandler({}), HTTPSHandler(context=context)).open(request, timeout=ANSWER) as answer:
            return dict(json.load(answer))
    except HTTPError as error:
        problem, hint = f"{error.code} {error.reason}", HINTS.get(error.code, hint)
    except (OSError, ValueError) as error:
        problem = type(error).__name__
    msg = f"Kubernetes: {method} {path}: {problem}; {hint}"
    raise ClusterError(msg)


plugin = Kubernetes
