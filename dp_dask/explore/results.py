"""Results: what an exploration found, in plain values."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from dp_dask.core.bounds import Bounds, Outside

__all__ = ["Exploration", "Explored", "Split", "Tried", "tell", "tell_outside"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One way to release a measurement, and the posterior to expect from it.

    ``widths`` (a parameter each) are average posterior sds, or medians of half the central 68 % interval where the prior has no
    finite sd. ``ratio`` is the geometric mean over parameters of these widths to those of the file's own design, ``error`` its
    Monte Carlo standard error.
    """

    label: str
    bounds: Bounds
    outside: Outside
    inside_count: float | None  # its share of epsilon, where truncated records inside are counted too
    epsilon: Decimal
    weight: float | None  # of the count, as a share of the largest contribution; None where no count is released
    share_outside: float  # of prior-predictive records, beyond the bounds
    replicates: int
    widths: tuple[float, ...]
    ratio: float
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Explored:
    """One measurement's designs, and the one that is proposed, with its reasons in a sentence each."""

    measurement: str
    parameters: tuple[str, ...]
    prior: str
    has_sd: bool  # False: widths are medians of half the central 68 % interval
    non_private: tuple[float | None, ...]  # the width from the records themselves, None where there is no way to it
    designs: tuple[Tried, ...]  # at the file's epsilon; the file's own first
    chosen: Tried
    epsilons: tuple[Tried, ...]  # the chosen design at other epsilons, in order
    weights: tuple[Tried, ...]  # the chosen design with other weights of the count, in order; none where no count is released
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """How measurements could share their epsilon; ``ratio`` of widths to the file's split is the geometric mean over them."""

    total: Decimal
    epsilons: dict[str, Decimal]
    ratio: float
    error: float
    is_preferred: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """All measurements of numbers, and the split of epsilon over them: None for one, or where two share a release."""

    dataset: str
    measurements: tuple[Explored, ...]
    split: Split | None


def tell(bounds: Bounds, outside: Outside | None = None, inside_count: float | None = None) -> str:
    """Write a design as a person would."""
    ends = f"[{bounds.lower:.4g}, {bounds.upper:.4g}]"
    return ends if outside is None else f"{ends} {tell_outside(outside, inside_count)}"


def tell_outside(outside: Outside, inside_count: float | None) -> str:
    """Write what becomes of records outside, and whether those inside are counted."""
    return str(outside) if inside_count is None else f"{outside} + count"
