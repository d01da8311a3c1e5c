"""Whole runs on an object store: the release of a disk, no credential in a task, and wrong ones refused before any charge."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import traceback
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import cloudpickle
import dask
import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
import yaml
from commands import dp_dask
from distributed import Client
from servers import S3, SECRETS, s3

from dp_dask.config import load
from dp_dask.errors import SourceError
from dp_dask.gate.ledger import Ledger
from dp_dask.pipeline import run

MORE_SECRETS = {"profile": "planted/profile/7732+of/the/tests", "token": "planted-token-7733", "config": "planted-config-7734"}
N = 400


@pytest.fixture(scope="module")
def store() -> Iterator[S3]:
    with s3() as server:
        yield server


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Files whose total is known: 0, 1, .., each with another number of ones."""
    folder = tmp_path / "data"
    for i in range(4):
        (folder / f"y={i % 2}").mkdir(parents=True, exist_ok=True)
        table = pa.table({"x": np.repeat([1, 0], [10 * i + 3, N // 4 - 10 * i - 3])})
        pq.write_table(table, folder / f"y={i % 2}" / f"part-{i}-7731.parquet", row_group_size=30)
    return folder


ONES = 0 + 10 + 20 + 30 + 4 * 3


def pipeline(folder: Path, name: str, source: dict, **more) -> Path:
    """Write a file whose release is the total: its noise is zero but once in 10^20 runs."""
    content = {
        "dataset": {"name": name, "source": {"kind": "parquet", **source}, "unit": "record"},
        "privacy": {"neighbours": "replace", "n": N},
        "measurements": {"m": {"model": "bernoulli", "column": "x", "epsilon": 48, "prior": {"alpha": 1, "beta": 1}}},
        "ledger": "sqlite:///ledger.db",
        "output": "out",
        **more,
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def secrets_in(text: str | bytes) -> list[str]:
    given = text if isinstance(text, bytes) else text.encode()
    return [secret for secret in (*SECRETS.values(), *MORE_SECRETS.values()) if secret.encode() in given]


def assert_no_secret(folder: Path, *done: subprocess.CompletedProcess[str]) -> None:
    for each in done:
        assert not secrets_in(each.stdout + each.stderr)
        assert "Traceback" not in each.stderr
    for path in folder.rglob("*"):
        assert not (path.is_file() and secrets_in(path.read_bytes())), path


def test_the_command_line_releases_the_same_total_from_a_store_as_from_a_disk(store: S3, tmp_path: Path, data: Path):
    """And a worker of its own finds the credentials in its own environment."""
    store.upload(data, "run")
    pipeline(tmp_path, "disk", {"path": "data"})
    pipeline(
        tmp_path,
        "store",
        {"path": "s3://records/run", "filesystem": store.options},
        cluster={"kind": "local", "processes": True, "workers": 1},
    )
    done, sums = [], []
    for name in ("disk", "store"):
        done += [
            dp_dask(tmp_path, *words)
            for words in (("ledger", "init", f"{name}.yaml", "--epsilon", "48"), ("check", f"{name}.yaml", "--json"))
        ]
        done.append(dp_dask(tmp_path, "run", f"{name}.yaml", "--json"))
        assert [each.returncode for each in done] == [0] * len(done), done[-1].stderr
        folder = tmp_path / json.loads(done[-1].stdout)["folder"]
        sums.append(json.loads((folder / "release.json").read_text())["measurements"]["m"]["release"]["noisy_sums"])
    assert sums[0] == sums[1] == [ONES]
    assert json.loads(done[1].stdout)["source"] == json.loads(done[4].stdout)["source"]
    again = dp_dask(tmp_path, "run", "store.yaml")
    assert "charged: nothing" in again.stdout
    assert_no_secret(tmp_path, *done, again)


@pytest.mark.parametrize("allowed", [0, 7, 11, 15, 20])
def test_credentials_that_are_refused_at_any_moment_end_a_run_before_it_is_charged(
    store: S3, tmp_path: Path, data: Path, allowed: int
):
    """So many requests are answered: too few to list, to check, to read the first or a later file, or to list at the end."""
    store.upload(data, "refused")
    pipeline(tmp_path, "p", {"path": store.uri("refused")})
    granted = dp_dask(tmp_path, "ledger", "init", "p.yaml", "--epsilon", "48")
    with store.guarded(allowed):
        done = dp_dask(tmp_path, "run", "p.yaml")
    assert done.returncode == 4, done.stderr
    where = {0: "s3://records/refused", 20: "s3://records/refused"}.get(allowed, "/part-")
    assert re.search(f"{where}.*: s3://records may not be read with the credentials at hand", done.stderr)
    assert json.loads(dp_dask(tmp_path, "ledger", "show", "p.yaml", "--json").stdout)["p"]["spent"] == "0"
    assert_no_secret(tmp_path, granted, done)


# Tasks


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put credentials wherever a library may look for them."""
    home = tmp_path / "home"
    home.mkdir()
    lines = ["[default]", "aws_access_key_id = AKIAOFPROFILE", f"aws_secret_access_key = {MORE_SECRETS['profile']}"]
    (home / "credentials").write_text("\n".join([*lines, ""]))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(home / "credentials"))
    monkeypatch.setenv("AWS_SESSION_TOKEN", MORE_SECRETS["token"])
    monkeypatch.setenv("DASK_S3__SECRET", MORE_SECRETS["config"])
    with dask.config.set({"s3": {"key": SECRETS["AWS_ACCESS_KEY_ID"], "secret": MORE_SECRETS["config"]}}):
        yield


def watched(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the bytes of all tasks as they are submitted, and of all that goes through a socket."""
    seen: list[bytes] = []

    def watching(submit):
        def submitted(self, function, *arguments, **options):
            seen.append(cloudpickle.dumps((function, arguments, options)))
            return submit(self, function, *arguments, **options)

        return submitted

    from distributed.comm import tcp

    to_frames = tcp.to_frames

    async def sent(*arguments, **options):
        frames = await to_frames(*arguments, **options)
        seen.append(b"".join(bytes(frame) for frame in frames))
        return frames

    for name in ("submit", "map"):
        monkeypatch.setattr(Client, name, watching(getattr(Client, name)))
    monkeypatch.setattr(tcp, "to_frames", sent)
    return seen


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("kind", ["threads", "processes"])
@pytest.mark.parametrize("is_refused", [False, True])
def test_no_task_log_or_exception_holds_a_credential(
    store: S3,
    tmp_path: Path,
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    kind: str,
    is_refused: bool,  # noqa: FBT001
):
    caplog.set_level(logging.DEBUG)
    store.upload(data, "tasks")
    cluster = {"kind": "local", "processes": kind == "processes", "workers": 1}
    loaded = load(pipeline(tmp_path, "p", {"path": store.uri("tasks")}, cluster=cluster))
    ledger = Ledger(loaded.ledger)
    ledger.open_dataset("p", loaded.neighbours, Decimal(48), who="w", why="y")
    seen = watched(monkeypatch)
    said = ""
    if is_refused:
        with store.guarded(13), pytest.raises(SourceError, match="s3://records may not be read") as caught:
            run(loaded)
        said = "".join(traceback.format_exception(caught.value))
        assert ledger.balance("p").spent == 0
    else:
        run(loaded)
    ledger.close()
    everything = b"\n".join(seen)
    assert b"part-3-7731.parquet" in everything  # the tasks are among what was seen
    assert not secrets_in(everything)
    assert not secrets_in(said + caplog.text + "".join(capfd.readouterr()))


def test_a_filesystem_in_a_task_would_be_found():
    """As pyarrow pickles its secret."""
    filesystem = pafs.S3FileSystem(
        access_key=os.environ.get("AWS_ACCESS_KEY_ID", "x"), secret_key=SECRETS["AWS_SECRET_ACCESS_KEY"], region="x"
    )
    assert secrets_in(cloudpickle.dumps(filesystem))
