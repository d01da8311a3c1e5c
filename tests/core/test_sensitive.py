from __future__ import annotations

import copy
import json
import logging
import math
import operator
import pickle
import pprint
from dataclasses import dataclass

import pytest

from dp_dask.core.sensitive import Sensitive, reveal
from dp_dask.core.statistic import Total

CANARY = 987654321
MASK = "Sensitive(***)"


@pytest.fixture
def sealed() -> Sensitive[Total]:
    return Sensitive(Total((CANARY,), 7731))


def test_it_prints_as_a_mask(sealed: Sensitive[Total]):
    assert repr(sealed) == str(sealed) == f"{sealed}" == f"{sealed!r}" == f"{sealed!s}" == "%s" % sealed == MASK  # noqa: UP031
    assert pprint.pformat(sealed) == ascii(sealed) == MASK


def test_it_prints_as_a_mask_inside_other_values(sealed: Sensitive[Total]):
    @dataclass
    class Holder:
        total: Sensitive[Total]

    for text in (repr([sealed]), repr({"a": (sealed,)}), repr(Holder(sealed))):
        assert MASK in text
        assert str(CANARY) not in text


def test_it_is_logged_as_a_mask(sealed: Sensitive[Total], caplog: pytest.LogCaptureFixture):
    logging.getLogger("a").warning("the total is %s", sealed)
    assert caplog.messages == [f"the total is {MASK}"]


@pytest.mark.parametrize("spec", ["d", ">20", ".3f"])
def test_no_format_opens_it(spec: str):
    with pytest.raises(TypeError) as caught:
        format(Sensitive(CANARY), spec)
    assert str(CANARY) not in str(caught.value)


@pytest.mark.parametrize("compare", [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge])
@pytest.mark.parametrize("other", [CANARY, 0, None, Sensitive(CANARY)], ids=["its value", "another", "none", "sealed"])
def test_it_is_compared_with_nothing(compare, other):
    for pair in ((Sensitive(CANARY), other), (other, Sensitive(CANARY))):
        with pytest.raises(TypeError) as caught:
            compare(*pair)
        assert str(CANARY) not in str(caught.value)


def test_it_is_not_looked_up_in_a_list():
    with pytest.raises(TypeError, match="cannot be compared"):
        _ = [CANARY].index(Sensitive(CANARY))


ARITHMETIC = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and_", "or_", "xor", "lshift", "rshift", "matmul"]


@pytest.mark.parametrize("operate", [*[getattr(operator, name) for name in ARITHMETIC], divmod])
def test_it_has_no_arithmetic(operate):
    for pair in ((Sensitive(CANARY), 1), (1, Sensitive(CANARY)), (Sensitive(CANARY), Sensitive(1))):
        with pytest.raises(TypeError):
            operate(*pair)


@pytest.mark.parametrize(
    "convert", [bool, int, float, complex, len, iter, hash, abs, round, operator.neg, operator.index, math.floor, vars]
)
def test_it_is_converted_to_nothing(convert):
    with pytest.raises(TypeError) as caught:
        convert(Sensitive(CANARY))
    assert str(CANARY) not in str(caught.value)


def test_it_is_no_condition(sealed: Sensitive[Total]):
    with pytest.raises(TypeError, match="has no truth"):
        _ = 1 if sealed else 0


def test_it_is_not_written_as_json(sealed: Sensitive[Total]):
    with pytest.raises(TypeError, match="not JSON serializable"):
        json.dumps(sealed)
    assert json.dumps(sealed, default=str) == f'"{MASK}"'


def test_it_takes_no_other_attribute(sealed: Sensitive[Total]):
    with pytest.raises(AttributeError):
        sealed.note = "seen"


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_it_travels_sealed_between_processes(sealed: Sensitive[Total], protocol: int):
    arrived = pickle.loads(pickle.dumps(sealed, protocol))  # noqa: S301
    assert repr(arrived) == MASK
    assert reveal(arrived) == Total((CANARY,), 7731)


def test_a_copy_is_sealed(sealed: Sensitive[Total]):
    for made in (copy.copy(sealed), copy.deepcopy(sealed)):
        assert repr(made) == MASK
        assert reveal(made) == reveal(sealed)
