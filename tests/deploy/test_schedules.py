"""Schedules: units of systemd, a crontab, a DAG, and the script that tells a run its slot."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import types
from datetime import UTC, datetime, timedelta

import pytest
from deploy_tools import ROOT, says, tool

from dp_dask import errors
from dp_dask.entries.build import Faults
from dp_dask.entries.cluster import make_cluster

DEPLOY = ROOT / "deploy"
SCRIPT = DEPLOY / "dp-dask-scheduled"
UNITS = DEPLOY / "systemd"


@pytest.fixture
def scheduled(tmp_path):
    """Run the script with a command in the place of dp-dask that tells how it was called."""
    fake = tmp_path / "fake"
    fake.write_text('#!/bin/sh\necho "$@"\n[ -z "${PGPASSFILE:-}" ] || stat -c %a "$PGPASSFILE"\nexit ${CODE:-0}\n')
    fake.chmod(0o755)

    def run(*words, **env):
        env = {"PATH": os.environ["PATH"], "DP_DASK": str(fake), "TMPDIR": str(tmp_path), **env}
        return subprocess.run([SCRIPT, *words], env=env, capture_output=True, text=True, check=False)

    return run


def test_a_job_s_slot_is_the_minute_that_its_name_ends_in(scheduled):
    slot = datetime(2030, 1, 31, 2, 30, tzinfo=UTC)
    minutes = int(slot.timestamp()) // 60
    for name in (f"dp-dask-{minutes}", f"{minutes}"):
        assert scheduled("p.yaml", "--json", DP_DASK_JOB=name).stdout == "run p.yaml --slot 2030-01-31T02:30:00Z --json\n"


@pytest.mark.parametrize("name", ["dp-dask-by-hand", "dp-dask-", "dp-dask-12", "dp-dask-026000000", "dp-dask-2600000x"])
def test_a_job_whose_name_tells_no_slot_is_refused_as_a_configuration(scheduled, name):
    done = scheduled("p.yaml", DP_DASK_JOB=name)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"the Job's name {name} does not end in minutes since 1970" in done.stderr


@pytest.mark.parametrize(("every", "at"), [(86400, 9000), (3600, 60), (604800, 0)])
def test_without_a_job_the_slot_is_the_newest_that_has_begun(scheduled, every, at):
    before = datetime.now(UTC)
    told = scheduled("p.yaml", DP_DASK_EVERY=str(every), DP_DASK_AT=str(at)).stdout.split()[-1]
    slot = datetime.fromisoformat(told)
    assert (slot.timestamp() - at) % every == 0
    assert before - timedelta(seconds=every) < slot <= datetime.now(UTC)


def test_the_slot_that_is_given_is_taken_as_it_is(scheduled):
    assert scheduled("p.yaml", DP_DASK_SLOT="2030-01-31T02:30+01:00").stdout == "run p.yaml --slot 2030-01-31T02:30+01:00\n"


def test_the_exit_code_is_the_run_s_own(scheduled):
    for code in (0, 2, 3, 4, 5, 130):
        assert scheduled("p.yaml", DP_DASK_SLOT="x", CODE=str(code)).returncode == code
    assert scheduled().returncode == 2


def test_a_password_file_that_others_may_read_becomes_one_that_they_may_not(scheduled, tmp_path):
    secret = tmp_path / "pgpass"
    secret.write_text("ledger:5432:dp_dask:dp_dask:password\n")
    secret.chmod(0o440)
    assert scheduled("p.yaml", DP_DASK_SLOT="x", DP_DASK_PGPASS=str(secret)).stdout.splitlines()[1:] == ["600"]
    assert scheduled("p.yaml", DP_DASK_SLOT="x", DP_DASK_PGPASS=str(tmp_path / "none")).stdout.splitlines()[1:] == []


def placed(folder, text=None):
    """Write the units for one instance, with a program that is there."""
    units = {}
    for file in UNITS.iterdir():
        units[file.name] = folder / file.name.replace("@.", "@people.")
        given = text if text is not None and file.name == "dp-dask@.service" else file.read_text()
        units[file.name].write_text(re.sub(r"^ExecStart=/opt/\S+", "ExecStart=/bin/sh", given, flags=re.MULTILINE))
    return units


def exposure(analyze, unit):
    told = says(analyze, "security", "--offline=true", "--no-pager", unit).stdout
    return float(re.search(r"Overall exposure level for \S+: ([\d.]+)", told).group(1))


def test_the_units_are_what_systemd_takes_and_expose_little(tmp_path):
    analyze = tool("systemd-analyze")
    units = placed(tmp_path)
    assert says(analyze, "verify", *units.values()).stdout == ""
    assert exposure(analyze, units["dp-dask@.service"]) <= 3.0


@pytest.mark.parametrize(
    ("line", "changed", "told"),
    [
        ("Restart=on-failure", "Restart=always", "Restart="),
        ("DynamicUser=yes", "DynamicUser=perhaps", "Failed to parse boolean"),
        ("[Service]", "[Servce]", "dp-dask@"),
    ],
)
def test_units_that_systemd_does_not_take_are_found(tmp_path, line, changed, told):
    analyze = tool("systemd-analyze")
    text = (UNITS / "dp-dask@.service").read_text()
    assert line in text
    units = placed(tmp_path, text.replace(line, changed))
    assert told in says(analyze, "verify", units["dp-dask@.service"], check=False).stdout


def test_a_unit_without_its_fences_exposes_much(tmp_path):
    analyze = tool("systemd-analyze")
    text = (UNITS / "dp-dask@.service").read_text().split("DynamicUser=yes")[0]
    assert exposure(analyze, placed(tmp_path, text)["dp-dask@.service"]) > 8


def test_the_units_do_what_an_unattended_run_needs():
    service = (UNITS / "dp-dask@.service").read_text().splitlines()
    for line in (
        "Type=oneshot",
        "DynamicUser=yes",
        "UMask=0077",
        "ProtectSystem=strict",
        "StateDirectory=dp-dask",
        "KillSignal=SIGINT",
        "RestartPreventExitStatus=1 2 3 4 130",
    ):
        assert line in service
    timer = (UNITS / "dp-dask@.timer").read_text()
    assert "Persistent=true" in timer
    at = re.search(r"^OnCalendar=\*-\*-\* (\d\d):(\d\d):00 UTC$", timer, re.MULTILINE)
    seconds = int(at.group(1)) * 3600 + int(at.group(2)) * 60
    assert f"Environment=DP_DASK_EVERY=86400 DP_DASK_AT={seconds}" in service, "the slots are those of the timer"


def test_the_crontab_is_what_cron_takes(tmp_path):
    crontab = tool("crontab")
    says(crontab, "-n", DEPLOY / "crontab")
    bad = tmp_path / "crontab"
    bad.write_text((DEPLOY / "crontab").read_text().replace("30 2 * * *", "30 2 * *"))
    assert says(crontab, "-n", bad, check=False).returncode != 0


def test_the_crontab_s_line_runs_the_minute_that_it_started_in(tmp_path):
    line = (DEPLOY / "crontab").read_text().splitlines()[-1]
    command = line.split(maxsplit=5)[5].replace(r"\%", "%")  # as cron does
    fake = tmp_path / "dp-dask-scheduled"
    fake.write_text(f'#!/bin/sh\necho "$DP_DASK_SLOT $1" >{tmp_path}/told\n')
    fake.chmod(0o755)
    before = datetime.now(UTC).replace(second=0, microsecond=0)
    says("sh", "-c", command, env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)})
    slot, file = (tmp_path / "told").read_text().split()
    assert before <= datetime.fromisoformat(slot) <= datetime.now(UTC)
    assert file == f"{tmp_path}/people.yaml"


def test_the_runbook_tells_of_every_exit_code_and_its_links_lead_somewhere():
    text = (DEPLOY / "RUNBOOK.md").read_text() + (DEPLOY / "README.md").read_text()
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    ours = {error.exit_code for error in (errors.DpDaskError, *errors.DpDaskError.__subclasses__())}
    assert ours | {0, 130} <= told
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (DEPLOY / target).exists(), target
    for file in re.findall(r"^\| `([^`]+)` \|", (DEPLOY / "README.md").read_text(), re.MULTILINE):
        assert (DEPLOY / file).exists(), file


@pytest.mark.parametrize("name", ["night", "step"])
def test_the_clusters_of_slurm_are_what_dp_dask_takes(name, tmp_path):
    shutil.copy(DEPLOY / "slurm" / "clusters.yaml", tmp_path)
    faults = Faults(tmp_path)
    assert make_cluster(name, faults) is not None, faults.problems
    assert make_cluster("evening", faults) is None
    assert "named here: night, step" in str(faults.problems[0])


def test_the_dag_is_one_call_that_is_never_repeated_by_itself(monkeypatch):
    """With stand-ins for Airflow's two classes that keep what they are given."""
    file = DEPLOY / "airflow" / "dp_dask_dag.py"
    made = {}

    class Dag:
        def __init__(self, **options):
            made["dag"] = options

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

    sdk, bash = types.ModuleType("airflow.sdk"), types.ModuleType("airflow.providers.standard.operators.bash")
    sdk.DAG, bash.BashOperator = Dag, lambda **options: made.setdefault("tasks", []).append(options)
    for module in (types.ModuleType("airflow"), sdk, bash):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(file.read_text(), file, "exec"), {"__name__": "dag"})  # noqa: S102  (as Airflow does)
    assert {key: made["dag"][key] for key in ("catchup", "max_active_runs", "default_args")} == {
        "catchup": False,
        "max_active_runs": 1,
        "default_args": {"retries": 0},
    }
    (task,) = made["tasks"]
    assert task["bash_command"].endswith('dp-dask run /etc/dp-dask/people.yaml --slot "{{ ts }}"')
    imported = [node.module for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
    assert not any(name.startswith("dp_dask") for name in imported), "Airflow needs no dp_dask of its own"
