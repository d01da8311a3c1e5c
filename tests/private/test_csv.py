from __future__ import annotations

import bz2
import gzip
import math
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from core.exact import LAW, make_statistic
from hypothesis import example, given
from hypothesis import strategies as st
from private.tables import CANARY_TEXT, Csv, read, says_nothing, write_text

from dp_dask.errors import SourceError
from dp_dask.private.reduce import Failure, reduce_split
from dp_dask.private.sources import csv

PLAIN_NUMBER = re.compile(r"[ \t]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t]*")
INFINITY = re.compile(r"[ \t]*[+-]?inf(inity)?[ \t]*", re.IGNORECASE)
NULLS = {"", "NA", "NULL", "null", "NaN", "nan"}


def number(field: str) -> float | None:
    """Return what a field must be read as, by Python's own conversion."""
    if field not in NULLS and (PLAIN_NUMBER.fullmatch(field) or INFINITY.fullmatch(field)):
        return float(field)
    return None


def refusal(source: Csv, column: str = "x") -> str:
    """Return what a worker says; check must say the same or nothing, and neither quotes a record."""
    (split,) = source.plan()
    outcome = reduce_split(source, split, [make_statistic(0, 1, column=column)])
    assert isinstance(outcome, Failure)
    assert says_nothing(outcome.message)
    said = check_says(source, column)
    assert said in (None, outcome.message)
    return outcome.message


def check_says(source: Csv, column: str) -> str | None:
    try:
        source.check([column])
    except SourceError as error:
        return str(error)
    return None


# Fields

GOOD = [
    *["0", "-0", "1", "+1", "00012", "1.5", ".5", "5.", "-.5e-3", "1e5", "1E+05", "1e400", "-1e400", "1e-400", "0e999999999999"],
    *[" 5 ", "\t5", "inf", "-Infinity", "+INF", "9" * 400, "0." + "0" * 400 + "1", "9007199254740993", "0.1", "1" * 30],
]
BAD = [
    *["", "NA", "nan", "NaN", "NULL", "null", "NAN", "None", "true", "abc", "1,5", "1 2", "1_000", "0x10", "--1", "+-1", "+ 1"],
    *["1e", "e5", ".", "1.2.3", "5\n", "5\r", "\n5", "5\x00", "\x005", "$5", "5%", "\u0663", "\u096b", "\uff15", "\u00a05"],
    *["5\u2009", "infinit", "in f", '"', '5"', "1d", "1f", "\u221e"],
]


def quoted(field: str) -> str:
    return '"' + field.replace('"', '""') + '"'


def test_every_form_of_a_number_is_read_and_every_other_field_is_a_null(tmp_path: Path):
    fields = GOOD + BAD
    source = write_text(tmp_path, "y,x\n" + "".join(f"1,{quoted(field)}\n" for field in fields))
    values, n_records = read(source)
    assert values == [number(field) for field in fields]
    assert n_records == len(fields)
    assert None not in values[: len(GOOD)]
    assert set(values[len(GOOD) :]) == {None}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


FIELD = st.one_of(
    st.sampled_from(GOOD + BAD),
    st.floats().map(repr),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.text(alphabet='0123456789+-.eE ,"\n\tinfax', max_size=8),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
)


@LAW
@given(fields=st.lists(FIELD, min_size=1, max_size=12))
@example(fields=GOOD + BAD)
@example(fields=["abc", "1"])
@example(fields=["1", "1e400", CANARY_TEXT])
def test_the_value_of_a_field_never_depends_on_other_fields(folder: Path, fields: list[str]):
    source = write_text(folder, ("y,x\n" + "".join(f"{quoted(field)},{quoted(field)}\n" for field in fields)))
    values, n_records = read(source)
    assert values == [number(field) for field in fields]
    assert n_records == len(fields)


def test_a_record_in_a_far_block_does_not_change_how_the_first_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(csv, "BLOCK_BYTES", 1000)
    source = write_text(tmp_path, "x,y\n" + "7,1234567\n" * 5000 + "abc,1\n7.25,1\n")
    batches = [batch for split in source.plan() for batch in source.read(split, ["x"])]
    assert len(batches) > 10
    assert {batch.columns["x"].type for batch in batches} == {pa.float64()}
    assert read(source) == ([7.0] * 5000 + [None, 7.25], 5002)


def test_the_texts_that_stand_for_null_can_be_declared(tmp_path: Path):
    source = write_text(tmp_path, "x\n-9\n1\nNA\n")
    assert read(Csv(path=source.path, columns={"x": "number"}, nulls=["-9"])) == ([None, 1.0, None], 3)


# Lines


def test_a_line_of_the_wrong_width_is_a_record_without_values(tmp_path: Path):
    source = write_text(tmp_path, "x,y\n1\n2,2\n3,3,3\n4,4\n,,,,\n")
    assert read(source) == ([2.0, 4.0], 5)


def test_wrong_lines_only_are_records_too(tmp_path: Path):
    assert read(write_text(tmp_path, "x,y\n1\n2\n3,3,3\n")) == ([], 3)


@pytest.mark.parametrize("block", [50, 64, 1000, 4096])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_line_is_counted_once_wherever_a_block_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, block: int):
    monkeypatch.setattr(csv, "BLOCK_BYTES", block)
    rng = np.random.default_rng(block)
    lines, expected = ["x,y"], []
    for i in range(1000):
        kind = rng.integers(5)
        if kind == 0:
            lines.append(str(rng.choice(["1", "1,2,3", "5,6,7,8"])))
            continue
        lines.append(f'{i},"q{end}uoted, ""z"""' if kind == 1 else f"{i},{'z' * rng.integers(20)}")
        expected.append(float(i))
    assert read(write_text(tmp_path, end.join(lines) + end)) == (expected, 1000)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", [True, False], ids=["ended", "open"])
def test_every_line_end_is_one(tmp_path: Path, end: str, *, last: bool):
    text = end.join(["x,y", "1,1", "2,2", '3,"a' + end + 'b"', "4,4"]) + (end if last else "")
    assert read(write_text(tmp_path, text)) == ([1.0, 2.0, 3.0, 4.0], 4)


def test_a_quoted_field_may_hold_line_ends_delimiters_and_quotes(tmp_path: Path):
    source = write_text(tmp_path, 'x,y\n1,"a\nb,c\n\n""d"""\n"2","\r\n"\n3,\n')
    assert read(source) == ([1.0, 2.0, 3.0], 3)


def test_a_quote_inside_a_field_is_a_character(tmp_path: Path):
    assert read(write_text(tmp_path, 'x,y\n1,5" pipe\n2,it""s\n')) == ([1.0, 2.0], 2)


def test_blank_lines_between_records_of_several_fields_are_no_records(tmp_path: Path):
    assert read(write_text(tmp_path, "x,y\n1,1\n\n\n2,2\n\n")) == ([1.0, 2.0], 2)


def test_a_blank_line_is_a_null_where_a_record_has_one_field(tmp_path: Path):
    assert read(write_text(tmp_path, "x\n1\n\n3\n")) == ([1.0, None, 3.0], 3)


@pytest.mark.parametrize("null", ["", "NA", '""', "junk", "5,6"])
def test_the_number_of_records_does_not_depend_on_their_values(tmp_path: Path, null: str):
    for text in (f"x\n1\n{null}\n3\n", f"x\n{null}\n1\n3\n", f"x\n1\n3\n{null}\n"):
        assert read(write_text(tmp_path, text))[1] == 3


def test_a_quote_left_open_is_refused(tmp_path: Path):
    said = refusal(write_text(tmp_path, 'x,y\n1,1\n2,"left open\n3,CANARY-7731\n4,987654321.125\n'))
    assert said.startswith("a.csv: ")


def test_a_record_of_many_megabytes_is_a_record(tmp_path: Path):
    text = "x,y\n1,1\n2," + "z" * (10 * 2**20) + "\n3,3\n"
    assert read(write_text(tmp_path, text)) == ([1.0, 2.0, 3.0], 3)


# Headers


def test_names_match_exactly(tmp_path: Path):
    source = write_text(tmp_path, "X,x , x,x\n1,2,3,4\n")
    assert read(source) == ([4.0], 1)


@pytest.mark.parametrize("header", ["y", "X", "x ", "987654321.125", ""])
def test_a_missing_column_is_refused_without_quoting_the_first_line(tmp_path: Path, header: str):
    said = refusal(write_text(tmp_path, f"{header},z\n1,2\n"))
    assert said == "a.csv: the header line lacks one of the columns x, or names it twice"


def test_a_column_named_twice_is_refused(tmp_path: Path):
    said = refusal(write_text(tmp_path, "x,y,x\n1,2,987654321.125\n"))
    assert said == "a.csv: the header line lacks one of the columns x, or names it twice"


def test_another_column_named_twice_does_not_matter(tmp_path: Path):
    assert read(write_text(tmp_path, "y,x,y\n1,2,3\n")) == ([2.0], 1)


def test_a_header_alone_has_no_records(tmp_path: Path):
    assert read(write_text(tmp_path, "x,y\n")) == ([], 0)
    assert read(write_text(tmp_path, "x,y\r\n")) == ([], 0)


def test_a_header_alone_may_lack_its_line_end(tmp_path: Path):
    assert read(write_text(tmp_path, "x,y")) == ([], 0)


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path):
    assert read(write_text(tmp_path, b"\xef\xbb\xbfx,y\n1,2\n")) == ([1.0], 1)


def test_a_quoted_header_is_a_name(tmp_path: Path):
    assert read(write_text(tmp_path, '"y,\nz","x"\n1,2\n')) == ([2.0], 1)


def test_several_columns_stay_side_by_side(tmp_path: Path):
    source = write_text(tmp_path, "y,z,x\n1,a,2\nb,b,3\n")
    both = Csv(path=source.path, columns={"x": "number", "y": "number"})
    assert read(both, ["x", "y"]) == ([(2.0, 1.0), (3.0, None)], 2)


def test_an_undeclared_column_is_refused(tmp_path: Path):
    source = write_text(tmp_path, "x,y\n1,2\n")
    with pytest.raises(SourceError, match=r"^a.csv: column 'y' is not declared; declare it, source.columns: \{y: number\}$"):
        source.check(["x", "y"])


def test_a_column_declared_text_is_refused(tmp_path: Path):
    source = write_text(tmp_path, "x,y\n1,2\n")
    text = Csv(path=source.path, columns={"x": "text"})
    with pytest.raises(SourceError, match=r"^a.csv: column 'x' is declared text; declare it, source.columns: \{x: number\}$"):
        text.check(["x"])


def test_a_declared_column_passes_the_check(tmp_path: Path):
    write_text(tmp_path, "x,y\n1,2\n").check(["x"])


@pytest.mark.parametrize("kind", ["int", "", "Number"])
def test_an_unknown_type_is_refused(kind: str):
    with pytest.raises(ValueError, match=rf"^columns: 'x' is declared '{kind}'; known types: number, text, date$"):
        Csv(path=Path("a.csv"), columns={"x": kind})


# Delimiters, encodings, archives


@pytest.mark.parametrize("delimiter", [";", "\t", "|", " "])
def test_the_delimiter_is_an_option(tmp_path: Path, delimiter: str):
    path = write_text(tmp_path, f"y{delimiter}x\n1{delimiter}2,5\n1{delimiter}2.5\n").path
    assert read(Csv(path=path, columns={"x": "number"}, delimiter=delimiter)) == ([None, 2.5], 2)


@pytest.mark.parametrize("delimiter", ["", ",,", "é", "\n", "\r", '"'])
def test_a_delimiter_that_cannot_be_one_is_refused(delimiter: str):
    with pytest.raises(ValueError, match="delimiter"):
        Csv(path=Path("a.csv"), columns={"x": "number"}, delimiter=delimiter)


def test_bytes_that_are_no_utf8_are_fields_like_any_other(tmp_path: Path):
    source = write_text(tmp_path, b"x,y\n1,caf\xe9\n\xff2,3\n\xe9,\xfe\xff\n4,\x80\n")
    assert read(source) == ([1.0, None, None, 4.0], 4)


def test_a_line_of_the_wrong_width_may_hold_any_bytes(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    source = write_text(tmp_path, b"x,y\n1,2\nCANARY-7731\xff\xfe\n\xe9,1,2\n\0\n3,4\n\xff\n")
    assert read(source) == ([1.0, 3.0], 6)
    assert capfd.readouterr() == ("", "")  # pyarrow prints a byte of a line that it cannot decode


def test_a_name_beyond_ascii_is_found(tmp_path: Path):
    path = write_text(tmp_path, "e,é,è,Ã©,x\n1,2,3,4,5\n").path
    assert read(Csv(path=path, columns={"é": "number"}), ["é"]) == ([2.0], 1)
    assert read(Csv(path=path, columns={"é": "number", "è": "number"}), ["è", "é"]) == ([(3.0, 2.0)], 1)


def test_a_text_beyond_ascii_may_stand_for_null(tmp_path: Path):
    source = write_text(tmp_path, "x\n§\n1\n")
    assert read(Csv(path=source.path, columns={"x": "number"}, nulls=["§"])) == ([None, 1.0], 2)


def test_a_header_in_another_encoding_does_not_matter_where_another_column_is_read(tmp_path: Path):
    assert read(write_text(tmp_path, "x,é\n1,2\n".encode("latin-1"))) == ([1.0], 1)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
def test_a_file_in_a_wide_encoding_is_refused(tmp_path: Path, encoding: str):
    assert refusal(write_text(tmp_path, "x,y\n987654321.125,2\n".encode(encoding))).startswith("a.csv: ")


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_a_compressed_file_is_read_by_its_ending(tmp_path: Path, suffix: str, compress):
    assert read(write_text(tmp_path, compress(b"x,y\n1,1\n2,2\n"), f"a.csv{suffix}")) == ([1.0, 2.0], 2)
    two = compress(b"x,y\n1,1\n") + compress(b"2,2\n")
    assert read(write_text(tmp_path, two, f"b.csv{suffix}")) == ([1.0, 2.0], 2)


ARCHIVE = gzip.compress(b"x,y\n" + b"".join(b"987654321.125,%d\n" % i for i in range(20_000)))
BROKEN = {
    "half": ARCHIVE[: len(ARCHIVE) // 2],
    "without its end": ARCHIVE[:-8],
    "without its last byte": ARCHIVE[:-1],
    "another checksum": ARCHIVE[:-8] + b"\0\0\0\0" + ARCHIVE[-4:],
    "a flipped byte": ARCHIVE[:5000] + bytes([ARCHIVE[5000] ^ 1]) + ARCHIVE[5001:],
    "followed by garbage": ARCHIVE + b"garbage",
    "plain text": b"x,y\n987654321.125,2\n",
    "empty": b"",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_archive_is_refused_by_name(tmp_path: Path, name: str):
    assert refusal(write_text(tmp_path, BROKEN[name], "a.csv.gz")).startswith("a.csv.gz: not readable as delimited text")


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\xef\xbb\xbf", b"PAR1\0\0\0\0PAR1"])
def test_a_file_without_a_header_is_refused_by_name(tmp_path: Path, data: bytes):
    assert refusal(write_text(tmp_path, data)).startswith("a.csv: ")


# Folders


def test_a_folder_is_read_in_the_order_of_its_names_and_every_file_has_a_header(tmp_path: Path):
    for name, text in (("b.csv", "x,y\n3,0\n"), ("a.csv", "x\n1\n2\n"), ("k=1/c.csv", "y,x\n0,4\n"), ("_SUCCESS", "")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_text(tmp_path, text, name)
    assert read(Csv(path=tmp_path, columns={"x": "number"})) == ([1.0, 2.0, 3.0, 4.0], 4)


def test_the_file_that_lacks_the_column_is_named(tmp_path: Path):
    write_text(tmp_path, "x\n1\n", "a.csv")
    write_text(tmp_path, "y\n987654321.125\n", "b.csv")
    source = Csv(path=tmp_path, columns={"x": "number"})
    source.check(["x"])
    with pytest.raises(SourceError, match=r"^b.csv: the header line lacks"):
        read(source)


def test_the_file_that_breaks_is_named(tmp_path: Path):
    write_text(tmp_path, "x,y\n1,1\n", "a.csv")
    write_text(tmp_path, BROKEN["half"], "b.csv.gz")
    with pytest.raises(SourceError, match=r"^b.csv.gz: ") as caught:
        read(Csv(path=tmp_path, columns={"x": "number"}))
    assert caught.value.__context__ is None


def test_a_file_that_is_gone_is_named(tmp_path: Path):
    source = Csv(path=tmp_path, columns={"x": "number"})
    write_text(tmp_path, "x\n1\n")
    splits = source.plan()
    (tmp_path / "a.csv").unlink()
    with pytest.raises(SourceError, match=r"^a.csv: it is gone$"):
        read(source, splits=splits)


def test_a_file_is_never_cut(tmp_path: Path):
    source = write_text(tmp_path, "x\n" + "1\n" * 100)
    (split,) = source.plan()
    assert [(part.start, part.end) for part in split.parts] == [(0, 202)]


def test_infinities_are_out_of_bounds_and_not_null(tmp_path: Path):
    assert read(write_text(tmp_path, "x\ninf\n-inf\n1e999\n")) == ([math.inf, -math.inf, math.inf], 3)
