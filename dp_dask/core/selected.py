"""SelectionRequest and Selection: which simulations are asked to be compared with the records, and which were accepted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

from dp_dask.core.combined import measured
from dp_dask.core.distances import FARTHEST
from dp_dask.core.of_sums import OfSums
from dp_dask.core.privacy import EXACT, Loss, Neighbours, Unit
from dp_dask.core.recordwise import Recordwise
from dp_dask.core.release import ID_LENGTH, MAX_SCALE
from dp_dask.core.selection import SparseVector, TopC
from dp_dask.core.unit import RECORD, UnitOfProtection
from dp_dask.core.where import Where

__all__ = ["AnyDistance", "Selection", "SelectionMechanism", "SelectionRequest", "mechanism_of", "threshold_of"]

AnyDistance = OfSums | Recordwise
SelectionMechanism = Literal["sparse_vector_laplace", "sparse_vector_geometric", "top_c_joint", "top_c_gumbel"]
LARGEST_SEED = 2**128
LARGEST_BATCH = 2**20  # whoever reads a release draws one or more of them


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionRequest:
    """One choice among candidate simulations, in full: equal requests on the same data version share one release and one charge.

    The candidates are defined by all that is here, as an index alone means nothing: ``simulator`` with what is ``known`` of it,
    ``prior`` (both in plain values, in order of their keys), ``seed``, ``n_simulations`` in batches of ``batch_size``, and
    whether what fails is drawn again. ``code`` is the digest of a simulator of the user's own, and ``draws`` that of the first
    batch of parameters, which another version of a library may draw otherwise from the same seed: either makes other candidates,
    hence another request. All of it is public. Raises ValueError for what cannot be.
    """

    dataset: str
    distance: AnyDistance
    neighbours: Neighbours
    n: int | None  # the public number of records under replace, None where it is private
    question: SparseVector | TopC
    simulator: str
    known: dict[str, Any]
    prior: dict[str, Any]
    seed: int
    n_simulations: int
    batch_size: int
    policy: Literal["reject", "retry"] = "reject"
    code: str = ""
    draws: str = ""
    where: Where | None = None  # of which records alone, if not of all
    unit: UnitOfProtection = RECORD

    def __post_init__(self) -> None:
        for name in ("known", "prior"):
            object.__setattr__(self, name, _plain(getattr(self, name), name))
        if (self.n is None) is (self.neighbours is Neighbours.REPLACE):
            msg = "n is public and given under replace, private and left out under add_remove"
            raise ValueError(msg)
        if self.where is not None and self.n is not None:
            msg = "how many records meet a condition is private; ask under add_remove, without n"
            raise ValueError(msg)
        if self.n is not None and self.n != self.distance.n:
            msg = f"n is {self.n} and the distance is of {self.distance.n} records; under replace they must be the same"
            raise ValueError(msg)
        if not 0 <= self.seed < LARGEST_SEED:
            msg = f"seed is {self.seed}; it must be a whole number from 0 to 2^128 - 1"
            raise ValueError(msg)
        if self.n_simulations < 1 or not 1 <= self.batch_size <= LARGEST_BATCH:
            told = f"there are {self.n_simulations} simulations in batches of {self.batch_size}; both must be at least 1"
            msg = f"{told}, and a batch no larger than {LARGEST_BATCH}"
            raise ValueError(msg)
        self._check_unit()
        moves = self.sensitivity
        if self.question.sensitivity != moves:
            msg = f"the question's sensitivity is {self.question.sensitivity} steps; that of the distance is {moves}"
            raise ValueError(msg)
        if isinstance(self.question, SparseVector) and self.question.n_queries != self.n_simulations:
            msg = f"n_queries is {self.question.n_queries} and there are {self.n_simulations} simulations; each is one query"
            raise ValueError(msg)
        if self.question.c > self.n_simulations:
            msg = f"c is {self.question.c} of {self.n_simulations} simulations; it must be no more than there are"
            raise ValueError(msg)

    @property
    def sensitivity(self) -> int:
        """The most steps by which a distance differs between data sets that differ in one unit."""
        return self.unit.sensitivity(self.distance, self.neighbours)

    @property
    def is_sparse_vector(self) -> bool:
        """Whether distances are compared with a threshold, and not with each other."""
        return isinstance(self.question, SparseVector)

    @property
    def loss(self) -> Loss:
        """The privacy loss that is asked for, which decides the noise."""
        return Loss(Unit.EPSILON, self.question.epsilon) if isinstance(self.question, SparseVector) else self.question.loss

    def _check_unit(self) -> None:
        fault = self.unit.fault(self.neighbours)
        if self.unit.is_person and not isinstance(self.distance, OfSums):
            fault = (
                "a distance record by record compares places in the files, of which a person may have any: it protects a record"
            )
        if fault:
            raise ValueError(fault)
        if self.unit.combine is not None and isinstance(self.distance, OfSums):
            measured(self.distance.statistic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The candidates that were accepted, and nothing of their distances; safe to print, store and publish.

    ``accepted`` are indices of candidates, ascending, among the first ``n_answered``; ``n_failed`` of those could not be
    simulated, which no record has a part in. ``scales`` in steps of the distance and ``privacy_losses``, OpenDP's map of each,
    rounded outwards, belong to the threshold and to a distance, or to the one choice; the losses add up to what was lost.
    """

    id: str
    created: str  # UTC, with offset
    request: SelectionRequest
    mechanism: SelectionMechanism
    sampler: str
    scales: tuple[float, ...]
    privacy_losses: tuple[float, ...]
    accepted: tuple[int, ...]
    n_answered: int
    n_failed: int
    snapshot: str = ""  # of the table that was read, where its source has versions

    def __post_init__(self) -> None:
        if len(self.id) != ID_LENGTH or not set(self.id) <= set("0123456789abcdef"):
            msg = f"id must be {ID_LENGTH} hexadecimal digits"
            raise ValueError(msg)
        request, question = self.request, self.request.question
        if self.mechanism != mechanism_of(question):
            msg = f"this request is answered by {mechanism_of(question)}, not by {self.mechanism}"
            raise ValueError(msg)
        needed = question.nominal_scales if isinstance(question, SparseVector) else (question.nominal_scale,)
        if not len(self.scales) == len(self.privacy_losses) == len(needed):
            msg = f"there must be {len(needed)} scales, each with its privacy loss"
            raise ValueError(msg)
        # Also false of a NaN.
        if not all(least * (1 - 1e-9) <= scale < MAX_SCALE for least, scale in zip(needed, self.scales, strict=True)):
            msg = f"a scale is less than the request's {request.loss.unit} needs, or not below 2^57"
            raise ValueError(msg)
        if not all(0 < each < math.inf for each in self.privacy_losses) or self.privacy_loss > request.loss.amount:
            msg = f"the privacy losses must be above 0 and add up to no more than the request's {request.loss}"
            raise ValueError(msg)
        self._check_outcome()

    @property
    def privacy_loss(self) -> Decimal:
        """The losses added up, exactly; it never exceeds the request's epsilon or rho."""
        total = Decimal(0)
        for each in self.privacy_losses:
            total = EXACT.add(total, Decimal(each))
        return total

    def _check_outcome(self) -> None:
        request, accepted = self.request, self.accepted
        c = request.question.c
        if not (0 <= self.n_answered <= request.n_simulations and 0 <= self.n_failed <= self.n_answered - len(accepted)):
            msg = "n_answered is at most n_simulations, and n_failed at most the answered ones that were not accepted"
            raise ValueError(msg)
        if len(accepted) > c or not all(a < b for a, b in zip((-1, *accepted), (*accepted, self.n_answered), strict=True)):
            msg = "accepted must hold at most c different indices below n_answered, in ascending order"
            raise ValueError(msg)
        if isinstance(request.question, TopC):
            if len(accepted) != min(c, self.n_answered - self.n_failed):
                msg = "a choice of c holds c indices, or all that did not fail where there are fewer"
                raise ValueError(msg)
        elif len(accepted) == c and self.n_answered != accepted[-1] + 1:
            msg = "answers end with the c-th acceptance"
            raise ValueError(msg)


def mechanism_of(question: SparseVector | TopC) -> SelectionMechanism:
    """Name what answers a question."""
    if isinstance(question, SparseVector):
        return "sparse_vector_geometric" if question.is_one_sided else "sparse_vector_laplace"
    return "top_c_gumbel" if question.loss.unit is Unit.RHO else "top_c_joint"


def threshold_of(distance: AnyDistance, tolerance: float) -> int:
    """Return floor(tolerance / step): distances are rounded down, so that one is within the tolerance iff its steps are within.

    Raises ValueError unless the tolerance is finite, not negative, and below 2^60 steps.
    """
    if not (math.isfinite(tolerance) and tolerance >= 0):
        msg = f"tolerance is {tolerance}; it must be a finite number, 0 or more"
        raise ValueError(msg)
    steps = math.floor(Fraction(tolerance) / Fraction(distance.step))
    if steps > FARTHEST:
        msg = f"tolerance is {tolerance:g}, more than 2^60 steps of {distance.step:g}; give a smaller one"
        raise ValueError(msg)
    return steps


def _plain(value: Any, path: str) -> Any:
    """Copy plain values into the one form that equal ones share and JSON keeps."""
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            msg = f"{path} has a key that is not a text; give names"
            raise ValueError(msg)
        return {key: _plain(value[key], f"{path}.{key}") for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_plain(each, f"{path}[{i}]") for i, each in enumerate(value)]
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    msg = f"{path} is {value!r}; it must be a text, a truth value, a finite number, or a list or mapping of such"
    raise ValueError(msg)
