"""Choose: the narrowest design that Monte Carlo error lets one prefer, and why."""

from __future__ import annotations

from collections.abc import Sequence

from dp_dask.core.bounds import Outside
from dp_dask.explore.designs import Design, is_wider
from dp_dask.explore.results import tell, tell_outside
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
            f"{_rule(best)} ({best.label}), have {times} times the width"
        )
    return (
        f"bounds {tell(chosen.bounds)}, {chosen.label}: {_times(chosen, own)} times the width of the file's "
        f"{_rule(own)}; {100 * share_outside:.0f} % of records are outside, "
        "which costs width, never calibration"
    )


def of_outside(chosen: Design, designs: Sequence[Design]) -> str | None:
    """Say why clamp or truncate, and why with or without a count; None where bounds leave nothing outside."""
    if chosen.measurement.model.natural_bounds is not None:
        return None
    own = tell_outside(chosen.outside, chosen.inside_count)
    others = [d for d in designs if d.bounds == chosen.bounds and tell_outside(d.outside, d.inside_count) != own]
    if not others:
        return f"{own}: nothing else can be had with these bounds"
    told = []
    for other in others:
        is_clear = is_wider(other, chosen, CLEAR) or is_wider(chosen, other, CLEAR)
        doubt = "" if is_clear else ", no clear difference"
        told.append(f"{tell_outside(other.outside, other.inside_count)} has {_times(other, chosen)} times the width{doubt}")
    return f"{own}: with these bounds {'; '.join(told)}"


def _rule(design: Design) -> str:
    return tell(design.bounds, design.outside, design.inside_count)


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
