"""Report: one self-contained HTML page that says what was asked, what is guaranteed and what was learnt."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import jinja2
import numpy as np
from numpy.typing import NDArray

from dp_dask.core.priors import Prior
from dp_dask.core.privacy import Neighbours
from dp_dask.core.release import INSECURE
from dp_dask.public.posterior import INTERVAL, Posterior, Summary
from dp_dask.public.publication import Publication

__all__ = ["Spending", "render"]

BINS = 60
LARGEST_EXPONENT = 20  # above, the factor says nothing that its exponent does not


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """The budget as the report tells it."""

    charged: Decimal  # by this run; 0 where its releases were made before
    spent: Decimal
    granted: Decimal

    @property
    def left(self) -> Decimal:
        """What can still be spent."""
        return self.granted - self.spent


def render(
    publication: Publication, posteriors: Sequence[Posterior], summaries: Sequence[Summary], spending: Spending | None
) -> str:
    """Return the page; it holds no script and asks for nothing over the network."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["figures"] = figures
    requests = [p.release.request for p in posteriors]
    total = sum((request.epsilon for request in {p.release.id: p.release.request for p in posteriors}.values()), Decimal(0))
    rows = [
        {
            "posterior": posterior,
            "summary": summary,
            "request": posterior.release.request,
            "noise": posterior.release.scale * posterior.release.request.statistic.grid.unit,
            "picture": picture(posterior),
        }
        for posterior, summary in zip(posteriors, summaries, strict=True)
    ]
    return environment.get_template("report.html").render(
        publication=publication,
        rows=rows,
        created=max(p.release.created for p in posteriors),
        neighbours=requests[0].neighbours,
        n=requests[0].n,
        is_replace=requests[0].neighbours is Neighbours.REPLACE,
        epsilon=total,
        odds=math.exp(total) if total < LARGEST_EXPONENT else None,
        is_insecure=any(p.release.sampler == INSECURE for p in posteriors),
        interval=round(100 * INTERVAL),
        spending=spending,
    )


def figures(value: float) -> str:
    """Show a number with four significant figures."""
    return f"{value:.4g}"


def picture(posterior: Posterior) -> str:
    """Draw prior and posterior densities as inline SVG."""
    import matplotlib as mpl  # noqa: PLC0415  (half a second of imports)
    from matplotlib.figure import Figure  # noqa: PLC0415

    draws = posterior.inference.draws.ravel()
    low, high = np.quantile(draws, [0.001, 0.999])
    margin = 0.5 * (high - low)
    heights, edges = np.histogram(draws, bins=BINS, range=(float(low - margin / 3), float(high + margin / 3)), density=True)
    mpl.rcParams["svg.hashsalt"] = posterior.variable + posterior.release.id  # ids unlike those of the next picture
    figure = Figure(figsize=(6, 2.6), layout="constrained")
    axes = figure.subplots()
    axes.stairs(heights, edges, fill=True, color="#2b6ca3", alpha=0.75, label="posterior")
    theta = np.linspace(low - margin, high + margin, 400)
    axes.plot(theta, _prior_density(posterior.prior, theta), color="#a34b2b", linewidth=1.6, linestyle="--", label="prior")
    axes.set_xlabel(posterior.parameter)
    axes.set_yticks([])
    axes.set_xlim(low - margin, high + margin)
    axes.spines[["left", "top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    text = buffer.getvalue()
    svg = text[text.index("<svg") :]
    label = f"prior and posterior density of {posterior.parameter}"
    return svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def _prior_density(prior: Prior, theta: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the prior density of the parameter, 0 outside its range."""
    with np.errstate(all="ignore"):
        v = prior.coordinate(theta)
        step = 1e-6 * (1 + np.abs(v))
        slope = (prior.parameter(v + step) - prior.parameter(v - step)) / (2 * step)
        density = np.exp(prior.log_density(v)) / slope
    return np.where(np.isfinite(density), density, 0.0)
