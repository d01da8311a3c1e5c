"""``python -m dp_dask``."""

from dp_dask.cli import main

main()
