"""Select: c of all distances that are small, in one go: one exponential mechanism over sets, or Gumbel noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.distances import FAILED, FARTHEST
from dp_dask.core.selection import TopC, log_sets
from dp_dask.core.sensitive import Sensitive, reveal
from dp_dask.errors import ConfigError
from dp_dask.gate.noise import Noise, NoiseScale, gumbel_scale, laplace_scale
from dp_dask.gate.sparse_vector import MAX_SCALE, check_distances

__all__ = ["TopC", "select", "selection_scale", "set_of"]

Ints = NDArray[np.int64]
MAX_OFFSET = 2.0**48  # below, an offset is within one grid unit of what it stands for


def selection_scale(spec: TopC) -> NoiseScale:
    """Return the noise scale of a selection and its privacy loss, epsilon or rho at most.

    Setting: integer distances q_t of n simulations, each at most D apart between neighbours; S a set of c of them, q_S the
    largest distance in S. ``set_of`` chooses S with probability in proportion to exp(-q_S / s + r), where r depends on the place
    of q_S among all distances in order (of equal ones the lower index first) and |r| <= 1 / s.

    Theorem: S is ((2 D + 2) / s)-differentially private.
    Proof: let q, q' be neighbours' distances. A set's largest distance moves by at most D, as all in it do, and r by at most
    2 / s. So log P(S) changes by at most (D + 2) / s before it is normalised. The sum over sets is that over places j of
    exp(-(q_(j) - f_j) / s), with f_j numbers that depend on j, c, n and s alone and q_(j) the j-th smallest distance, which moves
    by at most D too: its logarithm changes by at most D / s. Which simulations failed is the same for q and q', and they take
    no part. The utility of a set is the one of a joint exponential mechanism (Gillenwater et al. 2022; of sets: Shekelyan &
    Loukides 2022); unlike noise on each distance it does not grow with c.

    Hence s = (2 D + 2) / epsilon. For a rho see ``gumbel_scale``. Raises ConfigError where the scale is above 2^49 grid units.
    """
    if spec.nominal_scale > MAX_SCALE:
        msg = (
            f"c {spec.c}, sensitivity {spec.sensitivity} and {spec.loss} need noise beyond 2^49 grid units; "
            f"use a coarser grid of distances, raise {spec.loss.unit} or lower c"
        )
        raise ConfigError.of(str(spec.loss.unit), msg)
    if spec.is_joint:
        return laplace_scale(2 * (spec.sensitivity + 1), spec.loss.amount)
    return gumbel_scale(spec.sensitivity, spec.c, spec.loss.amount)


def set_of(distances: Ints, c: int, scale: float, noise: Noise) -> Ints:
    """Return the indices [c] of one set of distances [t], by the mechanism of ``selection_scale``.

    C(j - 1, c - 1) sets have the j-th smallest distance as their largest. So j is drawn with probability in proportion to
    exp(-(q_(j) - f_j) / s), f_j = s log C(j - 1, c - 1) to the next whole number, by Gumbel noise (the largest of log weights
    plus standard Gumbel noise has their odds), and the c - 1 others uniformly, by equal scores. Rounding is half a unit, and
    what floats add less than another half: a logarithm is right to 2^-50 of itself, its product with s to 2^-53, and f_j is
    below 2^48.

    Raises ConfigError where f_j would be larger.
    """
    logs = log_sets(c, len(distances))
    if scale * logs[-1] >= MAX_OFFSET:
        msg = f"c {c} of {len(distances)} simulations at a noise scale of {scale:.3g} grid units are too many sets; lower c"
        raise ConfigError.of("c", msg)
    order = np.argsort(distances, kind="stable")
    offsets = np.rint(scale * logs).astype(np.int64)
    (place,) = noise.lowest_with_gumbel((distances[order][c - 1 :] - offsets).tolist(), 1, scale)
    last = place + c - 1
    others = noise.lowest_with_gumbel([0] * last, c - 1, 1.0) if c > 1 else []
    return np.asarray(order[[*others, last]], dtype=np.int64)


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
    near = np.clip(reveal(sealed)[candidates], -FARTHEST, FARTHEST)
    if spec.is_joint:
        chosen = set_of(near, spec.c, scale, noise)
    else:
        chosen = np.asarray(noise.lowest_with_gumbel(near.tolist(), spec.c, scale))
    return tuple(sorted(int(t) for t in candidates[chosen]))
