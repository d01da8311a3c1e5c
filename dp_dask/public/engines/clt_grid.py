"""clt_grid: two sums by the central limit theorem, their noise exactly, for larger n.

S is taken as normal with the exact mean and covariance of n contributions; its noise is integrated out
(``public.normal_laplace_2d``, ``public.normal_gaussian_2d``) and the posterior tabulated on cells: no latent variable, no chain.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.errors import InferenceError
from dp_dask.public import grid, normal_gaussian_2d, normal_laplace_2d, plane, private_count_2d, zoom
from dp_dask.public.engines import CHAINS, Inference, first_guide
from dp_dask.public.joint import JointObservation
from dp_dask.public.modes import Box
from dp_dask.public.noise_law import Gaussian

__all__ = ["Tabulated", "error_estimate", "log_likelihood", "plugin", "tabulated"]

Floats = NDArray[np.float64]
Tabulated = grid.GridPosterior | plane.PlanePosterior
ROOM = 0.08  # beyond the prior's extreme quantiles: coarse cells at the border must lie where the density has fallen
PROBES = (0.05, 0.25, 0.5, 0.75, 0.95)  # posterior quantiles at which the error is estimated
NARROWEST = 1e-7  # of the prior's range, what the bounds take up of it
STARTS = 400  # prior draws among which the walks to the modes begin
# E|He_3(z)| / 2 and E|He_4(z)| / 2: a skewness of s moves s / 6 times the first of a normal law's probability, an excess kurtosis
# of k moves k / 24 times the second.
OF_SKEWNESS, OF_KURTOSIS = 0.75, 1.4


def clt_grid(rng: np.random.Generator, observation: JointObservation, prior: Any, n_draws: int) -> Inference:
    """Draw independently from the tabulated posterior; raises InferenceError for more than two sums or parameters."""
    posterior = tabulated(rng, observation, prior)
    return from_tabulated(rng, observation, prior, posterior, n_draws, reason="asked for")


def tabulated(rng: np.random.Generator, observation: JointObservation, prior: Any) -> Tabulated:
    """Tabulate the posterior under the normal approximation of S."""
    n_parameters = len(observation.model.parameters)
    if len(observation.y) != 2 or n_parameters > 2:  # noqa: PLR2004
        msg = f"engine clt_grid serves two sums and one or two parameters, not {len(observation.y)} and {n_parameters}: use auto"
        raise InferenceError(msg)
    if n_parameters == 1:
        cells = zoom.find_cells(prior, first_guide(observation))
        return grid.tabulate(prior, lambda theta: log_likelihood(observation, theta[:, None]), cells)

    def density(v: Floats) -> Floats:
        return np.asarray(prior.log_density(v) + log_likelihood(observation, prior.parameter(v)))

    low, high = prior.coordinate_box().T
    room = ROOM * (high - low)
    return plane.tabulate(density, Box(low - room, high + room), _starts(rng, observation, prior))


def _starts(rng: np.random.Generator, observation: JointObservation, prior: Any) -> Floats:
    """Return coordinates drawn from the prior, and as many whose locations lie about the bounds.

    Records of locations far outside the bounds all fall on one side; a wide prior may have no draw where the release tells of
    the parameters. Raises InferenceError where that place is lost in the digits of the prior's range.
    """
    bounds, model = observation.statistic.bounds, observation.model
    ends = np.array([bounds.lower, bounds.upper])
    if model.spacing == "octave":
        ends = np.log(ends)
    theta = prior.rvs(rng, STARTS)
    near = theta.copy()
    for j, domain in enumerate(model.domains):
        if domain == "real":
            near[:, j] = ends[0] + (ends[1] - ends[0]) * (2 * rng.random(STARTS) - 0.5)
            between = np.tile(theta[:1], (2, 1))
            between[:, j] = ends
            wide = float(np.ptp(prior.coordinate_box()[j]))
            if np.ptp(prior.coordinate(between)[:, j]) < NARROWEST * wide:
                msg = (
                    f"the prior of {model.parameters[j]} is more than {1 / NARROWEST:.0e} times as wide as the bounds, where the "
                    "release can tell of it; infer with a narrower prior"
                )
                raise InferenceError(msg)
    return np.asarray(prior.coordinate(np.concatenate([near, theta])))


def from_tabulated(
    rng: np.random.Generator, observation: JointObservation, prior: Any, posterior: Tabulated, n_draws: int, *, reason: str
) -> Inference:
    """Draw independently from the tabulated posterior."""
    drawn = posterior.draw(rng, CHAINS * -(-n_draws // CHAINS))
    is_scalar = isinstance(posterior, grid.GridPosterior)
    theta = drawn[:, None] if is_scalar else prior.parameter(drawn)
    # One parameter's posterior may have several modes, of which the median shows none.
    probes = np.quantile(theta, PROBES if is_scalar else [0.5], axis=0)
    return Inference(
        engine="clt_grid",
        reason=reason,
        draws=theta.reshape(CHAINS, -1, theta.shape[1]),
        error=float(np.mean([error_estimate(observation, probe[None]) for probe in probes])),
        grid=posterior,
    )


def log_likelihood(observation: JointObservation, theta: Floats) -> Floats:
    """Return log p(y | theta) [k] of parameters [k, p], S normal, up to a constant."""
    if observation.n == 0:
        return np.zeros(len(theta))
    mean, covariance = observation.moments(theta)
    y, scale = np.array(observation.y, dtype=np.float64), observation.scale
    with_noise = normal_gaussian_2d if observation.law is Gaussian else normal_laplace_2d
    if observation.n is not None:
        return with_noise.log_density(y, observation.n * mean, observation.n * covariance, scale)
    weight, count = observation.statistic.count_weight, observation.count or 0
    of_count = normal_gaussian_2d if observation.law is Gaussian else private_count_2d
    return of_count.log_density_private(y, count, weight, mean, covariance, scale, observation.expected_n)


def error_estimate(observation: JointObservation, theta: Floats) -> float:
    """Estimate the total variation between the normal law of y and the true one, by the first Edgeworth terms of each sum.

    With cumulants k3 and k4 of one contribution and noise of variance u, y has skewness n k3 / (n var + u)^(3/2), excess
    kurtosis n k4 / (n var + u)^2 beside the noise's own. What counts is how many records lie strictly inside the bounds, not
    n, and the cumulants know it.
    """
    rows = observation.statistic.rows.astype(np.float64)
    inside, outside = observation.probabilities(theta)
    p = np.append(inside[0], outside[0])
    values = np.hstack([rows, np.zeros((len(rows), 1))])
    d = values - (values @ p)[:, None]
    n = max(observation.n_guess, 1.0)
    variance = d * d @ p
    spread = n * variance + observation.noise.continuous_variance
    skewness = n * (d**3 @ p) / spread**1.5
    kurtosis = n * (d**4 @ p - 3 * variance**2) / spread**2
    return float(min(np.sum(OF_SKEWNESS / 6 * np.abs(skewness) + OF_KURTOSIS / 24 * np.abs(kurtosis)), 1.0))


plugin = clt_grid
