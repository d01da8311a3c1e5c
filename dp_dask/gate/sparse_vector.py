"""Sparse vector: which distances are within a noisy threshold, told one after the other, until c of them were."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.distances import FAILED, FARTHEST
from dp_dask.core.selection import Accepted, SparseVector, Variant
from dp_dask.core.sensitive import Sensitive, reveal
from dp_dask.errors import ConfigError
from dp_dask.gate.noise import Noise, NoiseScale, draw_geometric, draw_laplace, laplace_scale

__all__ = ["SparseVector", "State", "Variant", "answer", "begin", "check_distances", "draw", "feed", "outcome", "scales"]

Ints = NDArray[np.int64]
MAX_SCALE = 2.0**49  # a draw beyond 2^61 then has a probability below exp(-2^12): sums with distances stay in int64


@dataclass(frozen=True, slots=True)
class State:
    """How far a run has come. Prints nothing of distances, noise or answers; hold it on the coordinator and write it nowhere.

    ``is_over`` says that nothing more will be answered. Until ``outcome`` is in the ledger it is as private as the outcome.
    """

    spec: SparseVector
    levels: Sensitive[Ints]  # the threshold plus its noise, for each of the c acceptances
    query_scale: float
    accepted: Sensitive[tuple[int, ...]]
    n_fed: int = 0
    is_over: bool = field(default=False, repr=False)


def scales(spec: SparseVector) -> tuple[NoiseScale, NoiseScale]:
    """Return the noise scales of the threshold and of each distance; their privacy losses add up to epsilon at most.

    Setting: integer distances q_t, each at most D apart between neighbours, whatever the simulation; t is accepted iff
    q_t + V_t <= threshold + M; the answers are told in order and end at the c-th acceptance or the last query. Noise is
    independent, integer, and so that P(k) <= exp(v / scale) P(k - v) for every whole k and v >= 0, at scale s for M and r for
    V_t. Discrete Laplace noise has this property by the triangle inequality. So has the NEGATIVE of geometric noise: on k <= 0
    its P(k) is in proportion to exp(k / scale), k - v <= 0 with k, and elsewhere P(k) is 0. (Geometric noise itself has
    not: P(k - v) is 0 where k < v. With it nothing is private.)

    Theorem (Lyu, Su & Li 2017; here for whole numbers and one-sided noise): where M is drawn once, the answers are
    (D / s + 2 c D / r)-differentially private.
    Proof: let q, q' be neighbours' distances, F(a) = P(V <= a), and h(m) the probability of the given answers on q for M = m,
    which is the product of F(threshold + m - q_t) over the accepted t and of 1 - F(threshold + m - q_t) over the rejected ones.
    Compare with h'(m - D), the same on q' for M = m - D. Rejected: q_t' >= q_t - D, so that
    threshold + m - D - q_t' <= threshold + m - q_t, and the factor of h' is no less. Accepted:
    threshold + m - D - q_t' >= threshold + m - q_t - 2 D, and F(a) <= exp(2 D / r) F(a - 2 D), by adding up
    P(k) <= exp(2 D / r) P(k - 2 D) over k <= a; there are at most c. Hence h(m) <= exp(2 c D / r) h'(m - D), and the sum of
    P(M = m) h(m) is at most exp(D / s + 2 c D / r) times that of P(M = m - D) h'(m - D), which runs over all whole numbers.
    A simulation that failed is rejected on q and q' alike. A run that is ended early for a reason that no record
    has a part in is one with fewer queries.

    Where M is drawn anew after each acceptance (RESAMPLE true), they are c (D / s + 2 D / r)-differentially private.
    Proof: given the answers before it, each stretch up to an acceptance is the mechanism above with c = 1, and a last stretch
    without one is the same with no acceptance; a run that ends at the c-th acceptance has at most c of them.

    The scales: s = n D / e1 and r = 2 c D / e2, n the number of draws of M, with ``SparseVector.shares`` for e1 and e2. They
    make s = (c + 1) D / epsilon, respectively 2 c D / epsilon, and r = 2 s for Algorithm 1 of Park, Vinaroz & Jitkrittum (2021).
    The losses are OpenDP's map, rounded outwards, of the sensitivities n D and 2 c D.

    Raises ConfigError where a scale is above 2^49 grid units.
    """
    first, second = spec.shares
    if max(spec.nominal_scales) > MAX_SCALE:
        msg = (
            f"c {spec.c}, sensitivity {spec.sensitivity} and epsilon {spec.epsilon} need noise beyond 2^49 grid units; "
            "use a coarser grid of distances, raise epsilon or lower c"
        )
        raise ConfigError.of("epsilon", msg)
    return (
        laplace_scale(spec.n_thresholds * spec.sensitivity, first),
        laplace_scale(2 * spec.c * spec.sensitivity, second),
    )


def draw(spec: SparseVector, noise: Noise, n: int, scale: float) -> Ints:
    """Draw n variables that are added to distances or to the threshold: discrete Laplace, or minus geometric ones."""
    return -draw_geometric(noise, n, scale) if spec.is_one_sided else draw_laplace(noise, n, scale)


def answer(noisy: Ints, levels: Ints, n_before: Ints) -> NDArray[np.bool_]:
    """Return which noisy distances [.., t] are accepted, given noisy thresholds [.., c] and how many [..] were before.

    A distance is compared with the threshold of the acceptance that it would be; after the c-th nothing is accepted.
    """
    c, position = levels.shape[-1], np.arange(noisy.shape[-1])
    accepted = np.zeros(noisy.shape, dtype=np.bool_)
    used, start = n_before.copy(), np.zeros_like(n_before)
    while True:
        level = np.take_along_axis(levels, np.minimum(used, c - 1)[..., None], axis=-1)
        below = (noisy <= level) & (position >= start[..., None]) & (used < c)[..., None]
        found = below.any(axis=-1)
        if not found.any():
            return accepted
        first = below.argmax(axis=-1)
        accepted |= (position == first[..., None]) & found[..., None]
        used, start = used + found, np.where(found, first + 1, start)


def begin(spec: SparseVector, noise: Noise) -> State:
    """Draw the threshold's noise and return the state before any query."""
    threshold_scale, query_scale = scales(spec)
    draws = draw(spec, noise, spec.n_thresholds, threshold_scale.scale)
    levels = Sensitive(np.broadcast_to(spec.threshold + draws, spec.c))
    return State(spec, levels, query_scale.scale, Sensitive(()))


def feed(state: State, sealed: Sensitive[Ints], noise: Noise) -> State:
    """Answer the next block of distances, in order of their index; what comes after the end is not looked at.

    ``sealed`` holds whole grid units, as ``on_grid`` makes them. One that is ``FAILED`` is a query, and is rejected. Noise is
    drawn for every distance of the block, so that the number of draws depends on no answer. Private by the theorem of ``scales``
    as long as one outcome is told of all that a ``begin`` leads to: a state fed twice has two, and the second is not paid for.

    Raises TypeError for anything but a vector of int64: this depends on no value.
    """
    spec = state.spec
    check_distances(sealed)
    n_new = min(len(reveal(sealed)), spec.n_queries - state.n_fed)
    if state.is_over or not n_new:
        return state
    drawn = draw(spec, noise, n_new, state.query_scale)
    found = _accepted(reveal(sealed)[:n_new], drawn, reveal(state.levels), len(reveal(state.accepted)))
    accepted = reveal(state.accepted) + tuple(state.n_fed + t for t in found)
    n_fed = state.n_fed + n_new
    is_over = len(accepted) == spec.c or n_fed == spec.n_queries
    return replace(state, accepted=Sensitive(accepted), n_fed=n_fed, is_over=is_over)


def outcome(state: State) -> Accepted:
    """Return the indices that were accepted and nothing else; it must reach the ledger before anything is shown.

    The number answered is that up to the c-th acceptance, or all that were fed: how the blocks were cut does not show.
    """
    indices = reveal(state.accepted)
    return Accepted(indices, indices[-1] + 1 if len(indices) == state.spec.c else state.n_fed)


def check_distances(sealed: Sensitive[Ints]) -> None:
    """Raise TypeError for anything but a sealed vector of int64."""
    is_vector = isinstance(reveal(sealed), np.ndarray) and reveal(sealed).dtype == np.int64 and reveal(sealed).ndim == 1
    if not is_vector:
        msg = "distances are a vector of int64 grid units: round them with on_grid"
        raise TypeError(msg)


def _accepted(distances: Ints, drawn: Ints, levels: Ints, n_before: int) -> list[int]:
    noisy = np.where(distances == FAILED, FAILED, np.clip(distances, -FARTHEST, FARTHEST) + drawn)
    return [int(t) for t in np.flatnonzero(answer(noisy, levels, np.array(n_before)))]
