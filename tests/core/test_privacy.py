from __future__ import annotations

from decimal import Decimal

import pytest
from core.exact import LAW
from hypothesis import example, given
from hypothesis import strategies as st

from dp_dask.core.privacy import Neighbours, Spent, Unit, exact_epsilon, rounded_up


@pytest.mark.parametrize(
    ("given_text", "canonical"),
    [
        ("0.5", "0.5"),
        ("0.50", "0.5"),
        ("5E-1", "0.5"),
        ("+0.5", "0.5"),
        ("00.5", "0.5"),
        ("1", "1"),
        ("1.000", "1"),
        ("10", "10"),
        ("1E+1", "10"),
        ("1E+6", "1000000"),
        ("1000000.000000000000", "1000000"),
        ("999999.999999999999", "999999.999999999999"),
        ("1E-12", "0.000000000001"),
        ("0.000000000001000000000000000000000", "0.000000000001"),
    ],
)
def test_equal_epsilons_have_one_form(given_text: str, canonical: str):
    exact = exact_epsilon(Decimal(given_text))
    assert exact.as_tuple() == Decimal(canonical).as_tuple()
    assert f"{exact:f}" == canonical


@LAW
@given(st.integers(1, 10**18), st.integers(0, 8))
@example(1, 0)
@example(10**18, 8)
def test_the_form_keeps_every_digit_and_nothing_else(picos: int, zeros: int):
    epsilon = Decimal(picos).scaleb(-12)
    padded = Decimal(f"{epsilon:f}" + ("0" * zeros if "." in f"{epsilon:f}" else ""))
    exact = exact_epsilon(padded)
    assert exact == epsilon
    assert exact.as_tuple() == exact_epsilon(exact).as_tuple()
    assert exact.as_tuple().exponent == 0 or exact.as_tuple().digits[-1] != 0


@pytest.mark.parametrize("text", ["0", "-0", "0.000", "-1", "-1E-12", "NaN", "sNaN", "Infinity", "-Infinity"])
def test_an_epsilon_that_is_not_above_zero_is_refused(text: str):
    with pytest.raises(ValueError, match=r"^epsilon is .*; it must be above 0 \(0.1 to 1 is usual, smaller protects more\)$"):
        exact_epsilon(Decimal(text))


@pytest.mark.parametrize(
    "text", ["1E-13", "0.1234567890123", "1000000.000000000001", "1E+7", "1E+999999", "1E-999999", "0." + "1" * 60]
)
def test_an_epsilon_too_large_or_too_fine_is_refused(text: str):
    with pytest.raises(ValueError, match=r"^epsilon is .*; it may have at most 12 decimals and be at most 1000000$"):
        exact_epsilon(Decimal(text))


def test_the_relations_have_the_names_of_the_pipeline_file():
    assert [str(relation) for relation in Neighbours] == ["replace", "add_remove"]


def test_a_relation_says_in_words_what_it_protects():
    assert Neighbours.REPLACE.in_words == "any one record's values replaced by any others"
    assert Neighbours.ADD_REMOVE.in_words == "any one record added or left out"


@pytest.mark.parametrize(
    ("bound", "shown"),
    [(0.0, "0"), (0.5, "0.5"), (2.0, "2"), (2.36501, "2.366"), (1.10517, "1.106"), (9999.2, "1.000e+4"), (1.2341e-7, "1.235e-7")],
)
def test_a_bound_is_shown_rounded_up(bound, shown):
    assert rounded_up(bound) == shown


@given(st.floats(1e-300, 1e300))
def test_a_bound_that_is_shown_is_still_a_bound(bound):
    assert Decimal(bound) <= Decimal(rounded_up(bound)) <= Decimal(bound) * Decimal("1.0011")


def test_what_is_spent_is_told_by_an_epsilon_that_is_no_less_than_it():
    spent = Spent(unit=Unit.RHO, amount=Decimal("0.12"), epsilon=2.36501, delta=Decimal("1e-6"))
    assert str(spent) == "rho 0.12, that is epsilon 2.366 at delta 0.000001"
    with pytest.raises(ValueError, match="delta is 1"):
        Spent(unit=Unit.RHO, amount=Decimal("0.12"), epsilon=0.1, delta=Decimal(1))
