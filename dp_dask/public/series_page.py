"""Series page: a scheduled question's posteriors over time as an HTML page or a JSON object, with gaps for missed slots."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from dp_dask.core.privacy import EXACT, Unit, price
from dp_dask.core.release import INSECURE, Release
from dp_dask.public.pages import figures, inline_svg, template
from dp_dask.public.posterior import INTERVAL
from dp_dask.public.report import in_words
from dp_dask.public.series import Line, Series

__all__ = ["render_series", "series_json"]

MOST_PICTURES, MOST_ROWS = 24, 400
MARGIN, LEAST_MARGIN = 0.03, 0.5  # of the width, in days
BLUE, RED, GREY = "#2b6ca3", "#a34b2b", "#9aa3b2"


def series_json(series: Series) -> dict[str, Any]:
    """Return all that the page says, in strict JSON; decimals as text."""
    return {
        "schema": "dp-dask/series/1",
        "dataset": series.dataset,
        "unit": str(series.unit),
        "slots": [
            {"slot": str(cost.slot), "loss": str(cost.loss), "total": str(cost.total), "problem": period.problem or None}
            for cost, period in zip(series.costs, series.periods, strict=True)
        ],
        "total": str(series.costs[-1].total),
        "missed": [str(slot) for slot in series.missed],
        "is_missed_known": _is_missed_known(series),
        "ledger": _ledger(series),
        "left_out": [{"folder": name, "why": why} for name, why in series.left_out],
        "lines": [
            {"measurement": line.measurement, "parameter": line.parameter, **_question(line), "points": _points(line)}
            for line in series.lines
        ],
    }


def _points(line: Line) -> list[dict[str, Any]]:
    return [
        {
            "slot": str(p.slot),
            "mean": p.mean,
            "sd": p.sd,
            "lower": p.lower,
            "upper": p.upper,
            "n": p.n,
            "follows": p.follows,
            "warnings": list(p.warnings),
        }
        for p in line.points
    ]


def _question(line: Line) -> dict[str, Any]:
    request = line.published.release.request
    return {
        "model": line.published.model,
        "known": line.published.known,
        "prior": line.published.prior,
        "protects": str(request.unit),
        "neighbours": str(request.neighbours),
        "where": None if request.where is None else str(request.where),
        "statistic": in_words(line.published.release)["what"],
    }


def _ledger(series: Series) -> dict[str, str] | None:
    """Return what the run.json that was written last told of the budget, in the budget's unit."""
    period = series.latest_told
    if period is None or period.told is None:
        return None
    told = period.told
    amounts = {"spent": str(told.spent), "granted": str(told.granted), "left": str(told.left)}
    return {"slot": str(period.slot), "unit": str(told.unit), **amounts}


def _is_missed_known(series: Series) -> bool:
    return all(period.is_scheduled for period in series.periods if period.told is not None)


def beyond(series: Series) -> Decimal | None:
    """Return what the ledger had spent beyond this page's releases, below 0 where it knows less; None where units differ."""
    period = series.latest_told
    if period is None or period.told is None:
        return None
    losses = {each.id: each.request.loss for each in series.released}.values()
    if period.told.unit is Unit.EPSILON and any(loss.unit is Unit.RHO for loss in losses):
        return None
    return EXACT.subtract(period.told.spent, price(losses, period.told.unit))


def render_series(series: Series) -> str:
    """Return the page; it holds no script and asks for nothing over the network."""
    shown = series.lines[:MOST_PICTURES]
    releases = list(series.released)
    several = {(line.measurement, line.parameter) for line in series.lines if _of(line, series.lines) > 1}
    return template("series.html").render(
        series=series,
        rows=list(zip(series.periods, series.costs, strict=True))[-MOST_ROWS:],
        lines=[
            {
                "line": line,
                "question": _question(line),
                "is_one_of_several": (line.measurement, line.parameter) in several,
                "picture": _picture(line, series),
                "points": line.points[-MOST_ROWS:],
            }
            for line in shown
        ],
        n_more=len(series.lines) - len(shown),
        most_rows=MOST_ROWS,
        unit=releases[0].request.unit,
        changed=releases[0].request.unit.in_words(releases[0].request.neighbours),
        is_insecure=any(each.sampler == INSECURE for each in releases),
        is_missed_known=_is_missed_known(series),
        has_selections=any(not isinstance(each, Release) for each in releases),
        ledger=_ledger(series),
        beyond=beyond(series),
        interval=round(100 * INTERVAL),
    )


def _of(line: Line, lines: Sequence[Line]) -> int:
    return sum((each.measurement, each.parameter) == (line.measurement, line.parameter) for each in lines)


def _picture(line: Line, series: Series) -> str:
    """Draw means and intervals over time: joined where one slot follows the other, with a grey line where one was missed."""
    import matplotlib as mpl  # noqa: PLC0415  (half a second of imports)
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    points = line.points
    mpl.rcParams["svg.hashsalt"] = f"{line.measurement} {line.parameter} {line.published.release.id}"
    figure = Figure(figsize=(6, 2.2), layout="constrained")
    axes = figure.subplots()
    times, means = [date2num(p.slot.time) for p in points], [p.mean for p in points]
    axes.vlines(times, [p.lower for p in points], [p.upper for p in points], color=BLUE, alpha=0.45, linewidth=2.5)
    for i, point in enumerate(points):
        if point.follows:
            axes.plot(times[i - 1 : i + 1], means[i - 1 : i + 1], color=BLUE, linewidth=0.8)
        axes.plot(times[i], means[i], "o", color=RED if point.warnings else BLUE, markersize=3.5)
    for slot in series.missed:
        axes.axvline(date2num(slot.time), color=GREY, linewidth=1, linestyle=":")
    first, last = (date2num(series.periods[i].slot.time) for i in (0, -1))
    margin = max(MARGIN * (last - first), LEAST_MARGIN)
    axes.set_xlim(first - margin, last + margin)
    axes.xaxis_date()
    locator = AutoDateLocator(maxticks=7)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axes.spines[["top", "right"]].set_visible(False)
    told = f"{line.parameter} of {line.measurement} from {points[0].slot} to {points[-1].slot}"
    return inline_svg(figure, f"posterior mean and interval of {told}, {figures(points[-1].mean)} at the end")
