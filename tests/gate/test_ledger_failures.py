"""Ledger failures: databases that are locked, broken or lost, what errors say, and races and crashes of real processes."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pytest
from gate.gate_examples import (
    NOISY_SUM,
    charge,
    everything_said,
    execute,
    impatient,
    is_sqlite,
    lock_held,
    loss,
    make_release,
    make_request,
)
from gate.marks import only_postgresql, only_sqlite
from gate.processes import all_at_once, compete, open_together
from servers import PASSWORD

from dp_dask.core.privacy import Neighbours
from dp_dask.errors import BudgetError, ConfigError, LedgerError

# A database that is locked, broken or not to be written to.


def test_a_lock_that_another_holds_is_a_ledger_error_within_the_url_s_own_patience(made, ledger, url):
    book = made(impatient(url))
    book.balance("people")
    with lock_held(url):
        start = time.monotonic()
        with pytest.raises(LedgerError, match="locked by another run; wait for it to end") as caught:
            charge(book, "a")
        assert 0.5 < time.monotonic() - start < 5
    assert str(NOISY_SUM) not in everything_said(caught.value)
    assert ledger.balance("people").spent == 0
    charge(book, "a")


@pytest.mark.usefixtures("ledger")
def test_questions_do_not_wait_for_a_lock_for_ever(made, url):
    book = made(impatient(url))
    with lock_held(url):
        start = time.monotonic()
        if is_sqlite(url):
            assert book.balance("people").spent == 0  # a writer does not keep readers out
        else:
            with pytest.raises(LedgerError, match="locked"):
                book.balance("people")
        assert time.monotonic() - start < 5


@only_postgresql
def test_a_postgresql_ledger_has_a_patience_of_its_own(ledger):
    with ledger._database.engine.connect() as connection:
        assert connection.exec_driver_sql("SHOW lock_timeout").scalar() == "10s"


def test_a_short_lock_is_waited_for(ledger, url):
    is_held = threading.Event()

    def hold() -> None:
        with lock_held(url):
            is_held.set()
            time.sleep(0.5)

    holder = threading.Thread(target=hold)
    holder.start()
    assert is_held.wait(10)
    start = time.monotonic()
    charge(ledger, "a")
    assert time.monotonic() - start > 0.2
    holder.join()


@pytest.mark.parametrize("content", [b"this is no database" * 100, b"SQLite format 3\0" + b"\xff" * 4000])
def test_a_file_that_is_no_database_is_a_ledger_error(made, opened, tmp_path, content):
    path = tmp_path / "ledger.db"
    path.write_bytes(content)
    ledger = made(f"sqlite:///{path}")
    for act in (
        lambda: ledger.balance("people"),
        ledger.verify,
        lambda: charge(ledger, "a"),
        lambda: opened(f"sqlite:///{path}"),
    ):
        with pytest.raises(LedgerError, match=r"ledger\.db"):
            act()
    assert path.read_bytes() == content


def test_a_ledger_cut_short_is_a_ledger_error(made, opened, tmp_path):
    path = tmp_path / "ledger.db"
    for i in range(100):
        charge(opened(f"sqlite:///{path}"), f"{i}", "0.001")
    path.write_bytes(path.read_bytes()[: 2 * 4096])
    ledger = made(f"sqlite:///{path}")
    with pytest.raises(LedgerError):
        charge(ledger, "d")


def test_a_database_of_something_else_has_no_ledger(made, url):
    execute(url, "CREATE TABLE people (name TEXT)")
    ledger = made(url)
    assert not ledger.exists()
    with pytest.raises(BudgetError, match="no ledger there"):
        ledger.balance("people")


@contextmanager
def another_user() -> Iterator[None]:
    """Root may write anywhere; be somebody else for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="dp-dask-ledger-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_ledger_that_may_not_be_written_to_is_a_ledger_error_and_still_answers(made, opened, open_folder, what):
    path = open_folder / "ledger.db"
    opened(f"sqlite:///{path}")
    path.chmod(0o444 if what == "file" else 0o666)
    open_folder.chmod(0o777 if what == "file" else 0o555)
    ledger = made(f"sqlite:///{path}")
    with another_user():
        assert ledger.balance("people").left == 1
        with pytest.raises(LedgerError, match=r"ledger\.db") as caught:
            charge(ledger, "a")
    assert str(NOISY_SUM) not in everything_said(caught.value)
    assert ledger.balance("people").spent == 0


def test_a_ledger_cannot_be_made_where_one_may_not_write(opened, open_folder):
    open_folder.chmod(0o555)
    with another_user(), pytest.raises(LedgerError, match="cannot be made"):
        opened(f"sqlite:///{open_folder / 'new' / 'ledger.db'}")
    assert list(open_folder.iterdir()) == []


@only_postgresql
def test_a_connection_that_died_while_the_records_were_read_does_not_lose_the_run(ledger, url):
    ledger.check_affordable("people", Neighbours.REPLACE, {"x": loss("0.1")}, who="analyst")
    execute(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    assert charge(ledger, "a") == ledger.find("a")


# What is committed is on the disk.


@only_sqlite
def test_an_sqlite_commit_is_written_to_the_disk_with_its_folder(ledger):
    with ledger._database.writing() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 3  # EXTRA
        assert ledger._database.engine.url.query["timeout"] == "30"


@only_postgresql
@pytest.mark.parametrize(("default", "ours"), [("off", "on"), ("on", "on"), ("remote_apply", "remote_apply")])
@pytest.mark.usefixtures("ledger")
def test_a_postgresql_commit_is_written_to_the_disk_whatever_the_server_s_default(made, url, default, ours):
    book = made(f"{url}?options=-c%20synchronous_commit%3D{default}")
    with book._database.writing() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == ours


@only_postgresql
def test_a_postgresql_that_takes_nothing_is_told_so_and_charges_nothing(ledger, made, url):
    """As a standby server does, or one that its operator has locked."""
    book = made(f"{url}?options=-c%20default_transaction_read_only%3Don")
    with pytest.raises(LedgerError, match=r"it is read-only; .* nothing is shown"):
        charge(book, "a")
    assert ledger.balance("people").spent == 0


@only_postgresql
def test_a_user_without_the_rights_is_told_so_and_charged_nothing(ledger, made, url):
    charge(ledger, "a")
    execute(
        url,
        "DROP ROLE IF EXISTS reader",
        f"CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'",
        "GRANT USAGE ON SCHEMA public TO reader",
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader",
    )
    reader = made(url.replace("//dp:", "//reader:"))
    assert reader.find("a") == ledger.find("a")
    assert reader.verify() == 2
    with pytest.raises(LedgerError, match="this user's rights in the database do not suffice") as caught:
        charge(reader, "b")
    assert str(NOISY_SUM) not in everything_said(caught.value)
    assert ledger.balance("people").spent == Decimal("0.1")
    execute(url, "DROP OWNED BY reader", "DROP ROLE reader")


# What errors say.


def forbid_charges(url: str) -> None:
    if is_sqlite(url):
        execute(
            url,
            "CREATE TRIGGER refuse BEFORE INSERT ON dp_dask_entries WHEN NEW.kind = 'charge' "
            "BEGIN SELECT RAISE(ABORT, 'refused'); END",
        )
    else:  # whose error text quotes the whole row
        execute(url, "ALTER TABLE dp_dask_entries ADD CHECK (kind <> 'charge')")


def test_the_error_of_a_failed_commit_holds_no_noisy_value_and_no_parameter_even_in_its_chain(ledger, url):
    forbid_charges(url)
    with pytest.raises(LedgerError) as caught:
        ledger.commit([("planted-digest", make_release(make_request()))], who="planted-who", why="planted-why")
    said = everything_said(caught.value)
    for secret in (str(NOISY_SUM), "planted-digest", "planted-who", "planted-why", "INSERT", PASSWORD):
        assert secret not in said
    assert ledger.balance("people").spent == 0


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://dp:planted-one@127.0.0.1:1/db",
        "postgresql+psycopg://dp@127.0.0.1:1/db?password=planted-one",
        "postgresql+psycopg://dp:planted-one@127.0.0.1:1/db?sslpassword=planted-two&password=planted-three",
        "postgresql+psycopg://dp:planted-one@127.0.0.1:1/db?planted=two",
        "postgresql+psycopg://dp:planted-one@127.0.0.1:planted/db",
        "postgresql+psycopg://dp:planted-one@[/db",
        "oracle://dp:planted-one@127.0.0.1/db",
        "sqlite:////proc/no/such/ledger.db?timeout=planted",
        "planted-one",
    ],
)
def test_no_error_holds_a_password_of_the_url(opened, url):
    with pytest.raises((LedgerError, ConfigError)) as caught:
        opened(url)
    assert "planted" not in everything_said(caught.value)


def test_a_wrong_password_is_a_ledger_error_without_it(made, postgresql_server):
    ledger = made(postgresql_server.url("planted-wrong"))
    with pytest.raises(LedgerError, match="cannot be reached") as caught:
        ledger.balance("people")
    assert "planted-wrong" not in everything_said(caught.value)


# Races and crashes: other processes.


def test_fifty_processes_compete_for_a_budget_of_ten_and_ten_get_it(opened, url):
    ledger = opened(url, "1")
    racers = [(url, f"digest-{i}", make_release(make_request("0.1"))) for i in range(50)]
    outcomes = all_at_once(compete, racers)
    assert Counter(kind for kind, _ in outcomes) == {"shown": 10, "BudgetError": 40}, [text for _, text in outcomes]
    assert ledger.balance("people").left == 0
    assert ledger.verify() == 51
    found = [ledger.find(digest) for _, digest, _ in racers]
    assert [release and release.id for release in found] == [text if kind == "shown" else None for kind, text in outcomes]


def test_twelve_processes_with_one_request_pay_once_and_all_show_the_same_release(opened, url):
    ledger = opened(url, "0.1")
    outcomes = all_at_once(compete, [(url, "one", make_release(make_request("0.1"))) for _ in range(12)])
    assert set(outcomes) == {("shown", ledger.find("one").id)}
    assert ledger.balance("people").spent == Decimal("0.1")
    assert ledger.verify() == 2


def test_eight_processes_that_make_one_ledger_make_it_once(made, url):
    assert all_at_once(open_together, [(url,)] * 8) == ["1"] * 8
    ledger = made(url)
    assert ledger.verify() == 1
