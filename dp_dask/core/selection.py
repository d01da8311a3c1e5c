"""SparseVector and TopC: what is asked of a long list of distances when only the indices of a few small ones may be told."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Decimal
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.distances import FARTHEST
from dp_dask.core.privacy import EXACT, Loss, Unit, exact_epsilon

__all__ = ["Accepted", "SparseVector", "TopC", "Variant", "log_sets"]

SHARE_DECIMALS = 60  # of epsilon's two shares: what is cut off is far below a float's last digit


class Variant(StrEnum):
    """Which noise goes to the threshold and which to the distances."""

    PUBLISHED = "published"  # Algorithm 1 of Park, Vinaroz & Jitkrittum (2021), RESAMPLE false
    RESAMPLED = "resampled"  # RESAMPLE true: the threshold's noise is drawn anew after each acceptance
    SPLIT = "split"  # the shares of epsilon that make the comparison's variance least (Lyu, Su & Li 2017)
    ONE_SIDED = "one_sided"  # the same shares, geometric noise


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseVector:
    """Answer, for one distance after the other, whether it is within the threshold, until c were or n_queries have been answered.

    ``sensitivity`` (the most by which a record moves a distance, rounding included) and ``threshold`` are whole grid units.
    Raises ValueError for what cannot be.
    """

    variant: Variant
    c: int
    sensitivity: int
    threshold: int
    epsilon: Decimal
    n_queries: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", exact_epsilon(self.epsilon))
        if not 1 <= self.c <= self.n_queries:
            msg = f"c is {self.c} of {self.n_queries} queries; it must be at least 1 and no more than the queries"
            raise ValueError(msg)
        _check_sensitivity(self.sensitivity)
        if abs(self.threshold) > FARTHEST:
            msg = f"threshold is {self.threshold} grid units; it may be 2^60 at most: use a coarser grid"
            raise ValueError(msg)

    @property
    def n_thresholds(self) -> int:
        """How often the threshold's noise is drawn."""
        return self.c if self.variant is Variant.RESAMPLED else 1

    @property
    def is_one_sided(self) -> bool:
        """Whether the noise is geometric, not discrete Laplace."""
        return self.variant is Variant.ONE_SIDED

    @property
    def shares(self) -> tuple[Decimal, Decimal]:
        """Split epsilon into e1 for the threshold and e2 for the distances; their sum is epsilon exactly.

        The scales are n_thresholds D / e1 and 2 c D / e2. In Algorithm 1 the second is twice the first, so that e1 : e2 is 1 : c
        where the threshold is drawn once and 1 : 1 where it is drawn c times. The sum of their squares is least at
        1 : (2 c)^(2/3), where it is drawn once.
        """
        ratio = {
            Variant.PUBLISHED: Decimal(self.c),
            Variant.RESAMPLED: Decimal(1),
            Variant.SPLIT: Decimal((2 * self.c) ** (2 / 3)),
            Variant.ONE_SIDED: Decimal((2 * self.c) ** (2 / 3)),
        }[self.variant]
        exact = EXACT.divide(self.epsilon, EXACT.add(1, ratio))
        first = exact.quantize(Decimal(1).scaleb(-SHARE_DECIMALS), rounding=ROUND_FLOOR, context=EXACT)
        return first, EXACT.subtract(self.epsilon, first)

    @property
    def nominal_scales(self) -> tuple[float, float]:
        """The scales of the threshold's and of a distance's noise in grid units, to the last digits of a float."""
        first, second = self.shares
        return self.n_thresholds * self.sensitivity / float(first), 2 * self.c * self.sensitivity / float(second)

    def lowered(self) -> SparseVector:
        """Lower the threshold by ln 2 noise scales of a distance: by so much chance brings a far distance nearer, at the median.

        The scale is public, so that this costs nothing; it trades acceptances for fewer false ones.
        """
        margin = math.floor(math.log(2) * self.nominal_scales[1])
        return replace(self, threshold=max(self.threshold - margin, -FARTHEST))


@dataclass(frozen=True, slots=True, kw_only=True)
class TopC:
    """Tell c of all distances that are small: by one exponential mechanism over sets for an epsilon, by Gumbel noise for a rho.

    ``sensitivity`` is in whole grid units. Raises ValueError for what cannot be.
    """

    c: int
    sensitivity: int
    loss: Loss

    def __post_init__(self) -> None:
        if self.c < 1:
            msg = f"c is {self.c}; it must be at least 1"
            raise ValueError(msg)
        _check_sensitivity(self.sensitivity)

    @property
    def is_joint(self) -> bool:
        """Whether the set is chosen as one, and not one distance after the other."""
        return self.loss.unit is Unit.EPSILON

    @property
    def nominal_scale(self) -> float:
        """The noise scale in grid units to the last digits of a float: (2 D + 2) / epsilon, or D sqrt(c / (2 rho))."""
        if self.is_joint:
            return 2 * (self.sensitivity + 1) / float(self.loss.amount)
        return self.sensitivity * math.sqrt(self.c / (2 * float(self.loss.amount)))


@dataclass(frozen=True, slots=True)
class Accepted:
    """The indices that were accepted, in order, and how many of the queries were answered."""

    indices: tuple[int, ...]
    n_answered: int


def log_sets(c: int, n: int) -> NDArray[np.float64]:
    """Return the logarithms [n - c + 1] of how many sets of c of n places end at place c, c + 1, .., n: C(j - 1, c - 1).

    The numbers are exact; a logarithm is off by a few of a float's last digits, hence by less than 2^-50 of itself.
    """
    logs, count = np.zeros(n - c + 1), 1
    for j in range(c, n):
        count = count * j // (j - c + 1)
        logs[j - c + 1] = math.log(count)
    return logs


def _check_sensitivity(sensitivity: int) -> None:
    if sensitivity < 1:
        msg = (
            f"sensitivity is {sensitivity} grid units; it must be a whole number and at least 1, as rounding alone moves that far"
        )
        raise ValueError(msg)
