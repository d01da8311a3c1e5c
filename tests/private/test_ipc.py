"""Arrow IPC: files and streams are read whole and once, or refused by name."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc as pai
import pytest
from core.exact import LAW, make_statistic
from hypothesis import given
from hypothesis import strategies as st
from private.tables import CANARY, read, says_nothing

from dp_dask.errors import SourceError
from dp_dask.private.reduce import Failure, reduce_split
from dp_dask.private.sources import Part, Split
from dp_dask.private.sources.ipc import plugin as Ipc  # noqa: N812

FORMATS = {"file": pai.new_file, "stream": pai.new_stream}


def write(
    folder: Path, name: str, table: pa.Table | dict, kind: str = "file", *, rows: int | None = None, codec: str | None = None
) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(table) if isinstance(table, dict) else table
    with FORMATS[kind](str(path), table.schema, options=pai.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


def worker_says(path: Path, column: str = "x") -> str:
    source = Ipc(path=path)
    (split,) = source.plan()
    outcome = reduce_split(source, split, [make_statistic(0, 1, column=column)])
    assert isinstance(outcome, Failure)
    assert says_nothing(outcome.message)
    return outcome.message


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
@pytest.mark.parametrize("rows", [1, 1000, 70_000, 200_000])
def test_every_record_is_read_once_whatever_the_format_compression_and_batches(
    tmp_path: Path, kind: str, codec: str | None, rows: int
):
    n = 1000 if rows == 1 else 200_000
    write(tmp_path, "a.arrow", {"pad": ["p"] * n, "x": np.arange(n)}, kind, rows=rows, codec=codec)
    source = Ipc(path=tmp_path)
    sizes = [batch.n_records for split in source.plan() for batch in source.read(split, ["x"])]
    assert max(sizes) <= 2**17
    assert read(source) == (list(range(n)), n)
    assert read(source, ["x"]) == read(Ipc(path=tmp_path / "a.arrow"), ["x"])


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_without_rows_or_batches_has_no_records(tmp_path: Path, kind: str):
    empty = pa.table({"x": pa.array([], pa.float64()), "s": pa.array([], pa.string()).dictionary_encode()})
    write(tmp_path, "a.arrow", empty, kind)
    source = Ipc(path=tmp_path)
    source.check(["x"])
    assert read(source) == ([], 0)


@LAW
@given(data=st.data(), kind=st.sampled_from(sorted(FORMATS)))
def test_every_batch_is_read_exactly_once_wherever_a_file_is_cut(tmp_path_factory, data: st.DataObject, kind: str):
    path = write(tmp_path_factory.mktemp("cut"), "a.arrow", {"x": np.arange(23)}, kind, rows=data.draw(st.integers(1, 30)))
    size = path.stat().st_size
    ends = sorted({0, size, *data.draw(st.lists(st.integers(0, size), max_size=6))})
    splits = [Split(i, (Part("a.arrow", a, b),)) for i, (a, b) in enumerate(pairwise(ends))]
    assert read(Ipc(path=path), splits=splits) == (list(range(23)), 23)


def test_columns_keys_and_files_lie_as_in_other_sources(tmp_path: Path):
    write(tmp_path, "g=b/1.arrow", {"y": [4, 5], "z": ["a", "b"], "x": [1.5, None]})
    write(tmp_path, "g=a/2.arrow", {"x": pa.array([7], pa.int8()), "y": pa.array([True])}, "stream")
    source = Ipc(path=tmp_path)
    assert read(source, ["y", "x"]) == ([(1.0, 7.0), (4.0, 1.5), (5.0, None)], 3)
    texts = frozenset({"g"})
    source.check(["g"], texts)
    batches = [batch for split in source.plan() for batch in source.read(split, ["g"], texts)]
    assert [value for batch in batches for value in batch.columns["g"].to_pylist()] == ["a", "b", "b"]
    assert source.schema() == pa.schema({"x": pa.int8(), "y": pa.bool_(), "g": pa.string()})


@pytest.mark.parametrize("kind", FORMATS)
def test_two_columns_of_one_name_are_refused_and_others_do_not_matter(tmp_path: Path, kind: str):
    table = pa.Table.from_arrays([pa.array([v]) for v in (1.0, 2.0, 3.0)], names=["y", "x", "y"])
    write(tmp_path, "a.arrow", table, kind)
    assert read(Ipc(path=tmp_path)) == ([2.0], 1)
    assert worker_says(tmp_path, "y") == "a.arrow: 2 columns are called 'y'; rename all but one"


UNREADABLE = "not a readable Arrow IPC file or stream (cut short, empty, compressed as a whole, or of another format)"
WHOLE = pa.table({"x": np.full(3000, CANARY), "s": ["CANARY-7731"] * 3000})


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_is_refused_wherever_it_is_cut_short(tmp_path: Path, kind: str):
    """Also between two batches of a stream, which pyarrow takes for its end."""
    path = write(tmp_path, "a.arrow", WHOLE[:40], kind, rows=10)
    data = path.read_bytes()
    for end in range(0, len(data), 4):
        path.write_bytes(data[:end])
        assert worker_says(tmp_path).startswith("a.arrow: "), end


def test_a_stream_without_its_end_is_refused_before_it_is_read(tmp_path: Path):
    path = write(tmp_path, "a.arrow", WHOLE[:40], "stream", rows=10)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(SourceError, match="not a readable Arrow IPC file or stream"):
        Ipc(path=path).check(["x"])


def test_a_stream_that_is_cut_short_after_bytes_like_its_end_mark_is_refused(tmp_path: Path):
    """A batch whose last buffer is one int32 of -1 and padding ends in the very bytes of the mark."""
    path = write(tmp_path, "a.arrow", {"x": pa.array([5, -1, -1], pa.int32())}, "stream", rows=1)
    data = path.read_bytes()
    assert data[:-8].rstrip(b"\0").endswith(b"\xff\xff\xff\xff")
    cut = data[: data[:-8].rindex(b"\xff\xff\xff\xff") + 8]
    assert cut.endswith(data[-8:])
    assert len(cut) < len(data)
    path.write_bytes(cut)
    assert worker_says(tmp_path).startswith("a.arrow: ")


def test_two_streams_in_one_file_are_refused(tmp_path: Path):
    """pyarrow reads the first alone."""
    path = write(tmp_path, "a.arrow", {"x": [1.0]}, "stream")
    path.write_bytes(path.read_bytes() * 2)
    assert worker_says(tmp_path) == "a.arrow: a stream that is cut short, or several in one file; write each to a file of its own"


@pytest.mark.parametrize(
    "data", [b"", b"x,y\n987654321.125,2\n", b"ARROW1", b"FEA1" * 20, b"\xff\xff\xff\xff\0\0\0\0", b"PAR1" * 9]
)
def test_another_format_is_refused_by_name(tmp_path: Path, data: bytes):
    (tmp_path / "b.arrow").write_bytes(data)
    assert worker_says(tmp_path) == f"b.arrow: {UNREADABLE}"
    with pytest.raises(SourceError, match=r"^b.arrow: not a readable Arrow IPC") as caught:
        Ipc(path=tmp_path).check(["x"])
    assert caught.value.__context__ is None


def swapped(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, new))


@pytest.mark.parametrize("kind", FORMATS)
def test_offsets_and_codes_beyond_their_buffers_are_refused(tmp_path: Path, kind: str):
    """The format does not promise that they are not, and what they point to would be read."""
    texts = frozenset({"s"})
    offsets = np.array([0, 11, 22, 33], np.int32)
    path = write(tmp_path, "a.arrow", {"s": ["CANARY-7731"] * 3}, kind)
    swapped(path, offsets.tobytes(), np.array([0, 2**30, 22, 33], np.int32).tobytes())
    codes = np.array([3, 5, 4, 3, 2, 1, 0, 5], np.int32)
    dictionary = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(list("abcdef")))
    path = write(tmp_path, "b.arrow", {"s": dictionary}, kind)
    swapped(path, codes.tobytes(), np.array([3, 5, 4, 3, 2, 1, 0, 2**30], np.int32).tobytes())
    for name in ("a.arrow", "b.arrow"):
        with pytest.raises((pa.ArrowException, IndexError)):
            list(Ipc(path=tmp_path / name).read(Split(0, (Part(name, 0, 10**9),)), ["s"], texts))


def test_a_text_that_is_no_utf8_stops_nothing(tmp_path: Path):
    """One record could stop the run otherwise."""
    bad = pa.array([b"\xff\xfe", b"ok"], pa.binary())
    kinds = {
        "s": bad.view(pa.string()),
        "l": bad.cast(pa.large_binary()).view(pa.large_string()),
        "v": bad.cast(pa.binary_view()).view(pa.string_view()),
        "d": pa.DictionaryArray.from_arrays(pa.array([0, 1]), bad.view(pa.string())),
        "r": pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), pa.array(["OK", "ok"])),
    }
    swapped(write(tmp_path, "a.arrow", pa.table(kinds)), b"OKok", b"\xff\xfeok")
    source = Ipc(path=tmp_path)
    columns = sorted(kinds)
    (batch,) = source.read(source.plan()[0], columns, frozenset(columns))
    for column in columns:
        array = batch.columns[column]
        values = (array.dictionary_decode() if pa.types.is_dictionary(array.type) else array).cast(pa.binary()).to_pylist()
        assert values == [b"\xff\xfe", b"ok"], column
