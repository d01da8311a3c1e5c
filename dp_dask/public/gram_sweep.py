"""One sweep of the chains: the noise's variances given the parameters, and the parameters given those."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp_dask.public.gram_likelihood import Releases, State, log_likelihood
from dp_dask.public.gram_linear import Linear, conditional
from dp_dask.public.noise_law import Laplace

__all__ = ["Chains", "Chart", "sweep"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
CLOSEST = 1e-8  # |noise| / scale: nearer, omega is as good as drawn from its law at 0
DEGREES = 8.0  # of freedom of the t laws
BLOCK_SIZE = 5  # coordinates: one ellipse through 27 turns by a few degrees only
MOST_SHRINKS = 200  # by then the bracket holds nothing but the place where the chain is


class Chart(NamedTuple):
    """Coordinates x of phi, and log |d phi / d x| as a function of phi."""

    forward: Callable[[Floats], Floats]
    back: Callable[[Floats], Floats]
    log_volume: Callable[[Floats], Floats]


class Chains(NamedTuple):
    """Where every chain is: phi [k, P], its state, omega [k, K] in units of the noise's scale's square."""

    phi: Floats
    state: State
    omega: Floats


def sweep(
    rng: np.random.Generator, those: Releases, charts: tuple[Chart, ...], linears: list[Linear], of: Indices, at: Chains
) -> Chains:
    """For each chart, draw omega given the parameters, then the parameters given omega; chain k is of the release ``of[k]``.

    Under Gaussian noise omega is known and stays.
    """
    y = those.y[of]
    for chart, linear in zip(charts, linears, strict=True):
        # 1 / omega | noise ~ InverseGaussian(1 / |noise|, 1) where the noise's scale is 1
        if those.law is Laplace:
            noise = _noise(rng, y, at)
            at = at._replace(omega=1 / rng.wald(1 / np.maximum(np.abs(noise), CLOSEST), 1.0))
        at = _slice(rng, those, chart, linear, of, y, at)
    return at


def _noise(rng: np.random.Generator, y: Floats, at: Chains) -> Floats:
    """Draw y - S given theta and omega: S and the noise from their own laws, then corrected so that they add up to y."""
    state, omega = at.state, at.omega
    root = np.linalg.cholesky(state.covariance)
    s = state.mean + (root @ rng.standard_normal((*omega.shape, 1)))[:, :, 0]
    noise = np.sqrt(omega) * rng.standard_normal(omega.shape)
    total = state.covariance + omega[:, None, :] * np.eye(y.shape[1])
    return noise + omega * np.linalg.solve(total, (y - s - noise)[:, :, None])[:, :, 0]


def _slice(rng: np.random.Generator, those: Releases, chart: Chart, linear: Linear, of: Indices, y: Floats, at: Chains) -> Chains:
    """Update the coordinates by elliptical slice sampling about the linear model's conditional (Murray, Adams & MacKay 2010).

    In its whitened coordinates z the target is a product of t laws times exp(height), height nearly constant (Nishihara, Murray &
    Adams 2014; about a normal law, chains in a prior's exponential tail stay there). Each block of coordinates moves on an
    ellipse of its own, which reaches further than one ellipse through all.
    """
    near = conditional(linear, y, at.omega, of)
    z = near.whiten(chart.forward(at.phi))
    phi, state = at.phi.copy(), State(*(each.copy() for each in at.state))

    def height(z: Floats, phi: Floats, state: State, rows: Indices) -> Floats:
        log_target = state.log_prior + chart.log_volume(phi) + log_likelihood(state, y[rows], at.omega[rows])
        return log_target + (DEGREES + 1) / 2 * np.log1p(z * z / DEGREES).sum(axis=1)

    here = height(z, phi, state, np.arange(len(z)))
    # z_j | s_j ~ N(0, s_j) is t where 1 / s_j is gamma: drawn given z, then held
    spread = np.sqrt((DEGREES + z * z) / (2 * rng.standard_gamma((DEGREES + 1) / 2, z.shape)))
    blocks = max(1, round(z.shape[1] / BLOCK_SIZE))
    block_of = rng.permutation(z.shape[1]) % blocks
    for block in range(blocks):
        start, moving = z.copy(), block_of == block
        other = spread * rng.standard_normal(z.shape)
        level = here - rng.standard_exponential(len(z))
        angle = rng.uniform(0, 2 * math.pi, len(z))
        low, high = angle - 2 * math.pi, angle.copy()
        rows = np.arange(len(z))
        for _ in range(MOST_SHRINKS):
            turn = angle[rows, None]
            there = np.where(moving, start[rows] * np.cos(turn) + other[rows] * np.sin(turn), start[rows])
            new_phi = chart.back(near.colour(there, rows))
            new = those.state(new_phi, of[rows])
            new_height = height(there, new_phi, new, rows)
            accepted = new_height > level[rows]
            done = rows[accepted]
            z[done], phi[done], here[done] = there[accepted], new_phi[accepted], new_height[accepted]
            for into, values in zip(state, new, strict=True):
                into[done] = values[accepted]
            rows = rows[~accepted]
            if len(rows) == 0:
                break
            low[rows] = np.where(angle[rows] < 0, angle[rows], low[rows])
            high[rows] = np.where(angle[rows] >= 0, angle[rows], high[rows])
            angle[rows] = rng.uniform(low[rows], high[rows])
    return Chains(phi, state, at.omega)
