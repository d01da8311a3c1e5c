"""One prior of every kind and more where they differ, with scipy's distribution as the oracle."""

from __future__ import annotations

import math

from scipy import stats

EXAMPLES = [
    ("beta", {"alpha": 2.0, "beta": 0.5}, stats.beta(2, 0.5)),
    ("cauchy", {"alpha": -3.0, "beta": 0.5}, stats.cauchy(-3, 0.5)),
    ("exponential", {"lam": 4.0}, stats.expon(scale=0.25)),
    ("gamma", {"alpha": 2.0, "beta": 4.0}, stats.gamma(2, scale=0.25)),
    ("half_cauchy", {"beta": 2.0}, stats.halfcauchy(scale=2)),
    ("half_normal", {"sigma": 3.0}, stats.halfnorm(scale=3)),
    ("inverse_gamma", {"alpha": 3.0, "beta": 2.0}, stats.invgamma(3, scale=2)),
    ("inverse_gamma", {"alpha": 0.5, "beta": 1.0}, stats.invgamma(0.5)),
    ("lognormal", {"mu": 1.0, "sigma": 0.5}, stats.lognorm(0.5, scale=math.e)),
    ("normal", {"mu": 1.0, "sigma": 2.0}, stats.norm(1, 2)),
    ("student_t", {"nu": 1.5, "mu": 1.0, "sigma": 2.0}, stats.t(1.5, 1, 2)),
    ("student_t", {"nu": 30.0, "mu": 1e6, "sigma": 1e-2}, stats.t(30, 1e6, 1e-2)),
    ("truncated_normal", {"mu": 0.3, "sigma": 0.1, "lower": 0.0, "upper": 1.0}, stats.truncnorm(-3, 7, 0.3, 0.1)),
    ("truncated_normal", {"mu": -1.0, "sigma": 2.0, "lower": 0.0}, stats.truncnorm(0.5, math.inf, -1, 2)),
    ("truncated_normal", {"mu": 1.0, "sigma": 2.0, "upper": 0.0}, stats.truncnorm(-math.inf, -0.5, 1, 2)),
    ("uniform", {"lower": 0.1, "upper": 0.3}, stats.uniform(0.1, 0.2)),
    ("uniform", {"lower": -5.0, "upper": 100.0}, stats.uniform(-5, 105)),
    ("weibull", {"alpha": 0.5, "beta": 2.0}, stats.weibull_min(0.5, scale=2)),
    ("scipy", {"name": "invgauss", "mu": 0.5, "loc": 0.0, "scale": 2.0}, stats.invgauss(0.5, scale=2)),
    ("scipy", {"name": "laplace", "loc": 1.0, "scale": 2.0}, stats.laplace(1, 2)),
]
IDS = [f"{kind} {' '.join(map(str, numbers.values()))}" for kind, numbers, _ in EXAMPLES]
