"""File systems: where an SQLite ledger cannot be, as the locks of a network's file system do not keep two writers apart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

__all__ = ["NETWORK", "file_system", "network_file_system"]

MOUNTS = Path("/proc/self/mountinfo")  # of Linux alone
NETWORK = frozenset(
    ["9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfarm", "glusterfs", "gpfs", "juicefs", "lustre", "ncpfs"]
    + ["nfs", "nfs4", "orangefs", "panfs", "pvfs2", "quobyte", "smb2", "smb3", "smbfs", "wekafs"]
    + [f"fuse.{name}" for name in ("beegfs", "blobfuse", "blobfuse2", "ceph", "ceph-fuse", "curlftpfs", "davfs2", "gcsfuse")]
    + [f"fuse.{name}" for name in ("glusterfs", "goofys", "juicefs", "mfs", "mount-s3", "mountpoint-s3", "quobyte", "rclone")]
    + [f"fuse.{name}" for name in ("s3fs", "smbnetfs", "sshfs")]
)


@dataclass(frozen=True, slots=True)
class _Mount:
    id: str
    parent: str
    point: PurePosixPath
    kind: str


def file_system(path: PurePosixPath, mounts: str) -> str | None:
    """Return the kind of file system that an absolute path without links lies on, or None where that is not told.

    ``mounts`` is the text of /proc/self/mountinfo. The way from the root is followed, mount by mount, so that a mount over
    another hides what is below it.
    """
    known = [mount for mount in map(_parsed, mounts.splitlines()) if mount is not None]
    ids = {mount.id for mount in known}
    now = next((m for m in known if m.point == PurePosixPath("/") and (m.parent not in ids or m.parent == m.id)), None)
    while now is not None:
        inside = [m for m in known if m.parent == now.id != m.id and path.is_relative_to(m.point)]
        if not inside:
            return now.kind
        now = min(inside, key=lambda m: len(m.point.parts))
    return None


def network_file_system(path: Path) -> str | None:
    """Return the kind of a network's file system that a path lies on, or will once it is made; None for any other."""
    try:
        mounts = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
        whole = PurePosixPath(path.resolve())
    except (OSError, RuntimeError):  # not Linux; links in a circle, which opening the file will tell
        return None
    kind = file_system(whole, mounts)
    return kind if kind in NETWORK else None


def _parsed(line: str) -> _Mount | None:
    """Read "id parent device root point options [fields ...] - kind source options" (proc(5))."""
    mount, dash, system = line.partition(" - ")
    fields = mount.split(" ")
    if not dash or len(fields) < 6:  # noqa: PLR2004
        return None
    point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])  # spaces are written as \040
    return _Mount(fields[0], fields[1], PurePosixPath(point), system.split(" ")[0])
