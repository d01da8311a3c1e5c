"""SelectionRequest and Selection: round trips through JSON, and what they refuse."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

import pytest
from gate.selected_examples import COMPONENTS, DISTANCE, N, make_request, make_selection, sparse, top
from pydantic import TypeAdapter, ValidationError

from dp_dask.core.bounds import Bounds
from dp_dask.core.privacy import Loss, Neighbours, Unit
from dp_dask.core.recordwise import Recordwise
from dp_dask.core.release import Release, Request
from dp_dask.core.selected import Selection, SelectionRequest, threshold_of
from dp_dask.core.selection import Variant
from dp_dask.distances.means import means
from dp_dask.distances.mmd import mmd
from dp_dask.distances.mmd_product import mmd_product

RECORDWISE = Recordwise(columns=("x",), weights=(1.0,), clip=2.0, n=N)
BOUNDS = Bounds(0, COMPONENTS)
DISTANCES = {
    "histogram": DISTANCE,
    "mmd": mmd("x", BOUNDS, 1.5, N),
    "mmd_product": mmd_product({"x": BOUNDS, "y": BOUNDS}, 3.0, N, tolerance=1e-2),
    "means": means({"x": BOUNDS, "y": BOUNDS}, {"x": 1, "y": 2}, N),
    "recordwise": RECORDWISE,
}


def requests():
    for distance in DISTANCES.values():
        yield make_request(sparse(distance=distance), distance=distance)
        yield make_request(top(distance=distance), distance=distance)
    yield make_request(sparse(variant=Variant.ONE_SIDED), policy="retry")
    yield make_request(top(amount="0.1", unit=Unit.RHO), known={}, prior={"p": {"kind": "beta", "alpha": 1, "beta": 2.5}})
    private = replace(sparse(), sensitivity=DISTANCE.sensitivity(Neighbours.ADD_REMOVE))
    yield make_request(private, neighbours=Neighbours.ADD_REMOVE, n=None)


@pytest.mark.parametrize("request_", list(requests()), ids=str)
def test_requests_and_selections_come_back_from_json_as_they_were(request_):
    as_request, as_selection = TypeAdapter(Request | SelectionRequest), TypeAdapter(Release | Selection)
    made = make_selection(request_)
    text = as_request.dump_json(request_)
    assert as_request.validate_json(text) == request_
    assert as_request.dump_json(as_request.validate_json(text)) == text == TypeAdapter(SelectionRequest).dump_json(request_)
    assert as_selection.validate_json(as_selection.dump_json(made)) == made
    assert made.privacy_loss <= request_.loss.amount


def test_plain_values_have_one_form_whatever_the_order_of_their_keys():
    one = make_request(known={"b": (1, 2.5), "a": {"y": None, "x": True}})
    other = make_request(known={"a": {"x": True, "y": None}, "b": [1, 2.5]})
    assert one == other
    adapter = TypeAdapter(SelectionRequest)
    assert adapter.dump_json(one) == adapter.dump_json(other)


def test_a_loss_is_that_of_the_question():
    assert make_request(sparse(epsilon="0.30")).loss == Loss(Unit.EPSILON, Decimal("0.3"))
    assert make_request(top(amount="0.2", unit=Unit.RHO)).loss == Loss(Unit.RHO, Decimal("0.2"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"n": None}, "n is public and given under replace"),
        ({"n": N + 1}, f"n is {N + 1} and the distance is of {N} records"),
        ({"neighbours": Neighbours.ADD_REMOVE}, "private and left out under add_remove"),
        ({"neighbours": Neighbours.ADD_REMOVE, "n": None}, "sensitivity is 2 steps; that of the distance is 1"),
        ({"question": replace(sparse(), sensitivity=1)}, "sensitivity is 1 steps; that of the distance is 2"),
        ({"question": replace(top(), sensitivity=3)}, "sensitivity is 3 steps; that of the distance is 2"),
        ({"n_simulations": 99}, "n_queries is 100 and there are 99 simulations"),
        ({"question": top(c=101)}, "c is 101 of 100 simulations"),
        ({"seed": -1}, "seed is -1; it must be a whole number from 0"),
        ({"seed": 2**128}, "it must be a whole number from 0 to 2.128 - 1"),
        ({"batch_size": 0}, "100 simulations in batches of 0; both must be at least 1"),
        ({"batch_size": 2**21}, "and a batch no larger than 1048576"),
        ({"known": {"a": math.nan}}, "known.a is nan; it must be a text"),
        ({"prior": {"a": [1, object()]}}, r"prior.a\[1\] is <object"),
        ({"prior": {1: 2}}, "prior has a key that is not a text"),
    ],
)
def test_a_request_that_cannot_be_is_refused_in_words(change, said):
    with pytest.raises(ValueError, match=said):
        replace(make_request(), **change)


def test_records_compared_by_their_places_are_refused_under_add_remove():
    request = make_request(sparse(distance=RECORDWISE), distance=RECORDWISE)
    with pytest.raises(ValueError, match="no useful bound under add_remove"):
        replace(request, neighbours=Neighbours.ADD_REMOVE, n=None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id": "x"}, "32 hexadecimal digits"),
        ({"mechanism": "top_c_joint"}, "answered by sparse_vector_laplace, not by top_c_joint"),
        ({"scales": (40.0,)}, "there must be 2 scales"),
        ({"privacy_losses": (0.1,)}, "there must be 2 scales"),
        ({"scales": (0.99 * 5, 100.0)}, "a scale is less than the request's epsilon needs"),
        ({"scales": (100.0, 0.99 * 10)}, "a scale is less than the request's epsilon needs"),
        ({"scales": (math.nan, 100.0)}, "a scale is less"),
        ({"scales": (2.0**57, 100.0)}, "not below 2.57"),
        ({"privacy_losses": (1.5, 0.500001)}, "no more than the request's epsilon 2"),
        ({"privacy_losses": (0.0, 1.0)}, "above 0"),
        ({"privacy_losses": (math.nan, 1.0)}, "above 0"),
        ({"accepted": (0, 1, 2, 3, 4), "n_answered": 5}, "at most c different indices"),
        ({"accepted": (1, 0, 2, 3)}, "ascending order"),
        ({"accepted": (0, 0, 2, 3)}, "ascending order"),
        ({"accepted": (-1, 0)}, "ascending order"),
        ({"accepted": (0, 4)}, "below n_answered"),
        ({"n_answered": 101}, "n_answered is at most n_simulations"),
        ({"n_answered": 5}, "answers end with the c-th acceptance"),
        ({"n_failed": 1}, "n_failed at most the answered ones that were not accepted"),
        ({"n_failed": -1}, "n_failed at most"),
    ],
)
def test_a_selection_that_was_tampered_with_is_refused_in_words(change, said):
    made = make_selection(make_request())  # nominal scales 5 and 10
    with pytest.raises(ValueError, match=said):
        replace(made, **change)


@pytest.mark.parametrize(("accepted", "n_answered", "n_failed"), [((0, 1, 2), 100, 0), ((0, 1, 2, 3), 100, 97), ((0,), 3, 1)])
def test_a_choice_of_c_holds_c_or_all_that_did_not_fail(accepted, n_answered, n_failed):
    made = make_selection(make_request(top()), n_answered=100)
    replace(made, accepted=(0, 5, 99), n_failed=97)
    replace(made, accepted=(), n_failed=100)
    with pytest.raises(ValueError, match=r"holds c indices, or all|n_failed at most"):
        replace(made, accepted=accepted, n_answered=n_answered, n_failed=n_failed)


def test_a_file_with_a_smaller_scale_is_refused_when_it_is_read():
    adapter = TypeAdapter(Selection)
    text = adapter.dump_json(make_selection(make_request()))
    assert b'"scales":[7.5,15.0]' in text
    with pytest.raises(ValidationError, match="a scale is less"):
        adapter.validate_json(text.replace(b'"scales":[7.5,15.0]', b'"scales":[4.9,15.0]'))


def test_a_tolerance_is_rounded_down_to_whole_steps():
    step = DISTANCE.step
    assert [threshold_of(DISTANCE, k * step) for k in (0, 1, 2.5, 7)] == [0, 1, 2, 7]
    for tolerance, said in ((-0.1, "must be a finite number"), (math.nan, "must be a finite"), (1e30, "2.60 steps")):
        with pytest.raises(ValueError, match=said):
            threshold_of(DISTANCE, tolerance)
