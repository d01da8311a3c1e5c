"""Questions about posteriors: closed forms of beta and gamma variables, Monte Carlo errors, pairing, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from posteriors import asked
from scipy import stats

from dp_dask.errors import ConfigError
from dp_dask.public.questions import answer

N = 4000


@pytest.fixture(scope="module")
def two():
    rng = np.random.default_rng(5)
    visits = asked("visits", rng.beta(3, 7, N), dataset="a")
    waits = asked("waits", rng.gamma(4, 1 / 2, N), model="exponential", dataset="b", digit="1")
    return [visits, waits]


def test_an_event_has_its_closed_form_probability_and_standard_error(two):
    """z < 4.5: a false alarm in 1.5e5 runs of other seeds; the draws are independent, so that ESS is near N."""
    for question, wanted in {
        "P(visits.p > 0.3)": stats.beta(3, 7).sf(0.3),
        "p <= 0.1": stats.beta(3, 7).cdf(0.1),
        "1 < rate < 2 and p > 0": stats.gamma(4, scale=0.5).cdf(2) - stats.gamma(4, scale=0.5).cdf(1),
        "p > 0.3 or rate > 2": 1 - stats.beta(3, 7).cdf(0.3) * stats.gamma(4, scale=0.5).cdf(2),
    }.items():
        (found,) = answer([question], two)
        assert abs(found.probability - wanted) < 4.5 * found.error
        assert found.error == pytest.approx(math.sqrt(wanted * (1 - wanted) / N), rel=0.2)
        assert found.mean is found.sd is found.lower is None


def test_a_contrast_of_independent_posteriors_has_the_closed_form_moments(two):
    """sd(a - b)^2 = sd(a)^2 + sd(b)^2; an sd that is 15 % too small is 12 standard errors of an sd away."""
    (found,) = answer(["waits.rate - visits.p"], two)
    sd = math.hypot(stats.beta(3, 7).std(), stats.gamma(4, scale=0.5).std())
    assert found.mean == pytest.approx(2 - 0.3, abs=4.5 * sd / math.sqrt(N))
    assert found.sd == pytest.approx(sd, rel=0.08)
    assert found.error == pytest.approx(sd / math.sqrt(N), rel=0.1)
    assert found.note == ""
    (odds,) = answer(["log(visits.p / (1 - visits.p))"], two)
    law = stats.beta(3, 7)
    for level, value in ((0.05, odds.lower), (0.5, odds.median), (0.95, odds.upper)):
        p = law.cdf(1 / (1 + math.exp(-value)))
        assert p == pytest.approx(level, abs=4.5 * math.sqrt(level * (1 - level) / N))


def test_a_standard_error_counts_effective_draws_and_is_never_zero():
    chain = np.repeat(np.random.default_rng(2).beta(3, 7, N // 50), 50)
    (found,) = answer(["p > 0.3"], [asked("m", chain)])
    assert found.ess < N / 20
    assert found.error > 4 * math.sqrt(0.25 / N)
    (certain,) = answer(["p < 2"], [asked("m", np.random.default_rng(2).beta(3, 7, N))])
    assert certain.probability == 1
    assert 1 / (2 * N) < certain.error < 1 / (N / 2)
    (sure,) = answer(["p < 2"], [asked("m", chain)])
    assert sure.error > 10 * certain.error


def test_a_name_may_be_short_where_it_is_clear_and_quoted_where_it_must_be():
    rng = np.random.default_rng(1)
    posteriors = [
        asked(name, rng.random(N), dataset=name, digit=digit)
        for name, digit in (("visits", "0"), ("last.visits", "1"), ("y-a", "2"))
    ]
    means = [each.posterior.inference.draws.mean() for each in posteriors]
    questions = ["visits.p", "last.visits.p", '"last.visits".p', '"y-a".p', '"y-a.p"']
    found = [one.mean for one in answer(questions, posteriors)]
    assert found == pytest.approx([means[0], means[1], means[1], means[2], means[2]])
    for question, message in {
        "p > 0": "'p' may be visits.p, last.visits.p, y-a.p; say which",
        "visit.p": "unknown name 'visit.p'; did you mean visits.p?; there are: visits.p, last.visits.p, y-a.p",
        "y-a.p": "unknown name 'y'; did you mean \"y-a.p\"?",
        "visits": "unknown name 'visits'",
        "visits.real.p": "unknown name 'visits.real.p'",
        "p.__class__": "unknown name 'p.__class__'",
    }.items():
        with pytest.raises(ConfigError) as caught:
            answer([question], posteriors)
        assert f"question {question!r}" in str(caught.value)
        assert message in str(caught.value)


def test_one_data_set_is_noted_and_one_release_under_two_names_is_refused():
    rng = np.random.default_rng(1)
    a, b, c = asked("a", rng.random(N)), asked("b", rng.random(N), digit="1"), asked("c", rng.random(N), digit="1")
    (found,) = answer(["a.p - b.p"], [a, b])
    assert "a, b are of one data set, d" in found.note
    assert "1.41 times too small" in found.note
    (single,) = answer(["a.p - a.p ** 2"], [a, b])
    assert single.note == ""
    with pytest.raises(ConfigError, match="c and b are one release"):
        answer(["c.p - b.p > 0"], [a, b, c])


def test_a_mean_that_overflows_is_refused():
    with pytest.raises(ConfigError, match="ask about its logarithm"):
        answer(["exp(rate * 300)"], [asked("m", np.random.default_rng(1).uniform(1, 2, N), model="exponential")])
