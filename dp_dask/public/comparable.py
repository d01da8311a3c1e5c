"""Comparable: which releases answer the same question, whatever their n, their loss and how finely they sum."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from dp_dask.public.publication import Published

__all__ = ["question"]

# What n and epsilon decide of a statistic: how finely it is summed, and not what is asked.
FINENESS = {"grid", "cells", "table", "units", "origins", "count_weight", "levels", "centre"}


def question(published: Published) -> str:
    """Return what is asked, in one text that n, the loss and how finely is summed have no part in.

    Of a simulator's release the sums themselves are what is asked: no model says which they are.
    """
    request = published.release.request
    statistic: Any = request.statistic
    asked = asdict(statistic) if published.is_simulator else _without_fineness(asdict(statistic))
    facts = (published.model, published.known, published.is_simulator, published.prior, type(statistic).__name__, asked)
    where = None if request.where is None else asdict(request.where)
    return json.dumps([*facts, len(statistic.units), request.neighbours, where], sort_keys=True, default=str)


def _without_fineness(facts: Any) -> Any:
    if isinstance(facts, dict):
        return {key: _without_fineness(value) for key, value in facts.items() if key not in FINENESS}
    return facts
