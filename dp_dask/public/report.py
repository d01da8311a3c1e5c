"""Report: one self-contained HTML page that says what was asked, what is guaranteed and what was learnt."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.bounds import Outside
from dp_dask.core.categories import CategoryCounts
from dp_dask.core.cluster_bands import ClusterBands
from dp_dask.core.gram import GramSum
from dp_dask.core.grouped import GroupedSum
from dp_dask.core.partition import edges_of, is_partition
from dp_dask.core.privacy import EXACT, Neighbours, Spent, Unit, price
from dp_dask.core.release import INSECURE, Release
from dp_dask.core.selected import Selection
from dp_dask.core.statistic import BoundedSum
from dp_dask.public.chosen import Chosen, method_of, question_in_words
from dp_dask.public.pages import figures, inline_svg, template
from dp_dask.public.posterior import INTERVAL, Posterior, Summary, prior_draws
from dp_dask.public.prediction import Prediction
from dp_dask.public.publication import Publication
from dp_dask.public.questions import Answer
from dp_dask.public.simulated import SimulatedObservation

__all__ = ["Spending", "render"]

Floats = NDArray[np.float64]
BINS = 60
MOST_LISTED, MOST_PICTURES = 8, 4
LARGEST_EXPONENT = 20  # above, the factor says nothing that its exponent does not


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """The budget as the report tells it."""

    charged: Decimal  # by this run, in the unit of what is spent; 0 where its releases were made before
    spent: Spent
    granted: Decimal

    @property
    def left(self) -> Decimal:
        """What can still be spent."""
        return EXACT.subtract(self.granted, self.spent.amount)


def render(
    publication: Publication,
    posteriors: Sequence[Posterior],
    summaries: Sequence[Summary],
    spending: Spending | None,
    answers: Sequence[Answer] = (),
    predictions: Sequence[Prediction] = (),
    others: Mapping[str, Publication] | None = None,
    chosen: Sequence[Chosen] = (),
) -> str:
    """Return the page; it holds no script and asks for nothing over the network.

    ``chosen`` are the parameters that choices among simulations accepted.
    ``others`` are further releases, by name, that answers rest on: what they lose is told besides.
    """
    released: list[Release | Selection] = [*(p.release for p in posteriors), *(one.selection for one in chosen)]
    request = released[0].request
    total = publication.total
    if total is None:
        distinct = {p.release.id: p.release.request.loss for p in posteriors}
        total = Spent(unit=Unit.EPSILON, amount=price(distinct.values(), Unit.EPSILON))
    rows = [
        {
            "posterior": posterior,
            "summaries": [s for s in summaries if s.measurement == posterior.measurement],
            "request": posterior.release.request,
            "statistic": in_words(posterior.release),
            "noise": posterior.release.mechanism.replace("discrete_laplace", "discrete Laplace").replace("_g", " G"),
            "pictures": pictures(posterior),
            "predictions": [one for one in predictions if one.measurement == posterior.measurement],
        }
        for posterior in posteriors
    ]
    return template("report.html").render(
        publication=publication,
        rows=rows,
        choices=[{"of": one, "asked": question_in_words(one.selection), "method": method_of(one.selection)} for one in chosen],
        approximate=[
            p.measurement for p in posteriors if isinstance(p.observation, SimulatedObservation) and p.inference.error != 0
        ],
        created=max(each.created for each in released),
        unit=request.unit,
        changed=request.unit.in_words(request.neighbours),
        n=request.n,
        is_replace=request.neighbours is Neighbours.REPLACE,
        total=total,
        is_pure=total.unit is Unit.EPSILON,
        odds=math.exp(total.amount) if total.unit is Unit.EPSILON and total.amount < LARGEST_EXPONENT else None,
        is_insecure=any(each.sampler == INSECURE for each in released),
        interval=round(100 * INTERVAL),
        spending=spending,
        answers=answers,
        others=others or {},
        notes=list(dict.fromkeys(answer.note for answer in answers if answer.note)),
    )


def in_words(release: Release) -> dict[str, str]:
    """Say what was summed over the records, how much noise was added and what came out."""
    statistic = release.request.statistic
    scale, sensitivity, norm = _noise(release)
    if isinstance(statistic, CategoryCounts):
        return {
            "what": f"column {statistic.column}, counts of {len(statistic.categories)} categories, other values counted nowhere",
            "noise": f"of scale {figures(scale)} on every count, {norm} {figures(sensitivity)} in all",
            "released": _listed([str(value) for value in release.noisy_sums]),
        }
    if isinstance(statistic, ClusterBands):
        periods = f", and clusters by their different values of column {statistic.period}" if statistic.period else ""
        return {
            "what": f"column {statistic.cluster}, records by their rank within its clusters{periods}",
            "noise": f"of scale {figures(scale)} on every count, {norm} {figures(sensitivity)} in all",
            "released": _listed([str(value) for value in release.noisy_sums]),
        }
    if isinstance(statistic, GramSum):
        columns = ", ".join(
            f"{name} [{figures(each.lower)}, {figures(each.upper)}]"
            for name, each in zip(statistic.columns, statistic.bounds, strict=True)
        )
        return {
            "what": f"columns {columns}, records outside are moved to the nearest bound",
            "noise": f"of scale {figures(scale)} on each sum and product, {norm} {figures(sensitivity)} in all",
            "released": _listed([str(value) for value in release.noisy_sums]),
        }
    if isinstance(statistic, GroupedSum):
        within = statistic.within
        groups = f"in each of {len(statistic.by.categories)} groups of column {statistic.by.column}"
        return {
            "what": f"column {within.column}, bounds [{figures(within.bounds.lower)}, {figures(within.bounds.upper)}], {groups}",
            "noise": f"of scale {figures(scale)} on each sum and count, {norm} {figures(sensitivity)} in all",
            "released": _listed([str(value) for value in release.noisy_sums]),
        }
    low, high = figures(statistic.bounds.lower), figures(statistic.bounds.upper)
    outside = "moved to the nearest bound" if statistic.outside is Outside.CLAMP else "left out of the sum"
    what = f"column {statistic.column}, bounds [{low}, {high}], records outside are {outside}"
    unit = statistic.units[0]
    if isinstance(statistic, BoundedSum):
        summed = f"the sum of the column less {figures(statistic.grid.origin * unit)} a record"
    elif statistic.inside_weight:
        summed = "the sum of a function of the column, tabulated in the release file, and on the weighted count of records inside"
    elif is_partition(statistic) and len(statistic.units) > 1:
        edges = [figures(edge) for edge in edges_of(statistic)]
        summed = f"the counts of records in {len(statistic.units)} bins, cut at {_listed(edges)}"
    else:
        summed = f"{len(statistic.units)} sums of functions of the column, tabulated in the release file"
    counted = ", and on the weighted count" if release.noisy_count is not None else ""
    released = f"{_listed([str(value) for value in release.noisy_sums])} in units of {figures(unit)}"
    if release.noisy_count is not None:
        released += f", noisy count {figures(release.noisy_count / statistic.count_weight)}"
    noise = f"of scale {figures(scale * unit)} on {summed}{counted} ({norm} {figures(sensitivity * unit)} in all)"
    return {"what": what, "noise": noise, "released": released}


def _noise(release: Release) -> tuple[float, float, str]:
    """Return the scale, the sensitivity in the norm that the noise is for, and what that is called."""
    if release.mechanism == "discrete_gaussian":
        return release.scale, math.sqrt(release.sensitivity), "L2 sensitivity"
    return release.scale, release.sensitivity, "sensitivity"


def _listed(values: list[str]) -> str:
    return ", ".join(values if len(values) <= MOST_LISTED else [*values[:MOST_LISTED], "..."])


def pictures(posterior: Posterior) -> list[str]:
    """Draw prior and posterior densities as inline SVG, one picture a parameter, of the first few."""
    prior = prior_draws(posterior) if len(posterior.parameters) > 1 else {}  # one parameter's density has a closed form
    shown = list(posterior.variables().items())[:MOST_PICTURES]
    return [_picture(posterior, name, draws.ravel(), prior.get(name)) for name, draws in shown]


def _picture(posterior: Posterior, name: str, draws: Floats, prior: Floats | None) -> str:
    import matplotlib as mpl  # noqa: PLC0415  (half a second of imports)
    from matplotlib.figure import Figure  # noqa: PLC0415

    low, high = np.quantile(draws, [0.001, 0.999])
    margin = 0.5 * (high - low)
    heights, edges = np.histogram(draws, bins=BINS, range=(float(low - margin / 3), float(high + margin / 3)), density=True)
    mpl.rcParams["svg.hashsalt"] = name + posterior.release.id  # ids unlike those of the next picture
    figure = Figure(figsize=(6, 2.6), layout="constrained")
    axes = figure.subplots()
    axes.stairs(heights, edges, fill=True, color="#2b6ca3", alpha=0.75, label="posterior")
    theta, density = _prior_density(posterior, prior, float(low - margin), float(high + margin))
    axes.plot(theta, density, color="#a34b2b", linewidth=1.6, linestyle="--", label="prior")
    parameter = name.removeprefix(f"{posterior.measurement}.")
    axes.set_xlabel(parameter)
    axes.set_yticks([])
    axes.set_xlim(low - margin, high + margin)
    axes.spines[["left", "top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return inline_svg(figure, f"prior and posterior density of {parameter}")


def _prior_density(posterior: Posterior, draws: Floats | None, low: float, high: float) -> tuple[Floats, Floats]:
    """Return the prior density over the picture's range: as a histogram of draws where there are some, else in closed form."""
    prior = posterior.prior
    if draws is not None:
        heights, edges = np.histogram(draws, bins=BINS, range=(low, high))
        return (edges[:-1] + edges[1:]) / 2, heights / (draws.size * (edges[1] - edges[0]))
    theta = np.linspace(low, high, 400)
    with np.errstate(all="ignore"):
        v = prior.coordinate(theta)
        step = 1e-6 * (1 + np.abs(v))
        slope = (prior.parameter(v + step) - prior.parameter(v - step)) / (2 * step)
        density = np.exp(prior.log_density(v)) / slope
    return theta, np.where(np.isfinite(density), density, 0.0)
