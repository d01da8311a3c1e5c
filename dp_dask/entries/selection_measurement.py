"""SelectionMeasurement: a choice among simulations by their noisy distances, from its entry in the pipeline file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal

from dp_dask.core.of_sums import OfSums
from dp_dask.core.privacy import Loss, Neighbours
from dp_dask.core.selected import AnyDistance, SelectionRequest, threshold_of
from dp_dask.core.selection import SparseVector, TopC, Variant
from dp_dask.entries.build import Faults, build, check_keys, leaf
from dp_dask.entries.distance import make_distance, read_distance
from dp_dask.entries.loss import read_loss
from dp_dask.entries.measurement import Privacy
from dp_dask.entries.prior import make_prior, plain_prior
from dp_dask.entries.simulator import known_of_simulator, make_simulator
from dp_dask.entries.unit import check_unit
from dp_dask.errors import InferenceError
from dp_dask.public.candidate_simulations import Candidates, batch_size_of, draws_digest, numbers_of
from dp_dask.public.simulator_model import SimulatorModel

__all__ = ["METHODS", "Choice", "SelectionMeasurement", "Threshold", "make_selection"]

METHODS = ("svt", "select")
KEYS = ("simulator", "method", "prior", "epsilon", "distance", "c", "simulations", "seed", "seconds")
MOST_HELD = 2**27  # 1 GB: what comes in time is compared only when it is over, as how long that takes is up to the records
OF_METHOD = {"svt": ("tolerance", "variant", "lower_threshold"), "select": ("rho",)}


@dataclass(frozen=True, slots=True)
class Threshold:
    """What counts as near: the tolerance, by which variant of noise, and whether the noise's own reach is taken off."""

    tolerance: float
    variant: Variant = Variant.SPLIT
    lower_threshold: bool | None = None

    @property
    def is_lowered(self) -> bool:
        """As given, or for the variants that are not the published ones."""
        if self.lower_threshold is not None:
            return self.lower_threshold
        return self.variant in {Variant.SPLIT, Variant.ONE_SIDED}

    def question(self, distance: AnyDistance, sensitivity: int, c: int, epsilon: Decimal, n_queries: int) -> SparseVector:
        """Ask it of a distance, with this c and epsilon; raises ValueError for what cannot be."""
        made = SparseVector(
            variant=self.variant,
            c=c,
            sensitivity=sensitivity,
            threshold=threshold_of(distance, self.tolerance),
            epsilon=epsilon,
            n_queries=n_queries,
        )
        return made.lowered() if self.is_lowered else made


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionMeasurement:
    """One choice to be made: the request, the simulator and the prior of its candidates, and seconds after which it may end."""

    name: str
    model: SimulatorModel
    prior: Any
    request: SelectionRequest
    seconds: float | None
    threshold: Threshold | None  # None where distances are compared with each other

    @property
    def candidates(self) -> Candidates:
        """All candidate simulations."""
        return Candidates.of(self.request, self.model.simulator, self.prior, self.model.call)


@dataclass(frozen=True, slots=True)
class Choice:
    """How many are accepted, of how many numbered simulations, in how many seconds at most; ``seed`` numbers them, publicly."""

    c: int
    simulations: int = 10_000
    seed: int = 0
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("c", "simulations"):
            if getattr(self, name) < 1:
                msg = f"{name} is {getattr(self, name)}; it must be at least 1"
                raise ValueError(msg)
        if self.c > self.simulations:
            msg = f"c is {self.c} of {self.simulations} simulations; it must be no more than there are"
            raise ValueError(msg)
        if self.seconds is not None and not 0 < self.seconds < float("inf"):
            msg = f"seconds is {self.seconds}; give a positive number, or leave it out"
            raise ValueError(msg)


def make_selection(
    name: str, given: dict[str, Any], path: str, dataset: str, privacy: Privacy | None, faults: Faults
) -> SelectionMeasurement | None:
    """Make one measurement by ``method: svt`` or ``select``; None where there was a fault."""
    before = len(faults.problems)
    method: Literal["svt", "select"] = given["method"]
    simulator = leaf(str, given["simulator"], f"{path}.simulator", faults)
    known = None if simulator is None else known_of_simulator(simulator, f"{path}.simulator", faults)
    if known is None:
        return None
    asked = [*KEYS, *OF_METHOD[method]]
    of_simulator = [key for key in known if key not in asked]  # the c of g_and_k, say, keeps its default beside that of a choice
    values = check_keys(given, path, [*asked, *of_simulator], ("prior", "distance", "c"), faults)
    model = make_simulator(simulator, {key: values[key] for key in of_simulator if key in values}, path, faults)
    choice = _part(Choice, values, ("c", "simulations", "seed", "seconds"), path, faults) if "c" in values else None
    threshold = None
    if method == "svt":
        threshold = _part(Threshold, values, OF_METHOD["svt"], path, faults)
    loss = read_loss(values, path, faults, is_delta_known=privacy is None or privacy.delta is not None)
    options = read_distance(values["distance"], f"{path}.distance", faults) if "distance" in values else None
    prior = make_prior(model, values["prior"], f"{path}.prior", faults) if model is not None and "prior" in values else None
    if model is not None:
        _check_model(model, privacy, path, faults)
    if len(faults.problems) > before or privacy is None or model is None or choice is None or loss is None or options is None:
        return None
    n = privacy.n if privacy.n is not None else max(round(privacy.expected_records or 0), 1)
    try:
        distance = make_distance(options, model, prior, n)
        sensitivity = privacy.unit.sensitivity(distance, privacy.neighbours)
    except (ValueError, OverflowError) as error:
        beyond = "has bounds or weights beyond what floating point holds; rescale the columns"
        faults.add(f"{path}.distance", beyond if isinstance(error, OverflowError) else str(error))
        return None
    held = choice.simulations * numbers_of(distance)
    if choice.seconds is not None and held > MOST_HELD:
        told = f"would hold {held} simulated numbers until the time is over, {MOST_HELD} at most; give fewer simulations, or no"
        faults.add(f"{path}.seconds", f"{told} seconds")
    _check_unit(privacy, distance, name, faults)
    if len(faults.problems) > before:
        return None
    try:
        request = SelectionRequest(
            dataset=dataset,
            distance=distance,
            neighbours=privacy.neighbours,
            n=privacy.n,
            question=_question(choice, threshold, distance, sensitivity, loss),
            simulator=simulator,
            known=dict(model.known),
            prior=plain_prior(model, prior),
            seed=choice.seed,
            n_simulations=choice.simulations,
            batch_size=batch_size_of(distance),
            policy="retry" if model.policy == "retry" else "reject",
            code=model.code,
            unit=privacy.unit,
        )
        request = replace(request, draws=draws_digest(prior, request.seed, request.batch_size))
        made = SelectionMeasurement(
            name=name, model=model, prior=prior, request=request, seconds=choice.seconds, threshold=threshold
        )
        _ = made.candidates  # refuses a distance of columns that the simulator does not make
    except (ValueError, InferenceError) as error:
        faults.add(path, str(error))
        return None
    return made


def _check_unit(privacy: Privacy, distance: AnyDistance, name: str, faults: Faults) -> None:
    if isinstance(distance, OfSums):
        check_unit(privacy.unit, distance.statistic, name, faults, is_integer=False)
    elif privacy.unit.is_person:
        told = f"does not go with measurement {name}: records are compared place by place, of which a person may have any"
        faults.add("dataset.unit", f"{told}; write unit: record, or take another distance")


def _question(
    choice: Choice, threshold: Threshold | None, distance: AnyDistance, sensitivity: int, loss: Loss
) -> SparseVector | TopC:
    if threshold is None:
        return TopC(c=choice.c, sensitivity=sensitivity, loss=loss)
    return threshold.question(distance, sensitivity, choice.c, loss.amount, choice.simulations)


def _check_model(model: SimulatorModel, privacy: Privacy | None, path: str, faults: Faults) -> None:
    if model.policy == "raise":
        told = "is raise; a simulation that fails is far from any records here, and no reason to end a run: reject or retry"
        faults.add(f"{path}.failures", told)
    if privacy is None:
        return
    if model.simulator.decides_n and privacy.neighbours is Neighbours.REPLACE:
        told = "decides by its own course how many records there are, so that their number tells of the parameters"
        faults.add(f"{path}.simulator", f"{told}; use privacy.neighbours: add_remove")
    if privacy.n is None and privacy.expected_records is None:
        told = "a distance is scaled by a public number of records; under add_remove give a public guess"
        faults.add("privacy.expected_records", told)


def _part(cls: Any, values: dict[str, Any], keys: tuple[str, ...], path: str, faults: Faults) -> Any:
    return build(cls, {key: values[key] for key in keys if key in values}, path, faults)
