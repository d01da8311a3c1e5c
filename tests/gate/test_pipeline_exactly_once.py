"""Pipeline, exactly once: what a run draws and charges, and what it does not, from a YAML file to the ledger."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gate.gate_examples import everything_said, execute, rows

from dp_dask.config import Pipeline, load
from dp_dask.core.privacy import Neighbours
from dp_dask.errors import BudgetError, DpDaskError, LedgerError, SourceError
from dp_dask.gate.ledger import Balance, Ledger
from dp_dask.gate.noise import OpenDPNoise
from dp_dask.pipeline import Run, run
from dp_dask.private.sources import OfFiles
from dp_dask.public import publication as files

N = 40
VISITS = "visits: {model: geometric, column: visits, bounds: [0, 30], epsilon: 0.3, prior: {alpha: 1, beta: 1}}"
ILL = "ill: {model: bernoulli, column: ill, epsilon: 0.1, prior: {alpha: 1, beta: 1}}"


@dataclass
class CountingNoise:
    """OpenDP's noise, which notes how many numbers it was asked for."""

    drawn: list[int] = field(default_factory=list)

    @property
    def sampler(self) -> str:
        return OpenDPNoise().sampler

    def add_discrete_laplace(self, values: Sequence[int], scale: float) -> list[int]:
        self.drawn.append(len(values))
        return OpenDPNoise().add_discrete_laplace(values, scale)


@dataclass
class InterruptedNoise(CountingNoise):
    """Lets something else happen first, at the moment between the look into the ledger and the commit."""

    first: Callable[[], Any] = lambda: None

    def add_discrete_laplace(self, values: Sequence[int], scale: float) -> list[int]:
        first, self.first = self.first, lambda: None
        first()
        return super().add_discrete_laplace(values, scale)


@dataclass
class Setting:
    """A folder with records, a pipeline file and a ledger."""

    folder: Path
    noise: CountingNoise = field(default_factory=CountingNoise)
    privacy: str = f"{{neighbours: replace, n: {N}}}"
    source: str = "{kind: parquet, path: data}"

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder / 'ledger.db'}"

    def write_records(self, shift: int = 0, n: int = N) -> None:
        table = pa.table({"visits": [(i + shift) % 7 for i in range(n)], "ill": [i % 3 == 0 for i in range(n)]})
        (self.folder / "data").mkdir(exist_ok=True)
        path = self.folder / "data" / "part-0.parquet"
        pq.write_table(table, path)
        later = path.stat().st_mtime_ns + 10**9 * (1 + shift)  # no clock is so coarse that two writes look like one
        os.utime(path, ns=(later, later))

    def pipeline(self, *measurements: str, version: str = "") -> Pipeline:
        path = self.folder / "pipeline.yaml"
        source = f"source: {self.source}, unit: record"
        lines = [
            f"dataset: {{name: people, {source}{version and ', version: ' + version}}}",
            f"privacy: {self.privacy}",
            "measurements:",
            *(f"  {measurement}" for measurement in measurements),
            "inference: {draws: 100}",
            "cluster: {kind: local, workers: 1}",
            "ledger: sqlite:///ledger.db",
            "output: runs",
        ]
        path.write_text("\n".join(lines), encoding="utf-8")
        return load(path)

    def run(self, *measurements: str, version: str = "") -> Run:
        return run(self.pipeline(*measurements, version=version), noise=self.noise)

    def open(self, epsilon: str, neighbours: Neighbours = Neighbours.REPLACE) -> None:
        self._ask(lambda ledger: ledger.open_dataset("people", neighbours, Decimal(epsilon), who="steward", why="test"))

    @property
    def balance(self) -> Balance:
        return self._ask(lambda ledger: ledger.balance("people"))

    @property
    def spent(self) -> Decimal:
        return self.balance.spent

    def verify(self) -> int:
        return self._ask(Ledger.verify)

    def accounts(self) -> Any:
        return self._ask(Ledger.accounts)

    def _ask(self, question: Callable[[Ledger], Any]) -> Any:
        ledger = Ledger(self.url)
        try:
            return question(ledger)
        finally:
            ledger.close()


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    made = Setting(tmp_path)
    made.write_records()
    made.open("1")
    return made


def releases(result: Run) -> list[Any]:
    return [published.release for published in result.publication.measurements.values()]


def test_a_second_run_charges_nothing_draws_nothing_and_shows_the_same(setting):
    first = setting.run(VISITS, ILL)
    assert (first.charged, setting.noise.drawn, setting.spent) == (("visits", "ill"), [1, 1], Decimal("0.4"))
    second = setting.run(VISITS, ILL)
    assert (second.charged, setting.noise.drawn, setting.spent) == ((), [1, 1], Decimal("0.4"))
    assert second.publication == first.publication
    assert second.balance == first.balance
    assert setting.verify() == 3


def test_a_second_run_reads_no_record(setting):
    setting.run(VISITS)
    pipeline = setting.pipeline(VISITS)
    assert run(replace(pipeline, cluster=NoCluster())).charged == ()


def test_of_two_measurements_only_the_one_that_is_new_is_charged(setting):
    first = setting.run(VISITS)
    both = setting.run(VISITS, ILL)
    assert (both.charged, setting.noise.drawn, setting.spent) == (("ill",), [1, 1], Decimal("0.4"))
    assert releases(both)[0] == releases(first)[0]
    assert [row["why"] for row in rows(setting.url)] == ["test", "visits", "ill"]


@pytest.mark.parametrize(
    "again",
    [
        VISITS.replace("alpha: 1, beta: 1", "alpha: 7, beta: 3"),
        VISITS.replace("geometric", "poisson"),
        VISITS.replace("visits:", "another_name:"),
        VISITS.replace("0.3", "0.30"),
        VISITS.replace("0.3", "3e-1"),
        VISITS.replace("[0, 30]", "[0.0, 3e1]"),
        VISITS.replace("[0, 30]", "[-0, 30]"),
    ],
    ids=["prior", "model", "name", "epsilon", "exponent", "bounds", "minus zero"],
)
def test_the_same_statistic_under_another_description_is_free(setting, again):
    first = setting.run(VISITS)
    second = setting.run(again)
    assert (second.charged, setting.noise.drawn, setting.spent) == ((), [1], Decimal("0.3"))
    assert releases(second) == releases(first)


def test_one_statistic_measured_twice_in_a_run_is_released_and_charged_once(setting):
    result = setting.run(VISITS, VISITS.replace("visits:", "again:").replace("alpha: 1", "alpha: 9"))
    assert (setting.noise.drawn, setting.spent) == ([1], Decimal("0.3"))
    assert releases(result)[0] == releases(result)[1]


@pytest.mark.parametrize("other", ["epsilon: 0.2", "epsilon: 0.299999999999"])
def test_another_epsilon_is_another_release(setting, other):
    setting.run(VISITS)
    assert setting.run(VISITS.replace("epsilon: 0.3", other)).charged == ("visits",)
    assert setting.spent == Decimal("0.3") + Decimal(other.split()[1])


def test_changed_data_are_a_new_version_and_are_charged(setting):
    first = setting.run(VISITS)
    setting.write_records(shift=1)
    second = setting.run(VISITS)
    assert (second.charged, setting.noise.drawn, setting.spent) == (("visits",), [1, 1], Decimal("0.6"))
    assert releases(second)[0].id != releases(first)[0].id


def test_the_same_file_read_in_another_way_is_another_request(setting):
    """Else one who corrects ``nulls`` is shown the release of the wrong reading, without a word."""
    lines = ["visits", *(f"{i % 7}" for i in range(N))]
    (setting.folder / "visits.csv").write_text("\n".join(lines), encoding="utf-8")
    plain = "{kind: csv, path: visits.csv, columns: {visits: number}"
    setting.source = plain + "}"
    first = setting.run(VISITS)
    setting.source = plain + ', nulls: ["", "6"]}'
    second = setting.run(VISITS)
    assert (first.charged, second.charged) == (("visits",), ("visits",))


def test_a_version_that_the_user_names_stands_for_the_data(setting):
    setting.run(VISITS, version="monday")
    setting.write_records(shift=1)
    assert setting.run(VISITS, version="monday").charged == ()
    assert setting.run(VISITS, version="tuesday").charged == ("visits",)
    assert setting.spent == Decimal("0.6")


def test_where_n_is_private_sum_and_count_are_drawn_together(tmp_path):
    setting = Setting(tmp_path, privacy="{neighbours: add_remove, expected_records: 50}")
    setting.write_records()
    setting.open("1", Neighbours.ADD_REMOVE)
    result = setting.run(VISITS)
    assert (result.charged, setting.noise.drawn, setting.spent) == (("visits",), [2], Decimal("0.3"))
    assert setting.run(VISITS).charged == ()


# Refusals.


@dataclass
class NoCluster:
    """A cluster that must not be started."""

    stall_timeout: float = 1.0
    driver_sees_records: bool = True

    def client(self) -> AbstractContextManager[Any]:
        pytest.fail("a cluster was started")


@dataclass
class WatchedSource(OfFiles):
    """A source that knows its version and must not be looked into."""

    looked: list[str] = field(default_factory=list)

    def version(self) -> str:
        return "the version"

    def _look(self, *_: Any) -> Any:
        self.looked.append("looked")
        pytest.fail("the source was looked into")

    plan = check = read = _look


def untouched(pipeline: Pipeline) -> Pipeline:
    return replace(pipeline, source=WatchedSource(), cluster=NoCluster())


@pytest.mark.parametrize("granted", ["0.399999999999", "0.3", "0.000000000001"])
def test_a_budget_that_is_too_small_is_refused_before_any_record_is_read(tmp_path, granted):
    setting = Setting(tmp_path)
    setting.open(granted)
    pipeline = untouched(setting.pipeline(VISITS, ILL))
    with pytest.raises(BudgetError, match=rf"asks for epsilon 0\.4, {Decimal(granted)} is left"):
        run(pipeline, noise=setting.noise)
    assert pipeline.source.looked == setting.noise.drawn == []
    assert [row["kind"] for row in rows(setting.url)] == ["open", "refused"]
    assert (setting.spent, setting.verify()) == (0, 2)


def test_another_relation_than_the_ledgers_is_refused_before_any_record_is_read(setting):
    setting.privacy = "{neighbours: add_remove}"
    pipeline = untouched(setting.pipeline(VISITS))
    with pytest.raises(BudgetError, match="opened under replace"):
        run(pipeline, noise=setting.noise)
    assert pipeline.source.looked == setting.noise.drawn == []


def test_without_a_ledger_nothing_is_read_or_made(tmp_path):
    setting = Setting(tmp_path)
    with pytest.raises(BudgetError, match="dp-dask ledger init"):
        run(untouched(setting.pipeline(VISITS)), noise=setting.noise)
    assert not (tmp_path / "ledger.db").exists()


def test_exactly_the_budget_is_enough(tmp_path):
    setting = Setting(tmp_path)
    setting.write_records()
    setting.open("0.4")
    assert setting.run(VISITS, ILL).balance.left == 0
    assert setting.run(VISITS, ILL).charged == ()
    with pytest.raises(BudgetError):
        setting.run(VISITS, ILL, ILL.replace("ill:", "more:").replace("0.1", "0.000000000001"))


# Failures.


def test_a_failure_of_the_noise_leaves_nothing_charged(setting):
    def fail() -> None:
        msg = "no entropy"
        raise OSError(msg)

    with pytest.raises(DpDaskError, match=r"noise could not be added \(OSError\)"):
        run(setting.pipeline(VISITS, ILL), noise=InterruptedNoise(first=fail))
    assert (setting.spent, setting.verify()) == (0, 1)
    assert setting.run(VISITS, ILL).charged == ("visits", "ill")


def test_a_failure_of_the_commit_leaves_nothing_charged_and_nothing_shown(setting):
    execute(
        setting.url, "CREATE TRIGGER refuse BEFORE INSERT ON dp_dask_entries WHEN NEW.seq = 3 BEGIN SELECT RAISE(ABORT, ''); END"
    )
    with pytest.raises(LedgerError) as caught:  # at the second of the two entries
        setting.run(VISITS, ILL)
    assert "noisy_sum" not in everything_said(caught.value)
    assert (setting.spent, setting.verify(), setting.noise.drawn) == (0, 1, [1, 1])
    execute(setting.url, "DROP TRIGGER refuse")
    assert setting.run(VISITS, ILL).charged == ("visits", "ill")
    assert (setting.spent, setting.verify(), setting.noise.drawn) == (Decimal("0.4"), 3, [1, 1, 1, 1])


def test_a_wrong_n_charges_nothing_and_does_not_tell_the_right_one(setting):
    setting.write_records(n=7919)
    with pytest.raises(SourceError, match="another number of records") as caught:
        setting.run(VISITS)
    assert "7919" not in everything_said(caught.value)
    assert (setting.spent, setting.noise.drawn) == (0, [])


def test_data_that_change_while_they_are_read_are_refused(setting):
    """Records that move between files meanwhile count twice, or never; then the sensitivity is not what was proven."""

    def rewrite(_stage: str, _done: int, _of: int) -> None:
        setting.write_records(shift=1)

    with pytest.raises(SourceError, match="change"):
        run(setting.pipeline(VISITS), noise=setting.noise, progress=rewrite)
    assert (setting.spent, setting.noise.drawn) == (0, [])


# Two runs at a time: the other one comes between our look into the ledger and our commit.


def test_a_run_that_another_overtook_shows_the_other_release_and_pays_nothing(setting):
    pipeline = setting.pipeline(VISITS)
    overtaking: list[Run] = []
    noise = InterruptedNoise(first=lambda: overtaking.append(run(pipeline)))
    ours = run(pipeline, noise=noise)
    assert noise.drawn == [1]
    assert ours.charged == ()
    assert overtaking[0].charged == ("visits",)
    assert ours.publication == overtaking[0].publication
    assert (setting.spent, setting.verify()) == (Decimal("0.3"), 2)


def test_two_runs_of_one_request_at_a_time_need_its_budget_once(tmp_path):
    setting = Setting(tmp_path)
    setting.write_records()
    setting.open("0.3")
    pipeline = setting.pipeline(VISITS)
    overtaking: list[Run] = []
    ours = run(pipeline, noise=InterruptedNoise(first=lambda: overtaking.append(run(pipeline))))
    assert ours.publication == overtaking[0].publication
    assert (setting.spent, setting.verify()) == (Decimal("0.3"), 2)


def test_a_run_for_which_others_have_left_nothing_is_refused_before_any_record_is_read(tmp_path):
    setting = Setting(tmp_path)
    setting.write_records()
    setting.open("0.35")
    ours, other = setting.pipeline(VISITS), setting.pipeline(ILL)
    refusals: list[str] = []

    def run_the_other() -> None:
        with pytest.raises(BudgetError) as caught:
            run(untouched(other), noise=setting.noise)
        refusals.append(str(caught.value))

    assert run(ours, noise=InterruptedNoise(first=run_the_other)).charged == ("visits",)
    [told] = refusals
    assert "asks for epsilon 0.1, 0.35 is left, and 0.3 of it is reserved by runs under way" in told
    assert setting.noise.drawn == []
    assert [row["kind"] for row in rows(setting.url)] == ["open", "refused", "charge"]
    assert (setting.spent, setting.verify()) == (Decimal("0.3"), 3)


def test_a_run_that_failed_leaves_no_reservation(setting):
    def fail() -> None:
        raise OSError

    with pytest.raises(DpDaskError):
        run(setting.pipeline(VISITS), noise=InterruptedNoise(first=fail))
    [(account, _)] = setting.accounts()
    assert account.reservations == ()


def test_a_run_overtaken_in_one_of_two_measurements_pays_for_the_other(setting):
    one, both = setting.pipeline(VISITS), setting.pipeline(VISITS, ILL)
    assert run(both, noise=InterruptedNoise(first=lambda: run(one))).charged == ("ill",)
    assert setting.spent == Decimal("0.4")


def test_a_run_whose_budget_another_took_shows_and_writes_nothing(tmp_path):
    setting = Setting(tmp_path)
    setting.write_records()
    setting.open("0.5")
    other, ours = setting.pipeline(VISITS), setting.pipeline(ILL, VISITS.replace("0.3", "0.25"))

    def forget_the_reservation_and_run() -> None:
        execute(setting.url, "DELETE FROM dp_dask_reservations")  # which is advice: the commit asks the journal alone
        run(other)

    noise = InterruptedNoise(first=forget_the_reservation_and_run)
    with pytest.raises(BudgetError, match=r"asks for epsilon 0\.35, 0\.2 is left \(0\.3 of 0\.5 spent\)") as caught:
        run(ours, noise=noise)
    # What was drawn and not paid for is in no variable that a crash reporter could keep.
    frames = [frame.f_locals for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    assert len(frames) > 1
    assert "noisy_sums" not in repr(frames)
    assert caught.value.__context__ is None
    assert noise.drawn == [1, 1]
    assert (setting.spent, setting.verify()) == (Decimal("0.3"), 3)
    assert [row["kind"] for row in rows(setting.url)] == ["open", "charge", "refused"]
    assert list((tmp_path / "runs").iterdir()) == []


# Decimals, end to end.


def test_epsilon_is_the_same_exact_decimal_from_the_file_to_the_ledger_and_the_publication(tmp_path):
    setting = Setting(tmp_path)
    setting.write_records()
    setting.open("0.300000000000")
    measurements = [VISITS.replace("visits:", f"m{j}:").replace("30]", f"{30 + j}]").replace("0.3,", "1e-1,") for j in range(3)]
    result = setting.run(*measurements)  # in floats, three tenths are more than 0.3
    assert result.balance == Balance("people", Neighbours.REPLACE, Decimal("0.3"), Decimal("0.3"))
    assert [(row["epsilon"], row["spent"]) for row in rows(setting.url)[1:]] == [("0.1", "0.1"), ("0.1", "0.2"), ("0.1", "0.3")]
    path = tmp_path / "release.json"
    files.write(result.publication, path)
    assert path.read_text(encoding="utf-8").count('"epsilon": "0.1"') == 3
    assert files.read(path) == result.publication
    assert all(str(release.request.epsilon) == "0.1" for release in releases(result))


def test_a_publication_holds_no_record_no_total_and_nothing_of_the_files(setting):
    path = setting.folder / "release.json"
    files.write(setting.run(VISITS).publication, path)
    text = path.read_text(encoding="utf-8")
    state = (setting.folder / "data" / "part-0.parquet").stat()
    for private in ("part-0", str(state.st_size), str(state.st_mtime_ns), str(setting.folder), "salt", "digest"):
        assert private not in text
