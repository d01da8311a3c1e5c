"""Manifests: what an overlay renders to, the pods in it, and what each must be."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml
from deploy_tools import ROOT, says, tool

from dp_dask.clusters import kubernetes
from dp_dask.hardened.profile import HARDENED

OVERLAYS = ("dev", "prod", "operator-less")
Object = dict[str, Any]


def render(overlay: str) -> list[Object]:
    """Render an overlay as ``kubectl apply -k`` would."""
    return list(yaml.safe_load_all(says(tool("kubectl"), "kustomize", ROOT / "k8s" / "overlays" / overlay).stdout))


def find(objects: list[Object], kind: str, name: str | None = None) -> Object:
    return next(o for o in objects if o["kind"] == kind and name in (None, o["metadata"]["name"]))


def templates(objects: list[Object]) -> dict[str, Object]:
    """The DaskClusters that the pipeline's ConfigMap holds, as the driver would have them made."""
    driver = find(objects, "CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    pod = {"metadata": {"name": "driver", "uid": "u"}, "spec": driver}
    held = find(objects, "ConfigMap", "dp-dask-pipeline")["data"]
    named = yaml.safe_load(held["clusters.yaml"])
    namespace = find(objects, "Namespace")["metadata"]["name"]
    return {
        name: kubernetes._cluster(yaml.safe_load(held[given["template"]]), pod, namespace, given["workers"])
        for name, given in named.items()
        if given["kind"] == "kubernetes"
    }


@dataclass
class Pod:
    where: str
    labels: dict[str, str]
    spec: Object
    zone: str = field(init=False)

    def __post_init__(self) -> None:
        self.zone = self.labels.get("dp-dask/zone", "")


def pods(objects: list[Object]) -> Iterator[Pod]:
    for each in objects:
        spec = each.get("spec", {})
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
        if template is not None:
            yield Pod(f"{each['kind']} {each['metadata']['name']}", template["metadata"].get("labels", {}), template["spec"])
    for name, cluster in templates(objects).items():
        for part in ("scheduler", "worker"):
            given = cluster["spec"][part]
            labels = {"dask.org/component": part, **cluster["metadata"]["labels"], **given["metadata"]["labels"]}
            yield Pod(f"{name} {part}", labels, given["spec"])


def faults(objects: list[Object]) -> list[str]:
    """Name all that is not as it must be."""
    all_pods = list(pods(objects))
    found = [f"{pod.where}: {told}" for pod in all_pods for told, wrong in OF_PODS.items() if wrong(pod)]
    found += [
        f"{pod.where}: {told}"
        for pod in all_pods
        for container in (*pod.spec.get("initContainers", []), *pod.spec["containers"])
        for told, wrong in OF_CONTAINERS.items()
        if wrong(container)
    ]
    found += [told for told, wrong in OF_JOBS.items() if wrong(find(objects, "CronJob")["spec"])]
    found += [told for each in objects for told, wrong in OF_OBJECTS.items() if wrong(each)]
    return [*found, *_policies(objects), *_settings(objects), *_budgets(objects)]


def _kind(pod: Pod, kind: str) -> list[Object]:
    return [volume[kind] for volume in pod.spec.get("volumes", []) if kind in volume]


def _claims(pod: Pod, name: str) -> list[Object]:
    return [claim for claim in _kind(pod, "persistentVolumeClaim") if claim["claimName"] == name]


def _is_plain_worker(pod: Pod) -> bool:
    env = [e for c in pod.spec["containers"] for e in c.get("env", []) if e["name"] == "DASK_SCHEDULER_ADDRESS"]
    return pod.labels.get("dask.org/component") == "worker" and not any(e["value"].startswith("tls://") for e in env)


def _user(pod: Pod) -> Object:
    return pod.spec.get("securityContext", {})


OF_PODS: dict[str, Callable[[Pod], bool]] = {
    "may be root": lambda pod: not _user(pod).get("runAsNonRoot") or _user(pod).get("runAsUser", 0) < 10_000,
    "cannot read its secrets": lambda pod: "fsGroup" not in _user(pod),
    "has no seccomp profile": lambda pod: _user(pod).get("seccompProfile") != {"type": "RuntimeDefault"},
    "is in the host's namespaces": lambda pod: any(pod.spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")),
    "has a token of the API server": lambda pod: pod.spec.get("automountServiceAccountToken") is not False and pod.zone != "gate",
    "is of no zone": lambda pod: pod.zone not in {"private", "gate", "public"},
    "mounts a folder of the host": lambda pod: bool(_kind(pod, "hostPath")),
    "writes to a disk, or without a limit": lambda pod: any(
        each.get("medium") != "Memory" or "sizeLimit" not in each for each in _kind(pod, "emptyDir")
    ),
    "has a secret that others may read": lambda pod: any(each.get("defaultMode") != 0o400 for each in _kind(pod, "secret")),
    "sees records and is not private": lambda pod: pod.zone != "private" and bool(_claims(pod, "dp-dask-records")),
    "may write to records": lambda pod: any(not claim.get("readOnly") for claim in _claims(pod, "dp-dask-records")),
    "sees the ledger and the reports": lambda pod: pod.zone != "gate" and bool(_claims(pod, "dp-dask-state")),
    "has no scheduler over TLS": _is_plain_worker,
}


def _is_unpinned(container: Object) -> bool:
    name = container["image"].rpartition("/")[2]
    return ":" not in name or name.endswith(":latest")


def _context(container: Object) -> Object:
    return container.get("securityContext", {})


def _resources(container: Object, kind: str) -> Object:
    return container.get("resources", {}).get(kind, {})


OF_CONTAINERS: dict[str, Callable[[Object], bool]] = {
    "has a writable root": lambda c: _context(c).get("readOnlyRootFilesystem") is not True,
    "has privileges": lambda c: (
        _context(c).get("allowPrivilegeEscalation") is not False or _context(c).get("capabilities") != {"drop": ["ALL"]}
    ),
    "may be root": lambda c: _context(c).get("runAsUser", 10_000) < 10_000 or _context(c).get("runAsNonRoot") is False,
    "has no limits": lambda c: not {"cpu", "memory"} <= set(_resources(c, "limits")),
    "asks for less memory than it may take": lambda c: (
        _resources(c, "limits").get("memory") != _resources(c, "requests").get("memory")
    ),
    "has an image that is not pinned": _is_unpinned,
    "calls what is gone from Dask": lambda c: c["args"][0] in {"dask-scheduler", "dask-worker"},
}
OF_JOBS: dict[str, Callable[[Object], bool]] = {
    "runs may overlap": lambda job: job["concurrencyPolicy"] != "Forbid",
    "runs may be given up, after a hundred that were missed": lambda job: job.get("startingDeadlineSeconds", 0) < 60,
    "runs have no time zone": lambda job: not job.get("timeZone"),
    "runs are repeated": lambda job: job["jobTemplate"]["spec"]["backoffLimit"] != 0,
    "exit codes do not end a Job": lambda job: (
        not any("onExitCodes" in rule for rule in job["jobTemplate"]["spec"]["podFailurePolicy"]["rules"])
    ),
}
OF_OBJECTS: dict[str, Callable[[Object], bool]] = {
    "rights or secrets are not a namespace's own": lambda o: o["kind"] in {"ClusterRole", "ClusterRoleBinding", "Secret"},
    "a service is open to the outside": lambda o: (
        o["kind"] == "Ingress" or (o["kind"] == "Service" and o["spec"].get("type", "ClusterIP") != "ClusterIP")
    ),
    "a role allows everything": lambda o: o["kind"] == "Role" and "*" in json.dumps(o["rules"]),
    "the namespace is not restricted": lambda o: (
        o["kind"] == "Namespace" and o["metadata"]["labels"].get("pod-security.kubernetes.io/enforce") != "restricted"
    ),
}


def _policies(objects: list[Object]) -> Iterator[str]:
    policies = [o for o in objects if o["kind"] == "NetworkPolicy"]
    if not any(policy["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]} for policy in policies):
        yield "there is no default deny"
    for policy in policies:
        for way, who in (("ingress", "from"), ("egress", "to")):
            for rule in policy["spec"].get(way, []):
                peers = rule.get(who, [])
                if not peers or not rule.get("ports") or any(not peer or "0.0.0.0/0" in json.dumps(peer) for peer in peers):
                    yield f"{policy['metadata']['name']}: {way} is open to all"


def _settings(objects: list[Object]) -> Iterator[str]:
    settings = yaml.safe_load(find(objects, "ConfigMap", "dp-dask-settings")["data"]["dask.yaml"])
    for key, value in (HARDENED | {"distributed.comm.require-encryption": True}).items():
        at: Any = settings
        for part in key.split("."):
            at = at.get(part) if isinstance(at, dict) else None
        if at != value or type(at) is not type(value):
            yield f"{key} is {at!r}"


def _budgets(objects: list[Object]) -> Iterator[str]:
    labels = [o["spec"]["selector"]["matchLabels"] for o in objects if o["kind"] == "PodDisruptionBudget"]
    for wanted in ({"dp-dask/zone": "gate"}, {"dask.org/component": "scheduler"}):
        if wanted not in labels:
            yield f"{wanted} may be drained"
