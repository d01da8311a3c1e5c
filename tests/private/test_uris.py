"""Addresses: what they name, and what they may not hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from private.tables import Parquet

from dp_dask.entries.build import Faults
from dp_dask.entries.dataset import make_source
from dp_dask.private.uris import Options, Uri, address_of

SECRET = "wJalrXUtnFEMI-K7MDENG"  # noqa: S105
NO_OPTIONS = Options()


def refusal(uri: str, options: Options = NO_OPTIONS) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        address_of(Uri(uri), options)
    assert SECRET not in str(caught.value)
    return str(caught.value)


def built(tmp_path: Path, **keys):
    """Return what a pipeline file makes of a source, and its faults."""
    faults = Faults(tmp_path)
    return make_source({"kind": "parquet", **keys}, faults), "\n".join(map(str, faults.problems))


@pytest.mark.parametrize(
    ("uri", "root"),
    [
        ("s3://bucket/prefix", "bucket/prefix"),
        ("s3://bucket", "bucket"),
        ("s3://bucket/", "bucket"),
        ("s3://bucket/a/b/", "bucket/a/b"),
        ("s3://bucket/g=a%20b/c d/é#1", "bucket/g=a%20b/c d/é#1"),
        ("gs://my.bucket_1/x", "my.bucket_1/x"),
        ("abfss://box@account.dfs.core.windows.net/a/b", "box/a/b"),
    ],
)
def test_a_key_is_what_stands_after_the_bucket(uri: str, root: str):
    address = address_of(Uri(uri), NO_OPTIONS)
    assert address.root == root
    assert str(address) == uri.rstrip("/")


def test_options_stand_in_the_query_or_beside_it():
    beside = Options(endpoint="127.0.0.1:9000", region="eu-west-1", scheme="http")
    assert address_of(Uri("s3://b/p?endpoint=127.0.0.1:9000&region=eu-west-1&scheme=http"), NO_OPTIONS).options == beside
    assert address_of(Uri("s3://b/p?region=eu-west-1"), Options(endpoint="127.0.0.1:9000", scheme="http")).options == beside


@pytest.mark.parametrize(
    "uri",
    [
        f"s3://AKIAKEY:{SECRET}@bucket/p",
        f"s3://{SECRET}@bucket/p",
        f"gs://user:{SECRET}@bucket/p",
        f"abfss://{SECRET}@bucket/p",
        f"abfss://box:{SECRET}@account.dfs.core.windows.net/p",
        f"s3://bucket:{SECRET}/p",
        f"s3://AKIAKEY:{SECRET.replace('-', '/')}@bucket/p",
        f"s3://bucket/p?access_key={SECRET}",
        f"s3://bucket/p?region=x&secret_key={SECRET}",
        f"s3://bucket/p?{SECRET}",
        f"gs://bucket/p?access_token={SECRET}",
        f"abfss://box@account.dfs.core.windows.net/p?sig={SECRET}",
        f"s3://bucket/p?endpoint=user:{SECRET}@host",
    ],
)
def test_a_key_or_a_password_in_an_address_is_refused_and_never_quoted(uri: str, tmp_path: Path):
    said = refusal(uri)
    assert SECRET.replace("-", "/") not in said
    assert "credentials come from the environment of those who read" in said.lower() or "Credentials come" in said
    if "@bucket" in uri and "/" not in uri.partition("://")[2].partition("@")[0]:
        assert said.startswith("the address holds a user or a key before its @; credentials come from")
    source, faults = built(tmp_path, path=uri)
    assert source is None
    assert faults == f"dataset.source: {said}"


@given(st.text(alphabet="abc:/@?=&.%# -", max_size=20))
def test_whatever_an_address_holds_it_is_taken_as_it_is_or_refused(rest: str):
    try:
        address = address_of(Uri(f"s3://{rest}"), NO_OPTIONS)
    except ValueError:
        return
    assert "@" not in rest.partition("/")[0]
    assert f"{address.root}".rstrip("/") == rest.partition("?")[0].rstrip("/")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"access_key": SECRET}, "dataset.source.filesystem.access_key: unknown key; known keys: endpoint, region, scheme"),
        ({"endpoint": f"user:{SECRET}@host"}, "dataset.source.filesystem: endpoint must be host or host:port"),
        ({"endpoint": f"https://{SECRET}@host"}, "dataset.source.filesystem: endpoint must be host or host:port"),
        ({"scheme": "ftp"}, "dataset.source.filesystem: scheme is 'ftp'; give http or https"),
    ],
)
def test_the_filesystem_takes_no_secret(tmp_path: Path, keys: dict, said: str):
    source, faults = built(tmp_path, path="s3://bucket/p", filesystem=keys)
    assert source is None
    assert faults.startswith(said)
    assert SECRET not in faults


@pytest.mark.parametrize("scheme", ["hdfs", "http", "https", "file", "s3a", "gcs", "S3", "az"])
def test_another_scheme_is_refused(scheme: str):
    assert refusal(f"{scheme}://bucket/p").startswith(
        f"addresses that begin with {scheme}:// are not known; give a path, or s3://"
    )


@pytest.mark.parametrize(
    "uri", ["s3://", "s3:///p", "gs://bu cket/p", "abfss://box/p", "abfss://@a.dfs.core.windows.net/p", "s3://b//p"]
)
def test_an_address_without_a_bucket_is_refused(uri: str):
    assert "bucket" in refusal(uri) or "slashes" in refusal(uri)


def test_an_address_survives_and_a_path_starts_at_the_files_folder(tmp_path: Path):
    for uri in ("s3://bucket/a/../b", "gs://bucket/p", "abfss://box@account.dfs.core.windows.net/p"):
        source, faults = built(tmp_path, path=uri, filesystem={"region": "eu-west-1"})
        assert faults == ""
        assert isinstance(source.path, Uri)
        assert source == Parquet(path=Uri(uri), filesystem=Options(region="eu-west-1"))
    for path, whole in {
        "data/x": tmp_path / "data/x",
        "../x": tmp_path.parent / "x",
        "/x": Path("/x"),
        "s3:/x": tmp_path / "s3:/x",
    }.items():
        source, faults = built(tmp_path, path=path)
        assert source.path == whole
    source, faults = built(tmp_path, path="data", filesystem={"region": "eu-west-1"})
    assert source is None
    assert "filesystem is for addresses that begin with s3://" in faults


def test_a_fault_elsewhere_in_a_file_quotes_no_password(tmp_path: Path):
    _, faults = built(tmp_path, path=[f"s3://AKIAKEY:{SECRET}@bucket/p"])
    assert "***" in faults
    assert SECRET not in faults
