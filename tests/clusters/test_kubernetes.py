"""Kubernetes: what is asked of the API server, by a stand-in for it; the cluster that is joined is a real one, over TLS."""

from __future__ import annotations

import json
import platform

import pytest
import yaml
from commands import dp_dask
from dask_processes import running
from kubernetes_api import TOKEN, serving

from dp_dask.clusters import kubernetes
from dp_dask.clusters.kubernetes import plugin as Kubernetes  # noqa: N812
from dp_dask.entries.build import Faults
from dp_dask.entries.cluster import make_cluster
from dp_dask.errors import ClusterError
from dp_dask.hardened.certs import make_certs
from dp_dask.hardened.tls import Tls

POD = f"/api/v1/namespaces/dp-dask/pods/{platform.node()}"
CLUSTERS = "/apis/kubernetes.dask.org/v1/namespaces/dp-dask/daskclusters"
HELD = {
    POD: {"metadata": {"name": "driver", "uid": "u-1"}, "spec": {"containers": [{"image": "registry.example/dp-dask@sha256:1"}]}}
}
TEMPLATE = {
    "apiVersion": "kubernetes.dask.org/v1",
    "kind": "DaskCluster",
    "metadata": {"name": "night", "labels": {"dp-dask/zone": "private"}},
    "spec": {
        "scheduler": {"spec": {"containers": [{"name": "scheduler"}]}, "service": {"ports": []}},
        "worker": {
            "spec": {"containers": [{"name": "worker", "env": [{"name": "A", "value": "b"}]}, {"name": "x", "image": "other:1"}]}
        },
    },
}


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    return make_certs(tmp_path_factory.mktemp("kubernetes") / "tls", 1)


@pytest.fixture
def api(tmp_path, monkeypatch):
    with serving(tmp_path / "account", HELD) as api:
        monkeypatch.setattr(kubernetes, "ACCOUNT", tmp_path / "account")
        monkeypatch.setattr(kubernetes, "API", api.url)
        yield api


@pytest.fixture
def template(tmp_path):
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump(TEMPLATE))
    return file


def refused(made):
    with pytest.raises(ClusterError) as caught, made.client():
        pass
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert TOKEN not in str(caught.value)
    return str(caught.value)


def test_a_cluster_is_made_of_the_template_joined_over_tls_and_deleted(api, template, tmp_path, certs, monkeypatch):
    names = []
    with running(tmp_path / "dask", certs[0].parent, workers=2) as file:
        running_at = json.loads(file.read_text())["address"]
        monkeypatch.setattr(kubernetes, "_address", lambda name, namespace: (names.append((name, namespace)), running_at)[1])
        with Kubernetes(template=template, tls=Tls(*certs), workers=2).client() as client:
            assert client.submit(sum, [1, 2], pure=False).result() == 3
            (name,) = {name for name, _ in names}
            assert f"{CLUSTERS}/{name}" in api.held
    assert api.asked == [("GET", POD), ("POST", CLUSTERS), ("DELETE", f"{CLUSTERS}/{name}")]
    assert list(api.held) == [POD]


def test_what_is_made_is_the_template_with_an_owner_an_image_and_an_address_over_tls(api, template, monkeypatch):
    monkeypatch.setattr(kubernetes, "_await", lambda *_: (_ for _ in ()).throw(ClusterError("enough")))
    assert refused(Kubernetes(template=template, workers=3)) == "enough"
    (made,) = api.posted
    name = made["metadata"]["name"]
    assert name.startswith("night-")
    assert len(name) == len("night-") + 8
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": "u-1"}
    assert made["metadata"] == {
        "name": name,
        "namespace": "dp-dask",
        "labels": {"dp-dask/zone": "private"},
        "ownerReferences": [owner],
    }
    selector = {"dask.org/cluster-name": name, "dask.org/component": "scheduler"}
    assert made["spec"]["scheduler"]["service"] == {"ports": [], "selector": selector}
    assert made["spec"]["worker"]["replicas"] == 3
    address = {"name": "DASK_SCHEDULER_ADDRESS", "value": f"tls://{name}-scheduler.dp-dask.svc:8786"}
    image = "registry.example/dp-dask@sha256:1"
    assert made["spec"]["scheduler"]["spec"]["containers"] == [{"name": "scheduler", "image": image}]
    assert made["spec"]["worker"]["spec"]["containers"] == [
        {"name": "worker", "image": image, "env": [{"name": "A", "value": "b"}, address]},
        {"name": "x", "image": "other:1", "env": [address]},
    ]
    assert api.asked[-1] == ("DELETE", f"{CLUSTERS}/{name}"), "a cluster that did not come is deleted too"


def test_two_runs_have_clusters_of_different_names(api, template, monkeypatch):
    monkeypatch.setattr(kubernetes, "_await", lambda *_: (_ for _ in ()).throw(ClusterError("enough")))
    for _ in range(2):
        refused(Kubernetes(template=template))
    assert len({made["metadata"]["name"] for made in api.posted}) == 2


@pytest.mark.parametrize(
    ("method", "status", "told"),
    [
        (
            "GET",
            403,
            f"Kubernetes: GET {POD}: 403 Forbidden; give the service account the role of k8s/base: pods get, daskclusters",
        ),
        ("POST", 403, f"Kubernetes: POST {CLUSTERS}: 403 Forbidden; give the service account"),
        ("POST", 404, "404 Not Found; install the Dask operator"),
        ("POST", 422, "422 Unprocessable Entity; make the template what the operator's DaskCluster has"),
        ("POST", 500, "500 Internal Server Error; look at the API server and the network policy"),
    ],
)
def test_what_the_api_server_refuses_is_told_with_what_to_do(api, template, method, status, told):
    api.refuse[method] = status
    assert told in refused(Kubernetes(template=template))


def test_a_cluster_that_cannot_be_deleted_does_not_end_a_run_that_is_done(api, template, tmp_path, certs, monkeypatch):
    api.refuse["DELETE"] = 500
    with running(tmp_path / "dask", certs[0].parent) as file:
        monkeypatch.setattr(kubernetes, "_address", lambda *_: json.loads(file.read_text())["address"])
        with Kubernetes(template=template, tls=Tls(*certs)).client():
            pass
    assert api.asked[-1][0] == "DELETE"


def test_a_scheduler_that_never_listens_is_given_up_after_the_time_given(api, template, monkeypatch):
    monkeypatch.setattr(kubernetes, "_address", lambda *_: "tls://127.0.0.1:9")
    told = refused(Kubernetes(template=template, wait=1.0))
    assert told.startswith("tls://127.0.0.1:9: no scheduler listened within 1 s; look at the operator, the pods' events")
    assert api.asked[-1][0] == "DELETE"


def test_another_authority_s_server_is_not_told_the_token(api, template, tmp_path):
    from kubernetes_api import certificate

    other, _ = certificate(tmp_path / "other")
    (tmp_path / "account" / "ca.crt").write_text(other.read_text())
    assert f"Kubernetes: GET {POD}: URLError; look at the API server" in refused(Kubernetes(template=template))
    assert api.asked == []


def test_outside_a_pod_nothing_is_asked(template, tmp_path, monkeypatch):
    monkeypatch.setattr(kubernetes, "ACCOUNT", tmp_path / "none")
    assert "namespace: no service account is here; run in a pod with automountServiceAccountToken: true" in refused(
        Kubernetes(template=template)
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "cannot be read (No such file or directory); k8s/base/cluster.yaml is one"),
        ("a: [", "is not YAML"),
        ("kind: DaskJob", "is no DaskCluster with a name"),
        ("[]", "is no DaskCluster with a name"),
        ("kind: DaskCluster\nmetadata: {name: a}\nspec: {scheduler: {}, worker: {}}", "is no DaskCluster with a name"),
    ],
)
def test_a_template_that_is_none_is_told(api, template, text, told):
    template.unlink()
    if text is not None:
        template.write_text(text)
    found = refused(Kubernetes(template=template))
    assert found.startswith(f"cluster.template {template}: ")
    assert told in found
    assert api.posted == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "cluster.template: is missing"),
        ({"template": "a", "workers": 0}, "cluster: workers is 0; give how many"),
        ({"template": "a", "wait": 0}, "cluster: wait is 0.0; give a number of seconds"),
        ({"template": "a", "overrides": ["spill"]}, "cluster: overrides: 'spill' is none"),
        ({"template": "a", "namespace": "b"}, "cluster.namespace: unknown key"),
        ({"template": "a", "tls": {"ca": "a"}}, "cluster.tls.cert: is missing"),
    ],
)
def test_options_that_it_has_not_are_refused_by_their_place(tmp_path, options, told):
    faults = Faults(tmp_path)
    assert make_cluster({"kind": "kubernetes", **options}, faults) is None
    assert told in "\n".join(map(str, faults.problems))


def test_a_run_outside_a_pod_ends_with_the_cluster_s_exit_code_and_charges_nothing(tmp_path, template):
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"x": [0, 1, 1, 0]}), tmp_path / "data" / "part.parquet")
    (tmp_path / "p.yaml").write_text(
        "dataset: {name: people, source: {kind: parquet, path: data}, unit: record}\n"
        "privacy: {neighbours: replace, n: 4}\n"
        "measurements: {m: {model: bernoulli, column: x, epsilon: 1, prior: {alpha: 1, beta: 1}}}\n"
        f"ledger: sqlite:///ledger.db\ncluster: {{kind: kubernetes, template: {template}}}\n"
    )
    assert dp_dask(tmp_path, "ledger", "init", "p.yaml", "--epsilon", "1").returncode == 0
    done = dp_dask(tmp_path, "run", "p.yaml", "--output", "out")
    assert done.returncode == 5, done.stderr
    assert "no service account is here" in done.stderr
    assert "0 spent" in dp_dask(tmp_path, "ledger", "init", "p.yaml", "--epsilon", "1").stdout
