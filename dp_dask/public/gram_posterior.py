"""Draws from p(m, V | release): many chains at once, whose proposals follow a linearisation that the draws themselves give.

Laplace noise is a scale mixture, noise_j | omega_j ~ N(0, omega_j), and Gaussian noise one of a single, known omega, so that
given omega the release is normal with S summed out: y ~ N(n mu(theta), n Sigma(theta) + omega). A sweep draws S and
omega | theta, then theta | omega against that same likelihood. It never updates theta as if the normal S were data, which is
fast and not calibrated (Bernstein & Sheldon 2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.wishart import NormalInverseWishart
from dp_dask.errors import InferenceError
from dp_dask.public.gram_likelihood import GramObservation, Releases, State, releases
from dp_dask.public.gram_linear import Linear, conditional, linearise
from dp_dask.public.gram_sweep import Chains, Chart, sweep

__all__ = ["CHAINS", "GramDraws", "draw_posteriors"]

Floats = NDArray[np.float64]
CHAINS = 64
CLOUD = 512
MOST_STEPS, CLOSE = 20, 0.15  # of the cloud; it has arrived when it moves by less, in its own standard deviations
ROUNDS, ROUND = 4, 24  # of the warm-up, and the sweeps of each
LEAST_ESS = 400.0  # of every coordinate; or a quarter of the draws, where that is less
MOST_SWEEPS = 2**10
MOST_LATE = 4096  # draws of a release that a linearisation is made of


@dataclass(frozen=True, slots=True, kw_only=True)
class GramDraws:
    """Draws on the scale on which the bounds are -1 and 1: m [chain, draw, c], V [chain, draw, c, c], n [chain, draw].

    ``ess`` is the smallest effective sample size and ``r_hat`` the largest R-hat over all coordinates.
    """

    m: Floats
    v: Floats
    n: Floats
    ess: float
    r_hat: float


def draw_posteriors(
    rng: np.random.Generator,
    observations: Sequence[GramObservation],
    prior: NormalInverseWishart,
    n_draws: int,
    *,
    chains: int = CHAINS,
) -> list[GramDraws]:
    """Draw at least ``n_draws`` from p(m, V, n | release) for every release, all chains of all releases as one batch.

    Raises InferenceError where the releases do not fit each other or the prior, or chains do not mix.
    """
    those = releases(observations, prior)
    charts = _charts(prior)
    of = np.repeat(np.arange(len(observations)), chains)
    prior_draws = those.prior_draws(rng, 8 * CLOUD)
    at, linears = _warm_up(rng, those, charts, of, prior_draws)
    wanted, thin = -(-n_draws // chains), 1
    while True:
        kept: list[Floats] = []
        for _ in range(wanted):
            for _ in range(thin):
                at = sweep(rng, those, charts, linears, of, at)
            kept.append(at.phi)
        x = np.stack(kept, axis=1).reshape(len(observations), chains, wanted, -1)
        ess, r_hat = _mixing(x)
        if ess.min() >= min(LEAST_ESS, chains * wanted / 4):
            break
        if 2 * thin * wanted > MOST_SWEEPS:
            msg = (
                f"{chains} chains of {thin * wanted} sweeps have an effective sample size of {ess.min():.0f}, less than "
                f"{LEAST_ESS:.0f}; a narrower prior makes the posterior easier to explore"
            )
            raise InferenceError(msg)
        # These draws were a longer warm-up: start again from their end, with their linearisation, twice as long.
        late = x[:, :, wanted // 2 :].reshape(len(observations), -1, x.shape[3])[:, -MOST_LATE:]
        state = those.state(late.reshape(-1, x.shape[3]), np.repeat(np.arange(len(observations)), late.shape[1]))
        linears, thin = _linearise(late, state, charts, prior_draws), 2 * thin
    return [_draws(those, x[r], r, float(ess[r]), float(r_hat[r])) for r in range(len(observations))]


def _charts(prior: NormalInverseWishart) -> tuple[Chart, ...]:
    """Return the prior's coordinates, round where the noise hides the data, and centred ones, round where it does not."""
    c, size = len(prior.m0), prior.size

    def centred(phi: Floats) -> Floats:
        return np.concatenate([prior.centred(phi[:, :size]), phi[:, size:]], axis=1)

    def uncentred(x: Floats) -> Floats:
        return np.concatenate([prior.uncentred(x[:, :size]), x[:, size:]], axis=1)

    return (
        Chart(lambda phi: phi, lambda x: x, lambda phi: np.zeros(len(phi))),
        Chart(centred, uncentred, lambda phi: phi[:, c : 2 * c].sum(axis=1)),
    )


def _warm_up(
    rng: np.random.Generator, those: Releases, charts: tuple[Chart, ...], of: NDArray[np.int64], prior_draws: Floats
) -> tuple[Chains, list[Linear]]:
    """Move clouds of prior draws to the posteriors by repeated linearisation; let chains run from there and refine that."""
    count = len(those.y)
    everyone, members = np.arange(count), np.repeat(np.arange(count), CLOUD)
    cloud = np.broadcast_to(prior_draws[:CLOUD], (count, CLOUD, prior_draws.shape[1]))
    for _ in range(MOST_STEPS):
        linear = linearise(cloud, those.state(cloud.reshape(len(members), -1), members), prior_draws)
        near = conditional(linear, those.y, np.full_like(those.y, those.omega), everyone)
        before = cloud
        cloud = near.mean[:, None] + rng.standard_normal(cloud.shape) @ near.root.transpose(0, 2, 1)
        cloud = those.folded(cloud.reshape(len(members), -1), members).reshape(cloud.shape)
        sd = cloud.std(axis=1)
        shift = np.abs(cloud.mean(axis=1) - before.mean(axis=1)) + np.abs(before.std(axis=1) - sd)
        if (shift < CLOSE * sd).all():
            break
    state = those.state(cloud.reshape(len(members), -1), members)
    linears = _linearise(cloud, state, charts, prior_draws)
    phi = cloud[:, : len(of) // count].reshape(len(of), -1)
    at = Chains(phi, those.state(phi, of), np.full((len(of), those.y.shape[1]), those.omega))
    for _ in range(ROUNDS):
        visited = []
        for _ in range(ROUND):
            at = sweep(rng, those, charts, linears, of, at)
            visited.append(at)
        late = visited[ROUND // 3 :]
        seen: Floats = np.stack([each.phi for each in late], axis=1).reshape(count, -1, at.phi.shape[1])
        state = State(
            np.stack([each.state.log_prior for each in late], axis=1).ravel(),
            np.stack([each.state.mean for each in late], axis=1).reshape(-1, those.y.shape[1]),
            np.stack([each.state.covariance for each in late], axis=1).reshape(-1, *at.state.covariance.shape[1:]),
        )
        linears = _linearise(seen, state, charts, prior_draws)
    return at, linears


def _linearise(phi: Floats, state: State, charts: tuple[Chart, ...], prior_draws: Floats) -> list[Linear]:
    """Linearise in every chart, at phi [release, k, P]."""
    flat = phi.reshape(-1, phi.shape[2])
    return [linearise(chart.forward(flat).reshape(phi.shape), state, chart.forward(prior_draws)) for chart in charts]


def _mixing(x: Floats) -> tuple[Floats, Floats]:
    """Return the smallest effective sample size and the largest R-hat [release] of x [release, chain, draw, P].

    Both from the variance of the chains' means, as in Gelman & Rubin (1992): with many chains it is well known.
    """
    _, k, draws, _ = x.shape
    within = x.var(axis=2, ddof=1).mean(axis=1)
    between = x.mean(axis=2).var(axis=1, ddof=1)
    variance = within * (draws - 1) / draws + between
    return (k * variance / between).min(axis=1), np.sqrt((variance / within).max(axis=1))


def _draws(those: Releases, x: Floats, release: int, ess: float, r_hat: float) -> GramDraws:
    shape, c = x.shape[:2], len(those.prior.m0)
    flat = x.reshape(-1, x.shape[-1])
    m, v = those.prior.parameters(flat[:, : those.prior.size])
    n = those.numbers(flat, np.full(len(flat), release))
    return GramDraws(m=m.reshape(*shape, c), v=v.reshape(*shape, c, c), n=n.reshape(shape), ess=ess, r_hat=r_hat)
