"""dp_dask: differentially private Bayesian posteriors from records on a Dask cluster, honest about their noise."""

__version__ = "0.1.0"
