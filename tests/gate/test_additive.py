"""Laplace: the release of sealed sums; exact values are seen with a noise that adds nothing."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import pytest
from gate.gate_examples import everything_said, make_request, make_rho_request, make_statistic

from dp_dask.core.grid import MAX_PRIVATE_RECORDS
from dp_dask.core.privacy import Neighbours
from dp_dask.core.release import INSECURE, Release
from dp_dask.core.sensitive import Sensitive
from dp_dask.core.statistic import Total
from dp_dask.errors import ConfigError, DpDaskError, LedgerError, SourceError
from dp_dask.gate.additive import release
from dp_dask.gate.noise import OpenDPNoise, laplace_scale

SUM, COUNT = 7_654_321_987, 50


@dataclass
class KnownNoise:
    """Adds 1, 2, 3, .. to the coordinates it is given, and remembers the calls."""

    sampler: str = INSECURE
    calls: list[tuple[list[int], float]] = field(default_factory=list)

    def add_discrete_laplace(self, values: Sequence[int], scale: float) -> list[int]:
        self.calls.append((list(values), scale))
        return [value + i for i, value in enumerate(values, start=1)]


def private_n(epsilon: str = "0.1", *, column: str = "visits", weight: int = 15):
    statistic = make_statistic(column=column, count_weight=weight)
    return make_request(epsilon, neighbours=Neighbours.ADD_REMOVE, n=None, statistic=statistic)


def sealed(*sums: int, n: int = COUNT) -> Sensitive[Total]:
    return Sensitive(Total(sums, n))


def test_under_replace_the_sum_alone_is_released_with_its_noise():
    noise = KnownNoise()
    [made] = release(sealed(SUM), [make_request("0.1")], noise)
    assert noise.calls == [([SUM], made.scale)]
    assert (made.noisy_sums, made.noisy_count) == ((SUM + 1,), None)


def test_under_add_remove_the_weighted_count_is_one_more_coordinate_of_the_same_call():
    noise = KnownNoise()
    [made] = release(sealed(SUM), [private_n(weight=15)], noise)
    assert noise.calls == [([SUM, 15 * COUNT], made.scale)]
    assert (made.noisy_sums, made.noisy_count) == ((SUM + 1,), 15 * COUNT + 2)


def test_sensitivity_scale_and_privacy_loss_are_recorded_as_they_are():
    for request, sensitivity in ((make_request("0.7"), 30), (private_n("0.7", weight=15), 45)):
        [made] = release(sealed(SUM), [request], KnownNoise())
        expected = laplace_scale(sensitivity, Decimal("0.7"))
        assert (made.sensitivity, made.scale, made.privacy_loss) == (sensitivity, expected.scale, expected.privacy_loss)
        assert Decimal(made.privacy_loss) <= made.request.epsilon == Decimal("0.7")
        assert made.request is request
        assert made.sampler == INSECURE


def test_the_width_and_not_the_larger_bound_is_the_sensitivity_of_a_clamped_sum_under_replace():
    request = make_request("1", statistic=make_statistic(lower=-10.0, upper=30.0))
    assert release(sealed(SUM), [request], KnownNoise())[0].sensitivity == 40


def test_each_request_has_its_own_epsilon_and_its_own_draw():
    noise = KnownNoise()
    requests = [make_request("0.1"), make_request("0.5", statistic=make_statistic(column="ill", upper=1.0)), make_request("2")]
    made = release(sealed(SUM, 17, SUM), requests, noise)
    assert [r.request.epsilon for r in made] == [Decimal("0.1"), Decimal("0.5"), Decimal(2)]
    assert [r.scale for r in made] == [laplace_scale(30, Decimal("0.1")).scale, 2.0, 15.0]
    assert [values for values, _ in noise.calls] == [[SUM], [17], [SUM]]
    assert len({r.id for r in made}) == 3


def test_two_releases_of_one_total_differ():
    """By chance equal with probability about 1 / (4 scale) = 5e-14 each."""
    statistic = make_statistic(upper=2.0**45)
    sums = {release(sealed(0), [make_request("10", statistic=statistic)], OpenDPNoise())[0].noisy_sums for _ in range(5)}
    assert len(sums) == 5


@pytest.mark.parametrize("n", [0, COUNT - 1, COUNT + 1, 987_654_321])
def test_a_wrong_public_n_is_refused_without_telling_the_right_one_or_the_sum(n):
    noise = KnownNoise()
    with pytest.raises(SourceError) as caught:
        release(sealed(SUM, SUM, n=n), [make_request("0.1"), make_request("0.2")], noise)
    said = everything_said(caught.value)
    assert f"privacy.n is {COUNT}" in said
    assert str(SUM) not in said
    assert n == 0 or str(n) not in said
    assert noise.calls == []


def test_a_refusal_carries_no_open_total_to_a_crash_reporter():
    """Many reporters keep every frame's local variables; a wrong n is a user's mistake, and is reported."""
    with pytest.raises(SourceError) as caught:
        release(sealed(SUM, n=COUNT + 1), [make_request("0.1")], KnownNoise())
    assert_no_sum(caught.value)


def assert_no_sum(error):
    """Neither the texts of an error and of its chain, nor the variables of any frame of the package that it passed."""
    assert str(SUM) not in everything_said(error)
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    ours = [frame.f_locals for frame in frames if frame.f_globals["__name__"].startswith("dp_dask.")]
    assert ours
    assert str(SUM) not in repr(ours)


@pytest.mark.parametrize("make", [make_request, make_rho_request])
def test_a_scale_that_is_refused_carries_no_open_total_either(make):
    """The first request would do: nothing is drawn for it."""
    noise = KnownNoise()
    too_wide = make("0.000000000001", statistic=make_statistic(upper=2.0**49))
    with pytest.raises(ConfigError, match=r"needs a .*scale") as caught:
        release(sealed(SUM, SUM), [make_request("0.1"), too_wide], noise)
    assert_no_sum(caught.value)
    assert noise.calls == []


class FailingNoise(KnownNoise):
    """Adds noise once, then quotes what it was given."""

    def add_discrete_laplace(self, values: Sequence[int], scale: float) -> list[int]:
        if self.calls:
            msg = f"no entropy for {list(values)}"
            raise RuntimeError(msg)
        return super().add_discrete_laplace(values, scale)


def test_noise_that_fails_carries_no_sum_and_no_noisy_value_of_the_requests_before():
    with pytest.raises(DpDaskError, match=r"noise could not be added \(RuntimeError\); nothing was released") as caught:
        release(sealed(SUM, SUM), [make_request("0.1"), make_request("0.2")], FailingNoise())
    assert str(SUM + 1) not in everything_said(caught.value)
    frames = [frame.f_locals for frame, _ in traceback.walk_tb(caught.value.__traceback__)][1:]  # not the test's own
    assert str(SUM)[:-1] not in repr([{k: v for k, v in each.items() if k != "noise"} for each in frames])


@pytest.mark.parametrize(("neighbours", "n"), [(Neighbours.ADD_REMOVE, COUNT), (Neighbours.REPLACE, None)])
def test_a_request_states_n_just_where_it_is_public(neighbours, n):
    """A private n in a request would make the refusal above an exact and free answer to guesses of it."""
    with pytest.raises(ValueError, match="n"):
        make_request(neighbours=neighbours, n=n)


def test_any_number_of_records_is_accepted_where_n_is_private():
    for n in (0, 1, MAX_PRIVATE_RECORDS):
        [made] = release(sealed(SUM, n=n), [private_n(weight=15)], KnownNoise())
        assert made.noisy_count == 15 * n + 2
    with pytest.raises(SourceError, match="proven for"):
        release(sealed(SUM, n=MAX_PRIVATE_RECORDS + 1), [private_n()], KnownNoise())


def test_a_total_for_other_requests_is_refused():
    with pytest.raises(ValueError, match="not those of the requested statistics"):
        release(sealed(SUM, SUM), [make_request("0.1")], KnownNoise())


def test_seeded_noise_never_enters_a_ledger(ledger):
    secure, seeded = (_release_with(KnownNoise(sampler)) for sampler in ("opendp 0", INSECURE))
    with pytest.raises(LedgerError, match="seeded noise protects nobody"):
        ledger.commit([("a", secure), ("b", seeded)], who="analyst", why="test")
    assert ledger.find("a") is None
    assert ledger.balance("people").spent == 0
    assert ledger.commit([("a", secure)], who="analyst", why="test") == [secure]


def _release_with(noise: KnownNoise) -> Release:
    return release(sealed(SUM), [make_request("0.1")], noise)[0]
