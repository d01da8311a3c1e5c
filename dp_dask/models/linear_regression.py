"""linear_regression(slopes, intercept, sigma): one bounded column explained by others, all of them clamped to their bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from dp_dask.core.wishart import NormalInverseWishart

__all__ = ["plugin"]


@dataclass(frozen=True, slots=True)
class LinearRegression:
    """response = intercept + slopes . columns + N(0, sigma^2), with predictors and response jointly normal.

    ``columns`` and ``response`` give each column its bounds, [smallest, largest]. The release is one: of all sums, squares and
    products (Bernstein & Sheldon 2019, without counting a product twice). A value at a bound is taken as clamped there, so the
    bounds should be wider than the values: a column half of whose records lie at a bound has a slope that means nothing.
    """

    columns: dict[str, tuple[float, float]]
    response: dict[str, tuple[float, float]]

    prior_type: ClassVar[type[NormalInverseWishart]] = NormalInverseWishart

    def __post_init__(self) -> None:
        if len(self.response) != 1 or not self.columns:
            msg = f"{len(self.response)} responses and {len(self.columns)} columns; give one response, and one column or more"
            raise ValueError(msg)
        if set(self.columns) & set(self.response):
            msg = "the response is among the columns that explain it"
            raise ValueError(msg)

    @property
    def bounded(self) -> dict[str, tuple[float, float]]:
        """Every column's bounds, the response last."""
        return {**self.columns, **self.response}

    @property
    def parameters(self) -> tuple[str, ...]:
        """A slope for each column, the intercept, and the standard deviation of what the columns leave open."""
        return (*(f"slope[{name}]" for name in self.columns), "intercept", "sigma")

    def expand_prior(self, given: Any) -> Any:
        """Let scales stand for the whole prior."""
        return NormalInverseWishart.expand(given, len(self.bounded))


plugin = LinearRegression
