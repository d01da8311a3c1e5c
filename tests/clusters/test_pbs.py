"""PBS: there is none here, so what is tested is the job script that it would be given, by stand-ins for its commands."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

from dp_dask.clusters.pbs import plugin as Pbs  # noqa: N812
from dp_dask.errors import ClusterError

QSUB = """#!/bin/sh
cat "$1" > "{folder}/script.$$"
echo "$$.pbs"
"""


def test_a_job_is_given_the_settings_the_certificates_and_the_options(tmp_path, monkeypatch):
    for name, text in (("qsub", QSUB.format(folder=tmp_path)), ("qdel", f'#!/bin/sh\necho "$@" >> {tmp_path}/deleted\n')):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    cluster = Pbs(jobs=2, memory="4GB", cores=2, shared=tmp_path / "shared", interface="lo", wait=3.0,
                  prologue=["module load python"], options={"queue": "short", "resource_spec": "select=1"})  # fmt: skip
    with pytest.raises(ClusterError, match="0 of 1 workers came within 3 s"), cluster.client():
        pass
    scripts = [path.read_text() for path in tmp_path.glob("script.*")]
    assert len(scripts) == 2
    for script in scripts:
        assert "#PBS -q short\n" in script
        assert "#PBS -l select=1\n" in script
        assert "#PBS -l walltime=01:00:00\n" in script
        lines = script.splitlines()
        started = next(i for i, line in enumerate(lines) if "dask_worker" in line)
        for wanted in ("umask 077", "module load python", "export DASK_DISTRIBUTED__WORKER__MEMORY__SPILL='False'"):
            assert lines.index(wanted) < started
        assert "tls://127.0.0.1:" in lines[started]
        assert "--tls-ca-file" in lines[started]
        assert "BEGIN" not in script  # certificates are named, not written into it
    assert len((tmp_path / "deleted").read_text().split()) == 2
    assert list((tmp_path / "shared").iterdir()) == []


def test_without_its_commands_it_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="qsub is not here; run where"), Pbs(jobs=1, memory="1GB", shared=tmp_path).client():
        pass


def test_ctrl_c_stays_ours(tmp_path):
    """dask-jobqueue takes the signals when it is imported, and would end a run with exit code 0."""
    code = (
        "import signal; from pathlib import Path; from dp_dask.clusters.pbs import plugin; "
        "before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]; "
        f"plugin(jobs=1, memory='1GB', shared=Path({str(tmp_path)!r}), options={{'queue': 'a'}}); "
        "import sys; assert 'dask_jobqueue' in sys.modules; "
        "assert before == [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
