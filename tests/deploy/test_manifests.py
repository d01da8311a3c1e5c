"""Manifests: rendered by kustomize, held against Kubernetes' and the Dask operator's schemas and against what we promise of them.

None of it was applied to a live cluster.
"""

from __future__ import annotations

import copy
import json

import pytest
import yaml
from deploy_tools import ROOT, custom_resources, says, tool
from manifests import OVERLAYS, faults, find, pods, render, templates

from dp_dask.config import load
from dp_dask.entries.build import Faults
from dp_dask.entries.cluster import make_cluster
from dp_dask.errors import BudgetError, ClusterError, ConfigError, DpDaskError, SourceError

KUBERNETES = "1.37"


@pytest.fixture(scope="module")
def rendered():
    return {overlay: render(overlay) for overlay in OVERLAYS}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_is_as_we_promise(rendered, overlay):
    assert faults(rendered[overlay]) == []
    zones = {pod.where: pod.zone for pod in pods(rendered[overlay])}
    assert zones["CronJob dp-dask"] == "gate"
    if overlay == "operator-less":
        assert zones == {
            "CronJob dp-dask": "gate",
            "Deployment records-scheduler": "private",
            "Deployment records-worker": "private",
        }
    else:
        assert {zones["records worker"], zones["records scheduler"]} == {"private"}
        assert {zones["simulations worker"], zones["simulations scheduler"]} == {"public"}


def driver(objects):
    return find(objects, "CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def in_template(name, change):
    """Change a template inside the pipeline's ConfigMap."""

    def apply(objects):
        data = find(objects, "ConfigMap", "dp-dask-pipeline")["data"]
        made = yaml.safe_load(data[name])
        change(made["spec"])
        data[name] = yaml.safe_dump(made)

    return apply


def in_settings(line, changed):
    def apply(objects):
        data = find(objects, "ConfigMap", "dp-dask-settings")["data"]
        assert line in data["dask.yaml"]
        data["dask.yaml"] = data["dask.yaml"].replace(line, changed)

    return apply


def without(kind, name):
    return lambda objects: objects.remove(find(objects, kind, name))


def container(part):
    return lambda spec: spec[part]["spec"]["containers"][0]


RECORDS = {"name": "records", "persistentVolumeClaim": {"claimName": "dp-dask-records", "readOnly": True}}
STATE = {"name": "state", "persistentVolumeClaim": {"claimName": "dp-dask-state"}}
scheduler, worker = container("scheduler"), container("worker")
CHANGES = [
    (lambda o: driver(o)["securityContext"].update(runAsUser=0), "CronJob dp-dask: may be root"),
    (
        in_template("cluster.yaml", lambda s: s["worker"]["spec"]["securityContext"].pop("runAsNonRoot")),
        "records worker: may be root",
    ),
    (in_template("cluster.yaml", lambda s: worker(s)["securityContext"].update(runAsUser=0)), "records worker: may be root"),
    (in_template("cluster.yaml", lambda s: s["worker"]["spec"]["securityContext"].pop("seccompProfile")), "no seccomp profile"),
    (in_template("cluster.yaml", lambda s: s["worker"]["spec"].update(hostNetwork=True)), "is in the host's namespaces"),
    (in_template("cluster.yaml", lambda s: s["worker"]["spec"].pop("automountServiceAccountToken")), "has a token"),
    (in_template("cluster.yaml", lambda s: scheduler(s)["securityContext"].pop("readOnlyRootFilesystem")), "a writable root"),
    (in_template("cluster.yaml", lambda s: scheduler(s)["securityContext"].pop("capabilities")), "has privileges"),
    (in_template("cluster.yaml", lambda s: worker(s)["resources"]["limits"].pop("memory")), "records worker: has no limits"),
    (in_template("cluster.yaml", lambda s: worker(s)["resources"]["requests"].update(memory="1Gi")), "asks for less memory"),
    (
        in_template("cluster.yaml", lambda s: worker(s)["args"].__setitem__(slice(0, 2), ["dask-worker"])),
        "calls what is gone from Dask",
    ),
    (
        in_template("cluster.yaml", lambda s: s["worker"]["spec"]["volumes"][1]["secret"].pop("defaultMode")),
        "has a secret that others may read",
    ),
    (in_template("cluster.yaml", lambda s: s["worker"]["spec"]["volumes"][2]["emptyDir"].pop("medium")), "writes to a disk"),
    (in_template("cluster.yaml", lambda s: s["worker"]["spec"]["volumes"].append(STATE)), "sees the ledger and the reports"),
    (
        in_template("cluster.yaml", lambda s: s["worker"]["spec"]["volumes"].append({"name": "h", "hostPath": {"path": "/"}})),
        "mounts a folder of the host",
    ),
    (
        in_template("simulations.yaml", lambda s: s["worker"]["spec"]["volumes"].append(RECORDS)),
        "simulations worker: sees records and is not private",
    ),
    (in_template("simulations.yaml", lambda s: s["worker"]["metadata"]["labels"].update({"dp-dask/zone": "x"})), "is of no zone"),
    (lambda o: driver(o)["volumes"].append(RECORDS), "sees records and is not private"),
    (
        in_template("cluster.yaml", lambda s: s["worker"]["spec"]["volumes"][3]["persistentVolumeClaim"].pop("readOnly")),
        "may write to records",
    ),
    (lambda o: driver(o)["containers"][0].update(image="registry.example.org/dp-dask"), "has an image that is not pinned"),
    (lambda o: driver(o)["containers"][0].update(image="registry.example.org:5000/dp-dask"), "has an image that is not pinned"),
    (lambda o: driver(o)["containers"][0].update(image="dp-dask:latest"), "has an image that is not pinned"),
    (without("NetworkPolicy", "default-deny"), "there is no default deny"),
    (lambda o: find(o, "NetworkPolicy", "default-deny")["spec"].update(egress=[{}]), "there is no default deny"),
    (lambda o: find(o, "NetworkPolicy", "gate")["spec"]["egress"][0].pop("to"), "gate: egress is open to all"),
    (lambda o: find(o, "NetworkPolicy", "private")["spec"]["ingress"][0].pop("ports"), "private: ingress is open to all"),
    (lambda o: find(o, "CronJob")["spec"].update(concurrencyPolicy="Allow"), "runs may overlap"),
    (lambda o: find(o, "CronJob")["spec"].pop("timeZone"), "runs have no time zone"),
    (lambda o: find(o, "CronJob")["spec"]["jobTemplate"]["spec"].update(backoffLimit=6), "runs are repeated"),
    (
        lambda o: find(o, "CronJob")["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"].pop(),
        "exit codes do not end a Job",
    ),
    (in_settings("spill: false", "spill: 0.7"), "distributed.worker.memory.spill is 0.7"),
    (in_settings("max-history: 0", "max-history: 100"), "erred-tasks.max-history is 100"),
    (in_settings("require-encryption: true", "require-encryption: false"), "require-encryption is False"),
    (lambda o: find(o, "Role")["rules"][0].update(verbs=["*"]), "a role allows everything"),
    (lambda o: find(o, "Namespace")["metadata"]["labels"].clear(), "the namespace is not restricted"),
    (without("PodDisruptionBudget", "dp-dask-scheduler"), "may be drained"),
    (lambda o: o.append({"kind": "Service", "spec": {"type": "NodePort"}}), "a service is open"),
    (lambda o: o.append({"kind": "Secret"}), "not a namespace's own"),
]


@pytest.mark.parametrize(("change", "told"), CHANGES, ids=[f"{i}: {told}" for i, (_, told) in enumerate(CHANGES)])
def test_a_manifest_that_breaks_a_promise_is_found(rendered, change, told):
    objects = copy.deepcopy(rendered["prod"])
    change(objects)
    assert told in "\n".join(faults(objects))


def test_a_standing_worker_without_tls_is_found(rendered):
    objects = copy.deepcopy(rendered["operator-less"])
    env = find(objects, "Deployment", "records-worker")["spec"]["template"]["spec"]["containers"][0]["env"]
    env[0]["value"] = "tcp://records-scheduler:8786"
    assert "Deployment records-worker: has no scheduler over TLS" in faults(objects)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_core_objects_and_pods_are_what_kubernetes_takes(rendered, overlay, tmp_path):
    """Strictly: with fields that it does not know, too. The pods of the operator's objects are wrapped as Deployments."""
    validate = tool("kubernetes-validate")
    made = [*rendered[overlay], *(as_deployment(pod) for pod in pods(rendered[overlay]) if " worker" in pod.where)]
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all(made))
    says(validate, "-k", KUBERNETES, "--strict", file)
    find(made, "CronJob")["spec"]["concurencyPolicy"] = "Forbid"
    file.write_text(yaml.safe_dump_all(made))
    assert "concurencyPolicy" in says(validate, "-k", KUBERNETES, "--strict", file, check=False).stdout


def as_deployment(pod):
    spec = {"selector": {"matchLabels": pod.labels}, "template": {"metadata": {"labels": pod.labels}, "spec": pod.spec}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": pod.where.replace(" ", "-")}, "spec": spec}


@pytest.mark.parametrize("overlay", ["dev", "prod"])
def test_clusters_are_what_the_dask_operator_takes(rendered, overlay):
    jsonschema = pytest.importorskip("jsonschema", reason="there is no jsonschema: pip install jsonschema")
    definition = yaml.safe_load((custom_resources() / "daskcluster.yaml").read_text())
    (version,) = definition["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    validator = jsonschema.Draft202012Validator(schema)
    made = templates(rendered[overlay])
    assert set(made) == {"records", "simulations"}
    for cluster in made.values():
        assert cluster["apiVersion"] == f"{definition['spec']['group']}/{version['name']}"
        assert [error.message for error in validator.iter_errors(cluster)] == []
        assert list(unknown(cluster["spec"], schema["properties"]["spec"], "spec")) == []
        assert {"tcp-comm", "http-dashboard"} == {port["name"] for port in cluster["spec"]["scheduler"]["service"]["ports"]}
    cluster["spec"]["worker"]["replicas"] = "2"
    assert any("'2' is not of type" in error.message for error in validator.iter_errors(cluster))
    cluster["spec"]["worker"]["spec"]["hostUsers"] = False  # newer than the operator's pods: it would be dropped without a word
    cluster["spec"]["worker"]["spec"]["containers"][0]["resizePolicy"] = []
    assert list(unknown(cluster["spec"], schema["properties"]["spec"], "spec")) == [
        "spec.worker.spec.containers.resizePolicy",
        "spec.worker.spec.hostUsers",
    ]


def unknown(given, schema, path):
    """Fields that a structural schema does not have, and that the API server therefore drops."""
    if isinstance(given, list):
        for each in given:
            yield from unknown(each, schema.get("items", {}), path)
    elif isinstance(given, dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        more = schema.get("additionalProperties")
        for key, value in given.items():
            inner = schema.get("properties", {}).get(key, more)
            if inner is not None:
                yield from unknown(value, inner, f"{path}.{key}") if isinstance(inner, dict) else ()
            elif "properties" in schema:
                yield f"{path}.{key}"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_pipeline_and_its_clusters_are_what_dp_dask_takes(rendered, overlay, tmp_path):
    for name, text in find(rendered[overlay], "ConfigMap", "dp-dask-pipeline")["data"].items():
        (tmp_path / name).write_text(text)
    faults = Faults(tmp_path)
    for name in ("records", "simulations"):
        assert make_cluster(name, faults) is not None, faults.problems
    if overlay == "prod":
        pytest.importorskip("psycopg")
    pipeline = load(tmp_path / "pipeline.yaml")
    assert pipeline.cluster.workers >= 1
    assert str(pipeline.ledger).startswith("postgresql" if overlay == "prod" else "sqlite:////var/lib/dp-dask/")
    (mounts,) = [{m["name"]: m["mountPath"] for m in c["volumeMounts"]} for c in driver(rendered[overlay])["containers"]]
    assert (mounts["pipeline"], mounts["state"]) == ("/etc/dp-dask", "/var/lib/dp-dask")
    assert not pipeline.cluster.driver_sees_records


def test_the_role_allows_what_the_driver_asks_and_no_more(rendered):
    rules = find(rendered["prod"], "Role")["rules"]
    assert {(r, v) for rule in rules for r in rule["resources"] for v in rule["verbs"]} == {
        ("pods", "get"),
        ("daskclusters", "create"),
        ("daskclusters", "delete"),
    }
    assert not [o for o in rendered["operator-less"] if o["kind"] in {"Role", "RoleBinding"}]
    assert driver(rendered["operator-less"])["automountServiceAccountToken"] is False


def test_the_quota_has_room_for_all_pods_at_once(rendered):
    """A driver, and of each cluster a scheduler and its workers, by their limits."""
    hard = find(rendered["prod"], "ResourceQuota")["spec"]["hard"]
    made = {name: cluster["spec"]["worker"]["replicas"] for name, cluster in templates(rendered["prod"]).items()}
    needed = {"pods": 0, "limits.memory": 0, "limits.cpu": 0}
    for pod in pods(rendered["prod"]):
        name, _, part = pod.where.partition(" ")
        copies = made[name] if part == "worker" else 1
        limits = pod.spec["containers"][0]["resources"]["limits"]
        amounts = {"pods": 1, "limits.memory": int(limits["memory"].removesuffix("Gi")), "limits.cpu": int(limits["cpu"])}
        needed = {key: needed[key] + copies * amount for key, amount in amounts.items()}
    assert needed == {"pods": 11, "limits.memory": 24, "limits.cpu": 14}
    assert all(int(hard[key].removesuffix("Gi")) >= amount for key, amount in needed.items())


def test_exit_codes_that_end_a_job_are_those_that_a_repeat_would_give_again(rendered):
    rules = find(rendered["prod"], "CronJob")["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
    (codes,) = [rule["onExitCodes"]["values"] for rule in rules if "onExitCodes" in rule]
    assert {error.exit_code for error in (DpDaskError, ConfigError, BudgetError, SourceError)} < set(codes)
    assert ClusterError.exit_code not in codes


def test_the_standing_cluster_is_the_operator_s(rendered):
    """But for its image, and its name from the pod's."""
    cluster = yaml.safe_load((ROOT / "k8s" / "base" / "cluster.yaml").read_text())["spec"]
    for part in ("scheduler", "worker"):
        standing = copy.deepcopy(find(rendered["operator-less"], "Deployment", f"records-{part}")["spec"]["template"]["spec"])
        operated = copy.deepcopy(cluster[part]["spec"])
        for spec in (standing, operated):
            for key in ("image", "env"):
                spec["containers"][0].pop(key, None)
        assert json.loads(json.dumps(standing)) == json.loads(json.dumps(operated)), part
