"""Disks of a test's own: small file systems in memory, which can be full, or read-only."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def why_not(folder: Path) -> str:
    """Say why nothing can be mounted here; empty where it can."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return "file systems are mounted by root"
    tried = folder / "tried"
    tried.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", tried], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        subprocess.run(["umount", tried], check=True)
    return f"nothing can be mounted here: {done.stderr.strip()}" if done.returncode else ""


@contextmanager
def disk(folder: Path, size: str = "64k") -> Iterator[Path]:
    """Mount a disk of this size at the folder."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def remount(folder: Path, option: str) -> None:
    """Change a disk: ro, rw, or size=.."""
    subprocess.run(["mount", "-o", f"remount,{option}", folder], check=True)


def fill(folder: Path) -> Path:
    """Fill a disk; return the file that does."""
    with (folder / "filler").open("wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(2**12))
            except OSError:
                return folder / "filler"
