"""Faulty noise: what other code adds, planted here so that the attacks show that they would see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dp_dask.gate.noise import OpenDPNoise

__all__ = ["Broadcast", "FloatingPoint", "Weak"]

FACTOR = 0.7
SEED = 1


class Weak(OpenDPNoise):
    """Noise that is 30 % too small."""

    def add_discrete_laplace(self, values: Sequence[int], scale: float) -> list[int]:
        """Add too little."""
        return super().add_discrete_laplace(values, FACTOR * scale)

    def add_discrete_gaussian(self, values: Sequence[int], scale: float) -> list[int]:
        """Add too little."""
        return super().add_discrete_gaussian(values, FACTOR * scale)


class Broadcast(OpenDPNoise):
    """One draw for two coordinates (the code published with Bernstein & Sheldon 2018 adds one to all)."""

    def add_discrete_laplace(self, values: Sequence[int], scale: float) -> list[int]:
        """Add a draw to every second value and to the next one."""
        drawn = super().add_discrete_laplace([0] * len(values), scale)
        return [value + drawn[i - i % 2] for i, value in enumerate(values)]


@dataclass(frozen=True, slots=True)
class FloatingPoint:
    """Laplace noise in floating point from a seeded generator: its last bits tell what it was added to (Mironov 2012)."""

    rng: np.random.Generator
    sampler: str = "insecure"

    @classmethod
    def make(cls) -> FloatingPoint:
        """Make it from the one seed."""
        return cls(np.random.default_rng(SEED))

    def add_discrete_laplace(self, values: Sequence[int], scale: float) -> Any:
        """Add numbers that are not whole."""
        return [float(each) for each in np.asarray(values) + self.rng.laplace(0, scale, len(values))]

    def add_discrete_gaussian(self, values: Sequence[int], scale: float) -> Any:
        """Add numbers that are not whole."""
        return [float(each) for each in np.asarray(values) + self.rng.normal(0, scale, len(values))]

    def lowest_with_gumbel(self, values: Sequence[int], c: int, scale: float) -> list[int]:
        """Choose by floating point."""
        return [int(i) for i in np.argsort(np.asarray(values) - self.rng.gumbel(0, scale, len(values)))[:c]]
