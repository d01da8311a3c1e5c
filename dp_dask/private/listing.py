"""Listing: which files of a folder hold records, each exactly once and in a fixed order."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from dp_dask.errors import SourceError
from dp_dask.private.sources import Part, Split

__all__ = ["File", "check_split_bytes", "holds_data", "list_files", "pack", "partition_keys", "version"]

SPLIT_BYTES = 64 * 2**20  # a task costs about 2.6 ms; below 32 MB that shows
LEAST_SPLIT_BYTES = 2**20
MOST_SPLITS = 100_000  # about: more would keep the scheduler, which takes most of a millisecond for each, longer than the workers
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class File:
    """A file below the root, with what tells whether it has changed."""

    name: str  # relative to the root, "/" between folders
    size: int
    modified: int  # nanoseconds


def list_files(root: Path) -> list[File]:
    """List the data files of ``root``, a file or a folder, sorted by name.

    Hidden files, ``_metadata``, ``_SUCCESS`` and other names that begin with ``_`` are not data, but a folder
    ``_key=value`` is a partition. A file or folder reached twice, or a broken link, raises SourceError: a record
    must not weigh double, nor be lost without a word.
    """
    if root.is_file():
        status = root.stat()
        return [File(root.name, status.st_size, status.st_mtime_ns)]
    if not root.is_dir():
        msg = f"{root}: no such file or folder; give a file, or a folder of files"
        raise SourceError(msg)
    seen: dict[tuple[int, int], str] = {}
    files = list(_walk(root, "", seen))
    if not files:
        msg = f"{root}: the folder holds no data files; give a folder of files, or one file"
        raise SourceError(msg)
    return sorted(files, key=lambda file: file.name)


def holds_data(name: str, *, is_folder: bool) -> bool:
    """Tell by its name whether a file, or a folder, is one of data: not hidden, no checksum, nothing of the writer's own."""
    if name.startswith(".") or name.endswith(".crc"):
        return False
    return not name.startswith("_") or (is_folder and "=" in name)


def _walk(folder: Path, prefix: str, seen: dict[tuple[int, int], str]) -> Iterator[File]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        msg = f"{folder}: cannot be listed ({error.strerror}); check its permissions"
        raise SourceError(msg) from None
    for entry in entries:
        name = prefix + entry.name
        if not holds_data(entry.name, is_folder=True):
            continue
        try:
            status = entry.stat()
            is_folder = stat.S_ISDIR(status.st_mode)
        except OSError:
            msg = f"{folder / entry.name}: a broken link, or unreadable; remove it or mend it"
            raise SourceError(msg) from None
        if not holds_data(entry.name, is_folder=is_folder):
            continue
        first = seen.setdefault((status.st_dev, status.st_ino), name)
        if first != name:
            msg = f"{folder / entry.name}: reached twice (also as {first}); each record may be read only once, remove the link"
            raise SourceError(msg)
        if not (is_folder or stat.S_ISREG(status.st_mode)):
            msg = f"{folder / entry.name}: neither a file nor a folder; remove it"
            raise SourceError(msg)
        if is_folder:
            yield from _walk(folder / entry.name, f"{name}/", seen)
        else:
            yield File(name, status.st_size, status.st_mtime_ns)


def check_split_bytes(split_bytes: int | None) -> None:
    """Raise ValueError for a size of splits that no plan should have."""
    if split_bytes is not None and split_bytes < LEAST_SPLIT_BYTES:
        msg = f"split_bytes is {split_bytes}; give {LEAST_SPLIT_BYTES} (1 MiB) or more, or leave it out for 64 MiB"
        raise ValueError(msg)


def pack(files: list[File], *, can_cut: bool, opening: int = 0, split_bytes: int | None = None) -> list[Split]:
    """Pack small files into splits and, where a format allows it, cut large ones by byte range.

    Splits have about ``split_bytes``: 64 MiB where that is None, or as many more as keep their number near ``MOST_SPLITS``,
    which it never exceeds twice. To open a file takes as long as to read ``opening`` bytes.
    """
    size = split_bytes or max(SPLIT_BYTES, -(-sum(file.size + opening for file in files) // MOST_SPLITS))
    splits: list[Split] = []
    parts: list[Part] = []
    filled = 0
    for file in files:
        step = size if can_cut else max(file.size, 1)
        for start in range(0, max(file.size, 1), step):
            end = min(start + step, file.size)
            if parts and filled + opening + end - start > size:
                splits.append(Split(len(splits), tuple(parts)))
                parts, filled = [], 0
            parts.append(Part(file.name, start, end))
            filled += opening + end - start
    splits.append(Split(len(splits), tuple(parts)))
    return splits


def partition_keys(name: str) -> dict[str, str | None]:
    """Read hive keys from a relative file name; texts, percent-decoded, never inferred to numbers."""
    keys: dict[str, str | None] = {}
    for folder in name.split("/")[:-1]:
        key, equals, value = folder.partition("=")
        if equals:
            keys[unquote(key)] = None if value == NULL_PARTITION else unquote(value)
    return keys


def version(files: list[File]) -> str:
    """Describe the files' names, sizes and times of change in one text."""
    return "\n".join(f"{file.name}\t{file.size}\t{file.modified}" for file in files)
