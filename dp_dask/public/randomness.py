"""The random pieces that every simulated release is made of, and the rank of a truth among draws."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["RANK_DRAWS", "check_expected", "draw_n", "rank_among"]

Floats = NDArray[np.float64]
RANK_DRAWS = 63


def check_expected(n: int | None, expected_n: float | None) -> None:
    """Raise ValueError where n is private and its prior flat: there is nothing to draw it from."""
    if n is None and expected_n is None:
        msg = "a private n can be simulated only with privacy.expected_records"
        raise ValueError(msg)


def draw_n(rng: np.random.Generator, n: int | None, expected_n: float | None) -> int:
    """Return n, drawn from its geometric prior where it is private."""
    check_expected(n, expected_n)
    if n is not None:
        return n
    return int(rng.geometric(1 / ((expected_n or 0.0) + 1))) - 1


def rank_among(rng: np.random.Generator, draws: Floats, truth: Floats) -> Floats:
    """Return the rank of a truth [p] among 63 of the draws [.., p], ties and gaps broken at random: u = (rank + U) / 64."""
    chosen = rng.permutation(draws.reshape(-1, len(truth)))[:RANK_DRAWS]
    ties = 1 + np.sum(chosen == truth, axis=0)
    return np.asarray((np.sum(chosen < truth, axis=0) + rng.random(len(truth)) * ties) / (RANK_DRAWS + 1))
