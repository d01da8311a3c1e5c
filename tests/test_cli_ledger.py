"""The command line's ledger: granting, revoking, limiting, showing and exporting, as a data steward types it."""

from __future__ import annotations

import getpass
import json

import pytest
from commands import dp_dask
from gate.gate_examples import loss, make_release, make_request

from dp_dask.core.privacy import Neighbours
from dp_dask.gate.ledger import Ledger
from dp_dask.gate.replay import first_fault

FILE = """
dataset: {name: people, source: {kind: parquet, path: data}, unit: record, version: "1"}
privacy: {neighbours: replace, n: 50}
measurements: {m: {model: exponential, column: x, bounds: [0, 9], epsilon: 0.1, prior: {alpha: 1, beta: 1}}}
ledger: sqlite:///ledger.db
output: runs
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "p.yaml").write_text(FILE)
    assert dp_dask(tmp_path, "ledger", "init", "p.yaml", "--epsilon", "1").returncode == 0
    return tmp_path


@pytest.fixture
def book(folder):
    made = Ledger(f"sqlite:///{folder / 'ledger.db'}")
    yield made
    made.close()


def told(folder, *words, code=0):
    done = dp_dask(folder, "ledger", words[0], "p.yaml", *words[1:])
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def test_a_budget_is_granted_revoked_limited_and_shown(folder, book):
    me = getpass.getuser()
    assert "people: 1.5 granted, 0 spent, 1.5 left (replace)" in told(folder, "grant", "--epsilon", "0.5", "--why", "more")
    assert "people: 1.25 granted, 0 spent, 1.25 left (replace)" in told(folder, "revoke", "--epsilon", "0.25", "--why", "less")
    assert "limit of each day in Europe/Berlin: 0.3" in told(
        folder, "limit", "--per", "day", "--zone", "Europe/Berlin", "--epsilon", "0.3"
    )
    told(folder, "limit", "--per", "month", "--epsilon", "5")
    told(folder, "limit", "--who", me, "--epsilon", "0.2", "--why", "a share")
    book.commit([("a", make_release(make_request("0.1")))], who=me, why="")
    with book.reserved("people", Neighbours.REPLACE, {"b": loss("0.05")}, who="bob", why=""):
        shown = json.loads(told(folder, "show", "--json"))
        table = told(folder, "show")
    limits = shown["people"].pop("limits")
    assert shown == {
        "people": {
            "neighbours": "replace",
            "unit": "epsilon",
            "granted": "1.25",
            "spent": "0.1",
            "left": "1.15",
            "reserved": "0.05",
            "refused": 0,
        }
    }
    day, month, share = limits
    assert day.pop("renews").endswith(("T00:00+01:00", "T00:00+02:00"))
    assert month.pop("renews").endswith("-01T00:00+00:00")
    amounts = {"spent": "0.1", "reserved": "0.05"}
    assert day == {"per": "day", "zone": "Europe/Berlin", "amount": "0.3", "left": "0.2", **amounts}
    assert month == {"per": "month", "zone": "UTC", "amount": "5", "left": "4.9", **amounts}
    assert share == {"who": me, "amount": "0.2", "spent": "0.1", "left": "0.1", "reserved": "0"}
    for text in ("reserved of it", "1.15", "0.05", "of each day in Europe/Berlin", f"of what {me} may spend", "never"):
        assert text in table
    assert "lifted" in told(folder, "limit", "--per", "day", "--lift")
    assert len(json.loads(told(folder, "show", "--json"))["people"]["limits"]) == 2
    assert "8 entries, all sound" in told(folder, "verify")


def test_a_run_beyond_a_limit_is_refused_and_counted(folder):
    told(folder, "limit", "--who", getpass.getuser(), "--epsilon", "0")
    done = dp_dask(folder, "run", "p.yaml", "--json")
    assert done.returncode == 3
    assert "0 is left of the limit of 0 of what" in json.loads(done.stdout)["message"]
    assert json.loads(told(folder, "show", "--json"))["people"]["refused"] == 1
    assert "3 entries" in told(folder, "verify")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("revoke", "--epsilon", "1.1"), 3, "epsilon 1.1 is more than the 1 that is left (0 of 1 spent)"),
        (("revoke", "--rho", "1"), 3, "is in epsilon, not in rho; revoke with --epsilon"),
        (("revoke", "--epsilon", "0"), 2, "it must be above 0"),
        (("revoke",), 2, "is missing; give --epsilon, or --rho"),
        (("limit", "--epsilon", "1"), 2, "--per: or --who is needed"),
        (("limit", "--epsilon", "1", "--per", "day", "--who", "x"), 2, "--per: or --who is needed, one of the two"),
        (("limit", "--epsilon", "1", "--per", "year"), 2, "'year' is not one of 'day', 'week', 'month'"),
        (("limit", "--epsilon", "1", "--per", "day", "--zone", "Mars"), 2, "--zone: is 'Mars', no time zone that this machine"),
        (("limit", "--per", "day"), 2, "is missing; give --epsilon, or --rho"),
        (("limit", "--per", "day", "--lift", "--epsilon", "1"), 2, "stands in place of an amount"),
        (("limit", "--per", "day", "--rho", "1"), 3, "is in epsilon, not in rho; limit with --epsilon"),
        (("limit", "--per", "day", "--epsilon", "-1"), 2, "it must be above 0"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_no_entry(folder, words, code, message):
    assert message in told(folder, *words, code=code)
    assert "1 entries" in told(folder, "verify")


def test_every_entry_is_exported_as_a_line_and_the_chain_with_them(folder, book):
    book.commit([("a", make_release(make_request("0.1")))], who="ann", why="a question")
    told(folder, "limit", "--per", "week", "--epsilon", "1")
    lines = told(folder, "export").splitlines()
    entries = [json.loads(line) for line in lines]
    assert [entry["kind"] for entry in entries] == ["open", "charge", "limit"]
    assert entries == book.entries() == json.loads(told(folder, "export", "--json"))["entries"]
    assert first_fault(entries) is None
    assert first_fault([*entries[:1], *entries[2:]]) == 2
    assert "salt" not in "".join(lines)
    assert told(folder, "export", "--output", "kept/book.jsonl").strip() == "3 entries: kept/book.jsonl"
    assert (folder / "kept" / "book.jsonl").read_text().splitlines() == lines
    again = json.loads(told(folder, "export", "--output", "kept/book.jsonl", "--json"))
    assert again == {"entries": 3, "file": "kept/book.jsonl"}
    assert [path.name for path in (folder / "kept").iterdir()] == ["book.jsonl"]
