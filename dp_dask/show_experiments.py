"""Show experiments: what --json tells of a paper's comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from decimal import Decimal
from typing import Any

from dp_dask.public.abc_comparison import Cell as AbcCell
from dp_dask.public.abc_comparison import Target, held
from dp_dask.public.comparison import Cell, calibrations, utilities
from dp_dask.public.outbreak_comparison import PARAMETERS
from dp_dask.public.outbreak_comparison import Cell as OutbreakCell

__all__ = ["compared_choices", "compared_outbreaks", "compared_posteriors"]


def compared_posteriors(cells: Sequence[Cell]) -> dict[str, Any]:
    """Return what --json tells of a comparison of posteriors."""
    refused = [{**asdict(row), "squared_mmd": None, "standard_error": None} for row in utilities(cells) if row.refusal]
    served = [asdict(row) for row in utilities(cells) if not row.refusal]
    return {"calibration": [asdict(row) for row in calibrations(cells)], "utility": served, "refused": refused}


def compared_choices(cells: Sequence[AbcCell], targets: Sequence[Target]) -> dict[str, Any]:
    """Return what --json tells of a comparison of choices among simulations."""
    results = []
    for cell in cells:
        numbers = {name: cell.mean(name) for name in ("error", "distance", "accepted", "answered", "sd")}
        results.append({**_plain(asdict(cell.place)), "replicates": len(cell.trials), **_plain(numbers)})
    checked = []
    for target in targets:
        ratio, error, is_held = held(target, cells)
        checked.append(_plain({**asdict(target), "ratio": ratio, "standard_error": error, "holds": is_held}))
    return {"results": results, "targets": checked}


def compared_outbreaks(cells: Sequence[OutbreakCell]) -> dict[str, Any]:
    """Return what --json tells of a comparison where an outbreak is a record."""
    results = []
    for cell in cells:
        served = len(cell.served)
        error = cell.errors().mean(axis=0).tolist() if served else [math.nan] * len(PARAMETERS)
        named = dict(zip(PARAMETERS, error, strict=True))
        accepted = sum(trial.accepted for trial in cell.served) / max(served, 1)
        facts = {"n": cell.n, "method": cell.method, "replicates": len(cell.trials), "served": served, "accepted": accepted}
        results.append({**facts, "error": _plain(named)})
    return {"results": results}


def _plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Epsilons as texts, and what is not a finite number as null."""
    plain = {name: str(value) if isinstance(value, Decimal) else value for name, value in facts.items()}
    return {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in plain.items()}
