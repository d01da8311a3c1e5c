"""Choose: the narrowest design that Monte Carlo error lets one prefer, and why."""

from __future__ import annotations

from collections.abc import Sequence

from dp_dask.core.bounds import Outside
from dp_dask.explore.designs import Design, is_wider
from dp_dask.explore.results import tell
from dp_dask.public.paired import compare

__all__ = ["CLEAR", "choose", "of_bounds", "of_count", "of_outside"]

CLEAR = 2  # standard errors, by which a design must be narrower to be preferred
NEAR_BEST = 1.1  # times the least width: what a choice that is made for everybody may cost


def choose(own: Design, others: Sequence[Design]) -> Design:
    """Return the file's own design unless another is clearly narrower; of those that are not told apart, one that clamps."""
    designs = [own, *others]
    best = min(designs, key=lambda d: compare(d.widths, own.widths)[0])
    equals = [d for d in designs if not is_wider(d, best, CLEAR)]
    if own in equals:
        return own
    return min(equals, key=lambda d: (d.outside is Outside.TRUNCATE, compare(d.widths, own.widths)[0]))


def of_bounds(chosen: Design, own: Design, designs: Sequence[Design], share_outside: float) -> str:
    """Say why these bounds."""
    others = [d for d in designs if d.bounds != chosen.bounds]
    if not others:
        return f"bounds {tell(chosen.bounds)}: there are no others to choose"
    if chosen.bounds == own.bounds:
        best = min(others, key=lambda d: compare(d.widths, chosen.widths)[0])
        times = _times(best, chosen)
        return (
            f"bounds {tell(chosen.bounds)}, the file's: no others are clearly narrower; the best, "
            f"{tell(best.bounds, best.outside)} ({best.label}), have {times} times the width"
        )
    return (
        f"bounds {tell(chosen.bounds)}, {chosen.label}: {_times(chosen, own)} times the width of the file's "
        f"{tell(own.bounds, own.outside)}; {100 * share_outside:.0f} % of records are outside, "
        "which costs width, never calibration"
    )


def of_outside(chosen: Design, designs: Sequence[Design]) -> str | None:
    """Say why clamp or truncate; None where bounds leave nothing outside."""
    if chosen.measurement.model.natural_bounds is not None:
        return None
    other = Outside.TRUNCATE if chosen.outside is Outside.CLAMP else Outside.CLAMP
    same = next((d for d in designs if d.bounds == chosen.bounds and d.outside is other), None)
    if same is None:
        return f"{chosen.outside}: {other} cannot be had with these bounds"
    is_clear = is_wider(same, chosen, CLEAR) or is_wider(chosen, same, CLEAR)
    doubt = "" if is_clear else ", no clear difference"
    return f"{chosen.outside}: with these bounds {other} has {_times(same, chosen)} times the width{doubt}"


def of_count(chosen: Design, weighed: Sequence[Design], shares: Sequence[float]) -> str | None:
    """Say whether the weight that the count always has is near the best; None where no count is released."""
    if not weighed:
        return None
    best = min(range(len(weighed)), key=lambda i: compare(weighed[i].widths, chosen.widths)[0])
    ratio, error = compare(chosen.widths, weighed[best].widths)
    own = next(share for design, share in zip(weighed, shares, strict=True) if design is chosen)
    verdict = "within 10 % of the best" if ratio <= NEAR_BEST else "MORE than 10 % wider than the best"
    tried = ", ".join(f"{share:.2g}" for share in shares)
    return (
        f"the count's weight, {own:.2g} of the largest contribution: {verdict} of {tried}, "
        f"{ratio:.2f} ± {error:.2f} times the width at {shares[best]:.2g}"
    )


def _times(one: Design, other: Design) -> str:
    ratio, error = compare(one.widths, other.widths)
    return f"{ratio:.3g} ± {error:.1g}"
