"""What privacy costs: the posterior's sd beside that of the records themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cases import SENSIBLE, observation

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.public.simulation import expected_widths

REPLICATES, LARGEST = 60, 1.10


@pytest.mark.parametrize("case", SENSIBLE, ids=lambda case: case.name)
def test_a_thousand_records_at_epsilon_1_cost_a_tenth_of_width_at_most(case):
    """The median of 60 ratios, from a fixed seed; with bounds five times as wide it is above."""
    assert ratio(case, case.bounds.upper) <= LARGEST
    if case.model.natural_bounds is None:
        assert ratio(case, 5 * case.bounds.upper) > LARGEST


def ratio(case, upper):
    case = replace(case, bounds=Bounds(case.bounds.lower, upper))
    like = observation(case, n=1000, epsilon=1.0, outside=Outside.CLAMP)
    rng = np.random.default_rng(1)
    return np.median([expected_widths(rng, like, case.prior, 1)[0].ratio for _ in range(REPLICATES)])
