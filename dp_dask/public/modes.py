"""The modes of a smooth log density of two coordinates, and the shape of each, in few calls on many points.

Every start walks by itself: thirteen points around it are fitted by a quadratic, its maximum is the next centre, and its
curvature the next shape, so that a ridge a thousand times longer than wide is walked along in a few steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp_dask.errors import InferenceError

__all__ = ["Box", "LogDensity", "Mode", "evaluate", "find_modes"]

Floats = NDArray[np.float64]
LogDensity = Callable[[Floats], Floats]  # v [k, 2] -> [k], up to a constant
MOST_STARTS = 6
APART = 0.05  # of the box: starts nearer than that are alike
FIRST_SHAPE = 0.03  # of the box
MOST_STEPS = 40
LONGEST_STEP = 8.0  # in units of the shape
SHRINK, GROW = 1 / 8, 4.0  # of the shape in one step
LEAST_RIDGE = 1e-12  # of the normal equations' trace
SMALLEST = 1e-13  # of the box: the least an axis of a shape may have
RECENTRE = 0.1  # nats that a centre may be below the best point
angle = np.arange(8) * np.pi / 4
DESIGN = np.concatenate(
    [[[0, 0]], 0.7 * np.array([[1, 0], [0, 1], [-1, 0], [0, -1]]), 1.6 * np.stack([np.cos(angle), np.sin(angle)], axis=1)]
)


@dataclass(frozen=True, slots=True)
class Box:
    """The rectangle outside which the prior holds nothing that counts."""

    low: Floats  # [2]
    high: Floats

    @property
    def size(self) -> Floats:
        """Its two sides."""
        return self.high - self.low

    def contains(self, v: Floats) -> NDArray[np.bool_]:
        """Mark the points [k, 2] inside."""
        return np.asarray(((v >= self.low) & (v <= self.high)).all(axis=1))


@dataclass(frozen=True, slots=True)
class Mode:
    """A maximum; the log density is about value - |u|^2 / 2 at point + shape @ u."""

    point: Floats  # [2]
    value: float
    shape: Floats  # [2, 2]


def evaluate(log_density: LogDensity, v: Floats) -> Floats:
    """Return log_density(v); raises InferenceError where it is NaN or +inf."""
    values = np.asarray(log_density(v), dtype=np.float64)
    if np.isnan(values).any() or (values == np.inf).any():
        msg = "the log posterior is not a number somewhere under the prior; look at the bounds, n and the prior"
        raise InferenceError(msg)
    return values


def find_modes(log_density: LogDensity, box: Box, starts: Floats) -> tuple[list[Mode], Floats, Floats]:
    """Return the modes reached from the best of the starts [s, 2], best first, and every point [k, 2] seen with its value [k].

    Raises InferenceError where the density is zero at every start.
    """
    starts = np.clip(starts, box.low, box.high)
    values = evaluate(log_density, starts)
    if not np.isfinite(values).any():
        msg = "the likelihood of this release is not finite anywhere under the prior; look at the bounds, n and the prior"
        raise InferenceError(msg)
    seen, seen_values = [starts], [values]
    best = starts[_distinct(starts / box.size, values)]
    best_value = np.full(len(best), -np.inf)
    centre, shape = best.copy(), np.broadcast_to(np.diag(FIRST_SHAPE * box.size), (len(best), 2, 2)).copy()
    is_done = np.zeros(len(best), dtype=bool)
    todo = np.arange(len(best))
    for _ in range(MOST_STEPS):
        points = np.clip(centre[todo, None] + DESIGN @ shape[todo].transpose(0, 2, 1), box.low, box.high)
        found = evaluate(log_density, points.reshape(-1, 2)).reshape(len(todo), -1)
        seen.append(points.reshape(-1, 2))
        seen_values.append(found.ravel())
        top = found.argmax(axis=1)
        top_value = found[np.arange(len(todo)), top]
        is_better = top_value > best_value[todo]
        best[todo[is_better]] = points[is_better, top[is_better]]
        best_value[todo] = np.maximum(best_value[todo], top_value)
        step, turned, is_settled = _fit(points - centre[todo, None], found, shape[todo])
        is_lost = (top_value < best_value[todo] - RECENTRE) | ~np.isfinite(top_value)
        centre[todo] = np.where(is_lost[:, None], best[todo], centre[todo] + step)
        shape[todo] = np.where(is_lost[:, None, None], shape[todo] / 2, _within(turned, box))
        is_done[todo] = is_settled & ~is_lost
        todo = np.flatnonzero(~is_done & _are_apart(best, best_value, shape, is_done))
        if len(todo) == 0:
            break
    left = np.flatnonzero(_are_apart(best, best_value, shape, np.isfinite(best_value)))
    modes = [Mode(best[i], float(best_value[i]), shape[i]) for i in left[np.argsort(-best_value[left])]]
    return modes, np.concatenate(seen), np.concatenate(seen_values)


def _distinct(places: Floats, values: Floats) -> NDArray[np.intp]:
    """Choose up to six starts: the best one, then the best of those not near a chosen one."""
    left = values.copy()
    chosen: list[int] = []
    while len(chosen) < MOST_STARTS and np.isfinite(left).any():
        chosen.append(int(left.argmax()))
        left[np.abs(places - places[chosen[-1]]).max(axis=1) < APART] = -np.inf
    return np.array(chosen)


def _fit(offsets: Floats, values: Floats, shape: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Fit quadratics by weighted least squares; return the step to each maximum, the next shape, and whether it has settled."""
    u = np.linalg.solve(shape[:, None], offsets[..., None])[..., 0]
    y = values - np.maximum(values.max(axis=1, keepdims=True), -1e300)
    lowest = np.where(np.isfinite(y), y, 0).min(axis=1, keepdims=True)
    y = np.maximum(y, 2 * lowest - 10)  # zero density
    # Points far below the best weigh little, but enough to lead a start that is far from everything.
    weight = 1 / (1 + np.abs(y) / (1 + np.median(np.abs(y), axis=1, keepdims=True) / 4))
    x1, x2 = u[..., 0], u[..., 1]
    design = np.stack([np.ones_like(x1), x1, x2, x1 * x1 / 2, x1 * x2, x2 * x2 / 2], axis=-1) * weight[..., None]
    normal = design.transpose(0, 2, 1) @ design
    normal += (LEAST_RIDGE * np.trace(normal, axis1=1, axis2=2))[:, None, None] * np.eye(6)
    c = np.linalg.solve(normal, design.transpose(0, 2, 1) @ (weight * y)[..., None])[..., 0]
    bend, axes = np.linalg.eigh(np.stack([c[:, [3, 4]], c[:, [4, 5]]], axis=1))
    slope = (axes.transpose(0, 2, 1) @ c[:, 1:3, None])[..., 0]
    curvature = np.maximum(-bend, 1 / GROW**2)
    step = slope / curvature
    length = np.linalg.norm(step, axis=1)
    step *= np.minimum(1, LONGEST_STEP / np.maximum(length, 1e-300))[:, None]
    factor = np.clip(curvature**-0.5, SHRINK, GROW)
    is_settled = (length < 0.25) & (np.abs(np.log(factor)) < 0.5).all(axis=1)  # noqa: PLR2004
    turned = shape @ axes * factor[:, None, :]
    return (shape @ axes @ step[..., None])[..., 0], turned, is_settled


def _within(shape: Floats, box: Box) -> Floats:
    """Shrink each axis of a shape that is longer than a quarter of the box; lengthen one that is lost in its digits."""
    longest = np.abs(shape / box.size[:, None]).max(axis=1, keepdims=True)
    return shape / np.maximum(4 * longest, 1) * np.maximum(SMALLEST / np.maximum(longest, SMALLEST**2), 1)


def _are_apart(points: Floats, values: Floats, shapes: Floats, of: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mark the points that are not within one unit of a better one among ``of``, in that one's shape."""
    units = np.linalg.norm(np.linalg.solve(shapes[None], (points[:, None] - points)[..., None])[..., 0], axis=2)
    order = np.arange(len(values))
    is_better = (values > values[:, None]) | ((values == values[:, None]) & (order < order[:, None]))
    return ~((units < 1) & is_better & of).any(axis=1)
