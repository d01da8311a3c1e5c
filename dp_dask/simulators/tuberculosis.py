"""tuberculosis(beta, R1, t1, R2): a birth-death outbreak with clusters, watched for two years."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.prior_kinds import Domain
from dp_dask.core.simulated import Simulated, Size, check_theta, record_counts, refuse_size
from dp_dask.outbreaks.birth_death import check_numba, compiled, rates, watch
from dp_dask.outbreaks.prior import OutbreakPrior
from dp_dask.outbreaks.summaries import NAMES, summarise

__all__ = ["plugin"]

Floats = NDArray[np.float64]
AT_ONCE = 1024  # outbreaks whose cases are held together


@dataclass(frozen=True, slots=True)
class Tuberculosis:
    """The model of ``dp_dask.outbreaks.birth_death``; its prior is ``prior_type``.

    With ``record: patient`` a data set is one outbreak and a record an observed case, with the cluster that it belongs to and the
    month of the watch, 0 .. 23. With ``record: outbreak`` a data set is n outbreaks, and a record one of them by the eight
    summaries of ``dp_dask.outbreaks.summaries``: protecting it protects an outbreak and not a patient.
    """

    record: Literal["patient", "outbreak"] = "patient"

    parameters: ClassVar[tuple[str, ...]] = ("beta", "R1", "t1", "R2")
    domains: ClassVar[tuple[Domain, ...]] = ("positive", "positive", "positive", "probability")
    prior_type: ClassVar[type[OutbreakPrior]] = OutbreakPrior

    def __post_init__(self) -> None:
        if self.record not in {"patient", "outbreak"}:
            msg = f"record is {self.record!r}; it must be 'patient' or 'outbreak'"
            raise ValueError(msg)
        check_numba()

    @property
    def columns(self) -> tuple[str, ...]:
        """What is known of a case, or the summaries of an outbreak."""
        return ("cluster", "month") if self.record == "patient" else NAMES

    @property
    def decides_n(self) -> bool:
        """An outbreak decides how many cases there are, not how many outbreaks."""
        return self.record == "patient"

    def prepare(self) -> None:
        """Compile, by a first outbreak that is over at once."""
        compiled()(rates(np.array([[1.0, 2.0, 1.0, 0.0]])), np.random.default_rng(0))

    def simulate(self, theta: Floats, n: Size, rng: np.random.Generator) -> Simulated:
        """Run one outbreak for each theta [B, 4], or n for each."""
        check_theta(theta, self.parameters, self.domains)
        if self.record == "patient":
            refuse_size(n, "an outbreak")
            watched = watch(theta, rng)
            cases = {"cluster": watched.cluster.astype(np.float64), "month": watched.month.astype(np.float64)}
            return Simulated(watched.counts, cases)
        counts = record_counts(n, len(theta))
        of_outbreaks = np.repeat(theta, counts, axis=0)
        rows = [np.empty((0, len(NAMES)))]
        for i in range(0, len(of_outbreaks), AT_ONCE):
            watched = watch(of_outbreaks[i : i + AT_ONCE], rng)
            rows.append(summarise(watched.counts, watched.cluster, watched.month))
        return Simulated(counts, dict(zip(NAMES, np.concatenate(rows).T, strict=True)))


plugin = Tuberculosis
