"""Ledger of selections: charged and stored exactly once, beside releases that are stored as they always were."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal

import pytest
from commands import PROCESSES
from gate.gate_examples import effective, execute, make_release, make_rho_request, rows
from gate.gate_examples import make_request as make_additive
from gate.marks import only_sqlite
from gate.processes import compete, meet
from gate.selected_examples import (
    DISTANCE,
    Frozen,
    answer_until_killed,
    commit_one,
    make_candidates,
    make_request,
    make_selection,
    sealed,
    sparse,
    top,
)

from dp_dask.core.privacy import Neighbours, Unit
from dp_dask.core.release import INSECURE, Release
from dp_dask.core.selected import Selection
from dp_dask.core.selection import Variant
from dp_dask.errors import BudgetError, LedgerError
from dp_dask.gate.noise import OpenDPNoise
from dp_dask.gate.selecting import compare_sums, run

QUESTIONS = [sparse(epsilon="0.3"), sparse(epsilon="0.3", variant=Variant.ONE_SIDED), top(amount="0.3")]
# Digests and an entry that were written before selections were known, with "salt" for a salt.
OLD_DIGESTS = {
    "f113025ef1e32c6d73748685dc89de6f8b9bdbe6712c62c29430d96a502d6f58": make_additive("0.1"),
    "150b42e310435b46f39c26bdcf7efd4a7b4b63e39034d952cb0cf2b3189b14e6": make_rho_request("0.1"),
}
OLD_RELEASE = (
    '{"id":"00000000000000000000000000000000","created":"2026-01-01T00:00:00+00:00","request":{"dataset":"people","statistic":'
    '{"column":"visits","bounds":{"lower":0.0,"upper":30.0},"outside":"clamp","grid":{"unit":1.0,"lower":0,"upper":30,"origin":0}'
    ',"count_weight":0},"neighbours":"replace","n":50,"epsilon":"0.1","rho":null},"mechanism":"discrete_laplace","sampler":'
    '"opendp 0","sensitivity":30,"scale":450.0,"privacy_loss":0.06666666666666667,"noisy_sums":[7042117042],"noisy_count":null}'
)


def answered(question):
    request = make_request(question)
    return run(request, make_candidates(request).batches(), compare_sums(request, sealed()), OpenDPNoise())


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_selection_is_charged_once_and_comes_back_as_it_was_stored(ledger, url, question):
    made, another = answered(question), answered(question)
    digest = ledger.digest(made.request, "v")
    assert ledger.find(digest, Selection) is None
    assert ledger.commit([(digest, made)], who="analyst", why="a") == [made]
    assert ledger.commit([(digest, another)], who="analyst", why="b") == [made]
    assert ledger.find(ledger.digest(another.request, "v"), Selection) == made
    assert ledger.balance("people").spent == Decimal("0.3")
    assert [row["kind"] for row in rows(url)] == ["open", "charge"]
    assert ledger.verify() == 2


def test_twice_in_one_commit_it_is_charged_once(ledger):
    made, another = answered(QUESTIONS[0]), answered(QUESTIONS[0])
    digest = ledger.digest(made.request, "v")
    assert ledger.commit([(digest, made), (digest, another)], who="", why="") == [made, made]
    assert ledger.balance("people").spent == Decimal("0.3")


def test_a_selection_and_a_release_are_charged_in_one_transaction_or_not_at_all(ledger, url):
    both = [("a", make_release(make_additive("0.2"))), ("b", answered(QUESTIONS[0]))]
    assert ledger.commit(both, who="", why="") == [made for _, made in both]
    assert ledger.balance("people").spent == Decimal("0.5")
    assert (ledger.find("a"), ledger.find("b", Selection)) == (both[0][1], both[1][1])
    before = rows(url)
    more = [("c", make_release(make_additive("0.4"))), ("d", answered(QUESTIONS[1]))]
    with pytest.raises(BudgetError, match=r"this run asks for epsilon 0.7, 0.5 is left"):
        ledger.commit(more, who="", why="")
    assert effective(url) == before


def test_a_selection_for_a_rho_is_charged_in_rho_and_refused_by_a_budget_in_epsilon(made, tmp_path):
    selection = answered(top(amount="0.1", unit=Unit.RHO))
    book = made(f"sqlite:///{tmp_path / 'rho.db'}")
    book.open_dataset("people", Neighbours.REPLACE, Decimal(1), unit=Unit.RHO, who="", why="")
    book.commit([("a", selection)], who="", why="")
    book.commit([("b", answered(sparse(epsilon="0.2")))], who="", why="")
    assert book.balance("people").spent == Decimal("0.12")  # and an epsilon as half its square
    other = made(f"sqlite:///{tmp_path / 'epsilon.db'}")
    other.open_dataset("people", Neighbours.REPLACE, Decimal(1), who="", why="")
    with pytest.raises(BudgetError, match="no finite epsilon"):
        other.commit([("a", selection)], who="", why="")


def test_requests_that_differ_in_anything_have_different_digests(ledger):
    base = make_request()
    requests = [
        base,
        make_request(seed=8),
        make_request(batch_size=20),
        make_request(policy="retry"),
        make_request(known={}),
        make_request(prior={"alpha": [1.0, 1.0, 2.0]}),
        make_request(simulator="g_and_k"),
        make_request(dataset="others"),
        make_request(distance=replace(DISTANCE, scale=1.0)),
        make_request(top()),
        *(
            make_request(sparse(**change))
            for change in ({"c": 5}, {"epsilon": "1"}, {"tolerance": 0.2}, {"variant": Variant.SPLIT})
        ),
        make_request(sparse(size=200), size=200),
        make_additive(),
    ]
    assert len({ledger.digest(request, version) for request in requests for version in "vw"}) == 2 * len(requests)
    assert ledger.digest(make_request(sparse(epsilon="2.0")), "v") == ledger.digest(base, "v")


def test_seeded_noise_is_never_written(ledger):
    request = make_request(QUESTIONS[0])
    made = run(request, make_candidates(request).batches(), compare_sums(request, sealed()), Frozen(sampler=INSECURE))
    with pytest.raises(LedgerError, match="seeded noise"):
        ledger.commit([("a", made)], who="", why="")
    assert ledger.balance("people").spent == 0


def test_what_was_stored_as_the_other_kind_is_refused(ledger):
    ledger.commit([("a", answered(QUESTIONS[0])), ("b", make_release(make_additive()))], who="", why="")
    for digest, kind in (("a", Release), ("b", Selection)):
        with pytest.raises(LedgerError, match="is not of this version"):
            ledger.find(digest, kind)


def test_one_of_many_that_commit_together_is_charged_and_shown_to_all(ledger, url):
    selections = [make_selection(make_request(QUESTIONS[0])) for _ in range(3)]
    digest = ledger.digest(selections[0].request, "v")
    barrier = PROCESSES.Barrier(3)
    with ProcessPoolExecutor(3, mp_context=PROCESSES, initializer=meet, initargs=(barrier,)) as pool:
        found = list(pool.map(compete, [url] * 3, [digest] * 3, selections))
    assert {kind for kind, _ in found} == {"shown"}
    assert len({shown for _, shown in found}) == 1
    assert ledger.balance("people").spent == Decimal("0.3")
    assert ledger.verify() == 2


@only_sqlite
def test_requests_and_releases_of_before_are_the_same_to_the_last_byte(ledger, url):
    execute(url, "UPDATE dp_dask_ledger SET salt = 'salt'")
    for digest, request in OLD_DIGESTS.items():
        assert ledger.digest(request, "v") == digest
    old = next(iter(OLD_DIGESTS.items()))
    made = replace(make_release(old[1]), id="0" * 32)
    ledger.commit([(old[0], made)], who="", why="")
    assert rows(url)[-1]["release"] == OLD_RELEASE
    assert ledger.find(old[0]) == made


def test_a_process_that_is_killed_at_any_moment_has_charged_each_request_once_or_not_at_all(ledger, url):
    """After each kill the requests are asked again, the one that was cut off among them: each is paid for once."""
    for i in range(4):
        first = 1000 * i
        receiver, sender = PROCESSES.Pipe(duplex=False)
        child = PROCESSES.Process(target=answer_until_killed, args=(url, first, sender))
        child.start()
        sender.close()
        shown = receiver.recv()
        while shown < first + 1:
            shown = receiver.recv()
        time.sleep(0.007 * i)
        child.kill()
        child.join(30)
        with suppress(EOFError):
            while True:
                shown = receiver.recv()
        receiver.close()
        charged = len(rows(url))
        stored = [commit_one(ledger, seed) for seed in range(first, shown + 1)]
        assert len(rows(url)) == charged
        assert len({each.id for each in stored}) == shown + 1 - first
        commit_one(ledger, shown + 1)
        assert len(rows(url)) in (charged, charged + 1)  # its commit was through, or it was not
        assert ledger.balance("people").spent == (len(rows(url)) - 1) * Decimal("0.000001")
        assert ledger.verify() == len(rows(url))
