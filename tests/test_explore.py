"""Exploring before spending: what it prefers, that it can be told from noise, and that it touches neither records nor ledger."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np
import pytest
import yaml
from cases import BY_NAME, observation
from click.testing import CliRunner

from dp_dask.cli import cli
from dp_dask.config import load
from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.joint_priors import Independent, NormalInverseGamma
from dp_dask.core.prior_kinds import make
from dp_dask.core.priors import Beta, Gamma, Normal
from dp_dask.core.privacy import Neighbours
from dp_dask.core.release import Request
from dp_dask.entries.measurement import Privacy, make_statistic
from dp_dask.errors import ConfigError
from dp_dask.explore import explore
from dp_dask.explore.picture import draw
from dp_dask.explore.split import STEPS, share
from dp_dask.gate.ledger import Ledger
from dp_dask.public.candidates import OWN, candidates
from dp_dask.public.observe import planned
from dp_dask.public.paired import PairedWidths, compare, simulate_widths, widths_like
from dp_dask.user_family import wrap

WIDE = {"model": "exponential", "column": "x", "bounds": [0.0064, 9.75], "epsilon": 1, "prior": {"alpha": 1, "beta": 0.25}}
NARROW = {**WIDE, "bounds": [0.01, 0.47]}
COIN = {"model": "bernoulli", "column": "b", "epsilon": 0.1, "prior": {"alpha": 1, "beta": 1}}
REPLACE = {"neighbours": "replace", "n": 100}


def pipeline(folder, measurements, privacy=REPLACE):
    """A file whose records do not exist."""
    content = {
        "dataset": {"name": "d", "source": {"kind": "parquet", "path": "nowhere"}, "unit": "record"},
        "privacy": privacy,
        "measurements": measurements,
        "ledger": "sqlite:///ledger.db",
    }
    (folder / "p.yaml").write_text(yaml.safe_dump(content))
    return load(folder / "p.yaml")


@dataclass(frozen=True)
class Untouchable:
    """A source that may not be looked at in any way."""

    def __getattr__(self, name):
        raise AssertionError(name)


@pytest.fixture
def few(monkeypatch):
    """Hardly any replicates, where the numbers do not matter."""
    monkeypatch.setattr("dp_dask.explore.designs._effort", lambda _like: (2, 4))


@pytest.fixture(scope="module")
def explored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explored")
    plan = replace(pipeline(folder, {"m": WIDE}), source=Untouchable(), cluster=Untouchable())
    ledger = Ledger(plan.ledger)
    ledger.open_dataset("d", Neighbours.REPLACE, Decimal(1), who="me", why="test")
    before = (folder / "ledger.db").read_bytes()
    found = explore(plan)
    assert (folder / "ledger.db").read_bytes() == before
    ledger.close()
    return found


def test_it_prefers_narrow_bounds_and_clamping_where_they_were_measured_to_be_better(explored):
    """The exponential under Gamma(1, 1/4), n 100, epsilon 1: 2,000 releases gave an sd of 2.00 with prior-predictive 95 % bounds
    (here the file's), 0.96 with 80 %, 0.56 with 95 % at the prior mean."""
    (m,) = explored.measurements
    own, chosen = m.designs[0], m.chosen
    assert own.label == OWN
    assert own.bounds == Bounds(0.0064, 9.75)
    assert (own.ratio, own.error) == (1, 0)
    assert chosen.label == "95 % at the prior mean"
    assert chosen.outside is Outside.CLAMP
    of = {(cell.label, cell.outside): cell for cell in m.designs if cell.inside_count is None}
    counted = {cell.label: cell for cell in m.designs if cell.inside_count is not None}
    assert abs(chosen.ratio - 0.56 / 2.00) < 4 * chosen.error < 0.2
    eighty = of["prior-predictive 10-90 %", Outside.CLAMP]
    assert abs(eighty.ratio - 0.96 / 2.00) < 4 * eighty.error < 0.3
    for label in ("95 % at the prior mean", "prior-predictive 10-90 %"):
        assert of[label, Outside.TRUNCATE].ratio > 1.3 * of[label, Outside.CLAMP].ratio
        assert of[label, Outside.TRUNCATE].ratio > 1.3 * counted[label].ratio
    assert 0.2 < chosen.share_outside < 0.3  # a quarter of the prior predictive
    bounds, outside = m.reasons
    assert "records are outside, which costs width, never calibration" in bounds
    assert outside.startswith("clamp: with these bounds truncate has ")
    assert "; truncate + count has " in outside


def test_more_epsilon_is_narrower_and_never_narrower_than_the_records(explored):
    (m,) = explored.measurements
    assert [cell.epsilon for cell in m.epsilons] == [Decimal(text) for text in ("0.1", "0.3", "1", "3")]
    widths = [cell.widths[0] for cell in m.epsilons]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] > m.non_private[0]


@pytest.mark.usefixtures("few")
def test_the_same_seed_gives_the_same_numbers_and_another_one_others(tmp_path):
    plan = pipeline(tmp_path, {"m": WIDE})
    once = explore(plan)
    assert explore(plan) == once
    assert explore(plan, entropy=1) != once


def test_a_file_that_has_chosen_well_keeps_its_choice(tmp_path):
    (m,) = explore(pipeline(tmp_path, {"m": NARROW})).measurements
    assert m.chosen == m.designs[0]
    assert "the file's: no others are clearly narrower" in m.reasons[0]


def test_epsilon_goes_to_the_measurement_that_needs_it(tmp_path):
    """Of two alike measurements, the one that the file gives thirty times less gets more."""
    measurements = {"rich": {**COIN, "epsilon": 3}, "poor": {**COIN, "column": "c", "epsilon": 0.1}}
    found = explore(pipeline(tmp_path, measurements, {"neighbours": "replace", "n": 300}))
    split = found.split
    assert split.is_preferred
    assert split.ratio < 0.8
    assert split.total == sum(split.epsilons.values()) == Decimal("3.1")
    assert split.epsilons["poor"] > Decimal("0.2")
    assert found.measurements[0].reasons == ("bounds [0, 1]: there are no others to choose",)


@pytest.mark.usefixtures("few")
def test_measurements_that_share_a_release_are_not_given_a_split(tmp_path):
    """Equal requests with other priors are charged once: there is nothing to share."""
    alike = {"one": COIN, "two": {**COIN, "prior": {"alpha": 2, "beta": 2}}}
    assert explore(pipeline(tmp_path, alike)).split is None


def test_a_total_is_shared_as_powers_of_epsilon_ask_for_it():
    """Widths falling as epsilon^-a are shared in proportion to a."""
    x = [2.0, 5.0, 20.0, 60.0, 90.0]
    points = [(x, [-a * math.log(value) for value in x]) for a in (1.0, 0.5, 0.25)]
    parts = share([40.0, 30.0, 30.0], points)
    assert sum(parts) == STEPS
    assert parts == pytest.approx([57, 29, 14], abs=1)


@pytest.mark.usefixtures("few")
def test_a_private_n_has_its_count_weighed(tmp_path):
    privacy = {"neighbours": "add_remove", "expected_records": 300}
    (m,) = explore(pipeline(tmp_path, {"m": {**NARROW, "model": "poisson", "bounds": [0, 9]}}, privacy)).measurements
    weights = [cell.weight for cell in m.weights]
    assert weights == pytest.approx([0.25, 0.5, 1], abs=0.13)  # of nine half units
    assert m.chosen in m.weights
    assert "of the largest contribution: " in m.reasons[2]


def test_an_unknown_private_n_and_a_file_without_numbers_are_refused_with_what_to_do(tmp_path):
    with pytest.raises(ConfigError, match=r"privacy.expected_records: is missing; .* takes a public guess"):
        explore(pipeline(tmp_path, {"m": WIDE}, {"neighbours": "add_remove"}))
    colours = {"model": "categorical", "column": "c", "categories": ["a", "b"], "epsilon": 1, "prior": {"alpha": 1}}
    with pytest.raises(ConfigError, match="none is a model of one column of numbers"):
        explore(pipeline(tmp_path, {"m": colours}))


@pytest.mark.usefixtures("few")
def test_groups_are_explored_by_one_of_them(tmp_path):
    grouped = {**NARROW, "group_by": {"column": "g", "groups": ["a", "b"]}}
    (m,) = explore(pipeline(tmp_path, {"m": grouped}, {"neighbours": "replace", "n": 60})).measurements
    assert m.parameters == ("rate",)
    assert len(m.weights) == 3  # the sizes of groups are private
    assert any("one of them stands for all" in warning for warning in m.warnings)


@pytest.mark.usefixtures("few")
def test_the_command_line_tells_draws_and_needs_no_records_and_no_budget(tmp_path):
    pipeline(tmp_path, {"coin": COIN, "x": {**NARROW, "prior": {"kind": "half_cauchy", "beta": 1}}})
    words = ["check", str(tmp_path / "p.yaml"), "--output", str(tmp_path / "pictures")]
    done = CliRunner().invoke(cli, [*words, "--explore", "--json"])
    assert done.exception is None
    told = json.loads(done.stdout, parse_constant=pytest.fail)
    assert set(told) == {"dataset", "measurements", "split", "picture"}
    x = told["measurements"]["x"]
    assert x["has_sd"] is False
    assert any("medians of half the central 68 % interval" in warning for warning in x["warnings"])
    assert any(cell["label"] == "95 % at the prior median" for cell in x["designs"])
    assert x["epsilons"][0]["epsilon"] == "0.1"
    assert told["split"]["total"] == "1.1"
    picture = (tmp_path / "pictures" / "explore.svg").read_text()
    assert "<svg" in picture
    assert not (tmp_path / "ledger.db").exists()
    refused = CliRunner().invoke(cli, words).exception
    assert isinstance(refused, ConfigError)
    assert "--output: is where --explore draws" in str(refused)


def test_the_picture_and_the_table_are_of_every_design(explored, capsys):
    from dp_dask import show

    picture = draw(explored)
    assert picture == draw(explored)
    assert picture.startswith("<?xml")
    show.exploration(explored, None, as_json=False)
    told = capsys.readouterr().out
    for cell in explored.measurements[0].designs:
        assert cell.label in told
    assert "95 % at the prior mean, chosen" in told
    assert "nothing was charged" in told


@pytest.mark.parametrize(
    ("name", "own", "prior", "wanted"),
    [
        ("exponential", Bounds(0, 5), Gamma(8, 2), {"half the file's width": (0, 2.5), "twice the file's width": (0, 10)}),
        ("geometric", Bounds(0, 30), Beta(8, 2), {"half the file's width": (0, 15), "twice the file's width": (0, 60)}),
        ("normal", Bounds(-4, 6), Normal(0, 2), {"half the file's width": (-1.5, 3.5), "twice the file's width": (-9, 11)}),
        ("pareto", Bounds(2, 32), Gamma(8, 2), {"half the file's width": (4, 16), "twice the file's width": (0.5, 128)}),
        ("beta", Bounds(0.25, 0.85), Independent((Gamma(9, 3), Gamma(9, 3))), {"half the file's width": (0.4, 0.7)}),
        ("normal_mu_sigma", Bounds(-2, 2), NormalInverseGamma(0, 1, 9, 9), {"half the file's width": (-1, 1)}),
    ],
)
def test_candidates_lie_inside_the_support_and_hold_what_they_say(name, own, prior, wanted):
    """4,000 records know a tail of 10 % to half a per cent; bounds are rounded to a hundredth of their width or finer."""
    model = BY_NAME[name].model
    found = {c.label: c.bounds for c in candidates(np.random.default_rng(2), model, prior, own)}
    for label, ends in wanted.items():
        assert (found[label].lower, found[label].upper) == pytest.approx(ends)
    assert found[OWN] == own
    if name == "beta":
        assert "twice the file's width" not in found
    theta = prior.rvs(np.random.default_rng(3), 20_000).reshape(20_000, -1).T
    for label, tail in (("prior-predictive 10-90 %", 0.1), ("prior-predictive 2.5-97.5 %", 0.025)):
        bounds = found[label]
        assert model.support[0] <= bounds.lower < bounds.upper <= model.support[1]
        if model.is_integer:
            assert bounds.lower.is_integer()
            continue
        ends = np.array([[bounds.lower], [bounds.upper]])
        assert model.cdf(ends[0], *theta[:, :, None]).mean() == pytest.approx(tail, abs=0.025)
        assert model.sf(ends[1], *theta[:, :, None]).mean() == pytest.approx(tail, abs=0.025)


def test_a_prior_without_a_mean_has_bounds_at_its_median():
    model = BY_NAME["exponential"].model
    found = {c.label: c.bounds for c in candidates(np.random.default_rng(0), model, make("half_cauchy", beta=1), Bounds(0, 5))}
    assert found["95 % at the prior median"].upper == pytest.approx(3.7, abs=0.5)


def test_designs_are_tried_on_the_same_records():
    """The same truths and records under other noise: widths from the records themselves are equal, bit for bit."""
    case = BY_NAME["exponential"]
    one, other = (simulate_widths((7, 0), observation(case, n=50, epsilon=e), case.prior, 4) for e in (0.5, 2.0))
    assert np.array_equal(one.exact, other.exact)
    assert (one.private > other.private).all()
    whole = simulate_widths((7, 0), observation(case, n=50, epsilon=0.5), case.prior, 6, one)
    assert np.array_equal(whole.private, simulate_widths((7, 0), observation(case, n=50, epsilon=0.5), case.prior, 6).private)


@pytest.mark.parametrize("has_sd", [True, False])
def test_the_error_of_a_ratio_is_its_spread_over_repetitions(has_sd):
    """400 pairs of 50 lognormal widths: the mean bootstrap error is within 15 % of the ratios' own sd (known to 4 %)."""
    rng = np.random.default_rng(5)
    found = []
    for _ in range(400):
        common = np.exp(0.5 * rng.standard_normal((50, 2)))
        moved = 0.8 * common * np.exp(0.2 * rng.standard_normal((50, 2)))
        found.append(compare(PairedWidths(moved, moved, has_sd), PairedWidths(common, common, has_sd)))
    ratios, errors = np.array(found).T
    assert ratios.mean() == pytest.approx(0.8, rel=0.03)
    assert errors.mean() == pytest.approx(ratios.std(), rel=0.25 if not has_sd else 0.15)


def test_a_shorter_series_is_scaled_by_what_it_shares_with_the_longer_one():
    rng = np.random.default_rng(6)
    whole = np.exp(rng.standard_normal((40, 1)))
    short = PairedWidths(2 * whole[:5], whole[:5], has_sd=True)
    assert widths_like(short, PairedWidths(whole, whole, has_sd=True)) == pytest.approx(2 * whole.mean())


class TwoSums:
    """An exponential whose release has the sum of the records and that of their squares."""

    parameters = ("rate",)
    domains = ("positive",)
    support = (0, math.inf)

    def cdf(self, x, rate):
        return -np.expm1(-rate * np.maximum(x, 0))

    def statistic(self, x):
        return x, x * x


def test_a_family_of_one_parameter_and_two_sums_has_a_width(tmp_path):
    model = wrap("here:TwoSums", tmp_path, TwoSums())
    bounds, privacy = Bounds(0, 2), Privacy(Neighbours.REPLACE, 100)
    made = make_statistic(model, "x", bounds, Outside.CLAMP, privacy, 1.0)
    request = Request(dataset="d", statistic=made, neighbours=Neighbours.REPLACE, n=100, epsilon=Decimal(1))
    widths = simulate_widths((0, 0), planned(request, model), Gamma(8, 2), 2)
    assert widths.private.shape == (2, 1)
    assert ((widths.private > 0.2) & (widths.private < math.sqrt(2))).all()  # between the records' and the prior's
    assert np.isnan(widths.exact).all()
