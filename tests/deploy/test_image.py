"""The image and the services of one machine: linted, held against what we promise, and where it is asked for really built."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
from pathlib import Path

import pytest
import yaml
from deploy_tools import ROOT, says, tool

DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "Dockerfile"
BUILD = os.environ.get("DP_DASK_BUILD_IMAGE")


def test_the_dockerfile_has_no_fault(tmp_path):
    hadolint = tool("hadolint")
    assert says(hadolint, "--no-color", DOCKERFILE).stdout == ""
    bad = tmp_path / "Dockerfile"
    bad.write_text(DOCKERFILE.read_text() + "USER root\n")
    assert "DL3002" in says(hadolint, "--no-color", bad, check=False).stdout


def test_the_dockerfile_is_what_the_manifests_rely_on():
    text = DOCKERFILE.read_text()
    last = text[text.rindex("\nFROM ") :]
    assert re.search(r"^USER 10001:10001$", last, re.MULTILINE)
    assert "STOPSIGNAL SIGINT" in last
    assert text.count("FROM ${BASE}") == 2, "the base is given from outside"
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    copied = [word for line in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE) for word in line.split()]
    assert copied
    for path in copied:
        assert (ROOT / path).exists(), path
        assert f"!{path.split('/')[0]}" in ignored, path


def compose():
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def faults(given):
    """Name all of the services that is not as it must be."""
    found = []
    for name, service in given["services"].items():
        if "ports" in service or service.get("network_mode"):
            found.append(f"{name}: a port is open to the outside")
        if not service.get("read_only") or service.get("cap_drop") != ["ALL"] or service.get("privileged"):
            found.append(f"{name}: has a writable root, or privileges")
        if service.get("security_opt") != ["no-new-privileges:true"] or service.get("user", "0").split(":")[0] in {"0", "root"}:
            found.append(f"{name}: may be root")
        if not service.get("mem_limit"):
            found.append(f"{name}: has no limit")
        if not re.fullmatch(r"\$\{\w+:-[\w/.-]+:[\w.-]+\}", service["image"]):
            found.append(f"{name}: its image is not pinned by a name that can be set")
        if re.search(r"PASSWORD(?!_FILE)", json.dumps(service)):
            found.append(f"{name}: a password stands in the environment")
        if any("/records" in volume and not volume.endswith("/records:ro") for volume in service.get("volumes", [])):
            found.append(f"{name}: may write to records")
        if "dask" in service.get("command", [])[:1] and "tls" not in json.dumps(service["command"]):
            found.append(f"{name}: is not encrypted")
    found += [f"{name}: leads outside" for name, network in given["networks"].items() if not network.get("internal")]
    return [*found, *(f"{name}: is no file" for name, secret in given["secrets"].items() if set(secret) != {"file"})]


def test_the_services_of_one_machine_are_as_we_promise():
    given = compose()
    assert faults(given) == []
    services = given["services"]
    assert set(services) == {"scheduler", "worker", "driver", "ledger"}
    assert [name for name, service in services.items() if "ledger" in service["networks"]] == ["driver", "ledger"]
    assert [name for name, service in services.items() if any("/records" in v for v in service.get("volumes", []))] == ["worker"]
    named = yaml.safe_load(services["driver"]["environment"]["DASK_DP_DASK__CLUSTERS"])
    assert named["compose"]["driver_sees_records"] is False
    for name in ("scheduler", "worker", "driver"):
        assert "./dask.yaml:/etc/dask/dask.yaml:ro" in services[name]["volumes"]
        assert {"tls_ca", "tls_cert", "tls_key"} <= set(services[name]["secrets"])
    assert services["driver"]["profiles"] == ["run"], "it is started by a schedule, not with the rest"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda s: s["services"]["scheduler"].update(ports=["8786:8786"]), "scheduler: a port is open"),
        (lambda s: s["services"]["worker"].pop("read_only"), "worker: has a writable root"),
        (lambda s: s["services"]["ledger"].update(user="0:0"), "ledger: may be root"),
        (lambda s: s["services"]["driver"].pop("mem_limit"), "driver: has no limit"),
        (lambda s: s["services"]["driver"].update(image="dp-dask"), "driver: its image is not pinned"),
        (lambda s: s["services"]["ledger"]["environment"].update({"POSTGRES_PASSWORD": "x"}), "ledger: a password stands"),
        (lambda s: s["services"]["worker"]["volumes"].append("/data:/records"), "worker: may write to records"),
        (lambda s: s["services"]["scheduler"].update(command=["dask", "scheduler"]), "scheduler: is not encrypted"),
        (lambda s: s["networks"]["private"].pop("internal"), "private: leads outside"),
        (lambda s: s["secrets"]["tls_key"].update(environment="KEY"), "tls_key: is no file"),
    ],
)
def test_services_that_break_a_promise_are_found(change, told):
    given = copy.deepcopy(compose())
    change(given)
    assert any(told in fault for fault in faults(given))


def test_the_driver_s_cluster_is_what_dp_dask_takes(tmp_path):
    import dask

    from dp_dask.entries.build import Faults
    from dp_dask.entries.cluster import make_cluster

    env = compose()["services"]["driver"]["environment"]
    told = {key: value for key, value in env.items() if key.startswith("DASK_DP")}
    with dask.config.set(dask.config.collect_env(told)):
        faults = Faults(tmp_path)
        made = make_cluster(env["DP_DASK_CLUSTER"], faults)
        assert faults.problems == []
        assert (made.address, made.workers) == ("tls://scheduler:8786", compose()["services"]["worker"]["deploy"]["replicas"])


@pytest.mark.skipif(
    BUILD is None, reason="takes minutes and gigabytes: set DP_DASK_BUILD_IMAGE=1 (as root, with buildah and mmdebstrap)"
)
def test_the_image_is_built_and_runs_a_pipeline_as_nobody_in_particular(tmp_path):
    """On a base of Debian's packages, so that no registry of images is needed; the machine lends pip its settings."""
    buildah, mmdebstrap = tool("buildah"), tool("mmdebstrap")
    (tmp_path / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{tmp_path}/store"\nrunroot = "{tmp_path}/run"\n'
    )
    policy = tmp_path / "policy.json"
    policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    env = {**os.environ, "CONTAINERS_STORAGE_CONF": str(tmp_path / "storage.conf")}
    trusting = ("--signature-policy", policy)

    def lent(*paths):
        return [word for path in paths if Path(path).exists() for word in ("--volume", f"{path}:{path}:ro")]

    try:
        base = "--include=ca-certificates,python3,python3-venv,python3-pip"
        says(mmdebstrap, "--variant=minbase", base, "bookworm", tmp_path / "base.tar")
        empty = says(buildah, *trusting, "from", "scratch", env=env).stdout.strip()
        says(buildah, "add", "--quiet", empty, tmp_path / "base.tar", "/", env=env)
        says(buildah, "commit", "--quiet", *trusting, "--rm", empty, "localhost/base:1", env=env)
        says(
            *(buildah, "bud", *trusting, "--isolation", "chroot", "--format", "docker", "--file", DOCKERFILE),
            *("--build-arg", "BASE=localhost/base:1", *lent("/etc/ssl/certs", "/etc/pip.conf", "/etc/xdg/pip")),
            *("--tag", "localhost/dp-dask:1", ROOT),
            env=env,
        )
        made = says(buildah, *trusting, "from", "localhost/dp-dask:1", env=env).stdout.strip()

        def inside(script, *options):
            return says(buildah, "run", "--isolation", "chroot", *options, made, "--", "sh", "-c", script, env=env, check=False)

        told = inside('id -u; for f in / /etc/dask /opt/dp-dask /usr/local/bin; do touch "$f/x" && echo "wrote $f"; done').stdout
        assert told.startswith("10001\n")
        assert "wrote" not in told
        state = "s#sqlite:.*#sqlite:////var/lib/dp-dask/ledger.db#; s#[.][.]/runs#/var/lib/dp-dask/runs#"
        script = (
            f'sed "s#path: data#path: /pipelines/data#; {state}" /pipelines/rand_hie.yaml > /tmp/p.yaml'
            " && dp-dask ledger init /tmp/p.yaml --epsilon 2 && dp-dask run /tmp/p.yaml"
            " && python -c \"import importlib.util as u; print([u.find_spec(name) for name in ('bokeh', 'pip')])\""
        )
        done = inside(script, "--volume", f"{ROOT}/pipelines:/pipelines:ro")
        assert done.returncode == 0, done.stdout
        assert "[None, None]" in done.stdout
        assert "budget of rand-hie: 0.6 of 2 spent" in done.stdout
    finally:
        shutil.rmtree(tmp_path / "store", ignore_errors=True)
