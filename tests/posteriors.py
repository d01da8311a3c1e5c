"""Posteriors whose draws are given, and an observation of two sums: for the tests of what is done with them."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
from cases import BY_NAME, observation

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.cells import choose_cells
from dp_dask.core.privacy import Neighbours
from dp_dask.core.release import Release, Request
from dp_dask.core.table_sum import TableSum, make_table
from dp_dask.models.normal_mu_sigma import NormalMuSigma
from dp_dask.public.engines import Inference
from dp_dask.public.joint import JointObservation
from dp_dask.public.posterior import Posterior
from dp_dask.public.questions import Asked


def asked(name, draws, *, model="geometric", dataset="d", digit="0"):
    """A posterior whose draws are given; the release matters by its id alone."""
    case = BY_NAME[model]
    like = observation(case, n=500, epsilon=0.5, y=1900)
    request = Request(dataset=dataset, statistic=like.statistic, neighbours=Neighbours.REPLACE, n=500, epsilon=Decimal("0.5"))
    sensitivity = like.statistic.sensitivity(Neighbours.REPLACE)
    release = Release(
        id=digit * 32, created="2026-01-02T03:04:05+00:00", request=request, sampler="test", sensitivity=sensitivity,
        scale=2.0 * sensitivity, privacy_loss=0.5, noisy_sums=(1900,), noisy_count=None,
    )  # fmt: skip
    inference = Inference(engine="lattice", reason="", draws=draws.reshape(4, -1, 1), error=0.0)
    posterior = Posterior(
        measurement=name.split(".")[-1], model=model, parameters=case.model.parameters, prior=case.prior, release=release,
        observation=like, inference=inference,
    )  # fmt: skip
    return Asked(name, dataset, posterior)


def joint(y=(0, 0), n=400, scale=50.0, count=None):
    bounds = Bounds(-5, 5)
    cells = choose_cells(bounds, "even", is_integer=False, wanted=200)
    x = cells.middles(bounds) / 5
    table, units, origins = make_table(np.stack([x, x * x]), n_units=256, is_centred=True)
    statistic = TableSum(
        column="x", bounds=bounds, outside=Outside.CLAMP, cells=cells, table=table, units=units, origins=origins,
        count_weight=0 if count is None else 64,
    )  # fmt: skip
    return JointObservation(model=NormalMuSigma(), statistic=statistic, n=n, scale=scale, y=y, count=count, expected_n=None)
