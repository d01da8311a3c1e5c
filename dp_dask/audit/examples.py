"""Examples: a measurement of every model, of every kind of statistic, and a choice by every distance, on made-up columns.

A model or a distance that ships without an example here fails the audit by its name.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any, get_args

from dp_dask.config import Pipeline
from dp_dask.core import plugins
from dp_dask.core.cluster_bands import ClusterBands
from dp_dask.core.privacy import Neighbours, Unit
from dp_dask.core.release import AnyStatistic, Request
from dp_dask.entries.measurement import Measurement

__all__ = ["DATASET", "DISTANCES", "MODELS", "N", "bands", "few", "missing", "pipeline_file", "unserved"]

DATASET = "made-up"
N = 24  # records
EPSILON, RHO = 0.5, 0.05
GAMMA, BETA = {"alpha": 1, "beta": 1}, {"alpha": 1, "beta": 1}
POSITIVE, REAL = {"column": "positive", "bounds": [0.1, 9]}, {"column": "real", "bounds": [-4, 5]}
COUNT = {"column": "count", "bounds": [0, 30]}
GAUSSIAN = {"mu": 0, "kappa": 0.1, "alpha": 2, "beta": 2}
WISHART = {"mean_scale": 1, "sd_scale": 0.5, "nu0": 6}
MODELS: dict[str, dict[str, Any]] = {
    "bernoulli": {"column": "binary", "prior": BETA},
    "beta": {
        "column": "share",
        "bounds": [0.02, 0.98],
        "prior": {name: {"kind": "gamma", "alpha": 2, "beta": 0.5} for name in ("alpha", "beta")},
    },
    "categorical": {"column": "colour", "categories": ["a", "b", "c"], "prior": {"alpha": 1}},
    "exponential": {**POSITIVE, "prior": GAMMA},
    "gamma": {**POSITIVE, "shape": 3, "prior": GAMMA},
    "gamma_shape_rate": {
        **POSITIVE,
        "prior": {name: {"kind": "gamma", "alpha": 2, "beta": 1} for name in ("shape", "rate")},
    },
    "geometric": {**COUNT, "prior": BETA},
    "half_normal": {**POSITIVE, "prior": GAMMA},
    "inverse_gamma": {**POSITIVE, "alpha": 3, "prior": GAMMA},
    "laplace": {**REAL, "location": 1, "prior": GAMMA},
    "linear_regression": {"columns": {"positive": [0.1, 9], "share": [0, 1]}, "response": {"real": [-4, 5]}, "prior": WISHART},
    "lognormal": {**POSITIVE, "prior": GAUSSIAN},
    "multivariate_normal": {"columns": {"real": [-4, 5], "share": [0, 1]}, "prior": WISHART},
    "negative_binomial": {**COUNT, "r": 2.5, "prior": BETA},
    "normal": {**REAL, "sigma": 1.5, "prior": {"mu": 0, "sigma": 2}},
    "normal_mu_sigma": {**REAL, "prior": GAUSSIAN},
    "pareto": {"column": "above", "bounds": [2, 40], "m": 2, "prior": GAMMA},
    "poisson": {**COUNT, "prior": GAMMA},
    "rayleigh": {**POSITIVE, "prior": GAMMA},
    "weibull": {**POSITIVE, "k": 1.7, "prior": GAMMA},
}
FURTHER: dict[str, dict[str, Any]] = {
    "poisson truncated": {"model": "poisson", "column": "count", "bounds": [20, 30], "outside": "truncate", "prior": GAMMA},
    "exponential truncated with inside_count": {
        "model": "exponential",
        **POSITIVE,
        "outside": "truncate",
        "inside_count": True,
        "prior": GAMMA,
    },
    "geometric by group": {"model": "geometric", **COUNT, "group_by": {"column": "colour", "groups": ["a", "b"]}, "prior": BETA},
    "normal by group": {
        "model": "normal",
        "sigma": 1,
        **REAL,
        "group_by": {"column": "binary", "groups": [0, 1]},
        "prior": {"mu": 0, "sigma": 2},
    },
}
MIXTURE = {"simulator": "uniform_mixture", "components": 5, "prior": {"kind": "dirichlet", "alpha": 1}}
TREND = {"simulator": "cubic_trend", "prior": {f"a{i}": {"kind": "normal", "mu": 0, "sigma": 1 / 10**i} for i in range(4)}}
X, WEEK = {"column": "x", "bounds": [0, 5]}, {"column": "week", "bounds": [0, 10]}
DAYS = {"columns": {"day": [0, 24], "y": [-3, 3]}}
DISTANCES: dict[str, dict[str, Any]] = {
    "histogram": {**MIXTURE, "distance": {"kind": "histogram", **X, "edges": [1, 2, 3, 4]}},
    "means": {**TREND, "distance": {"kind": "means", **DAYS, "weights": {"day": 1, "y": 4}}},
    "mmd": {**MIXTURE, "distance": {"kind": "mmd", **X, "bandwidth": 0.6}},
    "mmd_product": {**TREND, "distance": {"kind": "mmd_product", **DAYS, "bandwidth": 4}},
    "mmd_random": {**TREND, "distance": {"kind": "mmd_random", **DAYS, "bandwidth": 4}},
    "recordwise": {**MIXTURE, "distance": {"kind": "recordwise", "weights": {"x": 1}, "clip": 3}},
}
EPIDEMIC = {
    "simulator": "sir",
    "population": 200,
    "infected": 3,
    "weeks": 10,
    "prior": {"R0": {"kind": "lognormal", "mu": 0.5, "sigma": 0.3}, "infectious_days": {"kind": "gamma", "alpha": 6, "beta": 1}},
}
PRIVATE_N: dict[str, dict[str, Any]] = {
    "histogram": {**WEEK, "edges": [2, 4, 6, 8]},
    "mmd": {**WEEK, "bandwidth": 2},
}  # where n is private: of an epidemic
OPTIONS = {"c": 2, "simulations": 16}
BOTH = ("histogram", "recordwise")  # asked by every method: a distance of sums, and one record by record
FEW = (
    "poisson",
    "normal",
    "categorical",
    "exponential-truncated",
    "geometric-by-group",
    "linear_regression",
    "bands",
    "histogram-svt",
    "recordwise-select-epsilon",
)


def missing() -> list[str]:
    """Name the models and distances that ship and have no example."""
    found = [f"model {name}" for name in plugins.names("dp_dask.models") if name not in MODELS]
    return found + [f"distance {name}" for name in plugins.names("dp_dask.distances") if name not in DISTANCES]


def unserved(requests: list[Any]) -> list[str]:
    """Name the kinds of statistic that none of the requests is of."""
    served = {type(request.statistic) for request in requests if isinstance(request, Request)}
    return [kind.__name__ for kind in get_args(AnyStatistic) if kind not in served]


def pipeline_file(source: dict[str, Any], neighbours: Neighbours) -> dict[str, Any]:
    """Return a pipeline file of all examples, each at an epsilon and at a rho."""
    is_public = neighbours is Neighbours.REPLACE
    measured = {name: {"model": name, **entry} for name, entry in MODELS.items()} | FURTHER
    chosen: dict[str, dict[str, Any]] = {
        name: {**EPIDEMIC, "distance": {"kind": name, **entry}} for name, entry in PRIVATE_N.items()
    }
    if is_public:  # text files do not keep records at their places
        chosen = {name: entry for name, entry in DISTANCES.items() if name != "recordwise" or source["kind"] != "csv"}
    measurements: dict[str, Any] = {}
    for name, entry in measured.items():
        measurements[_plain(f"{name} epsilon")] = {**entry, "epsilon": EPSILON}
        measurements[_plain(f"{name} rho")] = {**entry, "rho": RHO}
    for name, entry in chosen.items():
        # By a rho the noise is given every distance; what is left is alike for all distances.
        measurements[_plain(f"{name} select rho")] = {**entry, **OPTIONS, "method": "select", "rho": 100 * RHO}
        if name not in BOTH:
            continue
        measurements[_plain(f"{name} select epsilon")] = {**entry, **OPTIONS, "method": "select", "epsilon": 40 * EPSILON}
        measurements[_plain(f"{name} svt")] = {**entry, **OPTIONS, "method": "svt", "tolerance": 1, "epsilon": EPSILON}
    return {
        "dataset": {"name": DATASET, "source": source, "unit": "record"},
        "privacy": {"neighbours": str(neighbours), "delta": 1e-6, "n" if is_public else "expected_records": N},
        "measurements": measurements,
        "ledger": "sqlite:///ledger.db",
        "output": "out",
    }


def few(pipeline: Pipeline) -> Pipeline:
    """Keep a few measurements of each kind of statistic, and one choice by each method."""
    return replace(
        pipeline,
        measurements=tuple(m for m in pipeline.measurements if m.name.startswith(FEW)),
        selections=tuple(s for s in pipeline.selections if s.name.startswith(FEW)),
    )


def bands(pipeline: Pipeline) -> list[Measurement]:
    """Return releases of clusters' bands beside a pipeline's, as requests alone: the simulator behind them needs an extra."""
    like = pipeline.measurements[0].request
    statistic = ClusterBands(cluster="cluster", sizes=(1, 2, 3), period="week", spans=(1, 2))
    made = []
    for unit, amount in ((Unit.EPSILON, EPSILON), (Unit.RHO, RHO)):
        given: dict[str, Any] = {"epsilon": None, "rho": None, str(unit): Decimal(str(amount))}
        request = replace(like, statistic=statistic, **given)
        made.append(Measurement(name=f"bands-{unit}", model_name="bands", model=None, prior=None, request=request))
    return made


def _plain(name: str) -> str:
    return name.replace(" ", "-")
