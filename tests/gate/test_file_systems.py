"""File systems: found from the text of mountinfo alone, and refused for an SQLite ledger where a network lies under them."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from dp_dask.errors import ConfigError
from dp_dask.gate import file_systems
from dp_dask.gate.file_systems import file_system
from dp_dask.gate.ledger import Ledger

MOUNTS = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
24 27 0:6 / /dev rw - devtmpfs devtmpfs rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 27 0:40 / /home rw,relatime shared:7 master:2 - nfs4 server:/export/home rw,vers=4.2
31 30 8:1 / /home/ann/scratch rw - xfs /dev/sda1 rw
32 27 0:41 / /mnt/two\040words rw - cifs //server/share rw
33 27 0:42 / /data rw - lustre mds@tcp:/l rw
34 33 0:43 / /data/old rw - ext4 /dev/sdb1 rw
35 27 0:44 / /work rw - tmpfs tmpfs rw
36 35 0:45 / /work rw - fuse.sshfs ann@server: rw
37 27 0:46 / /srv/a rw - ext4 /dev/sdc1 rw
38 27 0:47 / /srv rw - ceph 10.0.0.1:/ rw
39 27 0:48 / /net rw - autofs systemd-1 rw
40 39 0:49 / /net/x rw - nfs server:/x rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/homes/ann", "ext4"),
        ("/home/ann/ledger.db", "nfs4"),
        ("/home/ann/scratch/ledger.db", "xfs"),
        ("/home/ann/scratched", "nfs4"),
        ("/mnt/two words/l.db", "cifs"),
        ("/mnt/two", "ext4"),
        ("/data/l.db", "lustre"),
        ("/data/old/l.db", "ext4"),
        ("/work/l.db", "fuse.sshfs"),  # mounted over another at the same place
        ("/srv/a/l.db", "ceph"),  # mounted over a folder that holds a mount
        ("/net/x/l.db", "nfs"),
        ("/proc/self", "proc"),
    ],
)
def test_the_file_system_of_a_path_is_that_of_the_last_mount_on_its_way(path, kind):
    assert file_system(PurePosixPath(path), MOUNTS) == kind
    assert file_system(PurePosixPath(path), "\n".join(reversed(MOUNTS.splitlines()))) == kind  # in whatever order they are told


@pytest.mark.parametrize("text", ["", "nonsense", "1 2 3 - ", "27 27 0:1 / /other rw - ext4 x rw"])
def test_what_is_not_told_is_not_guessed(text):
    assert file_system(PurePosixPath("/a"), text) is None


def test_the_file_system_of_this_machine_is_found():
    if not file_systems.MOUNTS.exists():
        pytest.skip("not Linux")
    assert file_system(PurePosixPath("/proc/self/status"), file_systems.MOUNTS.read_text()) == "proc"


NETWORKS = ["nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "fuse.sshfs", "9p"]


@pytest.mark.parametrize("kind", [*NETWORKS, "ext4", "xfs", "btrfs", "tmpfs", "overlay", "fuseblk"])
def test_an_sqlite_ledger_on_a_network_s_file_system_is_refused_before_anything_is_made(tmp_path, monkeypatch, kind):
    (tmp_path / "mounts").write_text(f"1 0 0:1 / / rw - ext4 x rw\n2 1 0:2 / {tmp_path}/net rw - {kind} server:/x rw\n")
    monkeypatch.setattr(file_systems, "MOUNTS", tmp_path / "mounts")
    (tmp_path / "net").mkdir()
    (tmp_path / "link").symlink_to("net")
    Ledger(f"sqlite:///{tmp_path}/ledger.db").close()
    Ledger("postgresql+psycopg://u@h/d").close()
    for folder in ("net", "net/not/yet", "link", "link/../net"):
        url = f"sqlite:///{tmp_path}/{folder}/ledger.db"
        if kind not in NETWORKS:
            Ledger(url).close()
            continue
        with pytest.raises(ConfigError, match=rf"is on {kind}, a network's file system.*use PostgreSQL") as caught:
            Ledger(url)
        assert caught.value.exit_code == 2
    assert list((tmp_path / "net").iterdir()) == []


def test_where_there_is_no_mountinfo_nothing_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(file_systems, "MOUNTS", Path("/no/such/file"))
    Ledger(f"sqlite:///{tmp_path}/ledger.db").close()
