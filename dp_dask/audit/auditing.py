"""The audit from first to last: replays, exact sums and attacks, and the faults that are planted for them to catch."""

from __future__ import annotations

import tempfile
import time
from itertools import chain
from pathlib import Path

import numpy as np

from dp_dask import __version__
from dp_dask.audit import examples
from dp_dask.audit.additive_attacks import additive_attacks, noise_is_new
from dp_dask.audit.attack import Attack, claim_of
from dp_dask.audit.faulty_releases import noise_controls, replay_controls
from dp_dask.audit.faulty_selections import selection_controls
from dp_dask.audit.replay_claims import replay_claims
from dp_dask.audit.replays import Replayed, replays
from dp_dask.audit.results import Audit, Claim, Control
from dp_dask.audit.scales import exact_claim, scale_claims
from dp_dask.audit.selection_attacks import choice_attacks, sparse_attacks
from dp_dask.clusters.local import plugin as Local  # noqa: N812
from dp_dask.core.selection import Variant
from dp_dask.gate.noise import OpenDPNoise
from dp_dask.progress import Progress, silent

__all__ = ["audit"]

FALSE_ALARM = 5e-5  # of all attacks together: each may be wrong with an equal share of it
SPARSE, CHOICE, PLANTED = range(3)  # what a seed is for


def audit(runs: int, seed: int, *, progress: Progress = silent) -> Audit:
    """Hold this installation against what it claims; everything is done in a temporary folder, on records that are made up.

    ``runs`` of each mechanism are made on each of two neighbours, of those that are slow a share of them, and of planted faults
    as many as put each of them 7 standard errors and more from being missed. The seed decides records and seeded noise;
    OpenDP's noise has none.
    """
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dp-dask-audit-") as folder:
        replayed, planted = _replay(Path(folder), seed, progress)
    found = [_completeness(replayed), *replay_claims(replayed), *scale_claims(), *map(exact_claim, Variant), _new_noise()]
    attacks = [
        *additive_attacks(),
        *sparse_attacks(np.random.default_rng([seed, SPARSE])),
        *choice_attacks(np.random.default_rng([seed, CHOICE])),
    ]
    alpha = FALSE_ALARM / len(attacks)
    found += _attacked(attacks, runs, alpha, progress)
    rng = np.random.default_rng([seed, PLANTED])
    for control in chain(noise_controls(alpha), selection_controls(alpha, rng)):
        planted.append(control)
        progress("planting faults", len(planted), len(planted))
    return Audit(
        version=__version__,
        sampler=OpenDPNoise().sampler,
        runs=runs,
        seed=seed,
        seconds=time.monotonic() - start,
        false_alarm=FALSE_ALARM,
        claims=tuple(found),
        controls=tuple(planted),
    )


def _replay(folder: Path, seed: int, progress: Progress) -> tuple[list[Replayed], list[Control]]:
    with Local(workers=1).client() as client:
        replayed = replays(client, folder, seed, progress)
        return replayed, list(replay_controls(replayed, client, folder, seed))


def _completeness(replayed: list[Replayed]) -> Claim:
    """Refuse to be silent about what ships and is not looked at."""
    requests = [m.request for each in replayed for m in each.pipeline.measurements]
    left_out = [*examples.missing(), *examples.unserved(requests)]
    told = ", ".join(left_out) or f"{len(examples.MODELS)} models, {len(examples.DISTANCES)} distances"
    return Claim(part="replay", about="everything that ships has an example", held=not left_out, told=told)


def _new_noise() -> Claim:
    return Claim(part="attack", about="noise is new each time", held=noise_is_new(), told="made twice, 5 draws each")


def _attacked(attacks: list[Attack], runs: int, alpha: float, progress: Progress) -> list[Claim]:
    found = []
    for i, attack in enumerate(attacks):
        found.append(claim_of(attack, runs, alpha))
        progress("attacking", i + 1, len(attacks))
    return found
