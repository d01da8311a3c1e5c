"""Tables of choices among simulations: ratios with their errors, averages, every number once."""

from __future__ import annotations

import csv
import io
from decimal import Decimal

import numpy as np
import pytest

from dp_dask.public.abc_comparison import Cell, Place, Target, Trial, held, table, to_csv


def cell(method, errors, **setting):
    place = Place(method, **setting)
    return Cell(place, tuple(Trial(place=place, error=error, sd=error) for error in errors))


def test_a_target_is_a_ratio_of_averages_over_the_replicates_of_both():
    cells = [cell("release", [1.0, 3.0], epsilon=Decimal(1)), cell("nearest", [2.0, 6.0, 100.0], c=3)]
    ratio, error, is_held = held(Target(of="release", to="nearest", at_most=0.5, epsilon=Decimal(1), c=3), cells)
    assert (ratio, error, is_held) == (0.5, 0.0, True)
    assert not held(Target(of="release", to="nearest", at_most=0.49, epsilon=Decimal(1), c=3), cells)[2]
    assert not held(Target(of="release", to="nearest", at_most=1, at_least=0.51, epsilon=Decimal(1), c=3), cells)[2]
    with pytest.raises(ValueError, match="0 results of split"):
        held(Target(of="split", to="nearest", at_most=1, c=3), cells)


def test_the_standard_error_of_a_ratio_is_that_of_simulations():
    rng = np.random.default_rng(4)
    ratios, errors = [], []
    for _ in range(400):
        one, common = rng.gamma(4, 1, 50), rng.gamma(4, 1, 50)
        cells = [cell("release", one + common, epsilon=Decimal(1)), cell("exact", 2 * common + 1, epsilon=Decimal(1))]
        ratio, error, _ = held(Target(of="release", to="exact", at_most=1, epsilon=Decimal(1)), cells)
        ratios.append(ratio)
        errors.append(error)
    assert np.mean(errors) == pytest.approx(np.std(ratios), rel=0.2)  # 5.5 sd of the sd of 400


def test_a_csv_has_every_number_and_the_table_a_row_a_setting():
    cells = [cell("nearest", [0.5, 0.7], c=3), cell("split", [0.1, 0.1], epsilon=Decimal(1), c=3, tolerance=0.1)]
    told = list(csv.DictReader(io.StringIO(to_csv(cells))))
    assert [row["method"] for row in told] == ["nearest", "split"]
    assert told[0]["epsilon"] == told[0]["tolerance"] == ""
    assert float(told[0]["error"]) == pytest.approx(0.6)
    assert float(told[0]["error_se"]) == pytest.approx(0.1)
    assert told[0]["distance"] == ""
    assert "| 1 | 3 | 0.1 | 0.600 | 0.100 |" in table(cells, [])
