"""Attacks on released sums: the additive release itself, a hundred thousand coordinates at a time, each with noise of its own.

Counts of many categories are one release with one scale. Between neighbours one of them moves by one, or two do, and what
that does to one coordinate, or to two beside each other, is seen in all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dp_dask.audit.attack import Attack, Event, Pair
from dp_dask.audit.bounds import epsilon_bound, rho_bound
from dp_dask.core.categories import MOST_CATEGORIES, CategoryCounts
from dp_dask.core.privacy import Loss, Neighbours, Unit
from dp_dask.core.release import Request
from dp_dask.core.sensitive import Sensitive
from dp_dask.core.statistic import Total
from dp_dask.gate.additive import release
from dp_dask.gate.noise import Noise, OpenDPNoise, meaning

__all__ = ["additive_attacks", "noise_is_new"]

EPSILON = Loss(Unit.EPSILON, Decimal(1))
RHO = Loss(Unit.RHO, Decimal(1))
DELTA = Decimal("0.01")
BLOCK = MOST_CATEGORIES
BITS = 53  # beyond the last bit of a number from 1/2 on: only a float that was added to nothing has more


def additive_attacks(noise: Callable[[], Noise] = OpenDPNoise) -> list[Attack]:
    """Attack both laws on one coordinate, and discrete Laplace on two: two draws that are one would be seen there."""
    one = _pair(noise, EPSILON, Neighbours.ADD_REMOVE, ((0,), (1,)))
    two = _pair(noise, EPSILON, Neighbours.REPLACE, ((0, 0), (1, -1)))
    gaussian = _pair(noise, RHO, Neighbours.ADD_REMOVE, ((0,), (1,)))
    told = meaning(Unit.RHO, RHO.amount, DELTA).epsilon or 0.0
    epsilon, rho = float(EPSILON.amount), float(RHO.amount)
    at = f"discrete Gaussian, rho {RHO.amount}"
    return [
        Attack("discrete Laplace", epsilon, "epsilon", epsilon_bound(), (one,)),
        Attack("discrete Laplace, two sums", epsilon, "epsilon", epsilon_bound(), (two,), 0.5),
        Attack(at, rho, "rho", rho_bound, (gaussian,)),
        Attack(f"{at}, delta {DELTA}", told, "epsilon", epsilon_bound(float(DELTA)), (gaussian,)),
    ]


def noise_is_new(make: Callable[[], Noise] = OpenDPNoise) -> bool:
    """Tell whether noise that is made anew is other noise: 5 draws at a scale of 2^40 are equal with probability below 2^-200."""
    first, second = (make().add_discrete_laplace([0] * 5, 2.0**40) for _ in range(2))
    return list(first) != list(second)


def _pair(make: Callable[[], Noise], loss: Loss, neighbours: Neighbours, sides: tuple[tuple[int, ...], tuple[int, ...]]) -> Pair:
    width = len(sides[0])
    noise = make()

    def draw(is_second: bool, n: int) -> NDArray[np.float64]:  # noqa: FBT001
        return np.concatenate(
            [_released(noise, loss, neighbours, sides[is_second], m).reshape(-1, width) for m in _blocks(n, width)]
        )

    return Pair(draw, _events(width))


def _blocks(n: int, width: int) -> list[int]:
    most = BLOCK // width
    return [min(most, n - start) for start in range(0, n, most)]


def _released(noise: Noise, loss: Loss, neighbours: Neighbours, side: tuple[int, ...], n: int) -> NDArray[np.float64]:
    """Release counts [n, width] that are all alike."""
    counts = side * max(n, 2)
    statistic = CategoryCounts(column="x", categories=tuple(range(len(counts))))
    is_public = neighbours is Neighbours.REPLACE
    request = Request(
        dataset="made-up",
        statistic=statistic,
        neighbours=neighbours,
        n=1 if is_public else None,
        epsilon=loss.amount if loss.unit is Unit.EPSILON else None,
        rho=loss.amount if loss.unit is Unit.RHO else None,
    )
    [made] = release(Sensitive(Total(counts, 1)), [request], noise)
    return np.array(made.noisy_sums[: n * len(side)], dtype=np.float64)


def _events(width: int) -> dict[str, Event]:
    """A sum is at most t; of two, the one is low and the other high, or both have moved alike; a sum has bits of its own."""
    found: dict[str, Event] = {f"sum <= {t}": partial(_both, low=t) for t in range(-4, 5)}
    found["sum is finer than its last bit can be"] = lambda y: np.ldexp(y[:, 0], BITS) % 1 != 0
    if width > 1:
        found |= {f"first <= {t} and second >= {-t}": partial(_both, low=t, high=-t) for t in range(-2, 3)}
        found["both have the same noise"] = lambda y: y[:, 0] == y[:, 1]
    return found


def _both(y: NDArray[np.float64], low: int, high: int | None = None) -> NDArray[np.bool_]:
    return (y[:, 0] <= low) & (True if high is None else y[:, 1] >= high)
