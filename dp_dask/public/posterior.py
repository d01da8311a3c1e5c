"""Posterior: draws of one measurement's parameter, their summary, and the ArviZ file of a run."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.release import Release
from dp_dask.public.engines import Inference

__all__ = ["INTERVAL", "Posterior", "Summary", "datatree", "prior_draws", "seed", "summarise", "write_netcdf"]

Floats = NDArray[np.float64]
INTERVAL = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """What a release says about a model's parameters."""

    measurement: str
    model: str
    parameters: tuple[str, ...]
    prior: Any
    release: Release
    inference: Inference

    def variables(self) -> dict[str, Floats]:
        """Return each parameter's draws [chain, draw] by its name in the ArviZ file."""
        draws = self.inference.draws
        return {f"{self.measurement}.{name}": draws[:, :, j] for j, name in enumerate(self.parameters)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Mean, sd, the equal-tailed 90 % interval and the diagnostics of one parameter."""

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


def summarise(posterior: Posterior) -> list[Summary]:
    """Summarise each parameter's draws; ESS (bulk) and R-hat by ArviZ."""
    from arviz_stats.base import array_stats  # noqa: PLC0415  (a second of imports)

    tail = (1 - INTERVAL) / 2
    axes = {"chain_axis": 0, "draw_axis": 1}
    prior_mean, prior_sd = np.atleast_1d(posterior.prior.mean), np.atleast_1d(posterior.prior.sd)
    summaries = []
    for j, (name, draws) in enumerate(zip(posterior.parameters, posterior.variables().values(), strict=True)):
        lower, upper = np.quantile(draws, [tail, 1 - tail])
        summaries.append(
            Summary(
                measurement=posterior.measurement,
                model=posterior.model,
                parameter=name,
                mean=float(draws.mean()),
                sd=float(draws.std(ddof=1)),
                lower=float(lower),
                upper=float(upper),
                ess=float(array_stats.ess(draws, method="bulk", **axes)),
                r_hat=float(array_stats.rhat(draws, **axes)),
                prior_mean=float(prior_mean[j]),
                prior_sd=float(prior_sd[j]),
                engine=posterior.inference.engine,
                reason=posterior.inference.reason,
                error=posterior.inference.error,
            )
        )
    return summaries


def prior_draws(posterior: Posterior) -> dict[str, Floats]:
    """Draw from the prior, as many times as from the posterior, by the names of ``Posterior.variables``."""
    n_chains, n_draws, _ = posterior.inference.draws.shape
    rng = np.random.default_rng(seed(posterior.release, posterior.measurement).spawn(1)[0])
    draws = posterior.prior.rvs(rng, n_chains * n_draws).reshape(n_chains, n_draws, -1)
    return {name: draws[:, :, j] for j, name in enumerate(posterior.variables())}


def datatree(posteriors: Sequence[Posterior]) -> Any:
    """Return an ArviZ DataTree: groups posterior, prior and observed_data (the noisy sums, in grid units)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from arviz_base import from_dict  # noqa: PLC0415  (half a second of imports)

    drawn: dict[str, Floats] = {}
    prior: dict[str, Floats] = {}
    for p in posteriors:
        drawn |= p.variables()
        prior |= prior_draws(p)
    observed = {p.measurement: np.array(p.release.noisy_sums, dtype=np.float64) for p in posteriors}
    return from_dict(
        {"posterior": drawn, "prior": prior, "observed_data": observed},
        attrs={"posterior": {p.measurement: f"epsilon {p.release.request.epsilon}, {p.inference.engine}" for p in posteriors}},
    )


def write_netcdf(posteriors: Sequence[Posterior], path: Path) -> None:
    """Write the tree as netCDF 4; ``xarray.open_datatree`` reads it."""
    datatree(posteriors).to_netcdf(path, engine="h5netcdf")
