from __future__ import annotations

import os
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from core.exact import LAW
from hypothesis import example, given
from hypothesis import strategies as st

from dp_dask.errors import SourceError
from dp_dask.private import listing
from dp_dask.private.listing import File, list_files, pack, partition_keys, version
from dp_dask.private.sources.csv import plugin as Csv  # noqa: N812
from dp_dask.private.sources.ipc import plugin as Ipc  # noqa: N812
from dp_dask.private.sources.parquet import plugin as Parquet  # noqa: N812


def lay(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return root


def names(root: Path) -> list[str]:
    return [file.name for file in list_files(root)]


def refusal(root: Path) -> str:
    with pytest.raises(SourceError) as caught:
        list_files(root)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return str(caught.value)


def test_files_come_sorted_by_name_whatever_their_folders(tmp_path: Path):
    lay(tmp_path, "b/2", "b/10", "a.parquet", "b.parquet", "a/z", "B/1", "a-1", "é", "b/c/d")
    assert names(tmp_path) == sorted(["b/2", "b/10", "a.parquet", "b.parquet", "a/z", "B/1", "a-1", "é", "b/c/d"])


def test_a_single_file_is_listed_by_its_name(tmp_path: Path):
    lay(tmp_path, "a.parquet", "b.parquet")
    (found,) = list_files(tmp_path / "b.parquet")
    assert (found.name, found.size) == ("b.parquet", len("b.parquet"))


def test_a_link_to_a_single_file_is_that_file(tmp_path: Path):
    lay(tmp_path, "a.parquet")
    (tmp_path / "link").symlink_to(tmp_path / "a.parquet")
    assert names(tmp_path / "link") == ["link"]


@pytest.mark.parametrize(
    "name", ["_SUCCESS", "_metadata", "_common_metadata", ".part-0.parquet.crc", "part-0.crc", ".hidden", "_x=1"]
)
def test_a_name_that_is_no_data_is_ignored(tmp_path: Path, name: str):
    assert names(lay(tmp_path, name, "a.parquet")) == ["a.parquet"]


@pytest.mark.parametrize("folder", ["_temporary", ".spark-staging", "_delta_log", ".x=1"])
def test_a_folder_that_is_no_data_is_ignored(tmp_path: Path, folder: str):
    assert names(lay(tmp_path, f"{folder}/a.parquet", "a.parquet")) == ["a.parquet"]


def test_a_partition_whose_key_begins_with_an_underscore_is_kept(tmp_path: Path):
    assert names(lay(tmp_path, "_key=1/a.parquet", "_key=2/_x=3/b.parquet")) == ["_key=1/a.parquet", "_key=2/_x=3/b.parquet"]


@pytest.mark.parametrize("name", ["a*.parquet", "a[1].parquet", "a?.parquet", "a b.parquet", "~a", "a%20b", "a\nb"])
def test_a_name_is_a_name_and_no_pattern(tmp_path: Path, name: str):
    lay(tmp_path, name, "a1.parquet")
    assert names(tmp_path) == sorted([name, "a1.parquet"])
    assert names(tmp_path / name) == [name]


def test_a_pattern_matches_nothing(tmp_path: Path):
    lay(tmp_path, "a1.parquet")
    assert "a*.parquet: no such file or folder" in refusal(tmp_path / "a*.parquet")


def test_a_missing_path_and_a_folder_without_data_are_refused(tmp_path: Path):
    assert "nowhere: no such file or folder; give a file" in refusal(tmp_path / "nowhere")
    lay(tmp_path, "_SUCCESS", ".x")
    (tmp_path / "sub").mkdir()
    assert "the folder holds no data files" in refusal(tmp_path)


@pytest.mark.parametrize("make", [Path.symlink_to, Path.hardlink_to], ids=["symlink", "hard link"])
@pytest.mark.parametrize("link", ["b.parquet", "0.parquet", "sub/a.parquet"])
def test_a_file_reached_twice_is_refused(tmp_path: Path, make, link: str):
    lay(tmp_path, "a.parquet", "sub/other.parquet")
    make(tmp_path / link, tmp_path / "a.parquet")
    said = refusal(tmp_path)
    assert "reached twice" in said
    assert "a.parquet" in said
    assert link in said


def test_a_folder_reached_twice_is_refused(tmp_path: Path):
    lay(tmp_path, "a/x.parquet")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert "b: reached twice (also as a)" in refusal(tmp_path)


def test_a_link_to_data_outside_is_followed_once(tmp_path: Path):
    lay(tmp_path, "elsewhere/x.parquet", "elsewhere/y.parquet", "root/a.parquet")
    (tmp_path / "root/more").symlink_to(tmp_path / "elsewhere")
    assert names(tmp_path / "root") == ["a.parquet", "more/x.parquet", "more/y.parquet"]


@pytest.mark.parametrize("target", [".", "..", "sub", "missing"], ids=["itself", "its parent", "below", "broken"])
@pytest.mark.parametrize("place", ["loop", "0", "sub/loop", "sub/0"])
def test_a_loop_or_a_broken_link_ends_and_is_refused(tmp_path: Path, target: str, place: str):
    root = lay(tmp_path / "root", "a.parquet", "sub/b.parquet")
    (root / place).symlink_to((root / target).resolve())
    said = refusal(root)
    assert ("a broken link, or unreadable; remove it or mend it" if target == "missing" else "reached twice") in said


def test_a_link_to_itself_is_refused(tmp_path: Path):
    lay(tmp_path, "a.parquet")
    (tmp_path / "self").symlink_to(tmp_path / "self")
    assert "self: a broken link" in refusal(tmp_path)


def test_a_loop_without_a_file_ends_and_is_refused(tmp_path: Path):
    (tmp_path / "loop").symlink_to(tmp_path)
    assert "reached twice" in refusal(tmp_path)


def test_what_is_neither_file_nor_folder_is_refused(tmp_path: Path):
    lay(tmp_path, "a.parquet")
    os.mkfifo(tmp_path / "pipe.parquet")  # reading one would wait for ever
    assert "pipe.parquet" in refusal(tmp_path)


def test_a_folder_that_may_not_be_listed_is_refused(tmp_path: Path):
    if os.geteuid() == 0:
        pytest.skip("root may list everything")
    lay(tmp_path, "sub/a.parquet")
    (tmp_path / "sub").chmod(0)
    assert "cannot be listed" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("a.parquet", {}),
        ("year=2020/a.parquet", {"year": "2020"}),
        ("year=01/m=1/a.parquet", {"year": "01", "m": "1"}),
        ("plain/year=2020/a.parquet", {"year": "2020"}),
        ("k=a%20b%2Fc%3D/a.parquet", {"k": "a b/c="}),
        ("a%20b=1/a.parquet", {"a b": "1"}),
        ("k=%C3%A9/a.parquet", {"k": "é"}),
        ("k=a+b/a.parquet", {"k": "a+b"}),
        ("k=__HIVE_DEFAULT_PARTITION__/a.parquet", {"k": None}),
        ("k=%5F_HIVE_DEFAULT_PARTITION__/a.parquet", {"k": "__HIVE_DEFAULT_PARTITION__"}),
        ("k=/a.parquet", {"k": ""}),
        ("k=a=b/a.parquet", {"k": "a=b"}),
        ("_k=1/a.parquet", {"_k": "1"}),
        ("a=b.parquet", {}),
    ],
)
def test_partition_keys_are_the_decoded_texts_of_the_folders(name: str, keys: dict[str, str | None]):
    assert partition_keys(name) == keys


SMALL = 2**20


@LAW
@given(st.lists(st.integers(0, 300 * SMALL), min_size=1, max_size=30), st.booleans())
@example([0], True)
@example([0, 0, 1, 0], False)
@example([listing.SPLIT_BYTES, 1], True)
@example([listing.SPLIT_BYTES + 1], True)
def test_every_byte_of_every_file_is_in_exactly_one_part_in_file_order(sizes: list[int], can_cut: bool):  # noqa: FBT001
    files = [File(f"f{i:03}", size, 0) for i, size in enumerate(sizes)]
    splits = pack(files, can_cut=can_cut)
    assert [split.index for split in splits] == list(range(len(splits)))
    assert all(split.parts for split in splits)
    parts = [part for split in splits for part in split.parts]
    for file in files:
        mine = [part for part in parts if part.path == file.name]
        assert mine[0].start == 0
        assert mine[-1].end == file.size
        assert all(before.end == after.start for before, after in pairwise(mine))
        assert can_cut or len(mine) == 1
    assert [part.path for part in parts] == sorted(part.path for part in parts)
    for split in splits:
        assert len(split.parts) == 1 or sum(part.end - part.start for part in split.parts) <= listing.SPLIT_BYTES


def test_small_files_share_a_split():
    files = [File(f"f{i:04}", 1000, 0) for i in range(2000)]
    assert len(pack(files, can_cut=True)) == 1
    assert len(pack([File(f"f{i}", 33 * SMALL, 0) for i in range(4)], can_cut=True)) == 4


def test_a_large_file_is_cut_only_where_its_format_allows_it():
    (huge,) = files = [File("a", 1000 * SMALL, 0)]
    assert len(pack(files, can_cut=True)) == 16
    (split,) = pack(files, can_cut=False)
    assert (split.parts[0].start, split.parts[0].end) == (0, huge.size)


@pytest.mark.parametrize("can_cut", [False, True])
def test_more_than_so_many_splits_are_larger_ones(monkeypatch: pytest.MonkeyPatch, can_cut: bool):  # noqa: FBT001
    sizes = [random.Random(i).randrange(400 * SMALL) for i in range(300)]
    files = [File(f"f{i:03}", size, 0) for i, size in enumerate(sizes)]
    assert len(pack(files, can_cut=can_cut)) > 200
    monkeypatch.setattr(listing, "MOST_SPLITS", 20)
    assert 20 <= len(pack(files, can_cut=can_cut)) <= 40
    parts = [part for split in pack(files, can_cut=can_cut) for part in split.parts]
    assert sum(part.end - part.start for part in parts) == sum(sizes)
    assert len(pack(files, can_cut=can_cut, split_bytes=64 * SMALL)) > 200  # what is asked for is kept


def test_splits_are_as_large_as_is_asked():
    files = [File(f"f{i}", 100 * SMALL, 0) for i in range(10)]
    assert len(pack(files, can_cut=True, split_bytes=1000 * SMALL)) == 1
    assert len(pack(files, can_cut=True, split_bytes=50 * SMALL)) == 20
    assert len(pack(files, can_cut=True, split_bytes=300 * SMALL, opening=50 * SMALL)) == 5


@pytest.mark.parametrize("kind", [Parquet, Ipc, Csv])
def test_the_size_of_splits_is_an_option_of_a_source(tmp_path: Path, kind: Any):
    columns = {"columns": {"x": "number"}} if kind is Csv else {}
    for i in range(4):
        (tmp_path / f"{i}").write_bytes(bytes(SMALL))
    assert len(kind(path=tmp_path, **columns).plan()) == 1
    assert len(kind(path=tmp_path, split_bytes=2 * SMALL, **columns).plan()) == 2
    for wrong in (SMALL - 1, 0, -1):
        with pytest.raises(ValueError, match=rf"^split_bytes is {wrong}; give 1048576 \(1 MiB\) or more, or leave it out"):
            kind(path=tmp_path, split_bytes=wrong, **columns)


def test_the_version_tells_when_a_file_was_added_changed_or_renamed(tmp_path: Path):
    lay(tmp_path, "a", "b")
    os.utime(tmp_path / "a", ns=(0, 1_000_000_007))
    seen = [version(list_files(tmp_path))]
    assert version(list_files(tmp_path)) == seen[0]
    os.utime(tmp_path / "a", ns=(0, 1_000_000_008))
    seen.append(version(list_files(tmp_path)))
    (tmp_path / "b").write_text("longer")
    seen.append(version(list_files(tmp_path)))
    (tmp_path / "b").rename(tmp_path / "c")
    seen.append(version(list_files(tmp_path)))
    lay(tmp_path, "d")
    seen.append(version(list_files(tmp_path)))
    assert len(set(seen)) == len(seen)
