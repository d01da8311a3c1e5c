"""Sources on an object store: the same records as from a disk, through a real server on the loopback interface.

Of Google's and Microsoft's stores there is none to be had here: how they are reached and what is refused is tested, not that they
answer.
"""

from __future__ import annotations

import bz2
import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.ipc as pai
import pytest
from core.exact import make_statistic
from private.tables import CANARY, Csv, Parquet, read, write
from servers import S3, SECRETS, s3

from dp_dask.core.sensitive import reveal
from dp_dask.core.statistic import Total
from dp_dask.errors import SourceError
from dp_dask.private import filesystems, listing
from dp_dask.private.attempts import Failure
from dp_dask.private.reduce import reduce_split
from dp_dask.private.sources.ipc import plugin as Ipc  # noqa: N812
from dp_dask.private.uris import Options, Uri

STATISTIC = make_statistic(0, 30)


@pytest.fixture(scope="module")
def store() -> Iterator[S3]:
    with s3() as server:
        yield server


def names(source) -> list[str]:
    return [file.name for file in source.files.listed()]


def refusal(source) -> str:
    with pytest.raises(SourceError) as caught:
        source.check(["x"])
    assert caught.value.__context__ is None
    said = str(caught.value)
    assert not any(secret in said for secret in SECRETS.values())
    return said


def lay(store: S3, prefix: str, *keys: str) -> Parquet:
    for key in keys:
        store.put(f"{prefix}/{key}", b"" if key.endswith(("/", "_$folder$")) else b"x")
    return Parquet(path=Uri(store.uri(prefix)))


# What is there


def test_what_is_no_data_on_a_disk_is_none_in_a_store_and_neither_are_markers_of_folders(store: S3, tmp_path: Path):
    data = ["b/2", "b/10", "a.parquet", "_k=1/x", "k=a%20b/c d", "é", "a*", "b[1]"]
    ignored = ["_SUCCESS", "_metadata", ".hidden", "a.crc", "_temporary/x", ".x/y", "b/_SUCCESS", "_x=1"]
    for name in data + ignored:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    source = lay(store, "laid", *data, *ignored, "", "b/", "empty/", "b_$folder$", "q?", "more//y")
    assert names(source) == sorted([*names(Parquet(path=tmp_path)), "q?", "more//y"])
    assert names(Parquet(path=Uri(store.uri("laid/")))) == names(source)


def test_an_object_alone_is_its_name_and_one_whose_name_begins_another_is_not_both(store: S3):
    lay(store, "alone", "a.parquet", "a.parquet.bak", "ab/c")
    assert names(Parquet(path=Uri(store.uri("alone/a.parquet")))) == ["a.parquet"]
    assert names(Parquet(path=Uri(store.uri("alone/ab")))) == ["c"]
    assert "no such object, or no data files below it" in refusal(Parquet(path=Uri(store.uri("alone/a"))))


def test_what_a_disk_could_not_hold_is_refused(store: S3):
    lay(store, "both", "a", "a/b")
    assert "an object, and a folder of others" in refusal(Parquet(path=Uri(store.uri("both/a"))))
    store.put("twice/a/", b"full")
    store.put("twice/a", b"x")
    assert "two objects, one of whose names ends in a slash" in refusal(Parquet(path=Uri(store.uri("twice"))))


def test_a_folder_is_read_where_its_object_has_the_same_name(store: S3, tmp_path: Path):
    data = write(tmp_path, "x.parquet", {"x": [1.0]}).read_bytes()
    store.put("same/x.parquet/x.parquet", data)
    assert read(Parquet(path=Uri(store.uri("same/x.parquet")))) == ([1.0], 1)
    assert read(Parquet(path=Uri(store.uri("same/x.parquet/x.parquet")))) == ([1.0], 1)


def test_the_version_tells_names_sizes_and_times(store: S3):
    source = lay(store, "version", "a", "b")
    seen = [source.version()]
    assert source.version() == seen[0]
    store.put("version/a", b"longer")
    seen.append(source.version())
    lay(store, "version", "c")
    seen.append(source.version())
    assert len(set(seen)) == 3
    name, size, modified = seen[0].splitlines()[0].split("\t")
    assert (name, size) == ("a", "1")
    assert int(modified) > 1.7e18


# What is read

RNG = np.random.default_rng(3)
TABLE = pa.table({"x": RNG.normal(9, 9, 200_000), "s": RNG.choice(["a", "b", "c"], 200_000)})


def written(folder: Path, kind: str) -> tuple[Path, dict]:
    """Write the table as large and small files, plain and compressed, and return their folder and the options to read them."""
    pieces = [TABLE[:150_000], TABLE[150_000:150_100], TABLE[150_100:150_150], TABLE[150_150:]]
    folder = folder / kind
    if kind == "parquet":
        for i, piece in enumerate(pieces):
            write(folder, f"y={i // 2}/{i}.parquet", piece, row_group_size=40_000)
    elif kind == "ipc":
        folder.mkdir()
        for i, (piece, codec) in enumerate(zip(pieces, (None, "lz4", "zstd", "zstd"), strict=True)):
            with (pai.new_stream if i % 2 else pai.new_file)(
                str(folder / f"{i}.arrow"), piece.schema, options=pai.IpcWriteOptions(compression=codec)
            ) as writer:
                writer.write_table(piece, max_chunksize=40_000)
    else:
        folder.mkdir()
        for i, piece in enumerate(pieces):
            text = "s,x\n" + "".join(f"{s},{x!r}\n" for s, x in zip(piece["s"].to_pylist(), piece["x"].to_pylist(), strict=True))
            data = text.encode()
            (folder / f"{i}.csv{('', '.gz', '.bz2', '.zst')[i]}").write_bytes(
                (lambda d: d, gzip.compress, bz2.compress, lambda d: pa.compress(d, codec="zstd", asbytes=True))[i](data)
            )
        return folder, {"columns": {"x": "number", "s": "text"}}
    return folder, {}


@pytest.mark.parametrize(("kind", "plugin"), [("parquet", Parquet), ("ipc", Ipc), ("csv", Csv)])
@pytest.mark.parametrize("split_bytes", [100_000, 2**26])
def test_a_store_gives_the_records_of_a_disk_in_their_order(
    store: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, plugin, split_bytes: int
):
    monkeypatch.setattr(listing, "SPLIT_BYTES", split_bytes)
    folder, options = written(tmp_path, kind)
    store.upload(folder, kind)
    on_disk = plugin(path=folder, **options)
    in_store = plugin(path=Uri(f"s3://records/{kind}"), filesystem=Options(**store.options), **options)
    assert names(in_store) == names(on_disk)
    values, n_records = read(in_store)
    assert n_records == 200_000
    assert np.array_equal(values, TABLE["x"])
    totals = [[reveal(reduce_split(source, split, [STATISTIC])) for split in source.plan()] for source in (on_disk, in_store)]
    assert sum(totals[0], start=Total((0,), 0)) == sum(totals[1], start=Total((0,), 0))
    assert in_store.schema() == on_disk.schema()


def test_many_small_objects_are_read_by_more_tasks_than_files_and_large_ones_are_cut(store: S3, monkeypatch: pytest.MonkeyPatch):
    small = [listing.File(f"{i:04}", 1000, 0) for i in range(200)]
    assert len(listing.pack(small, can_cut=True)) == 1
    splits = listing.pack(small, can_cut=True, opening=filesystems.OPENING)
    assert len(splits) == 4
    assert sum(len(split.parts) for split in splits) == 200
    assert len(listing.pack([listing.File("a", 2**30, 0)], can_cut=True, opening=filesystems.OPENING)) == 16
    monkeypatch.setattr(listing, "SPLIT_BYTES", 2 * filesystems.OPENING + 2)
    for plugin, options in ((Parquet, {}), (Ipc, {}), (Csv, {"columns": {}})):
        lay(store, "many", *"abcdef")
        splits = plugin(path=Uri(store.uri("many")), **options).plan()
        assert [len(split.parts) for split in splits] == [2, 2, 2]


# What fails


def test_wrong_credentials_are_refused_by_the_name_of_the_bucket(store: S3, tmp_path: Path):
    store.put("guarded/a.parquet", write(tmp_path, "a.parquet", {"x": [CANARY]}).read_bytes())
    source = Parquet(path=Uri(store.uri("guarded")))
    (split,) = source.plan()
    with store.guarded():
        said = refusal(source)
        assert said.startswith(
            "s3://records/guarded: s3://records may not be read with the credentials at hand (INVALID_ACCESS_KEY_ID)"
        )
        assert "AWS_ACCESS_KEY_ID" in said
        outcome = reduce_split(source, split, [STATISTIC])
    assert isinstance(outcome, Failure)
    assert outcome.message.startswith("a.parquet: s3://records may not be read with the credentials at hand (ACCESS_DENIED)")
    assert not outcome.is_transient
    assert read(source) == ([CANARY], 1)


@pytest.mark.parametrize(("kind", "allowed"), [("parquet", 1), ("ipc", 1), ("csv", 1), ("csv", 3)])
def test_a_store_that_refuses_in_the_middle_of_a_file_is_not_taken_for_a_broken_file(
    store: S3, tmp_path: Path, kind: str, allowed: int
):
    folder, options = written(tmp_path, kind)
    store.upload(folder, f"middle-{kind}")
    plugin = {"parquet": Parquet, "ipc": Ipc, "csv": Csv}[kind]
    source = plugin(path=Uri(store.uri(f"middle-{kind}")), **options)
    splits = source.plan()
    with store.guarded(allowed):
        outcome = reduce_split(source, splits[0], [STATISTIC])
    assert isinstance(outcome, Failure)
    assert "0.: s3://records may not be read with the credentials" in outcome.message.replace(kind, "").replace("arrow", "")


def test_an_object_or_a_bucket_that_is_not_there_is_named(store: S3, tmp_path: Path):
    store.put("gone/a.parquet", write(tmp_path, "a.parquet", {"x": [1.0]}).read_bytes())
    source = Parquet(path=Uri(store.uri("gone")))
    (split,) = source.plan()
    store._send("DELETE", "/records/gone/a.parquet", b"")
    outcome = reduce_split(source, split, [STATISTIC])
    assert isinstance(outcome, Failure)
    assert outcome.message == "a.parquet: it is gone"
    nowhere = Parquet(path=Uri("s3://no-such-bucket/x"), filesystem=Options(**store.options))
    assert (
        refusal(nowhere) == "s3://no-such-bucket/x: there is no bucket s3://no-such-bucket; check its name, endpoint and region"
    )


def test_a_store_that_cannot_be_reached_is_named_and_tried_again(monkeypatch: pytest.MonkeyPatch):
    source = Parquet(path=Uri("s3://records/a"), filesystem=Options(endpoint="127.0.0.1:1", scheme="http", region="us-east-1"))
    assert "s3://records cannot be reached; check the network" in refusal(source)
    tried = []

    def opened(_self, name: str):
        tried.append(name)
        msg = f"{name}: s3://records cannot be reached"
        raise filesystems.UnreachableError(msg)

    monkeypatch.setattr(filesystems.InStore, "open", opened)
    outcome = reduce_split(source, listing.pack([listing.File("a", 1, 0)], can_cut=True)[0], [STATISTIC])
    assert isinstance(outcome, Failure)
    assert outcome.is_transient
    assert tried == ["a"] * 3


def test_a_broken_object_is_refused_by_name(store: S3):
    store.put("broken/a.parquet", b"x,y\n987654321.125,2\n")
    said = refusal(Parquet(path=Uri(store.uri("broken"))))
    assert said == "a.parquet: not a readable Parquet file (cut short, empty, encrypted or of another format)"


# Google and Microsoft: made, not asked


@pytest.mark.parametrize(
    ("uri", "options", "kind"),
    [
        ("gs://bucket/prefix", {}, pafs.GcsFileSystem),
        ("gs://bucket/prefix", {"endpoint": "127.0.0.1:1", "scheme": "http", "anonymous": True}, pafs.GcsFileSystem),
        ("abfss://box@account.dfs.core.windows.net/prefix", {}, pafs.AzureFileSystem),
        ("abfss://box@account.dfs.core.windows.net/prefix", {"endpoint": "127.0.0.1:1", "scheme": "http"}, pafs.AzureFileSystem),
    ],
)
def test_stores_of_other_providers_can_be_made(uri: str, options: dict, kind: type):
    source = Parquet(path=Uri(uri), filesystem=Options(**options))
    files = source.files
    assert isinstance(files, filesystems.InStore)
    assert isinstance(filesystems._filesystem(files.address), kind)
    assert files.address.root == ("box/prefix" if "box" in uri else "bucket/prefix")
    assert str(files.address) == uri


def test_the_environment_is_asked_for_credentials_when_a_store_is_read(store: S3):
    """The filesystem that a process keeps holds none."""
    assert os.environ["AWS_SECRET_ACCESS_KEY"] == SECRETS["AWS_SECRET_ACCESS_KEY"]
    address = Parquet(path=Uri(store.uri("x"))).files.address
    assert not any(secret in repr(address) for secret in SECRETS.values())
