"""Select: which c of all distances are the smallest, in one go, each moved by noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.distances import FAILED, FARTHEST
from dp_dask.core.privacy import Unit
from dp_dask.core.selection import TopC
from dp_dask.core.sensitive import Sensitive, reveal
from dp_dask.errors import ConfigError
from dp_dask.gate.noise import Noise, NoiseScale, draw_geometric, gumbel_scale, laplace_scale
from dp_dask.gate.sparse_vector import MAX_SCALE, check_distances

__all__ = ["TopC", "select", "selection_scale", "smallest"]

Ints = NDArray[np.int64]


def selection_scale(spec: TopC) -> NoiseScale:
    """Return the noise scale of a selection and its privacy loss, epsilon or rho at most.

    Setting: integer distances q_t, each at most D apart between neighbours; G_t independent geometric variables,
    P(g) in proportion to exp(-g / s) on g = 0, 1, ..; the c indices with the smallest q_t - G_t are told, of equal ones the
    lower index first.

    Theorem: they, in order, are (2 c D / s)-differentially private. (For c = 1 and noise on the reals it is permute-and-flip:
    McKenna & Sheldon 2020, Ding et al. 2021. Choosing c in one go: Qiao, Su & Zhang 2021.)
    Proof: let q, q' be neighbours' distances. Fix the winners in order and map the noise g to g' by g_i' = g_i + q_i' - q_i + D
    for the winners i and g_j' = g_j for the others. Then g_i <= g_i' <= g_i + 2 D, so that g' is noise that can be drawn, and
    P(g) <= exp(2 D / s) P(g') in each of the c places that changed. On q' every winner has q_i' - g_i' = q_i - g_i - D: their
    order among each other stays. Every other has q_j' - g_j >= q_j - g_j - D, so that it stays behind each winner, ties by index
    included. The map is one-to-one, hence the probability of these winners on q is at most exp(2 c D / s) times that on q'.
    Which simulations failed is the same for q and q', and they take no part.

    Hence s = 2 c D / epsilon. For a rho see ``gumbel_scale``. Raises ConfigError where the scale is above 2^49 grid units.
    """
    if spec.nominal_scale > MAX_SCALE:
        msg = (
            f"c {spec.c}, sensitivity {spec.sensitivity} and {spec.loss} need noise beyond 2^49 grid units; "
            f"use a coarser grid of distances, raise {spec.loss.unit} or lower c"
        )
        raise ConfigError.of(str(spec.loss.unit), msg)
    if spec.loss.unit is Unit.RHO:
        return gumbel_scale(spec.sensitivity, spec.c, spec.loss.amount)
    return laplace_scale(2 * spec.c * spec.sensitivity, spec.loss.amount)


def smallest(noisy: Ints, c: int) -> Ints:
    """Return the indices [.., c] of the c smallest noisy distances [.., t], in order; of equal ones the lower index is first."""
    return np.argsort(noisy, axis=-1, kind="stable")[..., :c]


def select(spec: TopC, sealed: Sensitive[Ints], noise: Noise) -> tuple[int, ...]:
    """Return the indices of c distances, in order of index: the smallest up to noise.

    Private by the theorem of ``selection_scale``. Those that are ``FAILED`` are never chosen; where no more than c are left, all
    are. What is returned must reach the ledger before anything is shown.

    Raises TypeError for anything but a vector of int64: this depends on no value.
    """
    check_distances(sealed)
    scale = selection_scale(spec).scale
    candidates = np.flatnonzero(reveal(sealed) != FAILED)
    if len(candidates) <= spec.c:
        return tuple(int(t) for t in candidates)
    if spec.loss.unit is Unit.RHO:
        chosen = noise.lowest_with_gumbel(_near(sealed, candidates).tolist(), spec.c, scale)
        return tuple(sorted(int(candidates[i]) for i in chosen))
    drawn = draw_geometric(noise, len(candidates), scale)
    return tuple(sorted(int(t) for t in candidates[smallest(_near(sealed, candidates) - drawn, spec.c)]))


def _near(sealed: Sensitive[Ints], candidates: Ints) -> Ints:
    return np.clip(reveal(sealed)[candidates], -FARTHEST, FARTHEST)
