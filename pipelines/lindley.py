"""A family of one's own: Lindley's distribution, density theta^2 / (1 + theta) (1 + x) exp(-theta x) for x >= 0."""

import numpy as np


class Lindley:
    """What dp_dask needs to know of a record; sums, noise and posterior follow from it."""

    parameters = ("theta",)
    domains = ("positive",)
    support = (0, np.inf)

    def cdf(self, x, theta):
        """P(record <= x)."""
        x = np.maximum(x, 0)
        return 1 - (1 + theta * x / (1 + theta)) * np.exp(-theta * x)

    def statistic(self, x):
        """The sufficient statistic."""
        return x

    def log_density(self, x, theta):
        """Optional: ``dp-dask check`` holds it against the cdf."""
        return 2 * np.log(theta) - np.log1p(theta) + np.log1p(x) - theta * x


class ByLogPartition(Lindley):
    """The same as an exponential family h(x) exp(eta t - A(eta)): exact moments (``pip install 'dp-dask[autodiff]'``)."""

    def natural_parameter(self, theta):
        """The factor of the statistic, eta."""
        return -theta

    def log_partition(self, eta):
        """The log of what makes the density integrate to 1, A(eta)."""
        return np.log(1 - eta) - 2 * np.log(-eta)

    def log_base_density(self, x):
        """The log of h; ``dp-dask check`` holds all parts against the cdf."""
        return np.log1p(x)
