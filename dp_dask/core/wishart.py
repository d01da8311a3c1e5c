"""The normal-inverse-Wishart prior of a multivariate normal, and coordinates in which it is almost a standard normal one."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["NormalInverseWishart"]

Floats = NDArray[np.float64]
FARTHEST = 18.0  # in log b_ii: less than 1e-7 of any proper prior lies beyond, where V is held fixed


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalInverseWishart:
    """V ~ InverseWishart(psi0, nu0), m | V ~ N(m0, V / k0), on the scale on which every column's bounds are -1 and 1.

    ``psi0 / (nu0 - c - 1)`` is the prior mean of V. Raises ValueError for an improper prior. Parametrised as in
    Murphy, "Conjugate Bayesian analysis of the Gaussian distribution" (2007), section 9.
    """

    m0: tuple[float, ...]
    k0: float
    psi0: tuple[tuple[float, ...], ...]
    nu0: float

    def __post_init__(self) -> None:
        c = len(self.m0)
        psi0 = np.array(self.psi0, dtype=np.float64)
        if not all(map(math.isfinite, self.m0)) or c == 0:
            msg = f"m0 is {self.m0}; it must hold one finite number for each column"
            raise ValueError(msg)
        if not (math.isfinite(self.k0) and self.k0 > 0):
            msg = f"k0 is {self.k0}; it must be a positive number of prior records (an improper prior is not supported)"
            raise ValueError(msg)
        if psi0.shape != (c, c) or not np.isfinite(psi0).all() or not np.array_equal(psi0, psi0.T):
            msg = f"psi0 must be a symmetric {c} x {c} matrix of finite numbers"
            raise ValueError(msg)
        if np.linalg.eigvalsh(psi0)[0] <= 1e-12 * np.trace(psi0):
            msg = "psi0 must be positive definite (an improper prior is not supported)"
            raise ValueError(msg)
        if not (math.isfinite(self.nu0) and self.nu0 > c - 1):
            msg = f"nu0 is {self.nu0}; for {c} columns it must be above {c - 1} (an improper prior is not supported)"
            raise ValueError(msg)

    @classmethod
    def scaled(cls, c: int, *, mean_scale: float, sd_scale: float, nu0: float) -> NormalInverseWishart:
        """Return the prior whose means are about 0 +- mean_scale and whose sds are about sd_scale, all columns uncorrelated.

        E[V] = sd_scale^2 I, and the mean's covariance is mean_scale^2 I; nu0, above c + 1, is how many records E[V] is worth.
        """
        if not nu0 > c + 1:
            msg = f"nu0 is {nu0}; for {c} columns it must be above {c + 1}, for the covariance to have a prior mean"
            raise ValueError(msg)
        psi0 = np.eye(c) * sd_scale**2 * (nu0 - c - 1)
        return cls(m0=(0.0,) * c, k0=(sd_scale / mean_scale) ** 2, psi0=tuple(map(tuple, psi0.tolist())), nu0=nu0)

    @classmethod
    def expand(cls, given: Any, c: int) -> Any:
        """Return an entry of scales, {mean_scale, sd_scale, nu0}, as one of m0, k0, psi0, nu0; any other as it is."""
        if not isinstance(given, dict) or set(given) != {"mean_scale", "sd_scale", "nu0"}:
            return given
        scales = {name: float(value) for name, value in given.items()}
        if not all(math.isfinite(value) and value > 0 for value in scales.values()):
            msg = "mean_scale, sd_scale and nu0 must be positive finite numbers, on the scale on which the bounds are -1 and 1"
            raise ValueError(msg)
        made = cls.scaled(c, **scales)
        return {field.name: getattr(made, field.name) for field in fields(made)}

    @property
    def size(self) -> int:
        """The number of coordinates, c + c (c + 1) / 2."""
        c = len(self.m0)
        return c + c * (c + 1) // 2

    def parameters(self, phi: Floats) -> tuple[Floats, Floats]:
        """Return m [k, c] and V [k, c, c] at coordinates phi [k, size].

        phi holds z, log b_ii, b_ij (i > j): m = m0 + V^(1/2) z / sqrt(k0), and Bartlett's decomposition of the Wishart
        matrix V^-1 = U^-T B B^T U^-1, psi0 = U U^T. A priori z and b_ij are N(0, 1) and b_ii^2 ~ chi^2(nu0 - i), i = 0, ..
        """
        m, root = self.mean_and_root(phi)
        return m, root.transpose(0, 2, 1) @ root

    def mean_and_root(self, phi: Floats) -> tuple[Floats, Floats]:
        """Return m [k, c] and a root [k, c, c] of V = root^T root."""
        root = self._root(phi)
        return np.array(self.m0) + (phi[:, None, : len(self.m0)] @ root)[:, 0] / math.sqrt(self.k0), root

    def centred(self, phi: Floats) -> Floats:
        """Return phi with z replaced by (m - m0) / (its prior scale), whose posterior is the rounder one where data are many.

        The density of these coordinates is that of phi times the product of the b_ii, up to a constant.
        """
        c = len(self.m0)
        away = (phi[:, None, :c] @ self._root(phi))[:, 0] / math.sqrt(self.k0)
        return np.concatenate([away / self._mean_scale, phi[:, c:]], axis=1)

    def uncentred(self, chi: Floats) -> Floats:
        """Return phi at centred coordinates."""
        c = len(self.m0)
        inverse = np.linalg.inv(np.linalg.cholesky(np.array(self.psi0)))
        away = (self._mean_scale * chi[:, :c]) @ inverse.T * math.sqrt(self.k0)
        return np.concatenate([(away[:, None, :] @ self._bartlett(chi))[:, 0], chi[:, c:]], axis=1)

    def log_density(self, phi: Floats) -> Floats:
        """Return the log density of the coordinates [k], up to a constant."""
        c = len(self.m0)
        logs, normal = phi[:, c : 2 * c], np.delete(phi, range(c, 2 * c), axis=1)
        return logs @ (self.nu0 - np.arange(c)) - 0.5 * (np.exp(2 * np.minimum(logs, 300)).sum(axis=1) + (normal**2).sum(axis=1))

    def rvs(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw coordinates [size, self.size]."""
        c = len(self.m0)
        phi = rng.standard_normal((size, self.size))
        phi[:, c : 2 * c] = 0.5 * np.log(np.maximum(rng.chisquare(self.nu0 - np.arange(c), (size, c)), 1e-300))
        return phi

    def _bartlett(self, phi: Floats) -> Floats:
        c = len(self.m0)
        b = np.zeros((len(phi), c, c))
        i, j = np.tril_indices(c, -1)
        b[:, range(c), range(c)] = np.exp(np.clip(phi[:, c : 2 * c], -FARTHEST, FARTHEST))
        b[:, i, j] = phi[:, 2 * c : self.size]
        return b

    def _root(self, phi: Floats) -> Floats:
        """Return V^(1/2)^T = B^-1 U^T [k, c, c]."""
        b = self._bartlett(phi)
        return np.linalg.solve(b, np.broadcast_to(np.linalg.cholesky(np.array(self.psi0)).T, b.shape))

    @property
    def _mean_scale(self) -> Floats:
        """The typical prior distance of m from m0 [c], at V = psi0 / nu0."""
        return np.sqrt(np.diagonal(np.array(self.psi0)) / (self.nu0 * self.k0))
