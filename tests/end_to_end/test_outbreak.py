"""One outbreak, a patient a record: from shuffled files on a cluster, over noise, to the posterior of its parameters."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pytest
from private.tables import Parquet, write

from dp_dask.clusters.local import plugin as Local  # noqa: N812
from dp_dask.core.cluster_bands import ClusterBands
from dp_dask.core.plugins import load
from dp_dask.core.privacy import Neighbours
from dp_dask.core.release import INSECURE, Request
from dp_dask.core.sensitive import reveal
from dp_dask.gate.additive import release
from dp_dask.outbreaks.prior import OutbreakPrior
from dp_dask.private.reduce import reduce
from dp_dask.public.noise_law import Laplace
from dp_dask.public.simulated import SimulatedObservation
from dp_dask.public.simulated_infer import infer_simulated
from dp_dask.public.tempering import Effort

pytest.importorskip("numba")
BANDS = ClusterBands(cluster="cluster", sizes=(1, 2, 3, 4, 6, 11, 21), period="month", spans=(2, 3, 4, 7, 13))
TRUTH = np.array([192, 5.88, 6.74, 0.09])
PRIOR = OutbreakPrior(beta_sd=30.0)
EFFORT = Effort(bank=6_000)


@dataclass(frozen=True)
class Seeded:
    """Noise of the right law from a seed."""

    rng: np.random.Generator
    sampler: str = INSECURE

    def add_discrete_laplace(self, values, scale):
        return [value + int(drawn) for value, drawn in zip(values, Laplace(scale).draw(self.rng, len(values)), strict=True)]


def observation(scale, y):
    return SimulatedObservation(
        simulator=load("dp_dask.simulators", "tuberculosis")(),
        statistic=BANDS,
        n=None,
        scale=scale,
        y=y,
        count=None,
        expected_n=None,
    )


def test_an_outbreak_is_reduced_released_and_inferred(tmp_path):
    simulated = load("dp_dask.simulators", "tuberculosis")().simulate(TRUTH[None], None, np.random.default_rng(3))
    n = int(simulated.counts[0])
    order = np.random.default_rng(4).permutation(n)
    for i, part in enumerate(np.array_split(order, 5)):
        kinds = np.int32 if i % 2 else np.float64
        write(tmp_path, f"{i}.parquet", {name: each[part].astype(kinds) for name, each in simulated.values.items()})
    with Local(workers=2).client() as client:
        sealed = reduce(client, Parquet(path=tmp_path), [BANDS], progress=lambda _done, _of: None, stall_timeout=60)
    exact = BANDS.totals_of(simulated)[0]
    assert reveal(sealed).sums == tuple(exact.tolist())
    assert reveal(sealed).n_records == n == exact[:7].sum()
    request = Request(dataset="outbreak", statistic=BANDS, neighbours=Neighbours.ADD_REMOVE, n=None, epsilon=Decimal(1))
    [made] = release(sealed, [request], Seeded(np.random.default_rng(5)))
    assert made.sensitivity == 2
    assert made.scale == pytest.approx(2.0)
    assert made.noisy_count is None
    assert 0 < np.abs(np.array(made.noisy_sums) - exact).max() < 30
    seen = observation(made.scale, made.noisy_sums)
    draws = infer_simulated(np.random.default_rng(6), seen, PRIOR, 2_000, "bank", effort=EFFORT).draws.reshape(-1, 4)
    assert np.isfinite(draws).all()
    sd = draws.std(axis=0)
    assert np.all(np.abs(draws.mean(axis=0) - TRUTH) < 4 * sd)
    assert sd[0] < 0.7 * PRIOR.sd[0]
    assert sd[1] < 0.8 * PRIOR.sd[1]


def test_noise_a_hundred_times_as_wide_gives_the_prior_back():
    rng = np.random.default_rng(7)
    none = observation(200.0, (0,) * 12)
    wide = none.pseudo(rng, TRUTH)
    draws = infer_simulated(rng, wide, PRIOR, 2_000, "bank", effort=EFFORT).draws.reshape(-1, 4)
    assert np.all(draws.std(axis=0) > 0.8 * PRIOR.sd)


def test_other_engines_serve_the_bands_too():
    rng = np.random.default_rng(8)
    like = observation(20.0, (0,) * 12).pseudo(rng, TRUTH)
    effort = Effort(per_generation=1_500, adapting=50.0, wanted=100.0, most=6_000)
    made = infer_simulated(rng, like, PRIOR, 400, "tempered", effort=effort)
    assert np.isfinite(made.draws).all()
    assert np.all(np.abs(made.draws.reshape(-1, 4).mean(axis=0) - TRUTH) < 4 * PRIOR.sd)
