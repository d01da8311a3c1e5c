"""GroupedSum: sums and sizes of groups in one pass, sensitivity over neighbours, each group its own posterior."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from cases import BY_NAME, statistic
from hypothesis import given
from hypothesis import strategies as st

from dp_dask.core.categories import CategoryCounts
from dp_dask.core.grouped import GroupedSum
from dp_dask.core.privacy import Neighbours
from dp_dask.core.release import Request
from dp_dask.entries.measurement import for_report
from dp_dask.errors import InferenceError
from dp_dask.private.kernels import BLOCK, new_scratch
from dp_dask.private.sums import sum_batch
from dp_dask.public.calibration import ranks
from dp_dask.public.infer import infer
from dp_dask.public.observe import planned
from dp_dask.public.simulation import simulate
from dp_dask.public.uniformity import gamma, gamma_p_value

GROUPS = ("north", "south", "east")
POISSON, PARETO = BY_NAME["poisson"], BY_NAME["pareto"]


def grouped(case=POISSON, groups=GROUPS, epsilon=1.0, n=20):
    within = statistic(case, neighbours=Neighbours.ADD_REMOVE, epsilon=epsilon, n=n)
    return GroupedSum(within=within, by=CategoryCounts(column="g", categories=groups))


def planned_groups(case=POISSON, groups=GROUPS, epsilon=1, expected=60.0, n=None):
    made = grouped(case, groups, float(epsilon))
    neighbours = Neighbours.REPLACE if n else Neighbours.ADD_REMOVE
    request = Request(dataset="d", statistic=made, neighbours=neighbours, n=n, epsilon=Decimal(epsilon))
    model, prior = for_report(case.model, case.prior, made)
    return planned(request, model, None if n else expected), prior


def vector(made, records):
    groups, values = zip(*records, strict=True) if records else ((), ())
    columns = {"g": pa.array(groups, pa.string()), "x": pa.array(values, pa.float64())}
    return np.array(sum_batch(made, columns, new_scratch()))


RECORD = st.tuples(st.sampled_from([*GROUPS, "west", None]), st.none() | st.floats(-5, 60))


@pytest.mark.parametrize("case", [POISSON, PARETO], ids=["plain", "table"])
@given(records=st.lists(RECORD, max_size=6), one=RECORD, other=RECORD)
def test_no_neighbour_moves_the_groups_by_more_than_the_sensitivity(case, records, one, other):
    made = grouped(case)
    base = vector(made, records)
    added = vector(made, [*records, one])
    replaced = vector(made, [*records, other])
    assert np.abs(added - base).sum() <= made.sensitivity(Neighbours.ADD_REMOVE)
    assert np.abs(added - replaced).sum() <= made.sensitivity(Neighbours.REPLACE)


@pytest.mark.parametrize("case", [POISSON, PARETO], ids=["plain", "table"])
def test_each_group_is_summed_as_if_it_were_alone(case):
    rng = np.random.default_rng(1)
    size = BLOCK + 500
    groups = rng.choice(np.array([*GROUPS, "west"]), size)
    values = np.where(rng.random(size) < 0.1, np.nan, rng.exponential(5, size))
    made = grouped(case)
    found = sum_batch(made, {"g": pa.array(groups).dictionary_encode(), "x": pa.array(values)}, new_scratch())
    for i, group in enumerate(GROUPS):
        of_group = values[groups == group]
        assert found[2 * i] == int(made.within.contributions(of_group).sum())
        assert found[2 * i + 1] == made.within.count_weight * len(of_group)


def test_each_group_has_its_own_posterior_and_an_empty_one_the_prior():
    like, prior = planned_groups(epsilon=20)
    weight, unit = like.statistic.within.count_weight, like.statistic.units[0]
    origin = like.of_groups[0].origin
    sums = [round(n * (mean / unit - origin)) for n, mean in ((400, 3.0), (100, 12.0))]
    seen = replace(like, y=(sums[0], 400 * weight, sums[1], 100 * weight, 0, 0), expected_n=None)
    made = infer(np.random.default_rng(2), seen, prior, 4000)
    assert made.draws.shape == (4, 1000, 3)
    north, south, east = made.draws.reshape(-1, 3).T
    assert north.mean() == pytest.approx(3.0, abs=0.3)
    assert south.mean() == pytest.approx(12.0, abs=1.2)
    assert east.std() > 3


@pytest.mark.parametrize("n", [None, 1200], ids=["add_remove", "replace"])
def test_groups_are_calibrated_with_their_sizes_private(n):
    """60 replicates of three groups, 180 ranks; a calibrated engine fails with probability 1e-6."""
    like, prior = planned_groups(n=n, expected=1200.0)
    u = ranks(np.random.SeedSequence(7), like, prior, 60, "auto").ravel()
    assert gamma_p_value(gamma(u), len(u)) > 1e-6


def test_simulated_groups_add_up_to_their_own_sums():
    like, prior = planned_groups(epsilon=10**6)
    pseudo = simulate(np.random.default_rng(3), like, prior.rvs(np.random.default_rng(4), 1)[0])
    sizes = [count / like.statistic.within.count_weight for count in pseudo.observation.y[1::2]]
    assert pseudo.n == pytest.approx(sum(sizes), abs=1)


def test_a_release_of_groups_is_seen_through_its_own_groups_only():
    made = grouped()
    request = Request(dataset="d", statistic=made, neighbours=Neighbours.ADD_REMOVE, n=None, epsilon=Decimal(1))
    with pytest.raises(InferenceError, match="the release holds sums of groups"):
        planned(request, POISSON.model)


def test_what_groups_cannot_be_is_refused():
    by = CategoryCounts(column="g", categories=GROUPS)
    with pytest.raises(ValueError, match="must have one coordinate and give the group's size a weight"):
        GroupedSum(within=statistic(POISSON), by=by)
