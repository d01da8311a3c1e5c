"""Posterior: draws of one measurement's parameter, their summary, and the ArviZ file of a run."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dp_dask.core.priors import Prior
from dp_dask.core.release import Release
from dp_dask.public.engines import Inference

__all__ = ["INTERVAL", "Posterior", "Summary", "datatree", "seed", "summarise", "write_netcdf"]

INTERVAL = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """What a release says about a model's parameter."""

    measurement: str
    model: str
    parameter: str
    prior: Prior
    release: Release
    inference: Inference

    @property
    def variable(self) -> str:
        """The name of the parameter in the ArviZ file."""
        return f"{self.measurement}.{self.parameter}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Mean, sd, the equal-tailed 90 % interval and the diagnostics of one posterior."""

    measurement: str
    model: str
    parameter: str
    mean: float
    sd: float
    lower: float
    upper: float
    ess: float
    r_hat: float
    prior_mean: float
    prior_sd: float
    engine: str
    reason: str
    error: float | None


def seed(release: Release, measurement: str) -> np.random.SeedSequence:
    """Return the seed of an inference, so that it can be repeated: the release's public, random id and the measurement's name."""
    return np.random.SeedSequence([int(release.id, 16), *measurement.encode()])


def summarise(posterior: Posterior) -> Summary:
    """Summarise the draws; ESS (bulk) and R-hat by ArviZ."""
    from arviz_stats.base import array_stats  # noqa: PLC0415  (a second of imports)

    draws = posterior.inference.draws
    tail = (1 - INTERVAL) / 2
    lower, upper = np.quantile(draws, [tail, 1 - tail])
    axes = {"chain_axis": 0, "draw_axis": 1}
    return Summary(
        measurement=posterior.measurement,
        model=posterior.model,
        parameter=posterior.parameter,
        mean=float(draws.mean()),
        sd=float(draws.std(ddof=1)),
        lower=float(lower),
        upper=float(upper),
        ess=float(array_stats.ess(draws, method="bulk", **axes)),
        r_hat=float(array_stats.rhat(draws, **axes)),
        prior_mean=posterior.prior.mean,
        prior_sd=posterior.prior.sd,
        engine=posterior.inference.engine,
        reason=posterior.inference.reason,
        error=posterior.inference.error,
    )


def datatree(posteriors: Sequence[Posterior]) -> Any:
    """Return an ArviZ DataTree: groups posterior, prior and observed_data (the noisy sums, in grid units)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from arviz_base import from_dict  # noqa: PLC0415  (half a second of imports)

    shape = posteriors[0].inference.draws.shape
    prior = {
        p.variable: p.prior.rvs(np.random.default_rng(seed(p.release, p.measurement).spawn(1)[0]), shape[0] * shape[1]).reshape(
            shape
        )
        for p in posteriors
    }
    observed = {p.measurement: np.array(float(p.release.noisy_sum)) for p in posteriors}
    return from_dict(
        {"posterior": {p.variable: p.inference.draws for p in posteriors}, "prior": prior, "observed_data": observed},
        attrs={"posterior": {p.measurement: f"epsilon {p.release.request.epsilon}, {p.inference.engine}" for p in posteriors}},
    )


def write_netcdf(posteriors: Sequence[Posterior], path: Path) -> None:
    """Write the tree as netCDF 4; ``xarray.open_datatree`` reads it."""
    datatree(posteriors).to_netcdf(path, engine="h5netcdf")
