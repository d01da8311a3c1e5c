"""Results of an audit: claims with what was found, and planted faults with whether the same checks saw them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Audit", "Claim", "Control", "control_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What the product claims of one thing, and what was found.

    ``found`` must not exceed ``claimed``, both in ``unit``; where there is no number both are None and ``held`` says it all.
    """

    part: str  # replay, exact or attack
    about: str
    held: bool
    claimed: float | None = None
    found: float | None = None
    unit: str = ""
    told: str = ""  # how it was tried, or what broke


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A fault that was planted, and which check was to see it; ``told`` is what that check said."""

    fault: str
    check: str
    caught: bool
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """A whole audit. ``false_alarm`` is at most the probability that a right build fails it by chance."""

    version: str
    sampler: str
    runs: int
    seed: int
    seconds: float
    false_alarm: float
    claims: tuple[Claim, ...]
    controls: tuple[Control, ...]

    @property
    def failures(self) -> list[str]:
        """Name every claim that did not hold, and every fault that was not caught."""
        broken = [f"{c.about}: {c.told}" for c in self.claims if not c.held]
        return broken + [f"not caught: {c.fault}" for c in self.controls if not c.caught]

    def plain(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {
            "passed": not self.failures,
            "failures": self.failures,
            "version": self.version,
            "sampler": self.sampler,
            "runs": self.runs,
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "false_alarm": self.false_alarm,
            "claims": [_plain(claim) for claim in self.claims],
            "controls": [_plain(control) for control in self.controls],
        }


def control_of(fault: str, claim: Claim) -> Control:
    """Tell whether a fault was caught by a claim about a number: it must have been found, and be too large."""
    caught = claim.found is not None and not claim.held
    told = claim.told if claim.found is None else f"{claim.unit} is at least {claim.found:.3g}, not {claim.claimed:.3g}"
    return Control(fault=fault, check=claim.part, caught=caught, told=told)


def _plain(made: Claim | Control) -> dict[str, Any]:
    return {name: getattr(made, name) for name in made.__dataclass_fields__}
