"""Dirichlet draws that stay right for tiny concentrations."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dp_dask.errors import InferenceError

__all__ = ["dirichlet"]

Floats = NDArray[np.float64]
SMALLEST = 1e-300


def dirichlet(rng: np.random.Generator, alpha: Floats) -> Floats:
    """Draw probabilities [..., K], independently for each alpha [..., K]; the last axis adds up to 1.

    Gamma variables are drawn in logs: where alpha < 1, Gamma(alpha) = Gamma(alpha + 1) U^(1 / alpha) (Marsaglia & Tsang 2000,
    section 6), which could underflow to 0 in every cell at once. Raises InferenceError unless every alpha is in [1e-300, inf).
    """
    if not (np.isfinite(alpha).all() and (alpha >= SMALLEST).all()):
        msg = f"alpha from {alpha.min():g} to {alpha.max():g}: every one must be finite and at least {SMALLEST:g}"
        raise InferenceError(msg)
    is_small = alpha < 1
    log_gamma = np.log(rng.standard_gamma(alpha + is_small))
    log_gamma[is_small] -= rng.standard_exponential(int(is_small.sum())) / alpha[is_small]
    log_gamma -= log_gamma.max(axis=-1, keepdims=True)
    p = np.exp(log_gamma, out=log_gamma)
    p /= p.sum(axis=-1, keepdims=True)
    return p
