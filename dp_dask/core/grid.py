"""Grid: the fixed-point lattice on which records are summed exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.privacy import Neighbours

__all__ = ["MAX_CELLS", "MAX_INDEX", "MAX_PRIVATE_RECORDS", "MOST_CELLS", "Grid", "check_headroom", "choose_grid", "wanted_cells"]

MAX_PRIVATE_RECORDS = 2**40  # where n is private, the headroom is proven for this many records
MAX_SUM = 2**61  # the noise keeps clear of int64's end by the other factor of four
SMALLEST_UNIT, LARGEST_UNIT = 2.0**-900, 2.0**900
MAX_INDEX = 2**50  # an index and its products with a block of rows stay exact in float64
MIN_CELLS, MAX_CELLS = 2**8, 2**12
MOST_CELLS = 2**16  # between 0 and the bounds: what inference can tabulate


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A value x becomes the integer ``clip(rint(x / unit), lower, upper) - origin``.

    ``unit`` is a power of two, so that ``x / unit`` is exact; ``lower``, ``upper`` and ``origin`` are
    grid indices. A record that contributes nothing contributes the integer 0, which is the value
    ``origin * unit``.
    """

    unit: float
    lower: int
    upper: int
    origin: int

    def __post_init__(self) -> None:
        if math.frexp(self.unit)[0] != 0.5:  # noqa: PLR2004  (frexp's mantissa of a power of two)
            msg = f"unit {self.unit!r} must be a power of two"
            raise ValueError(msg)
        if not SMALLEST_UNIT <= self.unit <= LARGEST_UNIT:
            msg = f"a width that needs a unit of {self.unit!r} is beyond what floating point sums exactly; rescale the column"
            raise ValueError(msg)
        if self.lower > self.upper:
            msg = f"lower {self.lower} is above upper {self.upper}"
            raise ValueError(msg)
        if max(abs(self.lower), abs(self.upper), abs(self.origin)) > MAX_INDEX:
            msg = "the bounds lie too far from zero for their width; subtract a public constant from the column first"
            raise ValueError(msg)

    @property
    def low(self) -> int:
        """The smallest contribution that a record can make, the zero of a null included."""
        return min(self.lower - self.origin, 0)

    @property
    def high(self) -> int:
        """The largest contribution that a record can make, the zero of a null included."""
        return max(self.upper - self.origin, 0)

    @property
    def largest(self) -> int:
        """The largest magnitude of a contribution."""
        return max(-self.low, self.high)

    def check_headroom(self, n_max: int) -> None:
        """Raise ValueError unless ``n_max`` contributions can be summed in int64 with room for the noise."""
        check_headroom(self.largest, n_max)


def check_headroom(largest: int, n_max: int) -> None:
    """Raise ValueError unless ``n_max`` integers of magnitude ``largest`` can be summed in int64 with room for the noise."""
    if n_max * largest >= MAX_SUM:
        msg = f"{n_max} records of up to {largest} units could overflow the sum; narrow the bounds or bring them nearer to zero"
        raise ValueError(msg)


def wanted_cells(n: int | None, epsilon: float) -> int:
    """Return 32 sqrt(n) epsilon, between 2^8 and 2^12, for the reason that ``choose_grid`` gives."""
    return min(max(MIN_CELLS, math.ceil(32 * math.sqrt(10_000 if n is None else n) * epsilon)), MAX_CELLS)


def choose_grid(
    bounds: Bounds,
    *,
    outside: Outside,
    neighbours: Neighbours,
    is_integer: bool,
    epsilon: float,
    n: int | None,
) -> Grid:
    """Choose unit and origin from public facts alone.

    A continuous range gets ``32 sqrt(n) epsilon`` cells, between 2^8 and 2^12: the variance that rounding
    adds, n u^2 / 12, is then at most 2e-4 of the noise's 2 (width / epsilon)^2 up to n epsilon^2 = 16,384 and about
    n epsilon^2 / 1e8 of it beyond; the likelihood models the rounding anyway. An integer column keeps unit 1
    (1/2 where the midpoint needs it) up to 2^12 cells.

    The origin is what a null counts as, and sets the sensitivity. Clamped: the point nearest to zero
    (replace: the sensitivity is the width wherever it lies), the midpoint (add_remove: half the width, the
    least there is). Truncated: zero, as published.
    """
    if is_integer:
        centred = neighbours is Neighbours.ADD_REMOVE and outside is Outside.CLAMP
        finest = 0.5 if centred and round(bounds.width) % 2 else 1.0
        cells = MAX_CELLS
    else:
        finest = 0.0
        cells = wanted_cells(n, epsilon)
    if not SMALLEST_UNIT < bounds.width < LARGEST_UNIT:
        msg = f"a width of {bounds.width!r} is beyond what floating point sums exactly; rescale the column"
        raise ValueError(msg)
    unit = max(finest, 2.0 ** math.ceil(math.log2(bounds.width / cells)))
    lower, upper = round(bounds.lower / unit), round(bounds.upper / unit)
    if outside is Outside.TRUNCATE:
        origin = 0
    elif neighbours is Neighbours.ADD_REMOVE:
        origin = (lower + upper) // 2
    else:
        origin = min(max(0, lower), upper)
    return Grid(unit=unit, lower=lower, upper=upper, origin=origin)
