"""Posterior: draws of one measurement's parameter, their summary, and the ArviZ file of a run."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.release import Release
from dp_dask.public.diagnostics import diagnose
from dp_dask.public.engines import Inference
from dp_dask.public.observe import AnyObservation

__all__ = ["INTERVAL", "Posterior", "Summary", "datatree", "prior_draws", "seed", "summarise", "write_netcdf"]

Floats = NDArray[np.float64]
INTERVAL = 0.9
MOST_DIAGNOSED = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """What a release says about a model's parameters."""

    measurement: str
    model: str
    parameters: tuple[str, ...]
    prior: Any
    release: Release
    observation: AnyObservation
    inference: Inference

    def variables(self) -> dict[str, Floats]:
        """Return each parameter's draws [chain, draw] by its name in the ArviZ file."""
        draws = self.inference.draws
        return {f"{self.measurement}.{name}": draws[:, :, j] for j, name in enumerate(self.parameters)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Mean, sd, the equal-tailed 90 % interval and the diagnostics of one parameter and of its measurement's release.

    What ``public.diagnostics`` says of the release is the same for all parameters of a measurement.
    """

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
    noise_ratio: tuple[float, ...]
    noise_share: float | None
    bounds_share: float | None
    prior_p: float | None
    posterior_p: float | None
    warnings: tuple[str, ...]


def seed(release: Release, measurement: str) -> np.random.SeedSequence:
    """Return the seed of an inference, so that it can be repeated: the release's public, random id and the measurement's name."""
    return np.random.SeedSequence([int(release.id, 16), *measurement.encode()])


def summarise(posterior: Posterior) -> list[Summary]:
    """Summarise each parameter's draws; ESS (bulk) and R-hat by ArviZ, of the first 200 parameters."""
    from arviz_stats.base import array_stats  # noqa: PLC0415  (a second of imports)

    draws = posterior.inference.draws
    rng = np.random.default_rng(seed(posterior.release, posterior.measurement).spawn(3)[2])
    found = diagnose(rng, posterior.observation, posterior.prior, posterior.inference)
    warned = found.warnings(posterior.model, posterior.prior, posterior.observation)
    tail = (1 - INTERVAL) / 2
    lower, upper = np.quantile(draws, [tail, 1 - tail], axis=(0, 1))
    mean, sd = draws.mean(axis=(0, 1)), draws.reshape(-1, draws.shape[2]).std(axis=0, ddof=1)
    axes = {"chain_axis": 0, "draw_axis": 1}
    ess, r_hat = np.full(len(mean), np.nan), np.full(len(mean), np.nan)
    ess[:MOST_DIAGNOSED] = array_stats.ess(draws[:, :, :MOST_DIAGNOSED], method="bulk", **axes)
    r_hat[:MOST_DIAGNOSED] = array_stats.rhat(draws[:, :, :MOST_DIAGNOSED], **axes)
    prior_mean, prior_sd = np.atleast_1d(posterior.prior.mean), np.atleast_1d(posterior.prior.sd)
    return [
        Summary(
            measurement=posterior.measurement,
            model=posterior.model,
            parameter=name,
            mean=float(mean[j]),
            sd=float(sd[j]),
            lower=float(lower[j]),
            upper=float(upper[j]),
            ess=float(ess[j]),
            r_hat=float(r_hat[j]),
            prior_mean=float(prior_mean[j]),
            prior_sd=float(prior_sd[j]),
            engine=posterior.inference.engine,
            reason=posterior.inference.reason,
            error=posterior.inference.error,
            noise_ratio=found.noise_ratio,
            noise_share=found.noise_share[j] if found.noise_share else None,
            bounds_share=found.bounds_share[j] if found.bounds_share else None,
            prior_p=found.prior_p,
            posterior_p=found.posterior_p,
            warnings=warned,
        )
        for j, name in enumerate(posterior.parameters)
    ]


def prior_draws(posterior: Posterior) -> dict[str, Floats]:
    """Draw from the prior, as many times as from the posterior, by the names of ``Posterior.variables``."""
    n_chains, n_draws, _ = posterior.inference.draws.shape
    rng = np.random.default_rng(seed(posterior.release, posterior.measurement).spawn(1)[0])
    draws = posterior.prior.rvs(rng, n_chains * n_draws).reshape(n_chains, n_draws, -1)
    return {name: draws[:, :, j] for j, name in enumerate(posterior.variables())}


def datatree(posteriors: Sequence[Posterior], records: Mapping[str, Floats] | None = None) -> Any:
    """Return an ArviZ DataTree: groups posterior, prior and observed_data (the noisy sums, in grid units).

    Parameters such as p[a], p[b] are one variable with a coordinate of labels. ``records``, new records [chain, draw] by name,
    become the group posterior_predictive.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from arviz_base import from_dict  # noqa: PLC0415  (half a second of imports)

    dims: dict[str, list[str]] = {}
    coords: dict[str, list[str]] = {}
    groups: dict[str, dict[str, Floats]] = {"posterior": {}, "prior": {}, "observed_data": {}}
    for p in posteriors:
        groups["posterior"] |= _stacked(p.variables(), dims, coords)
        groups["prior"] |= _stacked(prior_draws(p), dims, coords)
        groups["observed_data"][p.measurement] = np.array(p.release.noisy_sums, dtype=np.float64)
    if records:
        groups["posterior_predictive"] = _stacked(records, dims, coords)
    return from_dict(
        groups,
        dims=dims,
        coords=coords,
        attrs={"posterior": {p.measurement: f"{p.release.request.loss}, {p.inference.engine}" for p in posteriors}},
    )


def _stacked(variables: Mapping[str, Floats], dims: dict[str, list[str]], coords: dict[str, list[str]]) -> dict[str, Floats]:
    """Stack variables such as p[a], p[b] into one, and enter its dimension and labels; one without a bracket stays as it is."""
    found: dict[str, list[str]] = {}
    for name in variables:
        base, bracket, label = name.partition("[")
        found.setdefault(base, []).extend([label.removesuffix("]")] if bracket else [])
    stacked = {}
    for base, labels in found.items():
        if not labels:
            stacked[base] = variables[base]
            continue
        stacked[base] = np.stack([variables[f"{base}[{label}]"] for label in labels], axis=-1)
        dims[base], coords[f"{base}_of"] = [f"{base}_of"], labels
    return stacked


def write_netcdf(posteriors: Sequence[Posterior], path: Path, records: Mapping[str, Floats] | None = None) -> None:
    """Write the tree as netCDF 4; ``xarray.open_datatree`` reads it. Raises OSError where the disk is full."""
    # Made in memory first: on a full disk HDF5 itself would end the process, or keep the file open for ever.
    path.write_bytes(datatree(posteriors, records).to_netcdf(engine="h5netcdf"))
