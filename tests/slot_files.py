"""Files of scheduled slots, written as a run writes them, without records, noise or a ledger."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from gate.gate_examples import make_release, make_request, make_rho_request

from dp_dask.core.slots import Slot, read_slot
from dp_dask.public import publication as files
from dp_dask.public.publication import Publication, Published


def slot_of(text: str) -> Slot:
    slot = read_slot(text)
    assert isinstance(slot, Slot)
    return slot


FIRST = slot_of("2024-03-29T01:00Z")


def night(i: int) -> Slot:
    return Slot(FIRST.time + timedelta(days=i))


def published(
    epsilon: str = "0.1",
    *,
    rho: str | None = None,
    prior: Any = None,
    model: str = "geometric",
    simulates: bool = False,
    **request: Any,
) -> Published:
    asked = make_request(epsilon, **request) if rho is None else make_rho_request(rho, **request)
    return Published(
        model=model,
        known={},
        is_simulator=simulates,
        prior=prior or {"alpha": 1, "beta": 1},
        expected_records=None,
        release=make_release(asked),
    )


def write_slot(
    output: Path,
    slot: Slot,
    mean: float = 0.5,
    measurements: dict[str, Published] | None = None,
    *,
    missed: list[Slot] | None = None,
    spent: str = "0.1",
    warnings: tuple[str, ...] = (),
    **changed: Any,
) -> Path:
    """Write release.json and run.json of a slot; ``changed`` are keys of run.json, None of which removes one."""
    measurements = measurements or {"visits": published()}
    folder = output / slot.folder
    folder.mkdir(parents=True)
    dataset = next(iter(measurements.values())).release.request.dataset
    files.write(Publication(written_by="test", dataset=dataset, measurements=measurements), folder / "release.json")
    of = {"mean": mean, "sd": 0.1, "lower": mean - 0.2, "upper": mean + 0.2}
    told = {
        "schema": "dp-dask/run/2",
        "slot": str(slot),
        "missed": None if missed is None else [str(each) for each in missed],
        "dataset": dataset,
        "unit": "epsilon",
        "charged": "0",  # a repeat charges nothing
        "spent": spent,
        "granted": "5",
        "left": str(Decimal(5) - Decimal(spent)),
        "measurements": {name: {"parameters": {"p": of}, "warnings": list(warnings)} for name in measurements},
    }
    told.update(changed)
    (folder / "run.json").write_text(json.dumps({key: value for key, value in told.items() if value != "LEFT OUT"}))
    return folder


def digest(folder: Path) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())).hexdigest()
