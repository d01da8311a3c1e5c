"""Faulty releases: sensitivities and choices as published code has them, beside replays of the right ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dp_dask.audit import examples, records
from dp_dask.audit.additive_attacks import additive_attacks, noise_is_new
from dp_dask.audit.attack import claim_of
from dp_dask.audit.faulty_noise import Broadcast, FloatingPoint, Weak
from dp_dask.audit.replay_claims import flow, furthest
from dp_dask.audit.replays import Replayed, pipeline_of, trace_of
from dp_dask.audit.results import Control, control_of
from dp_dask.core.privacy import Neighbours
from dp_dask.core.statistic import BoundedSum

__all__ = ["noise_controls", "replay_controls"]

RUNS = 50_000  # that catch every fault of the noise


def noise_controls(alpha: float) -> Iterator[Control]:
    """Plant faults of the noise in the additive release, and attack it."""
    one, two, gaussian, _ = additive_attacks(Weak)
    broadcast, floats = additive_attacks(Broadcast)[1], additive_attacks(FloatingPoint.make)[0]
    for fault, attack in (
        ("a release with 30 % too little Laplace noise", one),
        ("two sums with 30 % too little Laplace noise", two),
        ("a release with 30 % too little Gaussian noise", gaussian),
        ("one draw of noise for two sums", broadcast),
        ("noise in floating point", floats),
    ):
        claim = claim_of(attack, RUNS, alpha)
        yield control_of(fault, claim)
    caught = not noise_is_new(FloatingPoint.make)
    yield Control(fault="noise from a seed", check="noise is new", caught=caught, told="made twice, it is the same")


def replay_controls(replayed: Sequence[Replayed], client: Any, folder: Path, seed: int) -> Iterator[Control]:
    """Claim sensitivities as published code does, and make choices from the records, where replays see it."""
    found = next(each for each in replayed if each.pipeline.neighbours is Neighbours.REPLACE and each.pipeline.measurements)
    if not any(trace.is_failed for trace in found.traces.values()):
        yield from _wrong_sensitivities(found)
    else:
        yield Control(fault="wrong sensitivities", check="replay", caught=False, told="the replays themselves failed")
    yield _from_records("bounds taken from the records", client, folder / "bounds", seed, _own_bounds)
    yield _from_records("a kernel's bandwidth taken from the records", client, folder / "bandwidth", seed, _own_bandwidth)


def _wrong_sensitivities(found: Replayed) -> Iterator[Control]:
    change, pair = furthest(found, "categorical-epsilon")
    told = f"moved by {change}, not 1 ({pair})"
    yield Control(fault="sensitivity 1 of counts where a record is replaced", check="replay", caught=change > 1, told=told)
    name = "poisson-truncated-epsilon"
    statistic = next(m.request.statistic for m in found.pipeline.measurements if m.name == name)
    if isinstance(statistic, BoundedSum):
        claimed = statistic.grid.upper - statistic.grid.lower
        change, pair = furthest(found, name)
        told = f"moved by {change}, not {claimed} ({pair})"
        fault = "truncation that forgets a record that leaves the bounds"
        yield Control(fault=fault, check="replay", caught=change > claimed, told=told)


def _from_records(fault: str, client: Any, folder: Path, seed: int, entry: Any) -> Control:
    """Write a pipeline file for the records of each of two neighbours, and replay both."""
    folder.mkdir()
    pipelines, traces = [], {}
    for name, x in (("inside", 2.2), ("largest", 7.5)):
        own = folder / name
        own.mkdir()
        record = {**records.VALUES["between"], "x": x}
        values = [row["x"] for row in records.rows(seed, record)]
        made = examples.pipeline_file(records.source("parquet", own / "data"), Neighbours.REPLACE)
        pipelines.append(pipeline_of({**made, "measurements": {"histogram": entry(values)}}, own))
        traces[name] = trace_of("parquet", pipelines[-1], client, own / "run", seed, record)
    broken = flow(Replayed(fault, pipelines[0], traces))
    caught = bool(broken) and not any(trace.is_failed for trace in traces.values())
    return Control(fault=fault, check="replay", caught=caught, told="; ".join(broken[:2]))


def _own_bounds(values: list[float]) -> dict[str, Any]:
    prior = {"mu": 0, "sigma": 2}
    return {"model": "normal", "sigma": 1, "column": "x", "bounds": [min(values), max(values)], "epsilon": 1, "prior": prior}


def _own_bandwidth(values: list[float]) -> dict[str, Any]:
    """The median of all distances between two records."""
    x = np.array(values)
    bandwidth = float(np.median(np.abs(x[:, None] - x)[np.triu_indices(len(x), 1)] + 0.01 * np.mean(x)))
    given = examples.DISTANCES["mmd"]
    return {
        **given,
        "distance": {**given["distance"], "bandwidth": bandwidth},
        **examples.OPTIONS,
        "method": "select",
        "rho": 5,
    }
