"""OutbreakPrior: the constrained prior of the birth-death model, with its normalising constant.

beta ~ Normal(200, beta_sd), R1 ~ Uniform(1.01, 20), t1 ~ Uniform(0.01, 30) and R2 = W (1 - 0.05 R1) / 0.95 with
W ~ Uniform(0.01, 1), where (R1, t1, R2) is drawn again, beta held, until a_1 < 40 and fewer than 350 cases a year are to be
observed in balance (Lintusaari et al. 2019, and their code).

Both conditions bound one variable given those before it: beta bounds R1, R1 bounds t1, and beta and R1 bound W. So the support is
a nest of intervals, whose lengths' products over R1 give the probability of acceptance in closed form, and the logit of the place
in each interval is an unconstrained coordinate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from dp_dask.core.priors import TAIL
from dp_dask.outbreaks.birth_death import COMPLIANT, OBSERVED

__all__ = ["OutbreakPrior"]

Floats = NDArray[np.float64]
MEAN_BETA = 200.0
R1_LOW, R1_HIGH = 1.01, 20.0  # at 20 the hosts that do not comply keep the outbreak going by themselves
T1_LOW, T1_HIGH = 0.01, 30.0
W_LOW, W_HIGH = 0.01, 1.0
MOST_TRANSMISSIONS = 40.0  # a year, by a host that does not comply
MOST_OBSERVED = 350.0  # cases a year
PER_BETA = OBSERVED / (MOST_OBSERVED * (W_HIGH - W_LOW))
FREE_R1 = MOST_TRANSMISSIONS / (MOST_TRANSMISSIONS - T1_HIGH)  # from here on R1 does not bound t1
LARGEST_BETA = (1 - R1_LOW / R1_HIGH) / PER_BETA  # 411.3, above which nothing is accepted
NODES = 200  # of quadrature, in each of beta and R1
NEGLIGIBLE = 1e-12  # probability beyond each end of beta's quadrature
LAST = 1 - 2**-53  # the largest float64 below 1


@dataclass(frozen=True, slots=True)
class OutbreakPrior:
    """The prior of (beta, R1, t1, R2). ``beta_sd`` has no default, since what is published differs.

    The authors' notebook has 30, their code as it is used by Park, Vinaroz & Jitkrittum (2021) has sqrt(30) = 5.48. beta lies
    between 0 and 411.3, where other values of the triple can be accepted at all; both ends are 6.7 sd of 30 from its mean.
    """

    beta_sd: float

    def __post_init__(self) -> None:
        if not 0 < self.beta_sd <= MEAN_BETA:
            msg = f"beta_sd is {self.beta_sd}; it must be above 0 and at most {MEAN_BETA:g} (published: 30, and sqrt(30) = 5.48)"
            raise ValueError(msg)

    @property
    def mean(self) -> Floats:
        """The means of (beta, R1, t1, R2), by quadrature."""
        return self._moments()[0]

    @property
    def sd(self) -> Floats:
        """The standard deviations of (beta, R1, t1, R2), by quadrature."""
        first, second = self._moments()
        return np.sqrt(second - first**2)

    def rvs(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw theta [size, 4]: beta, R1 given beta by rejection, then t1 and W, uniform on what is left to them."""
        beta = self._of_beta.ppf(rng.random(size))
        r1 = np.empty(size)
        open_rows = np.arange(size)
        while len(open_rows):
            proposed = rng.uniform(R1_LOW, _r1_end(beta[open_rows]))
            r1[open_rows] = proposed
            open_rows = open_rows[rng.random(len(open_rows)) >= _share(beta[open_rows], proposed)]
        t1 = rng.uniform(T1_LOW, _t1_end(r1))
        return np.stack([beta, r1, t1, rng.uniform(W_LOW, _w_end(beta, r1)) * _largest_r2(r1)], axis=1)

    def parameter(self, v: Floats) -> Floats:
        """Map coordinates [k, 4] to theta [k, 4], each into the interval that those before it leave."""
        place = special.expit(v)
        beta = LARGEST_BETA * place[:, 0]
        r1 = R1_LOW + (_r1_end(beta) - R1_LOW) * place[:, 1]
        t1 = T1_LOW + (_t1_end(r1) - T1_LOW) * place[:, 2]
        w = W_LOW + (_w_end(beta, r1) - W_LOW) * place[:, 3]
        return np.stack([beta, r1, t1, w * _largest_r2(r1)], axis=1)

    def coordinate(self, theta: Floats) -> Floats:
        """Map theta [k, 4] to coordinates [k, 4]; raises ValueError for a theta outside the support."""
        beta, r1, t1, r2 = theta.T
        with np.errstate(all="ignore"):
            place = np.stack(
                [
                    beta / LARGEST_BETA,
                    (r1 - R1_LOW) / (_r1_end(beta) - R1_LOW),
                    (t1 - T1_LOW) / (_t1_end(r1) - T1_LOW),
                    (r2 / _largest_r2(r1) - W_LOW) / (_w_end(beta, r1) - W_LOW),
                ],
                axis=1,
            )
        inside = np.all((place >= 0) & (place <= 1), axis=1)
        if not inside.all():
            shown = ", ".join(map(str, theta[~inside][0].tolist()))
            msg = f"(beta, R1, t1, R2) = ({shown}) lies outside the prior's support"
            raise ValueError(msg)
        return special.logit(place)

    def log_density(self, v: Floats) -> Floats:
        """Log density [k] of the coordinates [k, 4], normalised.

        It is p(beta) over the probability of acceptance given beta, times each interval's share of its uniform prior and the
        slope of its logit.
        """
        beta, r1 = self.parameter(v)[:, :2].T
        slope = np.sum(special.log_expit(v) + special.log_expit(-v), axis=1)
        with np.errstate(divide="ignore"):
            shares = np.log((_r1_end(beta) - R1_LOW) / (R1_HIGH - R1_LOW)) + np.log(_share(beta, r1))
            return self._of_beta.logpdf(beta) + math.log(LARGEST_BETA) + shares - np.log(acceptance(beta)) + slope

    def coordinate_box(self) -> Floats:
        """Extreme quantiles of beta's coordinate; those of a uniform place for the others."""
        low, high = self._of_beta.ppf(TAIL) / LARGEST_BETA, self._of_beta.isf(TAIL) / LARGEST_BETA
        far = -float(special.logit(TAIL))
        return np.array([special.logit([max(low, TAIL), min(high, LAST)]), *[[-far, far]] * 3])

    @property
    def _of_beta(self) -> stats.distributions.rv_frozen:
        ends = -MEAN_BETA / self.beta_sd, (LARGEST_BETA - MEAN_BETA) / self.beta_sd
        return stats.truncnorm(*ends, loc=MEAN_BETA, scale=self.beta_sd)

    def _moments(self) -> tuple[Floats, Floats]:
        """First and second moments [4]: beta and R1 by Gauss-Legendre quadrature, the others uniform given them."""
        x, weight = np.polynomial.legendre.leggauss(NODES)
        of_beta = self._of_beta
        low, high = of_beta.ppf(NEGLIGIBLE), of_beta.isf(NEGLIGIBLE)
        beta = (low + (high - low) * (x + 1) / 2)[:, None]
        r1 = R1_LOW + (_r1_end(beta) - R1_LOW) * (x + 1) / 2
        share = weight * _share(beta, r1)
        weight = share / share.sum(axis=1, keepdims=True) * (weight[:, None] * of_beta.pdf(beta) * (high - low) / 2)
        t1, w, unit = _t1_end(r1), _w_end(beta, r1), _largest_r2(r1)
        first = [beta, r1, (T1_LOW + t1) / 2, (W_LOW + w) / 2 * unit]
        of_t1, of_w = T1_LOW**2 + T1_LOW * t1 + t1**2, W_LOW**2 + W_LOW * w + w**2
        second = [beta**2, r1**2, of_t1 / 3, of_w / 3 * unit**2]
        return np.array([np.sum(weight * each) for each in first]), np.array([np.sum(weight * each) for each in second])


def acceptance(beta: Floats) -> Floats:
    """P(triple accepted | beta), the mean over R1 of (share of t1)(share of W) = (A - D / R1)(1 - C / (1 - R1 / 20))."""
    end, a, d = _r1_end(beta), (MOST_TRANSMISSIONS - T1_LOW) / (T1_HIGH - T1_LOW), MOST_TRANSMISSIONS / (T1_HIGH - T1_LOW)
    c = PER_BETA * beta

    def free(r: Floats | float) -> Floats:
        return r + R1_HIGH * c * np.log1p(-r / R1_HIGH)

    def bound(r: Floats | float) -> Floats:
        return a * free(r) - d * (1 - c) * np.log(r) - d * c * np.log1p(-r / R1_HIGH)

    turn = np.minimum(FREE_R1, end)
    inside = bound(turn) - bound(R1_LOW) + free(end) - free(turn)
    return np.maximum(inside, 0) / (R1_HIGH - R1_LOW)


def _largest_r2(r1: Floats) -> Floats:
    return (1 - (1 - COMPLIANT) * r1) / COMPLIANT


def _r1_end(beta: Floats) -> Floats:
    return R1_HIGH * (1 - PER_BETA * beta)


def _t1_end(r1: Floats) -> Floats:
    return np.minimum(T1_HIGH, MOST_TRANSMISSIONS * (r1 - 1) / r1)


def _w_end(beta: Floats, r1: Floats) -> Floats:
    return W_HIGH - (W_HIGH - W_LOW) * PER_BETA * beta / (1 - r1 / R1_HIGH)


def _share(beta: Floats, r1: Floats) -> Floats:
    """The part of t1's and W's intervals that R1 and beta leave."""
    of_t1 = (_t1_end(r1) - T1_LOW) / (T1_HIGH - T1_LOW)
    return of_t1 * np.clip((_w_end(beta, r1) - W_LOW) / (W_HIGH - W_LOW), 0, 1)
