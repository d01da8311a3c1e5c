"""Slurm: one node of it on this machine, all of its state in one folder (Debian: slurmctld slurmd slurm-client munge)."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

NEEDED = ("munged", "slurmctld", "slurmd", "sinfo", "sbatch", "srun", "scancel")
CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge/sock
SlurmUser=root
SlurmdUser=root
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ReturnToService=2
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=16000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str:
    """Say why Slurm cannot run here; empty where it can."""
    if os.geteuid() != 0:
        return "one-node Slurm is started as root"
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    missing = [command for command in NEEDED if shutil.which(command, path=path) is None]
    return f"not installed: {', '.join(missing)} (Debian: slurmctld slurmd slurm-client munge)" if missing else ""


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextlib.contextmanager
def running(folder: Path) -> Iterator[dict[str, str]]:
    """Start munge, slurmctld and slurmd; give the environment that its commands need."""
    host = socket.gethostname().split(".")[0]
    for name in ("munge", "state", "spool"):
        (folder / name).mkdir(parents=True)
    key, conf = folder / "munge" / "key", folder / "slurm.conf"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    (folder / "munge").chmod(0o700)
    conf.write_text(CONF.format(host=host, folder=folder, ports=_free_ports(2)))
    env = os.environ | {"SLURM_CONF": str(conf), "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    munge = folder / "munge"
    files = [f"--{name}-file={munge / name}" for name in ("key", "pid", "seed", "log")]

    def do(*command: str) -> str:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    try:
        do("munged", "--force", f"--socket={munge / 'sock'}", *files)
        do("slurmctld")
        do("slurmd")
        until = time.monotonic() + 60
        while "idle" not in do("sinfo", "-h", "-o", "%T"):
            assert time.monotonic() < until, (folder / "slurmctld.log").read_text()
            time.sleep(0.2)
        yield env
    finally:
        with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
            do("scancel", "--user=root")
        for name in ("slurmd.pid", "slurmctld.pid", "munge/pid"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int((folder / name).read_text()), signal.SIGTERM)
