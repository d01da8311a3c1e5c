"""Export to pyABC: a release seen through a simulator as an ABC-SMC problem of pyABC's, with the noise as the exact acceptance.

With the law of the privacy noise as acceptance probability there is no tolerance to choose, and the target of ABC is the
posterior given the release (Wilkinson 2013; Gong 2022): the one that ``public.simulated_infer`` draws from. Needs
``pip install 'dp-dask[pyabc]'``, which nothing else of the package does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dp_dask.core.continuous import Continuous
from dp_dask.core.joint_priors import Independent
from dp_dask.core.priors import Beta, Gamma, Normal
from dp_dask.public.noise_law import Gaussian
from dp_dask.public.possible import check_possible
from dp_dask.public.simulated import SimulatedObservation
from dp_dask.public.unknowns import Unknowns, unknowns

try:
    import pandas as pd
    import pyabc
except ImportError as error:
    msg = "pyABC is not installed: pip install 'dp-dask[pyabc]'"
    raise ImportError(msg) from error

__all__ = ["Coordinates", "Exported", "Model", "export"]

Floats = NDArray[np.float64]
SUMS = "sums"  # the one summary statistic [d]


class Coordinates(pyabc.DistributionBase):
    """A prior in unconstrained coordinates v[1] .. v[q], for parameters that depend on each other and for a private n.

    pyABC's proposals are normal, and on a simplex, say, would never hit it; every point of these coordinates is possible.
    """

    def __init__(self, asked: Unknowns) -> None:
        self.asked = asked
        self.names = tuple(f"v[{j}]" for j in range(1, asked.rvs(np.random.default_rng(0), 1).shape[1] + 1))

    def rvs(self, *_args: Any, **_kwargs: Any) -> pyabc.Parameter:
        """Draw one point."""
        return pyabc.Parameter(**dict(zip(self.names, self.asked.rvs(_generator(), 1)[0].tolist(), strict=True)))

    def pdf(self, x: pyabc.Parameter | dict[str, float]) -> float:
        """Return the normalised density at one point."""
        return float(np.exp(self.asked.log_density(np.array([[x[name] for name in self.names]])))[0])


@dataclass(frozen=True, slots=True)
class Model:
    """pyABC's model: parameters as a dictionary to the sums of one simulated data set as a dictionary.

    Where the simulator fails the sums are infinite, which no release makes likely: such a draw is rejected, as everywhere.
    """

    observation: SimulatedObservation
    prior: pyabc.Distribution | Coordinates

    def __call__(self, parameters: dict[str, float]) -> dict[str, Floats]:
        """Simulate, with a stream that NumPy's global one decides, which pyABC seeds anew on every worker."""
        theta, n = self.theta(np.array([[parameters[name] for name in self.names]]))
        made = self.observation.whole.sums(_generator(), theta, n)
        return {SUMS: np.where(made.is_whole[:, None], made.values, np.inf)[0]}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of pyABC's parameters."""
        return self.prior.names if isinstance(self.prior, Coordinates) else self.observation.simulator.parameters

    def theta(self, particles: Floats) -> tuple[Floats, NDArray[np.int64] | None]:
        """Return the simulator's parameters [k, p], and a private n [k], of pyABC's particles [k, q]."""
        if isinstance(self.prior, Coordinates):
            return self.prior.asked.theta(particles), self.prior.asked.n(particles)
        return particles, None


@dataclass(frozen=True, slots=True)
class Exported:
    """What ``pyabc.ABCSMC`` takes, in its words: ``observed`` is for its method ``new``."""

    models: Model
    parameter_priors: pyabc.Distribution | Coordinates
    distance_function: pyabc.StochasticKernel
    observed: dict[str, Floats]

    def abcsmc(self, population_size: int, **given: Any) -> pyabc.ABCSMC:
        """Make the inference, ready for ``new(database, exported.observed)`` and ``run(max_nr_populations=..)``.

        The noise is first made wider by a temperature, which the last of the populations brings to 1, the exact posterior. A run
        that ends before, by another criterion, leaves a posterior that is too wide. ``given`` goes to pyABC, a sampler for one.
        """
        return pyabc.ABCSMC(
            self.models,
            self.parameter_priors,
            self.distance_function,
            population_size=population_size,
            **{"eps": pyabc.Temperature(), "acceptor": pyabc.StochasticAcceptor()} | given,
        )

    def posterior(self, history: pyabc.History) -> pd.DataFrame:
        """Return the last population: the simulator's parameters, a private n as ``n``, and the weight ``w`` of each particle."""
        particles, weight = history.get_distribution()
        theta, n = self.models.theta(particles[list(self.models.names)].to_numpy(dtype=np.float64))
        found = pd.DataFrame(theta, columns=list(self.models.observation.simulator.parameters))
        return found.assign(**({} if n is None else {"n": n}), w=weight)


def export(observation: SimulatedObservation, prior: Any) -> Exported:
    """Make pyABC's model, prior, kernel and data of a release; raises InferenceError for one that no data set can explain.

    Independent priors of known families become a ``pyabc.Distribution`` by the parameters' names. A joint prior, and a private n,
    become ``Coordinates``, whose particles ``Exported.posterior`` turns into parameters. The kernels are of continuous laws: at
    whole numbers they are the discrete laws of the noise but for a constant, which acceptance does not see.
    """
    if observation.n is not None or observation.count is not None:
        check_possible(observation)
    asked = unknowns(observation, prior)
    independent = None if observation.draws_n else _marginals(observation.simulator.parameters, prior)
    made = Coordinates(asked) if independent is None else independent
    released = observation.released
    if observation.law is Gaussian:
        kernel = pyabc.IndependentNormalKernel(np.full(len(released), observation.scale**2), keys=[SUMS])
    else:
        kernel = pyabc.IndependentLaplaceKernel(np.full(len(released), observation.scale), keys=[SUMS])
    return Exported(Model(observation, made), made, kernel, {SUMS: released})


def _generator() -> np.random.Generator:
    return np.random.default_rng(np.random.randint(2**32, size=4, dtype=np.uint32))  # noqa: NPY002  (pyABC's own stream)


def _marginals(names: tuple[str, ...], prior: Any) -> pyabc.Distribution | None:
    """Return the prior as pyABC's, None where it is joint or of a family that scipy.stats does not name."""
    priors = prior.priors if isinstance(prior, Independent) else (prior,)
    found = [_variable(each) for each in priors]
    if len(found) != len(names) or None in found:
        return None
    return pyabc.Distribution(dict(zip(names, found, strict=True)))


def _variable(prior: Any) -> pyabc.RV | None:
    if isinstance(prior, Beta):
        return pyabc.RV("beta", prior.alpha, prior.beta)
    if isinstance(prior, Gamma):
        return pyabc.RV("gamma", prior.alpha, scale=1 / prior.beta)
    if isinstance(prior, Normal):
        return pyabc.RV("norm", prior.mu, prior.sigma)
    if isinstance(prior, Continuous):
        frozen = prior.distribution
        name = frozen.dist.name
        if type(getattr(stats, name, None)) is type(frozen.dist):  # no user's own of the same name
            return pyabc.RV(name, *frozen.args, **frozen.kwds)
    return None
