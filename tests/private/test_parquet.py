from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pqe
import pytest
from core.exact import LAW, make_statistic
from hypothesis import example, given
from hypothesis import strategies as st
from private.tables import CANARY, Parquet, read, says_nothing, write

from dp_dask.errors import SourceError
from dp_dask.private.reduce import Failure, reduce_split
from dp_dask.private.sources import Part, Split


def refusal(path: Path, column: str = "x") -> str:
    """Return what is said by check and by a worker, which must be the same where both see the fault."""
    source = Parquet(path=path)
    with pytest.raises(SourceError) as caught:
        source.check([column])
    assert caught.value.__context__ is None
    assert worker_says(path, column) == str(caught.value)
    assert says_nothing(str(caught.value))
    return str(caught.value)


def worker_says(path: Path, column: str = "x") -> str:
    source = Parquet(path=path)
    (split,) = source.plan()
    outcome = reduce_split(source, split, [make_statistic(0, 1, column=column)])
    assert isinstance(outcome, Failure)
    assert says_nothing(outcome.message)
    return outcome.message


# Files and folders


def test_one_file_is_read(tmp_path: Path):
    path = write(tmp_path, "a.parquet", {"x": [1.0, None, 3.0], "y": ["a", "b", "c"]})
    assert read(Parquet(path=path)) == ([1.0, None, 3.0], 3)


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path: Path):
    for name, value in (("b/1.parquet", 2), ("a.parquet", 1), ("b/2", 3), ("_k=1/x.parquet", 0)):
        write(tmp_path, name, {"x": [value]})
    (tmp_path / "_SUCCESS").touch()
    assert read(Parquet(path=tmp_path)) == ([0.0, 1.0, 2.0, 3.0], 4)


def test_several_columns_stay_side_by_side(tmp_path: Path):
    write(tmp_path, "a.parquet", {"y": [4, 5], "z": ["a", "b"], "x": [1.5, None]})
    assert read(Parquet(path=tmp_path), ["x", "y"]) == ([(1.5, 4.0), (None, 5.0)], 2)


def test_each_file_is_read_in_its_own_type(tmp_path: Path):
    kinds = [
        pa.int32(),
        pa.int64(),
        pa.float64(),
        pa.float32(),
        pa.decimal128(9, 2),
        pa.decimal256(50, 2),
        pa.uint8(),
        pa.float16(),
    ]
    for i, kind in enumerate(kinds):
        value = np.float16(3) if kind == pa.float16() else 3
        write(tmp_path, f"{i}.parquet", {"x": pa.array([value, None], kind)})
    write(tmp_path, "z.parquet", {"x": [True, None]})
    values, n_records = read(Parquet(path=tmp_path))
    assert values == [3.0, None] * len(kinds) + [1.0, None]
    assert n_records == 2 * len(kinds) + 2


def test_dictionary_encoded_numbers_are_read(tmp_path: Path):
    write(tmp_path, "a.parquet", {"x": pa.array([7, None, 7, 8]).dictionary_encode()})
    assert read(Parquet(path=tmp_path)) == ([7.0, None, 7.0, 8.0], 4)


def test_a_file_that_is_gone_is_named(tmp_path: Path):
    path = write(tmp_path, "a.parquet", {"x": [CANARY]})
    source = Parquet(path=tmp_path)
    splits = source.plan()
    path.unlink()
    with pytest.raises(SourceError, match=r"^a.parquet: it is gone$"):
        read(source, splits=splits)


# No rows


@pytest.mark.parametrize("groups", [0, 1, 3])
def test_a_file_without_rows_has_no_records(tmp_path: Path, groups: int):
    schema = pa.schema({"x": pa.float64()})
    with pq.ParquetWriter(tmp_path / "a.parquet", schema) as writer:
        for _ in range(groups):
            writer.write_table(schema.empty_table())
    Parquet(path=tmp_path).check(["x"])
    assert read(Parquet(path=tmp_path)) == ([], 0)


def test_an_empty_row_group_between_others_changes_nothing(tmp_path: Path):
    table = pa.table({"x": [1.0, 2.0]})
    with pq.ParquetWriter(tmp_path / "a.parquet", table.schema) as writer:
        for piece in (table[:0], table, table[:0], table, table[:0]):
            writer.write_table(piece)
    assert read(Parquet(path=tmp_path)) == ([1.0, 2.0, 1.0, 2.0], 4)


# Columns


def test_a_missing_column_is_refused_with_those_there_are(tmp_path: Path):
    write(tmp_path, "a.parquet", {"X": [CANARY], "xx": [1]})
    assert refusal(tmp_path) == "a.parquet: no column 'x'; the file has: X, xx"


def test_a_file_that_lacks_the_column_is_refused_also_where_the_first_has_it(tmp_path: Path):
    write(tmp_path, "a.parquet", {"x": [CANARY]})
    write(tmp_path, "b.parquet", {"y": [CANARY]})
    Parquet(path=tmp_path).check(["x"])
    assert worker_says(tmp_path) == "b.parquet: no column 'x'; the file has: y"


def test_many_columns_are_not_all_listed(tmp_path: Path):
    write(tmp_path, "a.parquet", {f"c{i}": [1] for i in range(30)})
    assert refusal(tmp_path).endswith("c18, c19, ..")


def test_names_that_differ_by_case_are_told_apart(tmp_path: Path):
    write(tmp_path, "a.parquet", {"X": [1.0], "x": [2.0]})
    assert read(Parquet(path=tmp_path)) == ([2.0], 1)
    assert read(Parquet(path=tmp_path), ["X"]) == ([1.0], 1)


def test_two_columns_of_one_name_are_refused(tmp_path: Path):
    write(tmp_path, "a.parquet", pa.Table.from_arrays([pa.array([CANARY]), pa.array([1.0])], names=["x", "x"]))
    assert refusal(tmp_path) == "a.parquet: 2 columns are called 'x'; rename all but one"


def test_two_other_columns_of_one_name_do_not_matter(tmp_path: Path):
    write(tmp_path, "a.parquet", pa.Table.from_arrays([pa.array([v]) for v in (1.0, 2.0, 3.0)], names=["y", "x", "y"]))
    assert read(Parquet(path=tmp_path)) == ([2.0], 1)


@pytest.mark.parametrize("order", [["a", "a.b"], ["a.b", "a"]])
def test_a_dotted_name_is_the_column_and_not_the_nested_field(tmp_path: Path, order: list[str]):
    columns = {"a": pa.array([{"b": 7.0}, None]), "a.b": pa.array([2.0, 3.0])}
    write(tmp_path, "a.parquet", {name: columns[name] for name in order})
    assert read(Parquet(path=tmp_path), ["a.b"]) == ([2.0, 3.0], 2)


def test_a_name_that_begins_another_one_is_read_alone(tmp_path: Path):
    write(tmp_path, "a.parquet", {"a.b": [7.0], "a": [2.0], "ab": [3.0]})
    assert read(Parquet(path=tmp_path), ["a"]) == ([2.0], 1)


def test_a_nested_field_alone_is_refused(tmp_path: Path):
    write(tmp_path, "a.parquet", {"a": [{"b": CANARY}]})
    assert refusal(tmp_path, "a.b") == "a.parquet: no column 'a.b'; the file has: a"


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["CANARY-7731"]),
        pa.array([b"CANARY-7731"]),
        pa.array(["CANARY-7731"]).dictionary_encode(),
        pa.nulls(1),
        pa.array([1], pa.timestamp("us")),
        pa.array([1], pa.date32()),
        pa.array([1], pa.time64("us")),
        pa.array([1], pa.duration("us")),
        pa.array([[CANARY]]),
        pa.array([{"x": CANARY}]),
    ],
    ids=lambda array: str(array.type),
)
def test_a_column_that_holds_no_numbers_is_refused_by_its_type(tmp_path: Path, values: pa.Array):
    write(tmp_path, "a.parquet", {"x": values})
    assert refusal(tmp_path).startswith("a.parquet: column 'x' is of type ")


# Partition keys


def test_a_partition_key_is_no_number(tmp_path: Path):
    write(tmp_path, "year=2020/a.parquet", {"x": [1.0]})
    assert "'year' is a partition key, hence text; rename the folders or measure another column" in refusal(tmp_path, "year")
    assert read(Parquet(path=tmp_path)) == ([1.0], 1)


@pytest.mark.parametrize("values", [[1, 1], [1, 2], [1, None], []])
def test_a_partition_key_that_is_also_a_column_is_refused_by_name_alone(tmp_path: Path, values: list[int | None]):
    """Were the values compared, one record could stop the run."""
    write(tmp_path, "x=1/a.parquet", {"x": pa.array(values, pa.int64())})
    assert "'x' is a partition key, hence text; rename the folders" in worker_says(tmp_path)


# Broken files

NO_PARQUET = "b.parquet: not a readable Parquet file (cut short, empty, encrypted or of another format)"


def cut_short(data: bytes) -> bytes:
    return data[:-20]


def zero_bytes(_: bytes) -> bytes:
    return b""


def wrong_magic(data: bytes) -> bytes:
    return data[:-4] + b"PAR2"


def another_format(_: bytes) -> bytes:
    return b"x,y\n987654321.125,2\n"


def long_footer(data: bytes) -> bytes:
    return data[:-8] + (2**31 - 1).to_bytes(4, "little") + data[-4:]


def garbled_footer(data: bytes) -> bytes:
    length = int.from_bytes(data[-8:-4], "little")
    return data[: -8 - length] + b"\xff" * length + data[-8:]


@pytest.mark.parametrize("spoil", [cut_short, zero_bytes, wrong_magic, another_format, long_footer, garbled_footer])
@pytest.mark.parametrize("rows", [3, 200_000], ids=["small", "large"])
def test_a_broken_file_is_refused_by_name(tmp_path: Path, spoil, rows: int):
    path = write(tmp_path, "b.parquet", {"x": np.full(rows, CANARY)}, use_dictionary=False, compression="none")
    path.write_bytes(spoil(path.read_bytes()))
    assert refusal(tmp_path) == NO_PARQUET


def flip(path: Path, needle: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(needle) + 5] ^= 0x10
    path.write_bytes(bytes(data))


def test_a_flipped_byte_in_a_page_is_refused_by_the_name_of_its_own_file(tmp_path: Path):
    for name in ("a.parquet", "b.parquet", "c.parquet"):
        path = write(
            tmp_path,
            name,
            {"x": [1.0, CANARY]},
            use_dictionary=False,
            compression="none",
            write_page_checksum=True,
            write_statistics=False,
        )
        if name == "b.parquet":
            flip(path, np.float64(CANARY).tobytes())
    said = worker_says(tmp_path)
    assert said.startswith("b.parquet: ")
    assert "a.parquet" not in said


def test_a_flipped_byte_in_a_compressed_page_is_refused(tmp_path: Path):
    path = write(tmp_path, "a.parquet", {"x": np.arange(1000.0)}, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))
    assert worker_says(tmp_path).startswith("a.parquet: ")


def test_a_file_whose_row_groups_are_cut_out_is_refused(tmp_path: Path):
    path = write(tmp_path, "a.parquet", {"x": np.random.default_rng(1).random(5000)}, row_group_size=500, use_dictionary=False)
    data = path.read_bytes()
    path.write_bytes(data[:4000] + data[-8 - int.from_bytes(data[-8:-4], "little") :])
    assert worker_says(tmp_path).startswith("a.parquet: ")


class NoSecret(pqe.KmsClient):
    """A key service that keeps the key in the file; enough to make an encrypted one."""

    def wrap_key(self, key_bytes: bytes, _master_key_identifier: str) -> bytes:
        return key_bytes.hex().encode()


def write_encrypted(folder: Path, *, is_footer_plain: bool) -> None:
    config = pqe.EncryptionConfiguration(footer_key="f", column_keys={"k": ["x"]}, plaintext_footer=is_footer_plain)
    properties = pqe.CryptoFactory(lambda _: NoSecret()).file_encryption_properties(pqe.KmsConnectionConfig(), config)
    table = pa.table({"x": [CANARY], "y": [1.0]})
    with pq.ParquetWriter(folder / "b.parquet", table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)


def test_an_encrypted_file_without_its_key_is_refused_by_name(tmp_path: Path):
    write_encrypted(tmp_path, is_footer_plain=False)
    assert refusal(tmp_path) == NO_PARQUET


def test_an_encrypted_column_under_a_plain_footer_is_refused_by_name(tmp_path: Path):
    write_encrypted(tmp_path, is_footer_plain=True)
    code = f"from pathlib import Path; from private.test_parquet import worker_says; print(worker_says(Path({str(tmp_path)!r})))"
    # In a process of its own: pyarrow aborts where it is asked for the metadata of an encrypted column.
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert done.stdout.startswith("b.parquet: ")


# Splits

MANY = 40


@pytest.fixture(scope="module")
def many_groups() -> Iterator[Path]:
    """A file of row groups of unlike sizes, whose records are numbered."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.parquet"
        table = pa.table({"pad": [str(i) * (i % 7) for i in range(1000)], "x": np.arange(1000)})
        with pq.ParquetWriter(path, table.schema) as writer:
            start = 0
            for size in np.random.default_rng(2).multinomial(1000, [1 / MANY] * MANY):
                writer.write_table(table[start : start + size], row_group_size=10_000)
                start += size
        yield path


@LAW
@given(data=st.data())
@example(data=None)
def test_every_row_group_is_read_exactly_once_wherever_the_file_is_cut(many_groups: Path, data: st.DataObject | None):
    size = many_groups.stat().st_size
    metadata = pq.read_metadata(many_groups)
    first_bytes = [metadata.row_group(i).column(0).dictionary_page_offset for i in range(metadata.num_row_groups)]
    assert len(first_bytes) == MANY
    near = [min(max(offset + more, 0), size) for offset in first_bytes for more in (-1, 0, 1)]
    cuts = near if data is None else data.draw(st.lists(st.one_of(st.sampled_from(near), st.integers(0, size)), max_size=6))
    ends = sorted({0, size, *cuts})
    splits = [Split(i, (Part("a.parquet", a, b),)) for i, (a, b) in enumerate(pairwise(ends))]
    values, n_records = read(Parquet(path=many_groups), splits=splits)
    assert values == list(range(1000))
    assert n_records == 1000


def test_every_row_group_is_read_once_wherever_a_file_is_cut_in_two(tmp_path: Path):
    path = write(
        tmp_path,
        "a.parquet",
        {"x": [1, 2, 3]},
        row_group_size=1,
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
    )
    size = path.stat().st_size
    for cut in range(size + 1):
        splits = [Split(i, (Part("a.parquet", a, b),)) for i, (a, b) in enumerate([(0, cut), (cut, size)])]
        assert read(Parquet(path=path), splits=splits) == ([1.0, 2.0, 3.0], 3)


def test_a_split_may_hold_parts_of_several_files(tmp_path: Path):
    for i in range(3):
        write(tmp_path, f"{i}.parquet", {"x": [10 * i, 10 * i + 1]})
    (split,) = Parquet(path=tmp_path).plan()
    assert [part.path for part in split.parts] == ["0.parquet", "1.parquet", "2.parquet"]
    assert read(Parquet(path=tmp_path)) == ([0.0, 1.0, 10.0, 11.0, 20.0, 21.0], 6)


@pytest.mark.parametrize("row_group_size", [1000, 2**16, 2**17, 300_000])
def test_row_groups_of_every_size_are_read_whole_and_in_batches(tmp_path: Path, row_group_size: int):
    path = write(tmp_path, "a.parquet", {"x": np.arange(300_000)}, row_group_size=row_group_size)
    values, n_records = read(Parquet(path=path))
    assert n_records == 300_000
    assert values == list(range(300_000))


def test_a_batch_is_never_larger_than_a_row_group_or_the_batch_size(tmp_path: Path):
    path = write(tmp_path, "a.parquet", {"x": np.zeros(1_500_000, np.int8)}, row_group_size=1_500_000)
    source = Parquet(path=path)
    sizes = [batch.n_records for split in source.plan() for batch in source.read(split, ["x"])]
    assert sum(sizes) == 1_500_000
    assert max(sizes) <= 2**17


def test_a_partition_key_is_a_column_of_texts(tmp_path):
    """Also where it is all that is read, and with the folder name's percent signs undone."""
    for key, values in {"a%20b": [1.0, 2.0], "c": [3.0]}.items():
        (tmp_path / f"g={key}").mkdir()
        pq.write_table(pa.table({"x": values}), tmp_path / f"g={key}" / "part.parquet")
    source = Parquet(path=tmp_path)
    texts = frozenset({"g"})
    source.check(["g", "x"], texts)
    for columns in (["g", "x"], ["g"]):
        batches = [batch for split in source.plan() for batch in source.read(split, columns, texts)]
        assert [value for batch in batches for value in batch.columns["g"].to_pylist()] == ["a b", "a b", "c"]
        assert sum(batch.n_records for batch in batches) == 3
    pq.write_table(pa.table({"x": [1.0], "g": ["c"]}), tmp_path / "g=c" / "part.parquet")
    with pytest.raises(SourceError, match="'g' is a partition key"):
        list(source.read(source.plan()[-1], ["g", "x"], texts))
