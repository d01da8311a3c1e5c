"""Request and Release: what is asked of the records, and what may leave them."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from dp_dask.core.categories import CategoryCounts
from dp_dask.core.cluster_bands import ClusterBands
from dp_dask.core.combined import measured
from dp_dask.core.gram import GramSum
from dp_dask.core.grouped import GroupedSum
from dp_dask.core.privacy import Loss, Neighbours, Unit, exact_amount
from dp_dask.core.statistic import BoundedSum
from dp_dask.core.table_sum import TableSum
from dp_dask.core.unit import RECORD, UnitOfProtection
from dp_dask.core.where import Where

__all__ = ["INSECURE", "MAX_SCALE", "AnyStatistic", "Mechanism", "Release", "Request"]

AnyStatistic = BoundedSum | TableSum | CategoryCounts | GroupedSum | GramSum | ClusterBands

Mechanism = Literal["discrete_laplace", "discrete_gaussian"]

ID_LENGTH = 32
LARGEST_NOISY = 2**63
MAX_SCALE = 2.0**57  # above, a draw could leave int64
INSECURE = "insecure"  # the sampler's name where noise came from a seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One noisy vector of sums, in full: equal requests on the same data version share one release and one charge.

    Either ``epsilon`` is given, for discrete Laplace noise, or ``rho``, for discrete Gaussian noise. ``where`` says of which
    records alone the sums are, if not of all, and ``unit`` whom the noise protects.
    """

    dataset: str
    statistic: AnyStatistic
    neighbours: Neighbours
    n: int | None  # the public number of records (persons, where they are protected) under replace, None where it is private
    epsilon: Decimal | None = None
    rho: Decimal | None = None
    where: Where | None = None
    unit: UnitOfProtection = RECORD

    def __post_init__(self) -> None:
        if (self.epsilon is None) is (self.rho is None):
            msg = "a request has either an epsilon or a rho"
            raise ValueError(msg)
        if self.epsilon is not None:
            object.__setattr__(self, "epsilon", exact_amount(self.epsilon, Unit.EPSILON))
        if self.rho is not None:
            object.__setattr__(self, "rho", exact_amount(self.rho, Unit.RHO))
        if (self.n is None) is (self.neighbours is Neighbours.REPLACE):
            msg = "n is public and given under replace, private and left out under add_remove"
            raise ValueError(msg)
        if self.where is not None and self.n is not None:
            msg = "how many records meet a condition is private; ask under add_remove, without n"
            raise ValueError(msg)
        if self.n is not None and self.n < 0:
            msg = f"n is {self.n}; it must not be negative"
            raise ValueError(msg)
        fault = self.unit.fault(self.neighbours)
        if fault:
            raise ValueError(fault)
        if self.unit.is_person and isinstance(self.statistic, ClusterBands):
            msg = "clusters' bands are counted over all records, of a person too: they protect a record and no person"
            raise ValueError(msg)
        if self.unit.combine is not None:
            measured(self.statistic)  # refuses what no combined record can be measured for

    @property
    def sensitivity(self) -> int:
        """The largest L1 change of the released vector, in grid units, between data sets that differ in one unit."""
        return self.unit.sensitivity(self.statistic, self.neighbours)

    @property
    def squared_sensitivity(self) -> int:
        """The square of its largest L2 change."""
        return self.unit.squared_sensitivity(self.statistic, self.neighbours)

    @property
    def loss(self) -> Loss:
        """The privacy loss that is asked for, which decides the noise."""
        if self.rho is not None:
            return Loss(Unit.RHO, self.rho)
        return Loss(Unit.EPSILON, self.epsilon or Decimal(0))

    @property
    def has_count(self) -> bool:
        """Whether the noisy count of all records is part of the release."""
        return self.n is None and self.statistic.count_weight > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Noisy sums with all that inference needs; safe to print, store and publish.

    ``noisy_sums`` (and ``noisy_count``, where a count is released) are in grid units, each with independent noise: discrete
    Laplace, P(k) proportional to exp(-|k| / scale), or discrete Gaussian, P(k) proportional to exp(-k^2 / (2 scale^2)). In the
    units of the statistic a noise of one grid unit in coordinate j is ``statistic.units[j]``. ``sensitivity`` is the L1 one for
    Laplace, the square of the L2 one for Gaussian noise. ``privacy_loss`` is what OpenDP's privacy map gives for
    ``scale`` and ``sensitivity``, rounded outwards; it never exceeds the request's epsilon or rho. ``snapshot`` names the
    version of the table that was read, where its source has versions.
    """

    id: str
    created: str  # UTC, with offset
    request: Request
    mechanism: Mechanism = "discrete_laplace"
    sampler: str
    sensitivity: int
    scale: float
    privacy_loss: float
    noisy_sums: tuple[int, ...]
    noisy_count: int | None
    snapshot: str = ""

    def __post_init__(self) -> None:
        if len(self.id) != ID_LENGTH or not set(self.id) <= set("0123456789abcdef"):
            msg = f"id must be {ID_LENGTH} hexadecimal digits"
            raise ValueError(msg)
        if not (0 < self.scale < MAX_SCALE and self.sensitivity > 0):
            msg = "scale must lie between 0 and 2^57, sensitivity above 0"
            raise ValueError(msg)
        loss = self.request.loss
        if loss.unit is Unit.RHO:
            mechanism, promised = "discrete_gaussian", self.request.squared_sensitivity
            bought = 2 * self.scale**2 * float(loss.amount)
        else:
            mechanism, promised = "discrete_laplace", self.request.sensitivity
            bought = self.scale * float(loss.amount)
        if self.mechanism != mechanism:
            msg = f"a request of {loss.unit} is released by {mechanism}, not by {self.mechanism}"
            raise ValueError(msg)
        if self.sensitivity != promised or bought < self.sensitivity * (1 - 1e-9):
            msg = f"scale or sensitivity is less than the request's {loss.unit} needs"
            raise ValueError(msg)
        if len(self.noisy_sums) != len(self.request.statistic.units):
            msg = "there must be one noisy sum for each coordinate of the statistic"
            raise ValueError(msg)
        if (self.noisy_count is None) is self.request.has_count:
            msg = "noisy_count is given where n is private and the statistic gives it a weight, and nowhere else"
            raise ValueError(msg)
        if max(*map(abs, self.noisy_sums), abs(self.noisy_count or 0)) >= LARGEST_NOISY:
            msg = "a noisy sum is beyond what 64 bits hold"
            raise ValueError(msg)
