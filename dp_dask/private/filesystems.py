"""Filesystems: files on a disk or in an object store, listed and opened in the same way; the only file that knows where they lie.

Object stores are pyarrow's own filesystems. One is made in the process that lists or reads, which takes credentials from its own
environment: neither is ever part of a task.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Protocol

import pyarrow as pa
import pyarrow.fs as pafs

from dp_dask.errors import SourceError
from dp_dask.private import listing
from dp_dask.private.attempts import UnreachableError
from dp_dask.private.listing import File
from dp_dask.private.sources import OfFiles
from dp_dask.private.uris import Address, Options, Uri, address_of

__all__ = ["Files", "Stored"]

SMALL_FILE = 2**20  # read with one call: 0.71 x the time on a disk, two requests in place of four in a store
OPENING = 2**20  # bytes that a store delivers while it would open a file
BUFFER = 8 * 2**20  # of a stream: a request each
RETRYING = timedelta(seconds=20)  # pyarrow asks Google for a quarter of an hour
GONE = "it is gone"
OF_STORES = re.compile(r"AWS Error|google::cloud|Azure")
REFUSED = re.compile(
    r"(access|permission).?denied|forbidden|un.?authori[sz]ed|not.authori[sz]ed|access.?key|signature|token|credential|authenticat",
    re.IGNORECASE,
)
ABSENT = re.compile(r"no.?such.?bucket|(bucket|container).{0,40}not.{0,10}(exist|found)", re.IGNORECASE)


class Files(Protocol):
    """Files below a root."""

    def listed(self) -> list[File]:
        """List the data files, sorted by name; raises SourceError where there is none or one would be read twice."""
        ...

    @property
    def opening(self) -> int:
        """The number of bytes that could be read while a file is opened."""
        ...

    @property
    def buffers_ahead(self) -> bool:
        """Is it faster to fetch what will be read in few large requests?"""
        ...

    def open(self, name: str) -> pa.NativeFile:
        """Open a file to be read at any place, a small one from memory; raises SourceError that names it."""
        ...

    def stream(self, name: str) -> pa.NativeFile:
        """Open a file to be read from its beginning, decompressed by its ending; raises SourceError that names it."""
        ...

    def unreadable(self, name: str, told: str, otherwise: str) -> SourceError:
        """Make the error of a file whose reading broke off, from what pyarrow told, which is not passed on."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored(OfFiles):
    """What sources of files have in common: ``path`` is a file or a folder on a local or mounted disk, or an address.

    Addresses begin with ``s3://``, ``gs://`` or ``abfss://``; ``filesystem`` says how their store is reached.
    ``missing``: may a file lack a column, and its records have nulls there, or is it refused? ``split_bytes``: how much of the
    files a task reads, about; None is 64 MiB, or more where there would be more than some 100,000 tasks.
    """

    path: Path | Uri
    filesystem: Options = field(default_factory=Options)
    missing: Literal["refuse", "null"] | None = "refuse"  # None is how YAML writes null
    split_bytes: int | None = None

    def __post_init__(self) -> None:
        listing.check_split_bytes(self.split_bytes)
        if isinstance(self.path, Uri):
            address_of(self.path, self.filesystem)
        elif self.filesystem != Options():
            msg = "filesystem is for addresses that begin with s3://, gs:// or abfss://; leave it out"
            raise ValueError(msg)

    @property
    def files(self) -> Files:
        """The files, to be listed and opened."""
        return OnDisk(self.path) if isinstance(self.path, Path) else InStore(address_of(self.path, self.filesystem))

    def look_up(self, columns: Iterable[str], columns_in: Callable[[str], Iterable[str]]) -> None:
        """Raise SourceError for a column that no file has; ``columns_in`` a file are looked up in few, where they are in most."""
        wanted = set(columns)
        names = [file.name for file in self.files.listed()]
        for name in [names[0], *reversed(names[1:])]:  # a column that was added later is in the last
            wanted -= set(columns_in(name))
            if not wanted:
                return
        msg = f"{self.path}: no file has a column {min(wanted)!r}; correct its name (missing: null is for files that lack it)"
        raise SourceError(msg)

    def version(self) -> str:
        """Names, sizes and times of change of the files; of the content of an object pyarrow's listing tells nothing more."""
        return listing.version(self.files.listed())


@dataclass(frozen=True, slots=True)
class OnDisk:
    """Files on a local or mounted disk."""

    path: Path

    opening = 0
    buffers_ahead = False

    def listed(self) -> list[File]:
        """List a file, or those of a folder."""
        return listing.list_files(self.path)

    def open(self, name: str) -> pa.NativeFile:
        """Open a file."""
        return self._open(name, _opened)

    def stream(self, name: str) -> pa.NativeFile:
        """Open a file as a stream."""
        return self._open(name, lambda path: pa.input_stream(path, compression="detect"))

    def unreadable(self, name: str, told: str, otherwise: str) -> SourceError:  # noqa: ARG002
        """Make the error of a broken file."""
        return SourceError(f"{name}: {otherwise}")

    def _open(self, name: str, how: Callable[[Path], pa.NativeFile]) -> pa.NativeFile:
        root = self.path.parent if self.path.is_file() else self.path
        error: type[SourceError] = SourceError
        try:
            return how(root / name)
        except FileNotFoundError:
            kind = GONE
        except PermissionError:
            kind = "it may not be read; check its permissions"
        except OSError:
            kind, error = "it cannot be opened; check the disk", UnreachableError
        msg = f"{name}: {kind}"
        raise error(msg)


def _opened(path: Path) -> pa.NativeFile:
    return pa.BufferReader(path.read_bytes()) if path.stat().st_size < SMALL_FILE else pa.OSFile(str(path))


@dataclass(frozen=True, slots=True)
class InStore:
    """Objects below a prefix of a bucket."""

    address: Address

    opening = OPENING
    buffers_ahead = True

    def listed(self) -> list[File]:
        """List an object, or those below a prefix; markers of folders are none."""
        root = self.address.root
        found, below = self._ask(str(self.address), self._look)
        files = [info for info in below if info.type != pafs.FileType.Directory]
        if found.type == pafs.FileType.File:
            if files:
                msg = f"{self.address}: an object, and a folder of others; give one of them another name"
                raise SourceError(msg)
            return [File(found.base_name, found.size, found.mtime_ns or 0)]
        listed = [File(info.path.removeprefix(f"{root}/"), info.size, info.mtime_ns or 0) for info in files]
        data = sorted((file for file in listed if _holds_data(file)), key=lambda file: file.name)
        if not data:
            msg = f"{self.address}: no such object, or no data files below it; give an object, or the prefix of some"
            raise SourceError(msg)
        for one, other in pairwise(data):
            if one.name == other.name:
                msg = f"{self.address}/{one.name}: two objects, one of whose names ends in a slash; rename or remove one"
                raise SourceError(msg)
        return data

    def open(self, name: str) -> pa.NativeFile:
        """Open an object."""

        def opened(filesystem: pafs.FileSystem, key: str) -> pa.NativeFile:
            file = filesystem.open_input_file(key)
            return pa.BufferReader(file.read()) if file.size() < SMALL_FILE else file

        return self._open(name, opened)

    def stream(self, name: str) -> pa.NativeFile:
        """Open an object as a stream."""
        return self._open(name, lambda store, key: store.open_input_stream(key, compression="detect", buffer_size=BUFFER))

    def _open(self, name: str, how: Callable[[pafs.FileSystem, str], pa.NativeFile]) -> pa.NativeFile:
        root = self.address.root
        keys = [root] if root.rpartition("/")[2] == name and self.address.prefix else []  # the root is the object itself

        def first_there(filesystem: pafs.FileSystem) -> pa.NativeFile:
            for key in keys:
                try:
                    return how(filesystem, key)
                except FileNotFoundError:
                    pass
            return how(filesystem, f"{root}/{name}")

        return self._ask(name, first_there)

    def _look(self, filesystem: pafs.FileSystem) -> tuple[pafs.FileInfo, list[pafs.FileInfo]]:
        root = self.address.root
        below: list[pafs.FileInfo] = []
        with suppress(FileNotFoundError):  # of a bucket that is not there, another error tells
            below = filesystem.get_file_info(pafs.FileSelector(root, recursive=True))
        return filesystem.get_file_info(root), below

    def _ask(self, what: str, how: Callable[[pafs.FileSystem], Any]) -> Any:
        """Ask the store; its own words, which may quote a key, are not passed on."""
        told = ""
        try:
            return how(_filesystem(self.address))
        except FileNotFoundError:
            told = GONE
        except (pa.ArrowException, OSError) as error:
            told = str(error)
        if told == GONE:
            msg = f"{what}: {GONE}"
            raise SourceError(msg)
        raise self._fault(what, told)

    def unreadable(self, name: str, told: str, otherwise: str) -> SourceError:
        """Make the error of an object whose reading broke off: the store's fault where pyarrow told it of one."""
        return self._fault(name, told) if OF_STORES.search(told) else SourceError(f"{name}: {otherwise}")

    def _fault(self, what: str, told: str) -> SourceError:
        told = told.replace(self.address.prefix or "\n", "")  # a key's name is no word of the store
        bucket = f"{self.address.scheme}://{self.address.bucket}"
        if ABSENT.search(told):
            return SourceError(f"{what}: there is no bucket {bucket}; check its name, endpoint and region")
        if REFUSED.search(told):
            code = re.search(r"AWS Error ([A-Z_]+)", told)
            why = f" ({code.group(1)})" if code else ""
            how = f"may not be read with the credentials at hand{why}; they come from {self.address.identity}"
            return SourceError(f"{what}: {bucket} {how}")
        how = "cannot be reached; check the network, and source.filesystem: endpoint, region and scheme"
        return UnreachableError(f"{what}: {bucket} {how}")


def _holds_data(file: File) -> bool:
    *folders, name = file.name.split("/")
    is_marker = file.size == 0 and name.endswith("_$folder$")  # Hadoop's
    return (
        not is_marker
        and listing.holds_data(name, is_folder=False)
        and all(listing.holds_data(f, is_folder=True) for f in folders)
    )


@lru_cache(maxsize=16)
def _filesystem(address: Address) -> pafs.FileSystem:
    """Make the filesystem of this process, which keeps its connections; credentials are those of the environment."""
    options = address.options
    scheme, endpoint = options.scheme or None, options.endpoint or None
    if address.scheme == "s3":
        region = options.region or (None if endpoint else pafs.resolve_s3_region(address.bucket))
        return pafs.S3FileSystem(region=region, scheme=scheme, endpoint_override=endpoint, anonymous=options.anonymous)
    if address.scheme == "gs":
        given = {"anonymous": options.anonymous, "scheme": scheme, "endpoint_override": endpoint}
        return pafs.GcsFileSystem(**given, retry_time_limit=RETRYING)
    at = {"blob_storage_authority": endpoint, "dfs_storage_authority": endpoint}
    return pafs.AzureFileSystem(address.account, **at, blob_storage_scheme=scheme, dfs_storage_scheme=scheme)
